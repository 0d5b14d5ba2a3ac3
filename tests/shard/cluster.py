"""Some shards, and a relay between them that loses, doubles and reorders what it carries."""

from collections.abc import Iterator
from random import Random
from typing import Final, TypeAlias

import msgspec

from corvo.kv import keys
from corvo.model import Job, Outgoing
from corvo.placement import shard_of_queue
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.jobs import Done, Move
from corvo.shard.ops.transfer import Delivered, Receive, Received, ReceivedMany, ReceiveMany
from corvo.shard.state import outbox, presence
from corvo.shard.state.outbox import Arrival
from corvo.shard.state.tables import FORWARDS, JOBS
from corvo.verify.members import MemberCounts
from corvo.verify.report import Part
from corvo.verify.shards import Together, verify_shard, verify_together
from corvo.verify.states import OpenState
from tests.shard.shard import EVERYTHING, Shard

SHARDS: Final = 3
QUEUES: Final = (("sms", "note"), ("mail", "video"), ("push", "bill"))
"""Two queues of each shard."""

Name: TypeAlias = tuple[int, str]
"""A job: where it was born, and its id, which is unique there only."""

_receive: Final = msgspec.json.Decoder(Receive).decode
_outgoing: Final = msgspec.msgpack.Decoder(Outgoing).decode


def home_of(queue: str) -> int:
    return shard_of_queue(queue, SHARDS)


