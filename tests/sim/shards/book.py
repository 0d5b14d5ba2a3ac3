"""Every applied entry once more, by the rules of `docs/semantics.md`.

`Reference` is those rules as simply as they can be said, and `Witness` asserts the invariants from
answers alone; neither knows the code under test. Whichever replica applies an entry first has its
answers compared here, and all others must answer the same bytes.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from corvo.kv import keys
from corvo.model import STATES, Job, Schedule
from corvo.shard.machine import Answer
from tests.shard.reference import Reference
from tests.shard.shapes import Fields, number, rows, text
from tests.shard.witness import Witness
from tests.sim.failures import Violation
from tests.sim.shards.timetables import Timetables
from tests.sim.shards.words import NAMES
from tests.support.memory import MemoryStore

if TYPE_CHECKING:
    from tests.sim.shards.world import ShardWorld

_EVERYTHING: Final = 1 << 30


class Book:
    """What a shard must hold and answer, whoever asks it."""

    def __init__(self, world: "ShardWorld", queues: Iterable[str]) -> None:
        self.reference = Reference(local=[*queues, "probe"], shards=world.options.shards)
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        """By attempt: the index, and what was answered."""
        self._world = world
        self._witness = Witness()
        self._sums: dict[int, int] = {}
        self.last = 0
        """The last entry that any replica applied."""
        self._now_ns = 0
        self.timetables = Timetables(world, self)
        self._forgotten: dict[str, None] = {}

    def is_forgotten(self, key: str) -> bool:
        """Whether the answer to a request key was ever given up."""
        return key in self._forgotten

    # Entries.

    def skipped(self, index: int) -> None:
        """An entry that is Raft's own."""
        if index > self.last:
            self._begin(index)

    def applied(
        self, replica: int, index: int, data: bytes, answers: list[Answer], *, now_ns: int
    ) -> None:
        """A replica applied an entry."""
        found = zlib.crc32(b"".join(answer.code.encode() + answer.body for answer in answers))
        if self._sums.setdefault(index, found) != found:
            raise Violation("A3", f"replica {replica} answers otherwise at {index}")
        if index <= self.last:
            return
        self._begin(index)
        stamp_ns, dice, records = decode(data)
        self._check_time(index, stamp_ns, now_ns)
        self._world.counts["ops applied"] += len(records)
        try:
            self.reference.begin(now_ns=now_ns, dice=dice)
            self._witness.begin(now_ns)
            schedules: dict[str, Schedule] = {}
            shown: list[Schedule] = []
            if self._world.options.has("schedules"):
                schedules = schedules_in(self._world.host(replica).states.store)
                # One that was deleted in this entry is in an answer only.
                shown = [*schedules.values(), *schedules_of(answers)]
                self.timetables.swept(shown)
            if len(records) != len(answers):
                raise Violation("answers", f"{len(answers)} to {len(records)} ops at {index}")
            for (op, body), answer in zip(records, answers, strict=True):
                self._take(index, NAMES[op], msgspec.json.decode(body, type=Fields), answer)
                if shown:
                    self.timetables.swept(shown)
            if self._world.options.has("schedules"):
                self.timetables.compare(replica, schedules)
        except AssertionError as error:
            rule, colon, _ = str(error).partition(":")
            raise Violation(rule if colon and len(rule) == 2 else "book", str(error)) from error

    def _begin(self, index: int) -> None:
        assert index == self.last + 1, "somebody applied every entry"
        self.last = index

    def _check_time(self, index: int, stamp_ns: int, now_ns: int) -> None:
        """Time only rises; how fast is for `tests.sim.shards.times` to judge."""
        if now_ns <= self._now_ns or now_ns < stamp_ns:
            raise Violation("time", f"{now_ns} at {index} behind {self._now_ns}, by {stamp_ns}")
        self._now_ns = now_ns

    def _take(self, index: int, op: str, fields: Fields, answer: Answer) -> None:
        tag = text(fields, "by")
        if tag:
            if tag in self.answers:
                raise Violation("Q1", f"{tag} is applied at {self.answers[tag]} and at {index}")
            if tag in self._world.history.refused_tags:
                raise Violation("D6", f"{tag} was refused and is applied at {index}")
            self.answers[tag] = (index, answer.code, answer.body)
        self._world.counts[f"op {op}"] += 1
        before = list(self.reference.requests) if op == "CleanRequests" else []
        seen = plain(answer)
        due = clean(self.reference.do(op, fields, seen))
        if clean(seen) != due:
            raise Violation("book", f"{op} {fields} at {index}: {clean(seen)}, not {due}")
        self._forgotten |= dict.fromkeys(
            key for key in before if key not in self.reference.requests
        )
        if op == "Delivered" and number(fields, "seq") > self._world.clients.neighbour.taken:
            raise Violation("X3", f"{fields} at {index}: not all of it was taken")
        if op == "Sweep" and not seen["more"]:
            self.reference.cleared.pop(text(fields, "queue"), None)
        self._witness.saw(op, fields, seen)
        self.timetables.look()

    def created(self, asked: Fields) -> bool:
        """A schedule creates a job, unless it is there."""
        if self.reference.enqueue(asked)["unique_existing"]:
            return False
        self._witness.created(asked)
        return True

    # The state.

    def compare(self, replica: int, store: MemoryStore) -> None:
        """Hold what a replica has stored against the book, and its counts against its jobs."""
        jobs = {job.id: job for job in (_job(value) for _, value in _rows(store, keys.JOB.prefix))}
        for job_id, wanted in self.reference.jobs.items():
            there = jobs.pop(job_id, None)
            if there is None:
                raise Violation("D1", f"replica {replica} lost {job_id}, {wanted.state}")
            found = (there.state.value, there.queue, there.attempt, there.lease_token)
            due = (wanted.state, wanted.queue, wanted.attempt, wanted.token)
            if found != due:
                raise Violation("book", f"replica {replica} has {job_id} as {found}, not {due}")
        strangers = [job_id for job_id in jobs if job_id not in self.reference.ghosts]
        if strangers:
            raise Violation("D2", f"replica {replica} has {strangers}")
        effects = [key for key, _ in _rows(store, keys.OUTBOX.prefix)]
        if len(effects) != len(self.reference.outbox):
            raise Violation("X4", f"replica {replica} has {effects} to send")
        self._check_counts(replica, store)

    def _check_counts(self, replica: int, store: MemoryStore) -> None:
        due: dict[str, list[int]] = {}
        for _, value in _rows(store, keys.JOB.prefix):
            job = _job(value)
            due.setdefault(job.queue, [0] * 16)[STATES.index(job.state)] += 1
        found = {
            key.removeprefix(keys.COUNTS.prefix).decode(): msgspec.msgpack.decode(
                value, type=list[int]
            )
            for key, value in _rows(store, keys.COUNTS.prefix)
        }
        if found != due:
            raise Violation("C2", f"replica {replica} counts {found}, not {due}")


