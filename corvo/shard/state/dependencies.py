"""Dependencies: jobs that wait for other jobs to complete.

An index has the dependents of each job within a shard. For a job of another shard, the shard of the
dependent job asks the home of the other once (`Watch`), and gets its end once (`WatchAnswer`). The
home knows the end, wherever the job has moved: see `corvo.shard.state.consequences`.

Any number of jobs may depend on one. An entry settles some of them; the leader's op `Tell` settles
the rest. A document (`Ending`) keeps `Tell` due until all are settled.

A job can be named by the id that a client will choose before it exists. Then its home has an
`Ending` with the time until which others wait for it; it is removed when the job is created, and
otherwise settles them. The longest wait of those that wait for the job counts.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from corvo.ids import queue_of_id
from corvo.kv import keys
from corvo.kv.keys import META, prefix_end
from corvo.model import ABSENT, FINISHED, MISSING, Ending, EventType, Job, State
from corvo.protocol.ops.base import encode_json
from corvo.shard.state import outbox, presence
from corvo.shard.state.outbox import CREATED, Watch, WatchAnswer
from corvo.shard.state.restored import home_of
from corvo.shard.state.tables import ENDINGS, FORWARDS, JOBS, TIMERS, Timer
from corvo.shard.state.tx import Tx
from corvo.times import MS

_CANCELLED: Final = State.CANCELLED.value
_COMPLETED: Final = State.COMPLETED.value
_ENDING_TIMERS: Final = TIMERS[Timer.ENDING]
_MISSING_KEY: Final = META.build("missing")
_IS_MISSING: Final = b"\1"
"""After the time in the value of a watched job: it does not exist, as its home has answered."""

# Beginning to wait.


def begin(
    tx: Tx, job: Job, awaited: Iterable[str], *, by_queue: bool = True, wait_ms: int = 0
) -> Job:
    """A new job, waiting for others; or held if one of them has failed.

    `by_queue` is whether the queue in an id decides the shard. In entries of older routers such an
    id was that of no job. `wait_ms` is how long it waits for a job that does not exist yet.
    """
    waits = []
    for job_id in dict.fromkeys(awaited):
        end = _end_of(tx, job_id, wait_ms)
        if not by_queue and queue_of_id(job_id) and end is None:
            end = _CANCELLED
        if end is None:
            waits.append(job_id)
        elif end != _COMPLETED:
            return _failed(tx, job, job_id, end)
    for job_id in waits:
        _watch(tx, job_id, wait_ms)
    return replace(job, waits_for=tuple(waits))


def _end_of(tx: Tx, job_id: str, wait_ms: int) -> str | None:
    """The state in which a job has ended, as far as this shard knows; None if it has not.

    A job that does not exist counts as cancelled; with `wait_ms`, it may still be created if
    clients choose such ids, and else is `ABSENT`.
    """
    found = presence.find(tx, job_id)
    if found is not None:
        state = found.document.state
        return state.value if state in FINISHED else None
    forward = FORWARDS.get(tx, job_id)
    if forward is not None:
        return forward.state or None
    if _is_elsewhere(tx, job_id):
        return None
    if not wait_ms or JOBS.find(tx, job_id) is not None:  # it is being swept
        return _CANCELLED
    ending = ENDINGS.get(tx, job_id)
    if ending is not None and ending.state != MISSING:
        return ending.state
    return None if queue_of_id(job_id) else ABSENT


def _is_elsewhere(tx: Tx, job_id: str) -> bool:
    home = home_of(tx, job_id)
    return home is not None and home != tx.shard and home < tx.shards


def _watch(tx: Tx, job_id: str, wait_ms: int) -> None:
    """Make sure that the end of a job settles its dependents here."""
    found = presence.find(tx, job_id)
    if found is not None:
        if not found.document.awaited:
            JOBS.change(tx, found, replace(found.document, awaited=True))
    elif FORWARDS.get(tx, job_id) is None:
        home = home_of(tx, job_id)
        assert home is not None
        if home == tx.shard:
            _expect(tx, job_id, wait_ms)
        else:
            watch_at(tx, job_id, home, wait_ms)


def watch_at(tx: Tx, job_id: str, home: int, wait_ms: int = 0) -> None:
    """Ask a job's home for its end, unless a question is open that waits as long for the job."""
    key = keys.WATCHED.build(job_id)
    value = tx.get_key(key)
    if not wait_ms:
        if value is None:
            tx.set_key(key, b"")
            outbox.post(tx, home, encode_json(Watch(job_id)))
        return
    if value and int.from_bytes(value[:8], "big") >= tx.now_ns + wait_ms * MS:
        return
    _forget_absence(tx, job_id)
    # An eighth more, so that not every one of many that come in a row has to ask.
    wait_ms += wait_ms // 8
    until = (tx.now_ns + wait_ms * MS).to_bytes(8, "big")
    tx.set_key(key, until + (value or b"")[8:])
    outbox.post(tx, home, encode_json(Watch(job_id, wait_ms)))


