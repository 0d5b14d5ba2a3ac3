"""Questions of a router to the mirror of its node, and their answers.

The registry numbers the questions as `corvo.shard.queries` does those of shards. A question travels
as JSON. Its answer is a `MirrorAnswer`, whose body is JSON that a router sends to the client as it
is; or, under its code, a `Refused`.

Text that a client wrote stays a value: no part of a question ever becomes a piece of SQL.
"""

from typing import Annotated, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from corvo.protocol.jobs import Time
from corvo.protocol.words import GivenPriority
from corvo.scopes import NOTHING, Scope

LIMIT_MAX: Final = 1_000
TEXT_BYTES_MAX: Final = 4_096
TAGS_MAX: Final = 32
STATES_MAX: Final = 8
IDS_MAX: Final = 5_000
"""Jobs that one `Select` names."""
MINUTES_MAX: Final = 60
SUMMARY_MINUTES_MAX: Final = 60
"""Minutes that a summary has of each queue."""
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_BYTES_MAX)]
Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)]
Attempts: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


# What clients write.


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs are meant: those that everything holds for that is given. `null` is not given.

    Times are as RFC 3339 has them, or dates; *after* a time is behind it, *before* is ahead of it.
    """

    queue: Text | None = None
    state: Annotated[list[Text], msgspec.Meta(max_length=STATES_MAX)] | Text | None = None
    """Any of these; a text is one, or has commas between them."""
    kind: Text | None = None
    priority: GivenPriority | None = None
    tags: Annotated[dict[Text, Text], msgspec.Meta(max_length=TAGS_MAX)] | None = None
    """All of them."""
    payload_contains: Text | None = None  # a piece of the payload as it was sent, letter by letter
    payload_jq: Text | None = None
    error_contains: Text | None = None
    has_errors: bool | None = None
    dlq_reason: Text | None = None  # one of `corvo.protocol.reasons.DLQ_REASONS`
    unique_key: Text | None = None
    batch_id: Text | None = None
    worker_id: Text | None = None  # of the worker that has the job, had it last, or failed it
    parent_id: Text | None = None
    chain_id: Text | None = None
    job_id_prefix: Text | None = None
    created_after: Text | None = None
    created_before: Text | None = None
    scheduled_after: Text | None = None
    scheduled_before: Text | None = None
    started_after: Text | None = None
    started_before: Text | None = None
    completed_after: Text | None = None
    completed_before: Text | None = None
    expire_after: Text | None = None
    expire_before: Text | None = None
    attempt_min: Attempts | None = None
    attempt_max: Attempts | None = None


Consistency: TypeAlias = Literal["wait", "stale"]


class SearchBody(Filter, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A filter, an order, and which page of it.

    A name that is not known is refused: a condition that was misspelt would find more jobs.
    """

    sort: Text | None = None
    """created_at (if not given), priority, started_at, completed_at or attempt."""
    order: Text | None = None  # asc or desc (if not given)
    cursor: Text | None = None
    """The `cursor` or `prev_cursor` of an answer, for the page behind or before it."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] | None = None  # 50 if not given
    consistency: Consistency | None = None
    """For the router, which makes a `Freshness` of it: the mirror does not read it."""


# What is asked.


class Freshness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the shards stood when the client asked. The answer waits for that, up to a limit."""

    positions: dict[int, int] = {}  # by shard
    unknown: tuple[int, ...] = ()
    """Shards of which this is not known: they are not waited for."""
    wait_ms: int = 0

    def is_beyond(self, as_of: "AsOf") -> bool:
        """Whether rows as of these places may lack changes of before the client asked."""
        places = [(as_of.get(f"s{shard}"), index) for shard, index in self.positions.items()]
        return bool(self.unknown) or any(
            place is None or place.index < index or not place.is_whole for place, index in places
        )


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question."""

    scope: Scope = NOTHING
    """The queues that the caller may see. A question without a scope finds nothing."""
    min_seq: dict[int, int] = {}  # by shard, how far the mirror must have come before it answers
    freshness: Freshness | None = None
    budget_ms: int = 1_000
    """How long it may take to look; then what was found by then is the answer, and says so."""


class Search(Question, frozen=True, kw_only=True, omit_defaults=True):
    """A page of jobs."""

    search: SearchBody = SearchBody()


class FullText(Question, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs whose id, queue, payload or tags have all the words of `q`, the best matches first."""

    q: Text
    limit: Limit = 50


class Count(Question, frozen=True, kw_only=True, omit_defaults=True):
    """How many jobs a filter means, and some of them: what a bulk operation would act on."""

    filter: Filter = Filter()
    samples: Annotated[int, msgspec.Meta(ge=0, le=100)] = 10
    exact_to: int = 10_000_000  # beyond so many it is enough to say `at least`


