"""Jobs and filters by chance: few values, so that filters find something, and nasty ones."""

from typing import Final

import msgspec
from hypothesis import strategies as st

from corvo.model import STATES, Event, Job, JobError
from corvo.protocol.questions import Filter
from corvo.protocol.reasons import DLQ_REASONS
from corvo.scopes import EVERYTHING, NOTHING, Scope
from tests.mirror.twin import EPOCH_NS, EXPRESSIONS, PRIORITIES, Kept

QUEUES: Final = ("a", "ab", "b*", "_corvo.bulk", "z")
SCOPES: Final = (
    EVERYTHING,
    NOTHING,
    *map(Scope, (("a",), ("a*",), ("*",), ("b*", "z"), ("b", "nobody"), ("_corvo.*", "ab"))),
)
WORKERS: Final = ("w1", "w2%", "_")
KEYS: Final = ("k", "K", "%")
NASTY: Final = (
    "",
    "a",
    "A",
    "b",
    ",",
    ":",
    '","',
    '"',
    "\\",
    "\\u0000",
    "\0",
    "a\0b",
    "'",
    "' OR 1=1 --",
    "%",
    "_",
    "$.a",
    "a.b",
    "a[0]",
    "{",
    "é",
    "e\u0301",
    "\u202eabc",
    "\U0001f600",
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
)
EVENTS: Final = (
    ("enqueued",),
    ("died", "", "expired"),
    ("died", "", "not retryable"),
    ("rejected", "A", "%"),
    ("cancelled", "", "a"),
)
"""The last event in a job's trail: type, who did it, and why."""
IDS: Final = tuple(f"s0{shard}_job_{number}" for shard in range(3) for number in "012%_é")

tags = st.dictionaries(st.sampled_from(NASTY), st.sampled_from(NASTY), max_size=3)
moments = st.integers(1, 4).map(lambda number: EPOCH_NS + number)
maybe_moments = st.just(0) | moments
payloads = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from((1, 2, 2.5, 3, "3", None, True)),
        "a": st.sampled_from(({"b": "x"}, {"b": 1}, "x", None, [])),
        # What `payload_jq` says of payloads that have the character NUL, its own tests know.
        "t": st.sampled_from([text for text in NASTY if "\0" not in text]),
    },
).map(msgspec.json.encode)


@st.composite
def keeps(draw: st.DrawFn) -> Kept:
    """One job. Its host is named after its shard, for answers do not show that."""
    shard = draw(st.integers(0, 2))
    failures = draw(st.integers(0, 2))
    errors = tuple(
        JobError(
            attempt=number,
            error=draw(st.sampled_from(NASTY)),
            at_ns=draw(moments),
            worker_id=draw(st.sampled_from(("", *WORKERS))),
        )
        for number in range(failures)
    )
    job = Job(
        id=draw(st.sampled_from(IDS)),
        queue=draw(st.sampled_from(QUEUES)),
        state=draw(st.sampled_from(STATES)),
        payload=draw(payloads),
        created_ns=draw(moments),
        order_ns=1,
        trail=(Event(EPOCH_NS, "enqueued"), Event(draw(moments), *draw(st.sampled_from(EVENTS)))),
        priority=draw(st.integers(0, 2)),
        kind=draw(st.sampled_from(("", "mail"))),
        attempt=draw(st.integers(0, 4)),
        failures=failures,
        hostname=f"h{shard}",
        worker_id=draw(st.sampled_from(("", *WORKERS))),
        scheduled_ns=draw(maybe_moments),
        expires_ns=draw(maybe_moments),
        started_ns=draw(maybe_moments),
        completed_ns=draw(maybe_moments),
        unique_key=draw(st.sampled_from(("", *KEYS))),
        tags=draw(tags),
        parent_id=draw(st.sampled_from(("", "p1"))),
        batch_id=draw(st.sampled_from(("", "b1", "b2"))),
        chain_id=draw(st.sampled_from(("", "c1"))),
    )
    return Kept(job, shard, errors)


jobs = st.lists(keeps(), max_size=25, unique_by=lambda kept: kept.name)


def _text(at_ns: int) -> str:
    return f"2026-02-11T10:00:00.{at_ns - EPOCH_NS:09d}Z"


_times = st.just("2026-02-11") | st.integers(0, 5).map(lambda number: _text(EPOCH_NS + number))
_states = st.lists(st.sampled_from([state.word for state in STATES]), min_size=1, max_size=4)
_some = st.sampled_from([text for text in NASTY if text])
FIELDS: Final[dict[str, st.SearchStrategy[object]]] = {
    "queue": st.sampled_from((*QUEUES, "nobody", "%")),
    "state": _states | _states.map(",".join),
    "kind": st.sampled_from(("mail", "nothing")),
    "priority": st.sampled_from(tuple(PRIORITIES)),
    "tags": tags.filter(bool),
    "payload_contains": _some,
    "payload_jq": st.sampled_from(tuple(EXPRESSIONS)),
    "error_contains": _some,
    "has_errors": st.booleans(),
    "dlq_reason": st.sampled_from(DLQ_REASONS),
    "unique_key": st.sampled_from((*KEYS, "nothing")),
    "batch_id": st.sampled_from(("b1", "b2", "%")),
    "worker_id": st.sampled_from((*WORKERS, "%")),
    "parent_id": st.sampled_from(("p1", "p%")),
    "chain_id": st.sampled_from(("c1", "_1")),
    "job_id_prefix": st.sampled_from(
        (*IDS[:8], "s0", "s01", "s01_job_", "s%", "\ud7ff", "\U0010ffff")
    ),
    "created_after": _times,
    "created_before": _times,
    "scheduled_after": _times,
    "scheduled_before": _times,
    "started_after": _times,
    "started_before": _times,
    "completed_after": _times,
    "completed_before": _times,
    "expire_after": _times,
    "expire_before": _times,
    "attempt_min": st.integers(0, 4),
    "attempt_max": st.integers(0, 4),
}


def _is_sound(given: Filter) -> bool:
    pairs = [
        (given.created_after, given.created_before),
        (given.scheduled_after, given.scheduled_before),
        (given.started_after, given.started_before),
        (given.completed_after, given.completed_before),
        (given.expire_after, given.expire_before),
    ]
    least, most = given.attempt_min, given.attempt_max
    if least is not None and most is not None and least > most:
        return False
    return all(after is None or before is None or after <= before for after, before in pairs)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """A few things at a time."""
    names = draw(st.lists(st.sampled_from(tuple(FIELDS)), max_size=3, unique=True))
    return read({name: draw(FIELDS[name]) for name in names})


def read(fields: dict[str, object]) -> Filter:
    """Whoever asks for what cannot be gets what can."""
    given = msgspec.convert(fields, Filter)
    if _is_sound(given):
        return given
    return read(
        {name: value for name, value in fields.items() if not name.endswith(("_after", "_min"))}
    )
