"""Answers to queries, from the state of this replica: nothing is changed."""

import heapq
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from corvo.errors import BadKey
from corvo.ids import first_id
from corvo.kv import keys
from corvo.kv.keys import prefix_end
from corvo.kv.tables import D, Table
from corvo.model import STATES, Batch, Job, JobError, Priority, Queue, Schedule, State
from corvo.protocol import numbers
from corvo.protocol import queries as protocol
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.cluster import HOME as MAP_HOME
from corvo.protocol.ops.schedules import schedule_id
from corvo.raft import Node
from corvo.shard import rendering
from corvo.shard.counting import QueueCounts
from corvo.shard.machine import Machine
from corvo.shard.ops.existing import existing_elsewhere
from corvo.shard.state import dependencies, epochs, lifecycle, outbox, presence, schedules, select
from corvo.shard.state.tables import (
    API_KEYS,
    BATCHES,
    FORWARDS,
    JOBS,
    QUEUES,
    REQUESTS,
    SCHEDULES,
    WORKERS,
    queue_keys,
)
from corvo.shard.state.tx import Tx
from corvo.steered_clock import SteeredClock
from corvo.times import MS

WALK_MAX: Final = 1_000
"""Finished jobs, or batches, that one such question looks at: some 5 ms."""
_BATCHES_READ: Final = 100
"""Keys of batches that are read at a time."""


class Asked(Protocol):
    """The replica that is asked."""

    node: Node
    machine: Machine
    disk_is_full: bool
    map: ClusterMap | None

    @property
    def clock(self) -> SteeredClock:
        """Its clock, read while it leads."""

    @property
    def counters(self) -> numbers.Counters:
        """Its counters, for metrics."""

    @property
    def queue_counts(self) -> QueueCounts:
        """The same by queue."""

    @property
    def waiting(self) -> int:
        """Ops that wait for agreement, or to be proposed."""

    @property
    def contact_ms(self) -> int | None:
        """How long ago it last received a message of its leader: see `protocol.Here`."""


def answer(query: protocol.Query, asked: Asked) -> msgspec.Struct:
    """The answer to a query, or `Rejected`."""
    tx = asked.machine.tx
    match query:
        case protocol.GetJobs():
            return _jobs(query, tx)
        case protocol.GetWhereabouts():
            return _whereabouts(query, tx)
        case protocol.GetExisting(new=new):
            return protocol.Existing(existing_elsewhere(tx, new))
        case protocol.KnowsRequest(request_key=key):
            return protocol.RequestKnown(REQUESTS.get(tx, key) is not None)
        case protocol.GetBatchQueues(batch_ids=batch_ids):
            batches = _stored(tx, BATCHES, batch_ids)
            return protocol.BatchQueues({batch.id: batch.belongs_to for batch in batches})
        case protocol.GetBatch(batch_id=batch_id):
            return protocol.BatchFound(BATCHES.get(tx, batch_id))
        case protocol.ListBatches():
            return _list_batches(query, tx)
        case protocol.GetSchedule(schedule_id=identifier):
            return protocol.ScheduleFound(SCHEDULES.get(tx, identifier))
        case protocol.ListSchedules():
            return _list_schedules(query, tx)
        case protocol.Explain():
            found = presence.find(tx, query.job_id)
            if found is None:
                return lifecycle.missing(tx, query.job_id)
            return select.explain(tx, found.document, now_ns=asked.machine.now_ns)
        case protocol.GetQueue():  # empty for a queue that does not exist
            return _queue_view(tx, query.queue)
        case protocol.ListDead():
            return _list_dead(query, tx)
        case protocol.GetActive():
            prefix = keys.ACTIVE.prefix + query.queue.encode() + b"\0"
            return protocol.Active(_page(tx, prefix, "", query.limit)[0])
        case protocol.GetNewest():
            return _newest(query, tx)
        case protocol.GetMoment():
            return protocol.Moment(asked.machine.now_ns)
        case protocol.GetTaken(source=source):
            return protocol.EffectsTaken(outbox.last_taken(tx, source), epochs.taken(tx, source))
        case protocol.GetMap():
            if tx.shard != MAP_HOME:
                return Rejected("wrong_shard", f"the cluster map is kept in shard {MAP_HOME}")
            return protocol.MapFound(tx.cluster_map)
        case protocol.GetNumbers():
            return _numbers(asked)
        case protocol.GetQueueCounters():
            return asked.queue_counts.page(after=query.after, limit=query.limit)
        case protocol.AskHere():
            return _here(query, asked)
        case _:
            return _page_of(query, tx)