def _rows(store: MemoryStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    yield from store.scan(prefix, keys.prefix_end(prefix), limit=_EVERYTHING)


def schedules_in(store: MemoryStore) -> dict[str, Schedule]:
    """The schedules of a state, by their ids."""
    return {
        key.removeprefix(keys.SCHEDULE.prefix).decode(): msgspec.json.decode(value, type=Schedule)
        for key, value in _rows(store, keys.SCHEDULE.prefix)
    }


def schedules_of(answers: Iterable[Answer]) -> Iterator[Schedule]:
    """The schedules that answers show."""
    for answer in answers:
        if not answer.code and b'"schedule":' in answer.body:
            shown = msgspec.json.decode(answer.body, type=Fields).get("schedule")
            if isinstance(shown, dict):  # else a tag of a job has this name
                yield msgspec.convert(shown, Schedule)


def _job(data: bytes) -> Job:
    return msgspec.msgpack.decode(data, type=Job)


# Bytes, read a second time.


def decode(data: bytes) -> tuple[int, int, list[tuple[int, bytes]]]:
    """The stamp, the dice, and the ops with their numbers."""
    assert data.startswith(b"CB1")
    count, at = _varint(data, 3)
    records: list[tuple[int, bytes]] = []
    for _ in range(count):
        number, at = _varint(data, at)
        size, at = _varint(data, at)
        records.append((number, data[at : at + size]))
        at += size
    (number, stamp), *ops = records
    assert (number, len(stamp), at) == (0, 12, len(data))
    return int.from_bytes(stamp[:8], "big"), int.from_bytes(stamp[8:], "big"), ops


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return result, at


def plain(answer: Answer) -> Fields:
    """An answer as JSON; of a refusal, what is not words."""
    body = msgspec.json.decode(answer.body, type=Fields)
    if answer.code:
        return _refusal(body)
    if "results" in body:
        body["results"] = [_refusal(it) if "code" in it else it for it in rows(body, "results")]
    return body


def _refusal(body: Fields) -> Fields:
    return {"code": body["code"], "job_id": body.get("job_id", "")}


def clean(body: object) -> object:
    """Without what is not given."""
    if isinstance(body, dict):
        return {key: clean(it) for key, it in body.items() if it or key == "payload"}
    if isinstance(body, list):
        return [clean(it) for it in body]
    return body