def _forget_absence(tx: Tx, job_id: str) -> None:
    """Others wait for a job anew: those that were not held yet for its absence wait on, too."""
    ending = ENDINGS.get(tx, job_id)
    if ending is not None and ending.state == ABSENT:
        ENDINGS.remove(tx, job_id)


def missing(tx: Tx, job: Job) -> tuple[str, int] | None:
    """The first job that this one waits for and that does not exist, and until when it waits."""
    for job_id in job.waits_for:
        until_ns, is_missing = _waited_until(tx, job_id)
        if is_missing:
            return job_id, until_ns
    return None


def wait_left_ms(tx: Tx, job: Job) -> int:
    """How long a job that moves is to wait on for those that do not exist yet."""
    until_ns = max((_waited_until(tx, job_id)[0] for job_id in job.waits_for), default=0)
    return max(1, (until_ns - tx.now_ns) // MS) if until_ns else 0


def _waited_until(tx: Tx, job_id: str) -> tuple[int, bool]:
    """Until when a job is waited for if it does not exist, and whether that is known to be so."""
    ending = ENDINGS.get(tx, job_id)
    if ending is not None and ending.state == MISSING:
        return ending.at_ns, True
    value = tx.get_key(keys.WATCHED.build(job_id)) or b""
    return int.from_bytes(value[:8], "big"), bool(value[8:])


# Jobs that do not exist yet.


def _expect(tx: Tx, job_id: str, wait_ms: int) -> None:
    """Others wait for a job of this shard that does not exist yet."""
    until_ns = tx.now_ns + wait_ms * MS
    ending = ENDINGS.get(tx, job_id)
    if ending is None:
        _count_missing(tx, 1)
    elif ending.at_ns >= until_ns:
        return
    ENDINGS.put(tx, Ending(job_id, MISSING, until_ns))


def came(tx: Tx, job_id: str) -> bool:
    """A job is created here under an id that a client chose. Returns whether others wait for it."""
    if not tx.head(_ENDING_TIMERS).keys:
        return False  # so it is nearly always, and is known without a look at the disk
    ending = ENDINGS.get(tx, job_id)
    if ending is None or ending.state not in (MISSING, ABSENT):
        return False
    ENDINGS.remove(tx, job_id)  # those that were not held yet wait on
    if ending.state == MISSING:
        _count_missing(tx, -1)
    for shard in _watchers(tx, job_id):
        outbox.post(tx, shard, encode_json(WatchAnswer(job_id, CREATED)))
    return True


def give_up(tx: Tx, ending: Ending) -> None:
    """Settle those that waited for a job that was not created in time."""
    assert ending.state == MISSING
    _count_missing(tx, -1)
    settle(tx, ending.id, ABSENT)


def count_missing(tx: Tx) -> int:
    """The number of jobs of this shard that others wait for and that do not exist."""
    return tx.number(_MISSING_KEY)


def _count_missing(tx: Tx, step: int) -> None:
    tx.set_number(_MISSING_KEY, tx.number(_MISSING_KEY) + step)


def is_bound(tx: Tx, job: Job) -> bool:
    """Whether a job waits for one whose id names neither shard nor queue: then it cannot move."""
    return any(home_of(tx, job_id) is None for job_id in job.waits_for)


def is_awaited(tx: Tx, job_id: str) -> bool:
    """Whether jobs here or in another shard depend on a job that comes home."""
    spaces = (keys.DEPENDENT.prefix, keys.WATCHER.prefix)
    return any(_first(tx, space + job_id.encode() + b"\0", limit=1) for space in spaces)


# Between shards.


def watched(tx: Tx, source: int, job_id: str, wait_ms: int) -> None:
    """Another shard asks for the end of a job of this one."""
    end = _end_of(tx, job_id, wait_ms)
    if end is not None:
        outbox.post(tx, source, encode_json(WatchAnswer(job_id, end)))
        return
    tx.set_key(keys.WATCHER.build(job_id, source), b"")
    found = presence.find(tx, job_id)
    if found is not None:
        if not found.document.awaited:
            JOBS.change(tx, found, replace(found.document, awaited=True))
    elif FORWARDS.get(tx, job_id) is None:
        _expect(tx, job_id, wait_ms)
        outbox.post(tx, source, encode_json(WatchAnswer(job_id, MISSING)))


def answered(tx: Tx, job_id: str, state: str) -> None:
    """The home of a job answers with its end, or says whether the job exists."""
    key = keys.WATCHED.build(job_id)
    if state not in (MISSING, CREATED):
        tx.remove_key(key)
        settle(tx, job_id, state)
        return
    value = tx.get_key(key)
    if value is not None:
        tx.set_key(key, value[:8] + (_IS_MISSING if state == MISSING else b""))


# The end of waiting.


def settle(tx: Tx, job_id: str, state: str) -> None:
    """A job has ended: answer the shards that asked, and settle the dependents here."""
    for asker in _watchers(tx, job_id):
        outbox.post(tx, asker, encode_json(WatchAnswer(job_id, state)))
        tx.remove_key(keys.WATCHER.build(job_id, asker))
    ending = Ending(job_id, state, tx.now_ns)
    if not tx.errands_left or not settle_dependents(tx, ending, tx.errands_left)[1]:
        ENDINGS.put(tx, ending)


def reopened(tx: Tx, job_id: str) -> None:
    """A job that had ended is pending again: dependents that are not settled wait on."""
    if ENDINGS.get(tx, job_id) is not None:
        ENDINGS.remove(tx, job_id)


def settle_dependents(tx: Tx, ending: Ending, limit: int) -> tuple[int, bool]:
    """Settle up to `limit` dependents here. Returns how many were settled, and if those were all.

    A dependent may be swept, and its removal is an end as well. The dependents of that end are left
    to the leader, so that this function does not walk down a chain of dependencies.
    """
    prefix = keys.DEPENDENT.prefix + ending.id.encode() + b"\0"
    found = _first(tx, prefix, limit=limit + 1)
    left, tx.errands_left = tx.errands_left, 0
    for key in found[:limit]:
        _settle_dependent(tx, key[len(prefix) :].decode(), ending)
    done = min(len(found), limit)
    tx.errands_left = max(0, left - max(done, 1))
    is_all = len(found) <= limit
    if is_all and ENDINGS.get(tx, ending.id) is not None:
        ENDINGS.remove(tx, ending.id)
    return done, is_all


def _settle_dependent(tx: Tx, job_id: str, ending: Ending) -> None:
    found = JOBS.find(tx, job_id)
    assert found is not None, "an index names jobs that are there"
    job = found.document
    if presence.find(tx, job_id) is None:
        tx.doomed.append(job_id)  # it is being swept, and must not go anywhere else
    elif ending.state != _COMPLETED:
        JOBS.change(tx, found, _failed(tx, job, ending.id, ending.state))
    else:
        waits_for = tuple(awaited for awaited in job.waits_for if awaited != ending.id)
        trail = job.trail
        if not waits_for:
            trail = presence.trail(tx, job, EventType.READY, f"after {ending.id}")
        JOBS.change(tx, found, replace(job, waits_for=waits_for, trail=trail))
        if not waits_for and job.state is State.PENDING:
            tx.touched[job.queue] = None


def _failed(tx: Tx, job: Job, awaited: str, end: str) -> Job:
    """The job, held because one that it depends on has failed; an approval lets it run."""
    reason = f"dependency_{'missing' if end == ABSENT else 'failed'}: {awaited}"
    return replace(
        job,
        state=State.HELD,
        scheduled_ns=0,
        held_ns=tx.now_ns,
        hold_reason=reason,
        waits_for=(),
        trail=presence.trail(tx, job, EventType.HELD, reason),
    )


def _watchers(tx: Tx, job_id: str) -> list[int]:
    """Other shards that must learn how a job ends."""
    prefix = keys.WATCHER.prefix + job_id.encode() + b"\0"
    return [int.from_bytes(key[-4:], "big") for key in _first(tx, prefix, limit=tx.shards)]


def _first(tx: Tx, prefix: bytes, *, limit: int) -> list[bytes]:
    return tx.keys(prefix, prefix_end(prefix), limit=limit)
