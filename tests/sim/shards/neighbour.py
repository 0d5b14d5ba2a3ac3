"""Another shard, as simple as can be said: jobs come to it, and it sends them back.

What it has taken and given survives the end of its process; what is under way does not. It sends
effects in batches of any size that begin anywhere, again and again, and refuses batches now and
then. It judges what comes by `Reference`, which knows which job left with which effect.
"""

from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from corvo.protocol import wire
from tests.shard.shapes import Fields, names, number, rows, text
from tests.sim.failures import Violation
from tests.sim.shards.callers import Caller
from tests.sim.shards.links import Link
from tests.sim.shards.words import NAMES

if TYPE_CHECKING:
    from tests.sim.shards.host import ReplicaHost
    from tests.sim.shards.world import ShardWorld

NEIGHBOUR: Final = 1
"""The number of this shard; the one that is simulated has 0."""
_QUEUE: Final = "q1"
_UNDER_WAY: Final = 3


class Neighbour(Caller):
    """The other shard, and whoever moves jobs to it."""

    is_shard = True

    def __init__(self, world: "ShardWorld") -> None:
        super().__init__(world, "n0")
        self.replica = 99
        """Of the end of its links that hosts dial."""
        self.taken = 0
        """Effects up to this one were taken here."""
        self._given: list[Fields] = []  # effects on the other shard
        self._confirmed = 0
        self._sent = 0
        self._under_way = 0
        self._links_in: dict[Link, None] = {}
        self._busy_until = 0
        self._keys = 0

    def begin(self) -> None:
        """Move jobs here, now and then."""
        self.later(10 * self.random.random(), self._move)

    def _move(self) -> None:
        world, random = self.world, self.random
        if world.is_draining:
            return
        self.later(random.expovariate(1 / 5), self._move)
        jobs = list(world.clients.known)[-30:]
        if not (world.is_chaos and jobs):
            return
        picked = random.sample(jobs, min(len(jobs), random.choice((1, 3, 8))))
        self._keys += 1
        fields: Fields = {"job_ids": picked, "queue": _QUEUE, "request_key": f"m-{self._keys}"}
        if random.random() < 0.2:
            fields["reset_attempts"] = True
        self.call("Move", fields, lambda _: None)

    # What comes from the other shard.

    def reached_by(self, host: "ReplicaHost") -> Link:
        """A replica opens a link to here."""
        link = Link(self.world, host, self, self.random)
        self.world.clients.links[link] = None
        return link

    def link_began(self, link: Link) -> None:
        """It is there."""
        link.number = 1
        self._links_in[link] = None
        link.answer(wire.Leading(self.replica, 1))

    def link_ended(self, link: Link) -> None:
        """It is gone."""
        self._links_in.pop(link, None)

    def link_brought(self, link: Link, message: wire.Request) -> None:
        """It brings effects, which take some time."""
        world = self.world
        delay = int(world.options.disk_ns * (0.5 + self.random.random()))
        self._busy_until = max(self._busy_until + 1, world.now + delay)
        world.at(self._busy_until, partial(self._answer, link, message))

    def _answer(self, link: Link, message: wire.Request) -> None:
        if link not in self._links_in:
            return  # the process has ended meanwhile
        assert isinstance(message, wire.Submit)
        if self.world.is_chaos and self.random.random() < 0.1:
            self.world.counts["effects put off"] += 1
            full = msgspec.json.encode({"code": "disk_full", "error": "no room"})
            refusals = (
                wire.Busy(message.id, 50),
                wire.NotLeader(message.id, None),
                wire.Reply(message.id, "disk_full", full),
            )
            link.answer(self.random.choice(refusals))
            return
        body = msgspec.json.decode(message.body, type=Fields)
        effects = rows(body, "effects") if NAMES[message.op] == "ReceiveMany" else [body]
        self.world.counts["batches of effects"] += len(effects) > 1
        if number(effects[0], "seq") > self.taken + 1:
            self.world.counts["effects out of order"] += 1
            refusal = msgspec.json.encode({"code": "out_of_order", "error": "not the next one"})
            link.answer(wire.Reply(message.id, "out_of_order", refusal))
            return
        for effect in effects:
            self._take(effect)
        answer = {"source": 0, "seq": self.taken, "taken": 0}
        link.answer(wire.Reply(message.id, "", msgspec.json.encode(answer)))

    def _take(self, row: Fields) -> None:
        seq, effect = number(row, "seq"), cast("Fields", row["effect"])
        if seq <= self.taken:
            self.world.counts["effects that were taken before"] += 1
            return
        if seq > self.taken + 1:
            raise Violation("X1", f"effect {seq} in a batch, behind {self.taken}")
        job_id = self._named(effect)
        left = self.world.book.reference.left.get(seq)
        if left != job_id:
            raise Violation("X2", f"effect {seq} brings {job_id}, and {left} left with it")
        self.taken = seq
        self.world.counts["effects taken"] += 1
        if effect["type"] == "schedule_landed":
            self._schedule_landed(effect)
            return
        if effect["type"] == "schedule" and not self._takes(effect):
            return
        ticks = self.random.expovariate(1 / 10) if not self.world.is_draining else 0.0
        self.later(min(ticks, 30.0), partial(self._send_back, effect))

    # What goes back.

    def _named(self, effect: Fields) -> str:
        """The job or the schedule that an effect is about."""
        match effect["type"]:
            case "schedule":
                return text(cast("Fields", effect["schedule"]), "id")
            case "schedule_landed":
                return text(effect, "schedule_id")
            case _:
                return names(effect, "job")[0]

    def _takes(self, effect: Fields) -> bool:
        """Whether a schedule may stay here; the answer says so."""
        schedule = cast("Fields", effect["schedule"])
        is_refused = self.random.random() < 0.2
        answer = {"schedule_id": schedule["id"], "is_refused": is_refused}
        self._given.append({"type": "schedule_landed", **answer})
        self._send()
        if not is_refused:
            self.world.book.timetables.check_sent(schedule)
        return not is_refused

    def _schedule_landed(self, effect: Fields) -> None:
        """A schedule has come back to the other shard, or was refused there: then it stays here."""
        self.world.counts["schedules refused"] += effect["is_refused"] is True

    def _send_schedule_back(self, schedule: Fields) -> None:
        """As its client would move it, with nothing fired here."""
        queue = self.random.choice(self.world.clients.queues)
        job = {**msgspec.json.decode(text(schedule, "job"), type=Fields), "queue": queue}
        here = f"{_QUEUE}~{schedule['name']}"
        changes = number(schedule, "changes", 1) + 1
        moved: Fields = {**schedule, "id": here, "queue": _QUEUE, "moving_to": queue}
        moved |= {"changes": changes, "job": msgspec.json.encode(job).decode()}
        moved["runs"] = [run for run in rows({"runs": [], **schedule}, "runs") if is_over(run)]
        self._given.append({"type": "schedule", "schedule": moved})
        self._send()

    def _send_back(self, effect: Fields) -> None:
        if effect["type"] == "schedule":
            if not self.world.is_draining:
                self._send_schedule_back(cast("Fields", effect["schedule"]))
            return
        queue = self.random.choice(self.world.clients.queues)
        self._given.append({**effect, "queue": queue})
        self._send()

    def _send(self) -> None:
        """Send something that was not confirmed, or was."""
        if self._under_way >= _UNDER_WAY or self._confirmed == len(self._given):
            return
        random, size = self.random, len(self._given)
        first = min(self._sent + 1, size)
        if random.random() < 0.3:
            first = random.randrange(max(1, self._confirmed - 1), size + 1)
        some = range(first, min(size, first + random.choice((0, 0, 1, 3))) + 1)
        self._sent = max(self._sent, some[-1])
        effects = [
            {"source": NEIGHBOUR, "seq": seq, "effect": self._given[seq - 1]} for seq in some
        ]
        self._under_way += 1
        if len(effects) == 1 and random.random() < 0.5:
            self.call("Receive", dict(effects[0]), self._sent_back)
        else:
            self.call("ReceiveMany", {"effects": effects}, self._sent_back)
        self.later(random.random(), self._send)

    def _sent_back(self, answer: Fields | None) -> None:
        self._under_way -= 1
        if answer is None or "code" in answer:
            self._sent = self._confirmed
        else:
            self._confirmed = max(self._confirmed, number(answer, "seq"))
            self._sent = max(self._sent, self._confirmed)
        self.later(self.random.random(), self._send)

    # The end.

    def end(self) -> None:
        """The process ends: all of its links break, and what was on them is lost."""
        self.world.counts["ends of the other shard"] += 1
        for link in [*self._links_in, *self.open_links]:
            link.break_off()

    def check_settled(self) -> None:
        """Every effect was taken, on both sides, and confirmed."""
        reference = self.world.book.reference
        found = (self.taken, reference.taken, self._confirmed)
        due = (reference.sent, len(self._given), len(self._given))
        if found != due:
            raise Violation("X5", f"taken here, taken there, confirmed: {found}, not {due}")


def is_over(run: Fields) -> bool:
    """Whether a run of a schedule has no job that goes on."""
    return not run.get("job_id") or bool(run.get("state") or run.get("skipped"))