class Select(Question, frozen=True, kw_only=True, omit_defaults=True):
    """The next ids of all jobs that a filter means, in an order that never changes."""

    filter: Filter = Filter()
    bounds: dict[int, int] = {}
    """By shard, a time in nanoseconds: only jobs to which nothing happened since. A shard that is
    not named has none that are meant."""
    after: str = ""  # `Selected.after` of the page before
    limit: Annotated[int, msgspec.Meta(ge=1, le=IDS_MAX)] = 1_000


class GetStanding(Question, frozen=True, kw_only=True, omit_defaults=True):
    """How far the mirror has come, and how it is."""


class Rebuild(Question, frozen=True, kw_only=True, omit_defaults=True):
    """Make the mirror anew from the shards. It goes on answering meanwhile, and says so."""


class GetRates(Question, frozen=True, kw_only=True, omit_defaults=True):
    """What went on in queues in the last minutes."""

    queues: tuple[str, ...] = ()  # only these queues; empty: every queue of the scope


class GetThroughput(Question, frozen=True, kw_only=True, omit_defaults=True):
    """What went on in each of the last minutes, in one queue or all together."""

    queue: str = ""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=MINUTES_MAX)] = MINUTES_MAX


class GetBeats(Question, frozen=True, kw_only=True, omit_defaults=True):
    """What the jobs that are active say of the workers that have them."""


class GetSummary(Question, frozen=True, kw_only=True, omit_defaults=True):
    """For a dashboard: every queue's counts and rates."""

    minutes: Annotated[int, msgspec.Meta(ge=0, le=SUMMARY_MINUTES_MAX)] = 0
    """Last whole minutes that are counted one by one."""
    known: str = ""
    """The `mark` of a summary that the router has."""
    known_minute: str = ""
    """The `minute` of that summary."""


# What is answered.


class MirrorAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer, and beside it the positions that it is of, so that nobody has to look for them."""

    body: bytes  # JSON
    positions: dict[int, int] = {}
    """By shard, the index of its log that the mirror had come to; the same as in `as_of`."""


def positions_of(as_of: "AsOf") -> dict[int, int]:
    """By shard, the index of its log."""
    return {int(name[1:]): place.index for name, place in as_of.items()}


class Place(msgspec.Struct, frozen=True, gc=False):
    """How far the mirror has come in one shard's log."""

    index: int
    at: str  # the shard's own time there
    is_whole: bool = True
    """False while a full pass is under way: jobs may be missing, or be as they were before."""


AsOf: TypeAlias = dict[str, Place]
"""By shard, as `s0`."""

IsBehind: TypeAlias = bool | msgspec.UnsetType
"""Whether changes may be missing that came before the question; unset if it had no `Freshness`."""

J = TypeVar("J")


class Found(msgspec.Struct, Generic[J], frozen=True, kw_only=True):
    """A page of jobs: JSON of each in the mirror, a `corvo.protocol.jobs.FoundJob` for readers."""

    jobs: list[J]
    total: int
    total_is_exact: bool  # false: there are at least so many
    cursor: str | None = None  # for the page behind this one
    prev_cursor: str | None = None  # for the page before it
    has_more: bool = False
    partial: bool = False
    """The time was over before everything was looked at: `cursor` goes on where it stopped."""
    why_partial: str = ""
    duration_ms: int = 0
    as_of: AsOf = {}
    is_behind: IsBehind = msgspec.UNSET


RawPage: TypeAlias = Found[msgspec.Raw]
"""A page as the mirror writes it."""


