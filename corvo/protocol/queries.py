"""Queries of a router to a shard, and their answers, as structs.

A query and its answer travel as JSON. Unless a query is about one replica, the leader answers it
after a proof of leadership. The registry numbers them, as `corvo.protocol.ops` numbers ops.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, ClassVar, Final

import msgspec

from corvo.model import ApiKey, Batch, Event, Job, JobError, Queue, Schedule, State, Worker
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.numbers import PAGE_NUMBERS_MAX, PAGE_QUEUES, PageLimit
from corvo.protocol.ops.base import (
    ID_BYTES_MAX,
    ITEMS_MAX,
    NAME_BYTES_MAX,
    Id,
    Json,
    Name,
    Nanos,
)
from corvo.protocol.ops.enqueue import Enqueued, NewJob
from corvo.scopes import NOTHING, Scope


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not being worked on."""

    code: str
    text: str
    until_ns: int = 0  # when that ends by itself; 0 when it does not, or is not known
    ahead: int = 0  # jobs that come before it, as far as they were counted


PAGE_MAX: Final = 1_000

ANSWER_BYTES_MAX: Final = 4 << 20
"""Behind so much an answer is cut short and says so; a frame carries four times that."""

QUEUES_MAX: Final = 1_000
"""Queues that one question about dead jobs may name."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question."""

    is_local: ClassVar[bool] = False  # whether any replica may answer it, from its own state

    SINCE: ClassVar[int] = 1
    """The op version that it came with: see `corvo.protocol.versions`."""
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {}
    """The op versions of fields that came later."""


class Form(Enum):
    """How much of a job is asked for."""

    BODY = "body"  # a `JobBody`: all that clients may see
    SUMMARY = "summary"  # a `JobSummary`: what a list shows
    BRIEF = "brief"  # nothing beside what a `FoundJob` has
    STORED = "stored"  # a `StoredJob`: for the server's own decisions


class FoundJob(msgspec.Struct, frozen=True, array_like=True):
    """A job in the form asked for, and what a router has to know of it besides."""

    id: str
    queue: str
    state: State
    finished_ns: int
    json: msgspec.Raw


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is stored: its JSON and its trail beside the document, and its last errors."""

    job: Job
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    checkpoint: Json = msgspec.UNSET
    trail: tuple[Event, ...] = ()
    errors: tuple[JobError, ...] = ()


class Jobs(msgspec.Struct, frozen=True):
    """Those that are there, in the order asked for."""

    jobs: list[FoundJob]
    looked_at: int = 0
    """How many of the ids: fewer than were asked for when the answer has become large."""
    moved: dict[str, int] = {}
    """Ids of jobs that have moved, and the shards that they are in or on their way to."""


class GetJobs(Query, frozen=True, kw_only=True):
    """Jobs by their ids."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]
    form: Form = Form.BODY


class Whereabouts(msgspec.Struct, frozen=True):
    """Where jobs are, for whoever has to know who may touch them, or whom to ask."""

    queues: dict[str, str]  # by id, of those that are here
    moved: dict[str, int]  # by id, the shard of those that have left for it


class GetWhereabouts(Query, frozen=True, kw_only=True):
    """Which of some jobs are here, and which have moved."""

    job_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]


class RequestKnown(msgspec.Struct, frozen=True):
    """Whether the answer to a request is stored."""

    is_known: bool


class KnowsRequest(Query, frozen=True, kw_only=True):
    """Whether the answer to the op with a request key is stored here."""

    request_key: str


class BatchQueues(msgspec.Struct, frozen=True):
    """The queues that batches belong to, by the ids of those that are here."""

    queues: dict[str, str]


class GetBatchQueues(Query, frozen=True, kw_only=True):
    """The queues that some batches belong to."""

    batch_ids: Annotated[list[Id], msgspec.Meta(max_length=ITEMS_MAX)]


class BatchFound(msgspec.Struct, frozen=True):
    """A batch, if it is here."""

    batch: Batch | None


class GetBatch(Query, frozen=True, kw_only=True):
    """One batch."""

    batch_id: Id