def _here(query: protocol.AskHere, asked: Asked) -> msgspec.Struct:
    """The answer to another question, and how old the state may be."""
    if query.number not in protocol.HERE:
        return Rejected("unknown_query", f"query {query.number} is answered by the leader only")
    if not asked.machine.applied:
        return Rejected("no_state", "the replica has no state yet")
    inner: protocol.Query = _DECODERS[query.number](query.query)
    found = answer(inner, asked)
    if isinstance(found, Rejected):
        return found
    return protocol.Here(msgspec.Raw(encode_json(found)), asked.contact_ms)


def _page_of(query: protocol.Query, tx: Tx) -> msgspec.Struct:
    """The answer to a query that is answered a page at a time."""
    match query:
        case protocol.GetQueues():
            names, after = _page(tx, keys.QUEUE_NAME.prefix, query.after, query.limit)
            return protocol.Queues([_queue_view(tx, name) for name in names], after)
        case protocol.CountJobs():
            names, after = _page(tx, keys.QUEUE_NAME.prefix, query.after, query.limit)
            counts = [(name, tx.count(name)[query.state.number]) for name in names]
            return protocol.Counts([each for each in counts if each[1]], after)
        case protocol.GetWorkers():
            names, after = _page(tx, keys.WORKER.prefix, query.after, query.limit)
            return protocol.Workers(_stored(tx, WORKERS, names), after)
        case protocol.ListKeys():
            names, after = _page(tx, keys.API_KEY.prefix, query.after, query.limit)
            return protocol.ApiKeys(_stored(tx, API_KEYS, names), after)
        case protocol.GetQueueNumbers():
            names, after = _page(tx, keys.QUEUE_NAME.prefix, query.after, query.limit)
            found = [_queue_numbers(tx, name, is_brief=query.is_brief) for name in names]
            return numbers.QueuePage(found, after)
        case protocol.GetWorkerNumbers():
            names, after = _page(tx, keys.WORKER.prefix, query.after, query.limit)
            seen = [(worker.id, worker.seen_ns) for worker in _stored(tx, WORKERS, names)]
            return numbers.WorkerPage(seen, after)
        case _:
            raise NotImplementedError(type(query).__name__)


def _page(tx: Tx, prefix: bytes, after: str, limit: int) -> tuple[list[str], str]:
    """Names of a space, and the one after which the next page begins; empty at the end."""
    start = prefix + after.encode() + b"\0" if after else prefix
    found = tx.keys(start, prefix_end(prefix), limit=limit)
    names = [key[len(prefix) :].decode() for key in found]
    return names, names[-1] if len(names) == limit else ""


def _stored(tx: Tx, table: Table[D], names: list[str]) -> list[D]:
    return [document for name in names if (document := table.get(tx, name)) is not None]


def _jobs(query: protocol.GetJobs, tx: Tx) -> protocol.Jobs:
    """Jobs by their ids, without those that are not in this shard."""
    found: list[protocol.FoundJob] = []
    moved: dict[str, int] = {}
    size = 0
    for number, job_id in enumerate(query.job_ids, start=1):
        held = presence.find(tx, job_id)
        if held is None:
            forward = FORWARDS.get(tx, job_id)
            if forward is not None:
                moved[job_id] = forward.shard
            continue
        found.append(_found_job(tx, held.document, query.form))
        size += len(bytes(found[-1].json))
        if size >= protocol.ANSWER_BYTES_MAX:
            return protocol.Jobs(found, number, moved)
    return protocol.Jobs(found, len(query.job_ids), moved)