class TextHit(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has the words."""

    id: str
    queue: str
    state: str
    payload: str
    tags: str
    created_at: str


class TextFound(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that have the words."""

    q: str
    results: list[TextHit]
    partial: bool = False
    duration_ms: int = 0
    as_of: AsOf = {}
    is_behind: IsBehind = msgspec.UNSET


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a filter means."""

    total: int
    is_exact: bool
    states: dict[str, int]
    queues: dict[str, int]  # the hundred that have most of them
    samples: list[msgspec.Raw]
    bounds: dict[int, int]
    """What `Select.bounds` is to be, to mean just these: by shard, its time when this was said."""
    duration_ms: int = 0
    as_of: AsOf = {}


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job of a selection."""

    id: str
    shard: int
    queue: str
    state: str


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a selection. It may be empty and still not be the last."""

    members: list[Member]
    after: str  # for the next page; empty when everything was looked at
    as_of: AsOf = {}


class ShardStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How the mirror follows one shard."""

    shard: int
    index: int
    now_ns: int  # the shard's own time at `index`
    through: int  # up to there rows may be ahead of `index`: exact when it is not greater
    is_linked: bool
    is_whole: bool
    passes: int  # full passes that were begun, since this process began
    changes: int  # documents taken in, since this process began


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How the mirror is."""

    shards: list[ShardStanding]
    file_bytes: int
    jobs: int  # rows, about
    rebuilds: int
    lag_seconds: list[int]
    """A histogram of how late rows were when they were written: counts by `LAG_BOUNDS_MS`."""
    lag_sum_ms: float
    questions: int
    interrupted: int  # questions whose time was over
    schema: int
    rss_bytes: int = 0
    cpu_seconds: float = 0.0


LAG_BOUNDS_MS: Final = (10, 25, 50, 100, 200, 500, 1_000, 2_500, 5_000, 10_000, 60_000)
"""The last class has what is beyond."""


class Rebuilding(msgspec.Struct, frozen=True):
    """A rebuild was begun."""

    status: str = "rebuilding"
    shards: int = 0


class Rates(msgspec.Struct, frozen=True):
    """Of one queue: how many within the last whole minute, and within the last five."""

    queue: str
    enqueued_1m: int
    started_1m: int
    completed_1m: int
    failed_1m: int
    enqueued_5m: int
    started_5m: int
    completed_5m: int
    failed_5m: int


class AllRates(msgspec.Struct, frozen=True):
    """Of queues, by name; those in which nothing went on are left out."""

    queues: list[Rates]
    as_of: AsOf = {}


class Minute(msgspec.Struct, frozen=True):
    """What went on in one minute."""

    minute: str
    enqueued: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0


class Throughput(msgspec.Struct, frozen=True):
    """The last minutes, the oldest first."""

    minutes: list[Minute]
    as_of: AsOf = {}


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, by the jobs that it has."""

    worker_id: str
    hostname: str
    active: int
    beat_ns: int  # when one of its leases began anew last
    started_ns: int  # when it was given the newest of them
    queues: tuple[str, ...]


class Beats(msgspec.Struct, frozen=True):
    """Workers that have jobs."""

    workers: list[Beat]
    as_of: AsOf = {}


class QueueMinutes(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a queue in each of the last whole minutes, the oldest minute first."""

    enqueued: list[int]
    completed: list[int]
    failed: list[int]


class SummaryQueue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One queue at a glance, as clients get it. Only the router sets `workers`."""

    name: str
    paused: bool
    draining: bool = False
    max_concurrency: int = 0
    counts: dict[str, int]
    workers: int | msgspec.UnsetType = msgspec.UNSET
    """Workers that fetch from it; unset while a router may fetch for it that has not answered."""
    enqueued_1m: int | msgspec.UnsetType = msgspec.UNSET
    """Within the last whole minute; rates are left out while the mirror is away."""
    completed_1m: int | msgspec.UnsetType = msgspec.UNSET
    failed_1m: int | msgspec.UnsetType = msgspec.UNSET
    enqueued_this_minute: int | msgspec.UnsetType = msgspec.UNSET
    """Since `minute` of the summary."""
    completed_this_minute: int | msgspec.UnsetType = msgspec.UNSET
    failed_this_minute: int | msgspec.UnsetType = msgspec.UNSET
    minutes: QueueMinutes | msgspec.UnsetType = msgspec.UNSET
    """Unset if nothing went on in them."""
    oldest_pending_at: Time | msgspec.UnsetType = msgspec.UNSET


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All queues for a dashboard."""

    queues: list[SummaryQueue]
    minute: str = ""
    """The start of the minute that has not ended yet."""
    mark: str = ""
    """Names this summary in a later question; empty if it cannot be continued."""
    changed: list[str] | None = None
    """Queues that may differ from the summary that the router has; those that are not in `queues`
    are gone. None: `queues` has all queues."""
    as_of: AsOf = {}
    is_behind: IsBehind = msgspec.UNSET


class Refused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a question is not answered."""

    code: str  # bad_filter, bad_cursor, not_caught_up, over_budget, busy or unknown_query
    error: str
    field: str = ""
    as_of: AsOf = {}


QUESTIONS: Final[dict[int, type[Question]]] = {
    1: Search,
    2: FullText,
    3: Count,
    4: Select,
    5: GetStanding,
    6: Rebuild,
    7: GetRates,
    8: GetThroughput,
    9: GetBeats,
    10: GetSummary,
}
"""A number is never given to another question."""

NUMBERS: Final = {question: number for number, question in QUESTIONS.items()}