class Batches(msgspec.Struct, frozen=True):
    """Batches, the newest first, without the payloads of their callbacks."""

    batches: list[Batch]
    before_ns: int = 0
    before_id: str = ""
    """Where to go on: with what is older than this. `before_ns` is 0 when all was looked at. The id
    is that of a batch of the answer, or empty."""


class ListBatches(Query, frozen=True, kw_only=True):
    """Batches that belong to queues of a scope, the newest first.

    Others lie between them, so one answer may have few or none and still not be the last.
    """

    scope: Scope = NOTHING
    before_ns: Nanos = 0
    before_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    """Only what was created before this, of what was created at one time those with a smaller id;
    0 is all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class ScheduleFound(msgspec.Struct, frozen=True):
    """A schedule, if it is here."""

    schedule: Schedule | None


class GetSchedule(Query, frozen=True, kw_only=True):
    """One schedule."""

    SINCE = 5
    schedule_id: Id


class Schedules(msgspec.Struct, frozen=True):
    """Schedules in the order of their ids."""

    schedules: list[Schedule]
    after: str = ""
    """Behind which one the next page begins; empty at the end. It may not be one of the answer."""


class ListSchedules(Query, frozen=True, kw_only=True):
    """Schedules of queues of a scope, or of one queue."""

    SINCE = 5
    scope: Scope = NOTHING
    queue: Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)] = ""
    after: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class Existing(msgspec.Struct, frozen=True):
    """The answer for a job that exists in place of a new one, if it is here."""

    found: Enqueued | None


class GetExisting(Query, frozen=True, kw_only=True):
    """The job that has the id of a new job, compared with the new one.

    For a job that is not in the shard in which it was created, where `Enqueue` compares.
    """

    new: NewJob


class Explain(Query, frozen=True, kw_only=True):
    """Why a job is not being worked on."""

    job_id: Id


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, its settings, and how many jobs of each state it has."""

    queue: Queue
    counts: dict[str, int]
    oldest_pending_ns: int = 0
    """The place of the pending job that waits longest for a worker; 0 when none does."""

    @property
    def exists(self) -> bool:
        """Whether there is such a queue: one that was deleted or never named has no such time."""
        return self.queue.created_ns != 0


class Queues(msgspec.Struct, frozen=True):
    """A page of queues, and the name behind which the next one begins; empty at the end."""

    queues: list[QueueView]
    after: str = ""


class GetQueues(Query, frozen=True, kw_only=True):
    """The shard's queues by name, a page at a time."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class GetQueue(Query, frozen=True, kw_only=True):
    """One queue."""

    queue: Name


class Counts(msgspec.Struct, frozen=True):
    """A page of queues that have jobs of a state."""

    queues: list[tuple[str, int]]  # the name, and how many
    after: str = ""  # the name behind which the next page begins; empty at the end


class CountJobs(Query, frozen=True, kw_only=True):
    """In which queues jobs of a state are. Looks at so many queues, and leaves out most of them."""

    state: State
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class Dead(msgspec.Struct, frozen=True):
    """Dead jobs, the newest first, each with its last error."""

    jobs: list[FoundJob]  # as summaries
    before_ns: int = 0
    before_id: str = ""
    """Where to go on: with what is older than this. The id is empty when all was looked at."""


class ListDead(Query, frozen=True, kw_only=True):
    """Dead jobs of some queues, the newest first.

    Completed and cancelled ones lie between them, so one answer may have few or none and still not
    be the last.
    """

    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    before_ns: Nanos = 0
    before_id: Annotated[str, msgspec.Meta(max_length=ID_BYTES_MAX)] = ""
    """Only what ended before this, of what ended at one time those with a smaller id; nothing is
    all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class Workers(msgspec.Struct, frozen=True):
    """A page of workers, and the id behind which the next one begins; empty at the end."""

    workers: list[Worker]
    after: str = ""


class GetWorkers(Query, frozen=True, kw_only=True):
    """Workers that fetched from this shard lately, a page at a time."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class ApiKeys(msgspec.Struct, frozen=True):
    """A page of API keys, and the hash behind which the next one begins; empty at the end."""

    keys: list[ApiKey]
    after: str = ""


class ListKeys(Query, frozen=True, kw_only=True):
    """The API keys, a page at a time. Only the shard that keeps them has any."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class Active(msgspec.Struct, frozen=True):
    """Jobs that workers have."""

    job_ids: list[str]