def _found_job(tx: Tx, job: Job, form: protocol.Form) -> protocol.FoundJob:
    """A job in a form."""
    is_brief = form is protocol.Form.BRIEF
    shown = b"null" if is_brief else encode_json(_RENDER[form](job, _errors_of(tx, job)))
    return protocol.FoundJob(job.id, job.queue, job.state, job.finished_ns, msgspec.Raw(shown))


_RENDER: Final[dict[protocol.Form, Callable[[Job, list[JobError]], msgspec.Struct]]] = {
    protocol.Form.BODY: rendering.job_body,
    protocol.Form.SUMMARY: rendering.job_summary,
    protocol.Form.STORED: rendering.stored_job,
}


def _errors_of(tx: Tx, job: Job) -> list[JobError]:
    """The errors that are kept of a job, oldest first."""
    stored = [
        tx.get_key(lifecycle.error_key(job.id, number)) for number in lifecycle.error_numbers(job)
    ]
    return [msgspec.json.decode(data, type=JobError) for data in stored if data is not None]


def _whereabouts(query: protocol.GetWhereabouts, tx: Tx) -> protocol.Whereabouts:
    """Leaves out those that were never here, or are gone."""
    queues: dict[str, str] = {}
    moved: dict[str, int] = {}
    for job_id in query.job_ids:
        found = presence.find(tx, job_id)
        if found is not None:
            queues[job_id] = found.document.queue
            continue
        forward = FORWARDS.get(tx, job_id)
        if forward is not None:
            moved[job_id] = forward.shard
    return protocol.Whereabouts(queues, moved)


def _queue_view(tx: Tx, name: str) -> protocol.QueueView:
    """A queue for people."""
    counts = tx.count(name)
    queue = QUEUES.get(tx, name) or Queue(name=name)
    return protocol.QueueView(
        queue=queue,
        counts={state.value: counts[state.number] for state in STATES},
        oldest_pending_ns=_oldest_pending_ns(tx, queue) if counts[State.PENDING.number] else 0,
    )


def _oldest_pending_ns(tx: Tx, queue: Queue) -> int:
    """The smallest place in the queue's indexes, behind what is only waiting to be swept."""
    names = queue_keys(queue.name)
    swept_ns = max(queue.cleared_ns, queue.deleted_ns)
    behind = (swept_ns + 1).to_bytes(8, "big")
    cursor = tx.get_key(names.append_group.cursor) or names.append
    starts = [(names.append, max(cursor, names.append + behind))]
    if tx.keys(names.pending, prefix_end(names.pending), limit=1):  # most queues have none
        urgent = [names.pending + bytes((priority,)) for priority in range(Priority.NORMAL)]
        starts += [(prefix, prefix + behind) for prefix in urgent]
    places = [
        int.from_bytes(key[len(prefix) : len(prefix) + 8], "big")
        for prefix, start in starts
        for key in tx.keys(start, prefix_end(prefix), limit=1)
    ]
    return min(places, default=0)


