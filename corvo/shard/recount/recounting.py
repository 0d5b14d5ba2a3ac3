"""The recount: every document and key of a shard's state is read, and compared both ways.

Documents say which index keys, counts and errors there must be. Those that are due and those that
are stored are first compared as sums, so memory does not grow with the number of jobs. Only where
the sums differ, a second pass finds the keys.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from corvo.errors import CorvoError, StoreDamaged
from corvo.ids import home_of, stand_in
from corvo.kv import keys
from corvo.kv.keys import META, SPACES, Space, parse_unique_value, prefix_end
from corvo.kv.store import Store
from corvo.kv.tables import CLASSES, Meta, Table, read_meta
from corvo.model import (
    FINISHED,
    MISSING,
    ApiKey,
    Batch,
    Ending,
    Forward,
    Job,
    JobError,
    Queue,
    State,
    Throughput,
)
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.cluster import HOME
from corvo.shard.recount.effects import Effects, check_effects
from corvo.shard.recount.feed_rows import check_feed
from corvo.shard.recount.multiset import Multiset
from corvo.shard.recount.rows import Tell, Wrong, rows
from corvo.shard.state.lifecycle import error_key, error_numbers
from corvo.shard.state.tables import (
    API_KEYS,
    BATCHES,
    ENDINGS,
    FORWARDS,
    JOBS,
    QUEUES,
    REQUESTS,
    SCHEDULES,
    WORKERS,
    Timer,
)
from corvo.shard.state.throughput import SLOTS
from corvo.shard.state.tx import Grace

DERIVED: Final = (
    keys.PENDING,
    keys.QUEUE_APPEND,
    keys.ACTIVE,
    keys.SCHEDULED,
    keys.RETRYING,
    keys.FINISHED,
    keys.HELD,
    keys.BLOCKED,
    keys.DEPENDENT,
    keys.UNIQUE,
    keys.TIMER,
    keys.QUEUE_NAME,
)
"""Spaces in which every key follows from a document."""

AnyTable: TypeAlias = Table[Any]  # type: ignore[explicit-any]  # of documents of any type
TABLES: Final[tuple[AnyTable, ...]] = (
    JOBS,
    QUEUES,
    SCHEDULES,
    WORKERS,
    BATCHES,
    ENDINGS,
    FORWARDS,
    REQUESTS,
    API_KEYS,
)
_TIMED: Final[dict[Timer, AnyTable]] = {
    Timer.PROMOTE: JOBS,
    Timer.LEASE: JOBS,
    Timer.EXPIRE: JOBS,
    Timer.UNIQUE: JOBS,
    Timer.REQUEST: REQUESTS,
    Timer.SWEEP: QUEUES,
    Timer.WORKER: WORKERS,
    Timer.ENDING: ENDINGS,
    Timer.SCHEDULE: SCHEDULES,
}
_SPACE_OF: Final = {space.prefix: space for space in SPACES}
_PLANNED: Final = (keys.BUDGET, keys.PROVIDER, keys.QUEUE_PROVIDER)
_EVERY: Final = 1_024
"""Keys between two reports of progress."""


class Visitor:
    """What a caller wants to see of the documents while they are read."""

    def job(self, job: Job) -> None:
        """A job of the shard."""

    def batch(self, batch: Batch) -> None:
        """A batch of the shard."""

    def forward(self, forward: Forward) -> None:
        """A forwarding address of the shard."""


class Recounted(msgspec.Struct):
    """What a recount has read."""

    counts: dict[str, int]
    """Keys by the name of their space."""
    effects: Effects
    meta: Meta


class Recount:
    """One recount of one state. Nothing else uses the store meanwhile."""

    def __init__(
        self,
        store: Store,
        *,
        shard: int,
        shards: int,
        tell: Tell,
        visitor: Visitor | None = None,
        step: Callable[[int], None] | None = None,
    ) -> None:
        """`tell` gets each finding, and `step` the number of keys read since the last call."""
        self._store = store
        self._shard = shard
        self._shards = shards
        self._tell = tell
        self._visitor = visitor if visitor is not None else Visitor()
        self._step = step
        self._counts: dict[str, int] = {}
        self._due = {space.prefix: Multiset() for space in (*DERIVED, keys.JOB_ERROR)}
        self._found = {space.prefix: Multiset() for space in (*DERIVED, keys.JOB_ERROR)}
        self._jobs: dict[str, list[int]] = {}
        """By queue, the number of jobs in each state."""
        self._queues: set[str] = set()
        self._numbers = {"requests": 0, "missing": 0, "schedules": 0, "api_keys": 0}
        self._early = 0
        self._unreadable = False
        """Whether a range could not be read: then what is missing cannot be told."""
        self._meta = Meta()

    def run(self) -> Recounted:
        """Read everything, and tell what is wrong."""
        effects = Effects(given={}, taken={})
        try:
            self._meta = read_meta(self._store)
        except StoreDamaged as error:
            self._wrong(META, META.build("applied"), str(error))
        self._guarded(META, self._check_unknown)
        for table in TABLES:
            self._guarded(_SPACE_OF[table.prefix], partial(self._read_table, table))
        for space in DERIVED:
            self._guarded(space, partial(self._read_index, space))
        self._guarded(keys.JOB_ERROR, self._read_errors)
        self._guarded(keys.COUNTS, self._check_counts)
        self._guarded(keys.THROUGHPUT, self._check_throughput)
        self._guarded(keys.RATE_LIMIT, self._check_rates)
        self._guarded(keys.QUEUE_CURSOR, self._check_cursors)
        self._guarded(META, self._check_meta)
        for space in (keys.WATCHED, keys.WATCHER):
            self._guarded(space, partial(self._check_watches, space))
        try:
            effects = check_effects(
                self._store, shard=self._shard, shards=self._shards, tell=self._tell
            )
            self._counts["outbox"] = effects.waiting
        except StoreDamaged as error:
            self._cannot_read(keys.OUTBOX, error)
        try:
            self._counts["event log"] = check_feed(self._store, self._meta, self._tell)
        except StoreDamaged as error:
            self._cannot_read(keys.EVENT, error)
        if not self._unreadable:
            self._compare()
        return Recounted(self._counts, effects, self._meta)

    # Reading.

    def _guarded(self, space: Space, check: Callable[[], None]) -> None:
        try:
            check()
        except StoreDamaged as error:
            self._cannot_read(space, error)

    def _cannot_read(self, space: Space, error: StoreDamaged) -> None:
        self._unreadable = True
        self._wrong(space, space.prefix, f"the keys cannot be read to their end: {error}")

    def _wrong(self, space: Space, key: bytes, problem: str) -> None:
        self._tell(Wrong(space.name, key, problem))

    def _rows(self, space: Space) -> Iterator[tuple[bytes, bytes]]:
        count = 0
        for row in rows(self._store, space.prefix, prefix_end(space.prefix)):
            count += 1
            if self._step is not None and count % _EVERY == 0:
                self._step(_EVERY)
            yield row
        self._counts[space.name] = count
        if self._step is not None:
            self._step(count % _EVERY)

    def _check_unknown(self) -> None:
        """Tell keys that are of no space."""
        start = b""
        for space in sorted(SPACES, key=lambda it: it.prefix):
            self._check_gap(start, space.prefix)
            start = prefix_end(space.prefix)
        self._check_gap(start, b"\xff" * 64)
        for space in _PLANNED:
            for key, _ in rows(self._store, space.prefix, prefix_end(space.prefix)):
                self._wrong(space, key, "is of a kind that this version does not write")

    def _check_gap(self, start: bytes, stop: bytes) -> None:
        for key, _ in rows(self._store, start, stop):
            self._tell(Wrong("unknown", key, "is of no kind that this version knows"))

    def _read_table(self, table: AnyTable) -> None:
        space = _SPACE_OF[table.prefix]
        for key, data in self._rows(space):
            try:
                document = table.decode(data)
                if table.prefix + table.key(document).encode() != key:
                    name = table.key(document)
                    self._wrong(space, key, f"has the document of another {table.name}: {name!r}")
                    continue
                due = table.indexes(document) if table.indexes is not None else ()
            except (CorvoError, ValueError, OverflowError, LookupError) as error:
                self._wrong(space, key, f"cannot be read: {error}")
                continue
            for index, value, _ in due:
                self._due[index[: index.find(b"|") + 1]].add(index, value)
            for problem in self._visit(document):
                self._wrong(space, key, problem)

    def _visit(self, document: msgspec.Struct) -> Iterator[str]:
        match document:
            case Job():
                self._visitor.job(document)
                yield from self._visit_job(document)
            case Queue(name=name):
                self._queues.add(name)
            case Batch():
                self._visitor.batch(document)
                yield from _check_batch(document, self._shard, self._shards)
            case Forward():
                self._visitor.forward(document)
                yield from self._check_forward(document)
            case Ending(state=state):
                self._numbers["missing"] += state == MISSING
            case ApiKey():
                self._numbers["api_keys"] += 1
                self._early += document.is_early
                if self._shard != HOME:
                    yield f"is an API key, and these are in shard {HOME} alone"
            case _:
                pass
        if isinstance(document, REQUESTS.document):
            self._numbers["requests"] += 1
        if isinstance(document, SCHEDULES.document):
            self._numbers["schedules"] += 1

    def _visit_job(self, job: Job) -> Iterator[str]:
        self._jobs.setdefault(job.queue, [0] * CLASSES)[job.state.number] += 1
        errors = self._due[keys.JOB_ERROR.prefix]
        for number in error_numbers(job):
            errors.add(error_key(job.id, number), b"")
        is_active, is_finished = job.state is State.ACTIVE, job.state in FINISHED
        if is_active != bool(job.lease_expires_ns):
            yield f"is {job.state.word}, and its lease ends at {job.lease_expires_ns}"
        if job.run_expires_ns and not is_active:
            yield f"is {job.state.word}, and its run ends at {job.run_expires_ns}"
        if is_finished != bool(job.finished_ns):
            yield f"is {job.state.word}, and was finished at {job.finished_ns}"
        if job.unique_until_ns and (is_finished or not job.unique_key):
            yield "holds a unique lock that it cannot hold"
        if job.order_ns > self._meta.now_ns:
            yield "has a place in its queue that is newer than the state"
        for name in ("payload", "result", "progress", "checkpoint", "chain"):
            if not _is_json(getattr(job, name)):
                yield f"has a {name} that is not JSON"
        if job.chain_id and not job.chain:
            yield "is of a chain, and has no definition of it"
        home = _home_of(job.id, self._shards)
        if home is not None and job.born_in not in {-1, home}:
            yield f"says that its home is shard {job.born_in}, and its id names {home}"
        if home is not None and (home != self._shard) != (job.born_in >= 0):
            yield f"is of home {home}, and says {job.born_in}"
        if job.batch_id and job.born_in < 0 and _home_of(job.batch_id, self._shards) == self._shard:
            key = BATCHES.prefix + job.batch_id.encode()
            if self._store.get(key) is None:
                yield f"is of batch {job.batch_id}, which does not exist"

    def _check_forward(self, forward: Forward) -> Iterator[str]:
        if not 0 <= forward.shard < self._shards or forward.shard == self._shard:
            yield f"leads to shard {forward.shard}"
        if self._store.get(JOBS.prefix + forward.id.encode()) is not None:
            yield "is of a job that is here"
        if forward.state and forward.state not in {state.value for state in FINISHED}:
            yield f"has the state {forward.state!r}"

    def _read_index(self, space: Space) -> None:
        found = self._found[space.prefix]
        awaited: bytes = b""
        for key, value in self._rows(space):
            try:
                space.parse(key)
            except CorvoError as error:
                self._wrong(space, key, str(error))
            found.add(key, value)
            if space is keys.DEPENDENT:
                name = key[len(space.prefix) :].partition(b"\0")[0]
                if name != awaited:
                    awaited = name
                    self._check_awaited(key, name)

    def _check_awaited(self, key: bytes, awaited: bytes) -> None:
        """Tell a job that others wait for, if nothing will say how it ends."""
        get = self._store.get
        if get(keys.ENDING.prefix + awaited) or get(keys.WATCHED.prefix + awaited) is not None:
            return
        data = get(keys.FORWARD.prefix + awaited)
        if data is not None and not FORWARDS.decode(data).state:
            return
        data = get(JOBS.prefix + awaited)
        if data is not None:
            job = JOBS.decode(data)
            if job.awaited and job.state not in FINISHED:
                return
        self._wrong(
            keys.DEPENDENT, key, f"waits for {awaited.decode()}, whose end nothing will tell"
        )

    def _read_errors(self) -> None:
        space = keys.JOB_ERROR
        found = self._found[space.prefix]
        for key, value in self._rows(space):
            found.add(key, b"")
            try:
                space.parse(key)
                msgspec.json.decode(value, type=JobError)
            except (CorvoError, msgspec.MsgspecError, UnicodeError) as error:
                self._wrong(space, key, f"cannot be read: {error}")

    # What is counted.

    def _check_counts(self) -> None:
        space = keys.COUNTS
        left = dict(self._jobs)
        for key, value in self._rows(space):
            name = key[len(space.prefix) :].decode(errors="replace")
            due = left.pop(name, [0] * CLASSES)
            try:
                stored = msgspec.msgpack.decode(value, type=list[int])
            except msgspec.MsgspecError as error:
                self._wrong(space, key, f"cannot be read: {error}")
                continue
            stored += [0] * (CLASSES - len(stored))
            if stored != due and not self._unreadable:
                self._wrong(space, key, f"says {_by_state(stored)}; a recount {_by_state(due)}")
        for name, due in left.items():
            if name not in self._queues:
                self._wrong(
                    keys.QUEUE_CONFIG,
                    keys.QUEUE_CONFIG.prefix + name.encode(),
                    "is missing, and the queue has jobs",
                )
            key = space.prefix + name.encode()
            self._wrong(space, key, f"is missing; a recount has {_by_state(due)}")

    def _check_queue(self, space: Space, key: bytes, name: str) -> None:
        if name not in self._queues and not self._unreadable:
            self._wrong(space, key, f"is of queue {name!r}, which does not exist")

    def _check_throughput(self) -> None:
        space = keys.THROUGHPUT
        for key, value in self._rows(space):
            try:
                name, slot = space.parse(key)
                row = msgspec.msgpack.decode(value, type=Throughput)
            except (CorvoError, msgspec.MsgspecError) as error:
                self._wrong(space, key, f"cannot be read: {error}")
                continue
            counts = (row.enqueued, row.started, row.completed, row.failed, row.dead, row.cancelled)
            if (row.queue, row.minute % SLOTS) != (name, slot) or min(counts) < 0:
                self._wrong(space, key, f"has the counts of {row.queue!r} at minute {row.minute}")
            self._check_queue(space, key, str(name))

    def _check_rates(self) -> None:
        space = keys.RATE_LIMIT
        for key, value in self._rows(space):
            try:
                name, fetched_ns, place = space.parse(key)
            except CorvoError as error:
                self._wrong(space, key, str(error))
                continue
            assert isinstance(fetched_ns, int)
            assert isinstance(place, int)
            if value or max(fetched_ns, place) > self._meta.now_ns:
                self._wrong(space, key, "is newer than the state, or has a value")
            self._check_queue(space, key, str(name))

    def _check_cursors(self) -> None:
        space = keys.QUEUE_CURSOR
        for key, value in self._rows(space):
            name = key[len(space.prefix) :]
            prefix = keys.QUEUE_APPEND.prefix + name + b"\0"
            first = self._store.keys(prefix, prefix_end(prefix), limit=1)
            if not value.startswith(prefix):
                self._wrong(space, key, "leads out of its queue")
            elif first and value > first[0]:
                self._wrong(space, key, "is after the first job of the queue, which is not found")
            self._check_queue(space, key, name.decode(errors="replace"))

    def _check_watches(self, space: Space) -> None:
        """Which shard asked for the end of which job, and which jobs this shard asked for."""
        for key, value in self._rows(space):
            try:
                name, *asker = space.parse(key)
            except CorvoError as error:
                self._wrong(space, key, str(error))
                continue
            if space is keys.WATCHED:
                if len(value) not in {0, 8, 9}:
                    self._wrong(space, key, "is not a time")
                if _home_of(str(name), self._shards) == self._shard:
                    self._wrong(space, key, "is of a job whose home is here")
                continue
            if value or asker[0] == self._shard:
                self._wrong(space, key, f"is of shard {asker[0]!r}")
            job_id = str(name).encode()
            places = (JOBS.prefix, FORWARDS.prefix, ENDINGS.prefix)
            if not any(self._store.get(place + job_id) for place in places):
                self._wrong(space, key, "is of a job that does not exist and is not waited for")

    def _check_meta(self) -> None:
        for key, value in self._rows(META):
            name = key[len(META.prefix) :].decode(errors="replace")
            try:
                problem = self._meta_problem(name, value)
            except (CorvoError, msgspec.MsgspecError, UnicodeError) as error:
                problem = f"cannot be read: {error}"
            if problem:
                self._wrong(META, key, problem)
        for name, count in self._numbers.items():
            key = META.build(name)
            if count and self._store.get(key) is None and not self._unreadable:
                self._wrong(META, key, f"is missing; a recount has {count}")
        if self._meta.applied and self._store.get(META.build("applied")) is None:
            self._wrong(META, META.build("applied"), "is missing")
        if not self._meta.applied and (self._jobs or self._queues):
            self._wrong(META, META.build("applied"), "is missing, and there are documents")

    def _meta_problem(self, name: str, value: bytes) -> str:
        """What is wrong with a key of which there is one; empty if nothing is."""
        decode = msgspec.msgpack.decode
        if name in self._numbers or name == "api_keys_early":
            stored = decode(value, type=int)
            due = self._early if name == "api_keys_early" else self._numbers[name]
            differs = stored != due and not self._unreadable
            return f"says {stored}, and a recount has {due}" if differs else ""
        if name == "applied":
            return ""  # it was read first
        if name == "grace":
            grace = decode(value, type=Grace)
            return "ends before it begins" if grace.until_ns < grace.since_ns else ""
        if name == "restored_shards":
            fits = decode(value, type=int) > self._shards
            return "" if fits else "is not more than there are now"
        if name == "cluster_map":
            decode(value, type=ClusterMap)
            return "" if self._shard == HOME else f"is in shard {HOME} alone"
        if name == "epochs":
            decode(value, type=dict[int, list[int]])
            return ""
        if name == "outbox":
            return ""  # see `check_effects`
        if name.startswith("epochs of "):
            taken = decode(value, type=list[tuple[int, int]])
            return "" if taken == sorted(taken, key=lambda it: it[0]) else "is out of order"
        if name.startswith("sweep "):
            decode(value)
            queue = name.removeprefix("sweep ")
            return "" if queue in self._queues else f"is of queue {queue!r}, which does not exist"
        return "is of no name that this version knows"

    # What is derived.

    def _compare(self) -> None:
        differing = {prefix for prefix, due in self._due.items() if due != self._found[prefix]}
        if not differing:
            return
        told = 0

        def tell(space: Space, key: bytes, problem: str) -> None:
            nonlocal told
            told += 1
            self._wrong(space, key, problem)

        self._find_missing(differing, tell)
        self._find_stale(differing, tell)
        if not told:  # two documents claim one key
            for prefix in differing:
                due, found = self._due[prefix].count, self._found[prefix].count
                problem = f"{due} keys follow from documents, and {found} are stored"
                self._wrong(_SPACE_OF[prefix], prefix, problem)

    def _find_missing(
        self, differing: set[bytes], tell: Callable[[Space, bytes, str], None]
    ) -> None:
        """Keys that follow from a document and are not stored, or with another value."""
        claimed: dict[bytes, bytes] = {}
        for table in TABLES:
            for key, data in rows(self._store, table.prefix, prefix_end(table.prefix)):
                due = _derived(table, key, data)
                for index, value in due if due is not None else ():
                    space = _SPACE_OF[index[: index.find(b"|") + 1]]
                    if space.prefix not in differing:
                        continue
                    stored = self._store.get(index)
                    if stored is None:
                        tell(space, index, f"is missing: {_shown(key)} is not found by it")
                    elif space is keys.UNIQUE and stored != value:
                        other = claimed.get(index)
                        both = f", and {_shown(other)} claims it, too" if other is not None else ""
                        tell(space, index, f"is not held by {_shown(key)}{both}")
                        claimed[index] = key
                    elif stored != value and space is not keys.JOB_ERROR:
                        tell(space, index, f"has another value than {_shown(key)} gives it")

    def _find_stale(self, differing: set[bytes], tell: Callable[[Space, bytes, str], None]) -> None:
        """Stored keys that follow from no document."""
        for prefix in differing:
            space = _SPACE_OF[prefix]
            for key, value in rows(self._store, prefix, prefix_end(prefix)):
                owner = _owner(space, key, value)
                if owner is None:
                    tell(space, key, "names no document")
                    continue
                table, name = owner
                data = self._store.get(table.prefix + name.encode())
                if data is None:
                    tell(space, key, f"is of {table.name} {name!r}, which does not exist")
                    continue
                due = _derived(table, table.prefix + name.encode(), data)
                if due is not None and key not in {index for index, _ in due}:
                    tell(space, key, f"does not follow from {table.name} {name!r}")


def _derived(table: AnyTable, key: bytes, data: bytes) -> list[tuple[bytes, bytes]] | None:
    """The keys that follow from a document; None if it cannot be read, which was told before."""
    try:
        document = table.decode(data)
        if table.prefix + table.key(document).encode() != key:
            return None
        indexed = table.indexes(document) if table.indexes is not None else ()
        due = [(index, value) for index, value, _ in indexed]
        if isinstance(document, Job):
            due += [(error_key(document.id, n), b"") for n in error_numbers(document)]
    except (CorvoError, ValueError, OverflowError, LookupError):
        return None
    return due


def _owner(space: Space, key: bytes, value: bytes) -> tuple[AnyTable, str] | None:
    """The table and the name of the document from which a key should follow."""
    try:
        fields = space.parse(key)
        if space is keys.UNIQUE:
            return JOBS, parse_unique_value(value)[0]
        if space is keys.QUEUE_NAME:
            return QUEUES, str(fields[0])
        if space is keys.JOB_ERROR:
            return JOBS, str(fields[0])
        if space is keys.TIMER:
            return _TIMED[Timer(int(fields[0]))], str(fields[-1])
    except (CorvoError, ValueError):
        return None
    return JOBS, str(fields[-1])


def _check_batch(batch: Batch, shard: int, shards: int) -> Iterator[str]:
    ended = batch.succeeded + batch.failed + batch.cancelled
    if batch.total != batch.pending + ended:
        yield (
            f"has a total of {batch.total}, and {batch.pending} pending, {batch.succeeded}"
            f" succeeded, {batch.failed} failed and {batch.cancelled} cancelled jobs"
        )
    counts = (batch.pending, batch.succeeded, batch.failed, batch.cancelled, batch.removed)
    if min(counts) < 0:
        yield "has a count below 0"
    home = _home_of(batch.id, shards)
    if home != shard:
        yield f"is of shard {home}"


def _home_of(identifier: str, shards: int) -> int | None:
    """The home of a job or a batch; the shard that stands in, if it was restored from more."""
    home = home_of(identifier, shards)
    return None if home is None else stand_in(home, shards)


def _is_json(data: bytes) -> bool:
    if not data:
        return True
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return False
    return True


def _by_state(counts: list[int]) -> str:
    shown = (f"{counts[state.number]} {state.word}" for state in State if counts[state.number])
    return ", ".join(shown) or "no jobs"


def _shown(key: bytes) -> str:
    prefix, _, name = key.partition(b"|")
    space = _SPACE_OF[prefix + b"|"]
    return f"{space.name} {name.decode(errors='replace')!r}"
