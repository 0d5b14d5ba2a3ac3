"""Shards that relay their effects, over links that lose, double and reorder what they carry."""

from random import Random

import msgspec

from corvo.model import Outgoing
from corvo.protocol import wire
from corvo.protocol.ops.base import Limits, Rejected
from corvo.protocol.queries import EffectsTaken
from corvo.shard.ops import admit
from corvo.shard.ops.transfer import (
    BeginEpoch,
    Receive,
    ReceivedMany,
    ReceiveMany,
    Renumber,
    Skip,
)
from corvo.shard.relaying import Batch, Relaying
from corvo.shard.state import epochs, outbox
from tests.shard.cluster import SHARDS, Cluster
from tests.shard.shard import EVERYTHING


def taken(seq: int) -> wire.Reply:
    """A shard has taken the effects of another up to one."""
    return wire.Reply(1, "", msgspec.json.encode(ReceivedMany(0, seq, 1)))


def refused(code: str = "disk_full", error: str = "no room") -> wire.Reply:
    """A shard refuses a batch."""
    return wire.Reply(1, code, msgspec.json.encode(Rejected(code, error)))


def effects_of(batch: Batch) -> list[Receive]:
    """The effects in a batch, as the other shard's door lets them in."""
    op = admit(batch.op, batch.body, Limits(), private=True)
    assert isinstance(op, Receive | ReceiveMany)
    return [op] if isinstance(op, Receive) else op.effects


class Carried(msgspec.Struct):
    """A batch on its way, or the answer to it on its way back."""

    source: int
    life: int  # of the source's process
    batch: Batch
    answer: wire.Answer | None = None

    def answered(self, answer: wire.Answer) -> "Carried":
        """The answer to it."""
        return Carried(self.source, self.life, self.batch, answer)


class Asked(msgspec.Struct):
    """The question of a shard, which effects another one has taken: on its way, or answered."""

    source: int
    life: int
    target: int
    answer: EffectsTaken | None = None
    skip: Skip | None = None  # on its way to the target