def _list_dead(query: protocol.ListDead, tx: Tx) -> protocol.Dead:
    """As many as there are among the next few that ended."""
    before = query.before_ns.to_bytes(8, "big") + query.before_id.encode()
    chunk = max(1, WALK_MAX // len(query.queues))
    ended = heapq.merge(
        *(_ended(tx, name, before if query.before_ns else b"", chunk) for name in query.queues),
        reverse=True,
    )
    found: list[protocol.FoundJob] = []
    size = 0
    for walked, place in enumerate(ended, start=1):
        job_id = place[8:].decode()
        job = _dead(tx, job_id)
        if job is not None:
            found.append(_found_job(tx, job, protocol.Form.SUMMARY))
            size += len(bytes(found[-1].json))
        if walked == WALK_MAX or len(found) == query.limit or size >= protocol.ANSWER_BYTES_MAX:
            return protocol.Dead(found, int.from_bytes(place[:8], "big"), job_id)
    return protocol.Dead(found)


def _ended(tx: Tx, queue: str, before: bytes, chunk: int) -> Iterator[bytes]:
    """When jobs of a queue ended, and their ids, as keys have it: from the newest on backwards."""
    prefix = queue_keys(queue).finished
    stop = prefix + before if before else prefix_end(prefix)
    while True:
        found = tx.last_keys(prefix, stop, limit=chunk)
        for key in found:
            yield key[len(prefix) :]
        if len(found) < chunk:
            return
        stop = found[-1]


def _newest(query: protocol.GetNewest, tx: Tx) -> protocol.Newest:
    """From the ends of all indexes of a queue; the ids stand at the ends of their keys."""
    names = queue_keys(query.queue)
    indexes = [
        (prefix, 8)
        for prefix in (
            *(names.pending + bytes((priority,)) for priority in range(Priority.NORMAL)),
            *(names.append, names.blocked, names.scheduled, names.retrying),
            *(names.held, names.finished),
        )
    ]
    found = [
        key[len(prefix) + number_bytes :].decode()
        for prefix, number_bytes in (*indexes, (names.active, 0))
        for key in tx.last_keys(prefix, prefix_end(prefix), limit=query.limit)
    ]
    return protocol.Newest(list(dict.fromkeys(found)))


class _Beginning(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first fields of a `Job`: enough to pass over it."""

    id: str
    queue: str
    state: State


_decode_beginning: Final = msgspec.msgpack.Decoder(_Beginning).decode


def _dead(tx: Tx, job_id: str) -> Job | None:
    """A job that has ended, if it is dead and there."""
    data = tx.get_key(JOBS.prefix + job_id.encode())
    assert data is not None, "an index names jobs that are there"
    if _decode_beginning(data).state is not State.DEAD:
        return None
    found = presence.find(tx, job_id)
    return found.document if found is not None else None


def _list_batches(query: protocol.ListBatches, tx: Tx) -> protocol.Batches:
    """As many as there are among the next few, and no place within batches of one time."""
    found: list[Batch] = []
    size = 0
    edge_ns = 0
    for walked, (batch, taken) in enumerate(_batches_before(tx, query)):
        is_enough = walked >= WALK_MAX or size >= protocol.ANSWER_BYTES_MAX
        if is_enough and batch.created_ns != edge_ns:
            return protocol.Batches(found, edge_ns)
        size += taken
        edge_ns = batch.created_ns
        # One from before version 2 of the ops may belong to nothing: then to users of every queue.
        if query.scope.covers(batch.belongs_to):
            if len(found) == query.limit:
                return protocol.Batches(found, found[-1].created_ns, found[-1].id)
            found.append(replace(batch, callback_payload=""))
    return protocol.Batches(found)


def _batches_before(tx: Tx, query: protocol.ListBatches) -> Iterator[tuple[Batch, int]]:
    """Batches before a place, the newest first, with the bytes of each."""
    prefix = BATCHES.prefix
    place = (query.before_ns, query.before_id.encode())
    stop = prefix_end(prefix)
    if query.before_ns:
        stop = prefix + first_id(tx.shard, "batch", query.before_ns + MS).encode()
    while True:
        keys_found = tx.last_keys(prefix, stop, limit=_BATCHES_READ)
        for key in keys_found:
            data = tx.get_key(key)
            assert data is not None, "a key that was found is there"
            batch = BATCHES.decode(data)
            if not query.before_ns or (batch.created_ns, batch.id.encode()) < place:
                yield batch, len(data)
        if len(keys_found) < _BATCHES_READ:
            return
        stop = keys_found[-1]


def _list_schedules(query: protocol.ListSchedules, tx: Tx) -> protocol.Schedules:
    """As many as there are among the next few."""
    prefix = SCHEDULES.prefix + (schedule_id(query.queue, "").encode() if query.queue else b"")
    start = SCHEDULES.prefix + query.after.encode() + b"\0"
    found: list[Schedule] = []
    size = 0
    page = tx.keys(max(start, prefix), prefix_end(prefix), limit=WALK_MAX)
    for key in page:
        identifier = key[len(SCHEDULES.prefix) :].decode()
        if len(found) == query.limit or size >= protocol.ANSWER_BYTES_MAX:
            return protocol.Schedules(found, found[-1].id)
        schedule = SCHEDULES.get(tx, identifier)
        assert schedule is not None, "a key that was found is there"
        if query.scope.covers(schedule.queue):
            found.append(schedule)
            size += len(schedule.job)
    is_end = len(page) < WALK_MAX
    return protocol.Schedules(found, "" if is_end else page[-1][len(SCHEDULES.prefix) :].decode())


def _numbers(asked: Asked) -> numbers.Numbers:
    """As it is now, whoever leads."""
    seen = asked.node.statistics()
    clock = asked.clock
    is_read = asked.node.is_leader and clock.offset_ns is not None
    return numbers.Numbers(
        replica=seen.replica,
        role=seen.role.value,
        term=seen.term,
        leader=seen.leader,
        commit=seen.commit,
        applied=asked.machine.applied,  # of the same moment as the digest
        first_index=seen.first_index,
        last_index=seen.last_index,
        voters=seen.membership.voters,
        learners=seen.membership.learners,
        outgoing=seen.membership.outgoing,
        map_version=asked.map.version if asked.map is not None else 0,
        is_changing=asked.node.is_leader and not asked.node.may_change,
        snapshot_received=seen.snapshot_received,
        is_repairing=seen.is_repairing,
        uncommitted_bytes=seen.uncommitted_bytes,
        reads_waiting=seen.reads_waiting,
        waiting=asked.waiting,
        peers=[
            numbers.PeerNumbers(
                replica=each.replica,
                match=each.match,
                is_active=each.is_active,
                is_learner=each.is_learner,
            )
            for each in seen.progress
            if each.replica != seen.replica
        ],
        now_ns=asked.machine.now_ns,
        digest=asked.machine.digest,
        disk_is_full=asked.disk_is_full,
        counted=asked.counters,
        clock=(
            numbers.ClockNumbers(clock.course.value, clock.ahead_ns, clock.shown_ns)
            if is_read
            else None
        ),
        missing=dependencies.count_missing(asked.machine.tx),
        schedules=schedules.count(asked.machine.tx),
    )


def _queue_numbers(tx: Tx, name: str, *, is_brief: bool) -> numbers.QueueNumbers:
    counts = tx.count(name)
    told = tuple(counts[: len(STATES)])
    if is_brief:
        return numbers.QueueNumbers(name, told, paused=False, oldest_ns=0)
    queue = QUEUES.get(tx, name) or Queue(name=name)
    oldest_ns = _oldest_pending_ns(tx, queue) if counts[State.PENDING.number] else 0
    return numbers.QueueNumbers(name, told, queue.paused, oldest_ns)


_DECODERS: Final = {
    number: msgspec.json.Decoder(query).decode for number, query in protocol.QUERIES.items()
}


def answer_bytes(asked: Asked, number: int, body: bytes) -> msgspec.Struct:
    """Answer a question of the registry, or say what is wrong with it."""
    try:
        query: protocol.Query = _DECODERS[number](body)
        return answer(query, asked)
    except (msgspec.DecodeError, UnicodeError, BadKey) as error:
        return Rejected("bad_request", str(error))
    except RecursionError:
        return Rejected("bad_request", "the question is nested too deeply")
    finally:
        asked.machine.tx.rest()