class Cluster:
    """Shards, each with its own clock, and every message that was ever on its way."""

    def __init__(self, shards: int = SHARDS) -> None:
        self.shards = [Shard(number=number, shards=shards) for number in range(shards)]
        self.sent: list[tuple[int, Outgoing]] = []
        """By source; the relay may bring any of them at any time, also for the second time."""
        self.taken: dict[tuple[int, int], list[int]] = {}
        """By source and target: the numbers of the effects that were taken, as they were."""

    def check_together(self) -> None:
        """Assert that each shard is whole, and that what they say of each other fits."""
        states = {
            shard.number: OpenState(shard.store, shard.machine.applied, is_current=True)
            for shard in self.shards
        }
        together = Together(states, shards=len(self.shards))
        together.look()
        part = Part("shards")
        with MemberCounts() as members:
            for number, state in states.items():
                verify_shard(number, state, together, members, part, lambda _: None)
            verify_together(together, members, part)
        assert not part.damage, part.damage
        assert not part.unchecked, part.unchecked

    # The relay.

    def look(self) -> None:
        """Let the relay know of everything that is in an outbox."""
        for source, shard in enumerate(self.shards):
            for row in self.outbox(shard):
                if (source, row) not in self.sent:
                    self.sent.append((source, row))

    def bring(self, source: int, rows: list[Outgoing]) -> int | Rejected:
        """Bring effects to their shard; the last one that it has taken."""
        target = rows[0].shard
        ops = [_receive(row.body) for row in rows]
        assert [(op.source, op.seq) for op in ops] == [(source, row.seq) for row in rows]
        [answer] = self.shards[target].entry(ops[0] if len(ops) == 1 else ReceiveMany(effects=ops))
        if answer.code:
            return msgspec.json.decode(answer.body, type=Rejected)
        before = self.taken.setdefault((source, target), [])
        if len(ops) == 1:
            received = msgspec.json.decode(answer.body, type=Received)
            before += [received.seq] if received.status == "taken" else []
            return received.seq
        many = msgspec.json.decode(answer.body, type=ReceivedMany)
        before += [row.seq for row in rows][len(rows) - many.taken :]
        return many.seq

    def relay(self) -> int:
        """Bring the next effect of each shard to each other one and tell; how many there were."""
        count = 0
        for source, shard in enumerate(self.shards):
            for row in self.firsts(shard):
                seq = self.bring(source, [row])
                assert seq == row.seq
                shard.do(Delivered(shard=row.shard, seq=row.seq))
                count += 1
        return count

    def settle(self) -> None:
        """Relay until nothing is on its way."""
        for _ in range(EVERYTHING):
            if not self.relay():
                return

    def restart(self, number: int) -> None:
        """A shard forgets what it has in memory only."""
        self.shards[number].reopen()

    def stray(self, random: Random) -> None:
        """Bring any message that there ever was, and perhaps tell its shard."""
        self.look()
        if not self.sent:
            return
        # Mostly late ones: the early ones were taken long ago.
        back = int(len(self.sent) * random.random() ** 3)
        source, row = self.sent[-1 - back]
        size = random.choice((1, 1, 2, 5))
        rows = [
            other
            for at, other in self.sent
            if (at, other.shard) == (source, row.shard) and row.seq <= other.seq < row.seq + size
        ]
        taken = self.bring(source, sorted(rows, key=lambda each: each.seq))
        if isinstance(taken, int) and random.random() < 0.6:
            self.shards[source].do(Delivered(shard=row.shard, seq=taken))

    # Looking.

    def outbox(self, shard: Shard) -> list[Outgoing]:
        """Everything in a shard's outbox."""
        return [_outgoing(value) for _, value in shard.rows(keys.OUTBOX)]

    def firsts(self, shard: Shard) -> list[Outgoing]:
        """The first effect in a shard's outbox for each other shard."""
        firsts: dict[int, Outgoing] = {}
        for row in self.outbox(shard):
            firsts.setdefault(row.shard, row)
        return list(firsts.values())

    def live(self) -> Iterator[tuple[int, Job]]:
        """Every job that is there for an op, and the shard it is in."""
        for number, shard in enumerate(self.shards):
            for job in shard.documents(JOBS):
                if presence.find(shard.tx, job.id) is not None:
                    yield number, job

    def in_transit(self) -> Iterator[Job]:
        """Every job that left a shard and has not come to the next one."""
        for source, shard in enumerate(self.shards):
            for row in self.outbox(shard):
                if row.seq > outbox.last_taken(self.shards[row.shard].tx, source):
                    effect = _receive(row.body).effect
                    if isinstance(effect, Arrival):
                        yield effect.job

    def where(self, name: Name) -> list[int]:
        """The shards in which a job is live."""
        return [number for number, job in self.live() if named(number, job) == name]

    def job(self, name: Name) -> Job:
        """A job that is live in one shard."""
        [job] = [job for number, job in self.live() if named(number, job) == name]
        return job

    def move(self, name: Name, queue: str, *, reset_attempts: bool = False) -> Done | Rejected:
        """Move a job from where it is live."""
        [shard] = self.where(name)
        op = Move(job_ids=[name[1]], queue=queue, reset_attempts=reset_attempts, by="ann")
        [result] = self.shards[shard].do(op).results
        return result

    # What must hold.

    def check_conserved(self, alive: set[Name]) -> None:
        """Each job is live in one shard or on its way to one, and its home knows of it."""
        live = [named(number, job) for number, job in self.live()]
        transit = [(job.born_in, job.id) for job in self.in_transit()]
        assert sorted([*live, *transit]) == sorted(alive)
        for number, job in self.live():
            if job.born_in >= 0:
                assert job.born_in != number
                assert self.forward((job.born_in, job.id)) is not None
        for job in self.in_transit():
            assert self.forward((job.born_in, job.id)) is not None

    def check_settled(self, alive: set[Name]) -> None:
        """Nothing is on its way, nothing is left over, and every address is right."""
        self.check_conserved(alive)
        assert [self.outbox(shard) for shard in self.shards] == [[]] * len(self.shards)
        addresses = {
            (number, forward.id): forward.shard
            for number, shard in enumerate(self.shards)
            for forward in shard.documents(FORWARDS)
        }
        assert addresses == {
            (job.born_in, job.id): number for number, job in self.live() if job.born_in >= 0
        }
        for (source, target), numbers in self.taken.items():
            assert numbers == list(range(1, len(numbers) + 1)), "each once, and in order"
            assert outbox.last_given(self.shards[source].tx, target) == len(numbers)
        for shard in self.shards:
            shard.check()

    def forward(self, name: Name) -> int | None:
        """Where a job's home says that it is."""
        forward = FORWARDS.get(self.shards[name[0]].tx, name[1])
        return forward.shard if forward is not None else None


def named(shard: int, job: Job) -> Name:
    return (job.born_in if job.born_in >= 0 else shard, job.id)