class Links(Cluster):
    """Shards that relay effects by themselves, over links that lose, double and reorder them."""

    def __init__(self) -> None:
        super().__init__()
        for shard in self.shards:
            shard.do(BeginEpoch())
        self.relaying = [self._new() for _ in self.shards]
        self.lives = [0] * SHARDS
        self.carried: list[Carried] = []
        self.paused: list[Carried] = []
        self.asked: list[Asked] = []
        self.got: dict[tuple[int, int], list[Receive]] = {}
        """By source and target: the effects that were taken, as they were."""
        self.counts = dict.fromkeys(("batches", "lost", "doubled", "refused", "restarts"), 0)

    def _new(self) -> Relaying:
        """Of a process that has just begun, with small batches, so that there are many."""
        return Relaying(batch_effects=2, window_batches=3)

    # The dumb twin: what was ever given, in order.

    def given(self, source: int, target: int) -> list[Receive]:
        rows = [row for at, row in self.sent if (at, row.shard) == (source, target)]
        return [msgspec.json.decode(row.body, type=Receive) for row in rows]

    def compare(self) -> None:
        """What was taken is the beginning of what was given."""
        for (source, target), got in self.got.items():
            assert got == self.given(source, target)[: len(got)]

    # A step.

    def stray(self, random: Random) -> None:
        """Some things happen to links, and to what is on them."""
        for _ in range(random.randrange(8)):
            self.look()
            for number in range(SHARDS):
                self.send(number)
            acts = (self.arrive, self.lose, self.link, self.resume, self.ask)
            [act] = random.choices(acts, (12, 1, 3, 3, 3))
            act(random)
        self.compare()

    def send(self, number: int) -> None:
        """A leader works."""
        due = self.relaying[number].due(self.shards[number].tx)
        if due is None:
            return
        for batch in due.batches:
            self.counts["batches"] += len(effects_of(batch)) > 1
            self.carried.append(Carried(number, self.lives[number], batch))
        for op in due.removals:
            self.shards[number].do(op)
            self.relaying[number].removed(op.shard)

    def arrive(self, random: Random) -> None:
        """Anything on its way arrives, and perhaps once more later."""
        if not self.carried:
            return
        one = random.choice(self.carried)
        if random.random() < 0.8:
            self.carried.remove(one)
        else:
            self.counts["doubled"] += 1
        if one.answer is None:
            refusals: list[wire.Answer] = [wire.Busy(1, 5), wire.NotLeader(1, None), refused()]
            is_refused = random.random() < 0.1
            answer = random.choice(refusals) if is_refused else self.take(one)
            self.counts["refused"] += is_refused
            self.carried.append(one.answered(answer))
        elif one.life == self.lives[one.source]:
            self.hear(one)

    def take(self, one: Carried) -> wire.Answer:
        """The target takes a batch."""
        target = one.batch.shard
        op = admit(one.batch.op, one.batch.body, Limits(), private=True)
        assert isinstance(op, ReceiveMany)
        rows = [Outgoing(target, each.seq, msgspec.json.encode(each), 0) for each in op.effects]
        before = len(self.taken.get((one.source, target), ()))
        last = self.bring(one.source, rows)
        if isinstance(last, Rejected):
            return refused(last.code, last.error)
        fresh = len(self.taken.get((one.source, target), ())) - before
        self.got.setdefault((one.source, target), []).extend(op.effects[len(rows) - fresh :])
        return taken(last)

    def hear(self, one: Carried) -> None:
        assert one.answer is not None
        relaying, target = self.relaying[one.source], one.batch.shard
        if relaying.answered(one.batch, one.answer):
            self.paused.append(one)
        if relaying.destination(target).is_in_doubt:
            relaying.destination(target).is_in_doubt = False
            self.asked.append(Asked(one.source, self.lives[one.source], target))

    def ask(self, random: Random) -> None:
        """A question comes to the other shard, or its answer back, or what follows from it."""
        if self.asked:
            one = self.asked.pop(random.randrange(len(self.asked)))
            if self.go_on(one):
                self.asked.append(one)
                if random.random() < 0.2:
                    self.asked.append(msgspec.structs.replace(one))

    def go_on(self, one: Asked) -> bool:
        """Whether there is more to do."""
        target = self.shards[one.target]
        if one.skip is not None:
            target.do(one.skip)
            return False
        if one.answer is None:
            tx = target.tx
            taken = [*epochs.taken(tx, one.source)]
            one.answer = EffectsTaken(outbox.last_taken(tx, one.source), taken)
            return True
        if one.life == self.lives[one.source]:
            source = self.shards[one.source]
            op = self.relaying[one.source].compared(source.tx, one.target, one.answer)
            self.found(one.source, op)
            if isinstance(op, Renumber):
                source.do(op)
            one.skip = op if isinstance(op, Skip) else None
        return one.skip is not None

    def found(self, source: int, op: Renumber | Skip | None) -> None:
        """What one of both has forgotten."""
        assert op is None, "nothing was lost here"

    def lose(self, random: Random) -> None:
        """What is on its way is lost: the link breaks, for nothing is lost on a whole one."""
        if not self.carried:
            return
        one = random.choice(self.carried)
        self.carried.remove(one)
        self.counts["lost"] += 1
        if one.life == self.lives[one.source]:
            self.relaying[one.source].closed(one.batch.shard, "the link is lost")

    def link(self, random: Random) -> None:
        """A link opens or breaks. What is on its way may still arrive."""
        source, target = random.sample(range(SHARDS), 2)
        if random.random() < 0.8:
            self.relaying[source].opened(target)
        else:
            self.relaying[source].closed(target, "the link is lost")

    def resume(self, random: Random) -> None:
        """The pause after a refusal is over."""
        if self.paused:
            one = self.paused.pop(random.randrange(len(self.paused)))
            if one.life == self.lives[one.source]:
                self.relaying[one.source].try_again(one.batch)

    def restart(self, number: int) -> None:
        """A process ends, and with it what only it knew. What it sent may still arrive."""
        self.look()
        super().restart(number)
        self.shards[number].do(BeginEpoch())
        self.relaying[number] = self._new()
        self.lives[number] += 1
        self.counts["restarts"] += 1

    # The end.

    def settle(self) -> None:
        """All links are well again."""
        for source, each in enumerate(self.relaying):
            for target in range(SHARDS):
                if target != source:
                    each.closed(target, "the last time")
                    each.opened(target)
        self.carried.clear()
        self.paused.clear()
        for _ in range(EVERYTHING):
            self.look()
            for number in range(SHARDS):
                self.send(number)
            if not self.carried:
                break
            carried, self.carried = self.carried, []
            for one in carried:
                self.hear(one.answered(self.take(one)))
        self.compare()
        assert not self.paused, "nothing is refused on links that are well"
        for (source, target), got in self.got.items():
            assert got == self.given(source, target)