class GetActive(Query, frozen=True, kw_only=True):
    """The jobs of a queue that workers have, the first by their ids."""

    queue: Name
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class Newest(msgspec.Struct, frozen=True):
    """Ids of jobs, each once, in no order."""

    job_ids: list[str]


class GetNewest(Query, frozen=True, kw_only=True):
    """The jobs that came last into each state of a queue: the newest jobs are among them.

    Not exactly: of finished jobs they are those that finished last, of active ones any.
    """

    queue: Name
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX  # of each index


class Moment(msgspec.Struct, frozen=True):
    """The shard's own time: whatever happens from here on happens later."""

    now_ns: int


class GetMoment(Query, frozen=True, kw_only=True):
    """What time it is for the shard; the place in the log goes with every answer."""


class AskHere(Query, frozen=True, kw_only=True):
    """A question that any replica answers, from its own state."""

    is_local: ClassVar[bool] = True
    SINCE = 4
    number: int  # of the question, one of `HERE`
    query: msgspec.Raw


class Here(msgspec.Struct, frozen=True):
    """The answer to `AskHere`."""

    answer: msgspec.Raw
    contact_ms: int | None
    """How long ago the replica last received a message of its leader, 0 for the leader itself; None
    if it has received none since its start."""


class GetNumbers(Query, frozen=True, kw_only=True):
    """What this replica has counted, for metrics."""

    is_local: ClassVar[bool] = True


class GetQueueNumbers(Query, frozen=True, kw_only=True):
    """How many jobs each queue has, a page at a time: less of a queue than `GetQueues` tells."""

    is_local: ClassVar[bool] = True
    after: str = ""
    limit: PageLimit = PAGE_QUEUES
    is_brief: bool = False
    """Whether counts are enough: what waits longest has to be looked for, and they have not."""


class GetQueueCounters(Query, frozen=True, kw_only=True):
    """What happened in each queue, as this replica has counted it, a page at a time."""

    SINCE = 6
    is_local: ClassVar[bool] = True
    after: str = ""
    limit: PageLimit = PAGE_NUMBERS_MAX


class GetWorkerNumbers(Query, frozen=True, kw_only=True):
    """When each worker was heard of last, a page at a time."""

    is_local: ClassVar[bool] = True
    after: str = ""
    limit: PageLimit = PAGE_NUMBERS_MAX


class GetTaken(Query, frozen=True, kw_only=True):
    """The effects of a shard that this one has taken: asked for after a loss of entries."""

    source: Annotated[int, msgspec.Meta(ge=0)]


class EffectsTaken(msgspec.Struct, frozen=True):
    """The answer to `GetTaken`."""

    seq: int  # the last one
    epochs: list[tuple[int, int]]  # the first one of each epoch, and the epoch


class GetMap(Query, frozen=True, kw_only=True):
    """The cluster map: shard 0 has it."""


class MapFound(msgspec.Struct, frozen=True):
    """The answer to `GetMap`."""

    map: ClusterMap | None  # None while the cluster has none


QUERIES: Final[dict[int, type[Query]]] = {
    1: GetJobs,
    2: Explain,
    3: GetQueues,
    4: GetQueue,
    5: GetWorkers,
    7: ListKeys,
    10: CountJobs,
    11: ListDead,
    12: GetMoment,
    13: GetActive,
    14: GetNewest,
    20: GetWhereabouts,
    21: GetExisting,
    22: GetBatchQueues,
    23: KnowsRequest,
    24: GetBatch,
    25: ListBatches,
    26: GetTaken,
    27: GetMap,
    28: AskHere,
    30: GetNumbers,
    31: GetQueueNumbers,
    32: GetWorkerNumbers,
    33: GetSchedule,
    34: ListSchedules,
    35: GetQueueCounters,
}
"""A number is never used again."""

NUMBERS: Final = {query: number for number, query in QUERIES.items()}

HERE: Final = frozenset(
    NUMBERS[query] for query in (GetJobs, Explain, GetBatch, GetMap, GetSchedule)
)
"""The questions that `AskHere` may ask."""
