"""Dependencies: jobs that wait for other jobs to complete.

An index has the dependents of each job within a shard. For a job of another shard, the shard of the
dependent job asks the home of the other once (`Watch`), and gets its end once (`WatchAnswer`). The
home knows the end, wherever the job has moved: see `corvo.shard.state.consequences`.

Any number of jobs may depend on one. An entry settles some of them; the leader's op `Tell` settles
the rest. A document (`Ending`) keeps `Tell` due until all are settled.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from corvo.ids import home_of, queue_of_id
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.model import FINISHED, Ending, EventType, Job, State
from corvo.protocol.ops.base import encode_json
from corvo.shard.state import outbox, presence
from corvo.shard.state.outbox import Watch, WatchAnswer
from corvo.shard.state.tables import ENDINGS, FORWARDS, JOBS
from corvo.shard.state.tx import Tx

# Beginning to wait.


def begin(tx: Tx, job: Job, awaited: Iterable[str], *, by_queue: bool = True) -> Job:
    """A new job, waiting for others; or held if one of them has failed.

    `by_queue` is whether the queue in an id decides the shard. In entries of older routers such an
    id was that of no job.
    """
    waits = []
    for job_id in dict.fromkeys(awaited):
        end = _end_of(tx, job_id)
        if not by_queue and queue_of_id(job_id) and end is None:
            end = State.CANCELLED
        if end is None:
            waits.append(job_id)
        elif end is not State.COMPLETED:
            return _failed(tx, job, job_id)
    for job_id in waits:
        _watch(tx, job_id)
    return replace(job, waits_for=tuple(waits))


def _end_of(tx: Tx, job_id: str) -> State | None:
    """The state in which a job has ended, as far as this shard knows; None if it has not.

    A job that does not exist counts as cancelled.
    """
    found = presence.find(tx, job_id)
    if found is not None:
        state = found.document.state
        return state if state in FINISHED else None
    forward = FORWARDS.get(tx, job_id)
    if forward is not None:
        return State(forward.state) if forward.state else None
    return None if _is_elsewhere(tx, job_id) else State.CANCELLED


def _is_elsewhere(tx: Tx, job_id: str) -> bool:
    home = home_of(job_id, tx.shards)
    return home is not None and home != tx.shard and home < tx.shards


def _watch(tx: Tx, job_id: str) -> None:
    """Make sure that the end of a job settles its dependents here."""
    found = presence.find(tx, job_id)
    if found is not None:
        if not found.document.awaited:
            JOBS.change(tx, found, replace(found.document, awaited=True))
    elif FORWARDS.get(tx, job_id) is None:
        home = home_of(job_id, tx.shards)
        assert home is not None
        watch_at(tx, job_id, home)


def watch_at(tx: Tx, job_id: str, home: int) -> None:
    """Ask a job's home for its end, unless a question is still open."""
    key = keys.WATCHED.build(job_id)
    if tx.get_key(key) is None:
        tx.set_key(key, b"")
        outbox.post(tx, home, encode_json(Watch(job_id)))


def is_bound(tx: Tx, job: Job) -> bool:
    """Whether a job waits for one whose id names neither shard nor queue: then it cannot move."""
    return any(home_of(job_id, tx.shards) is None for job_id in job.waits_for)


def is_awaited(tx: Tx, job_id: str) -> bool:
    """Whether jobs here or in another shard depend on a job that comes home."""
    spaces = (keys.DEPENDENT.prefix, keys.WATCHER.prefix)
    return any(_first(tx, space + job_id.encode() + b"\0", limit=1) for space in spaces)


# Between shards.


def watched(tx: Tx, source: int, job_id: str) -> None:
    """Another shard asks for the end of a job of this one."""
    end = _end_of(tx, job_id)
    if end is not None:
        outbox.post(tx, source, encode_json(WatchAnswer(job_id, end.value)))
        return
    tx.set_key(keys.WATCHER.build(job_id, source), b"")
    found = presence.find(tx, job_id)
    if found is not None and not found.document.awaited:
        JOBS.change(tx, found, replace(found.document, awaited=True))


def answered(tx: Tx, job_id: str, state: State) -> None:
    """The home of a job answers with its end."""
    tx.remove_key(keys.WATCHED.build(job_id))
    settle(tx, job_id, state)


# The end of waiting.


def settle(tx: Tx, job_id: str, state: State) -> None:
    """A job has ended: answer the shards that asked, and settle the dependents here."""
    prefix = keys.WATCHER.prefix + job_id.encode() + b"\0"
    for key in _first(tx, prefix, limit=tx.shards):
        asker = int.from_bytes(key[-4:], "big")
        outbox.post(tx, asker, encode_json(WatchAnswer(job_id, state.value)))
        tx.remove_key(key)
    ending = Ending(job_id, state.value, tx.now_ns)
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
    elif ending.state != State.COMPLETED.value:
        JOBS.change(tx, found, _failed(tx, job, ending.id))
    else:
        waits_for = tuple(awaited for awaited in job.waits_for if awaited != ending.id)
        trail = job.trail
        if not waits_for:
            trail = presence.trail(tx, job, EventType.READY, f"after {ending.id}")
        JOBS.change(tx, found, replace(job, waits_for=waits_for, trail=trail))
        if not waits_for and job.state is State.PENDING:
            tx.touched[job.queue] = None


def _failed(tx: Tx, job: Job, awaited: str) -> Job:
    """The job, held because one that it depends on has failed; an approval lets it run."""
    reason = f"dependency_failed: {awaited}"
    return replace(
        job,
        state=State.HELD,
        scheduled_ns=0,
        held_ns=tx.now_ns,
        hold_reason=reason,
        waits_for=(),
        trail=presence.trail(tx, job, EventType.HELD, reason),
    )


def _first(tx: Tx, prefix: bytes, *, limit: int) -> list[bytes]:
    return tx.keys(prefix, prefix_end(prefix), limit=limit)
