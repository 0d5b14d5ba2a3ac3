"""What the hypothesis machine may ask of a shard, before it is known which jobs there are.

An intention is an op's name and its fields, with numbers in place of jobs and words in place of
tokens; `Shard` in `tests/shard/test_model.py` makes an op of it. Names, keys and limits are few
and small, so that things meet.
"""

from typing import Final, TypeAlias

from hypothesis import strategies as st

from tests.shard.shapes import Fields

Intention: TypeAlias = tuple[str, Fields]
Feature: TypeAlias = tuple[str, object]

HERE: Final = ("mail", "sms")
ELSEWHERE: Final = "push"
"""A queue of the other one of two shards."""
CHOSEN: Final = ("c0", "c1", "c2")
KEYS: Final = ("r0", "r1", "r2")

_queues = st.sampled_from((*HERE, HERE[0]))
_picks = st.integers(0, 31)
_some_picks = st.lists(_picks, min_size=1, max_size=3)
_limits = st.sampled_from((1, 2, 3, 100, 100))


def _features(*features: Feature, most: int) -> st.SearchStrategy[Fields]:
    """A few of many options: much quicker drawn than a choice about each.

    No value is the default: said or not, that is the same request, which the reference cannot know.
    """
    return st.lists(st.sampled_from(features), max_size=most).map(dict)


def _options(**options: tuple[object, ...]) -> tuple[Feature, ...]:
    return tuple((name, value) for name, values in options.items() for value in values)


_new_jobs = st.builds(
    lambda queue, features: {"queue": queue, **features},
    _queues,
    _features(
        *_options(
            payload=({"to": "x"}, [1, "ü"]),
            id=CHOSEN,
            kind=("letter",),
            priority=(0, 1),
            max_retries=(0, 1, 2, 30),
            retry_backoff=("none", "fixed", "linear"),
            retry_base_delay_ms=(0, 7, 1_000),
            retry_max_delay_ms=(0, 1_500),
            retry_jitter=(10, 33, 100),
            max_run_time_ms=(1_000, 2_500),
            max_crashes=(0, 1, 2),
            unique_key=("k0", "k0", "k1"),
            unique_period_ms=(0, 1_000, 5_000),
            due_in_ms=(-1_000, 1_000, 2_500),
            expire_after_ms=(1_000, 4_000),
            expire_active=(True,),
            tags=({"colour": "red"},),
            checkpoint=({"page": 1},),
        ),
        most=5,
    ),
)

_tokens = st.sampled_from((*(8 * ("present",)), "none", "none", "old", "wrong", *("settled",) * 3))
_workers = ("w0", "w1")


def _items(where: str, *features: Feature) -> st.SearchStrategy[Fields]:
    """Things said of jobs under a lease."""
    item = st.builds(
        lambda pick, token, features: {"pick": pick, "token": token, **features},
        _picks,
        _tokens,
        _features(*features, *_options(worker_id=_workers), most=3),
    )
    return st.lists(item, min_size=1, max_size=2).map(lambda items: {where: items})


def _jobs(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Fields]:
    return st.fixed_dictionaries({"picks": _some_picks, **fields})


def _queue(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Fields]:
    return st.fixed_dictionaries({"queue": _queues, **fields})


_why = _options(checkpoint=({"page": 2}, {"page": 3}), why=("tired",))
_walks: st.SearchStrategy[Fields] = st.fixed_dictionaries({"limit": _limits})

_OPS: Final[dict[str, tuple[int, st.SearchStrategy[Fields]]]] = {
    "Enqueue": (
        16,
        st.lists(_new_jobs, min_size=1, max_size=4).map(lambda jobs: {"jobs": jobs}),
    ),
    "Fetch": (
        22,
        st.fixed_dictionaries(
            {
                "queues": st.sampled_from((["mail"], ["sms"], ["mail", "sms"], ["sms", "mail"])),
                "worker_id": st.sampled_from(("", *_workers)),
                "count": st.integers(1, 3),
                "lease_ms": st.sampled_from((1, 1_500, *(5 * (60_000,)))),
            }
        ),
    ),
    "Ack": (8, _items("acks", *_options(result=({"ok": 1},), checkpoint=({"page": 4},)))),
    "Fail": (
        12,
        _items(
            "fails",
            *_options(
                error=("no", "never"),
                backtrace=("line 1",),
                error_class=("Bad",),
                retryable=(False, False),
                retry_after_ms=(0, 1_234),
            ),
        ),
    ),
    "Heartbeat": (
        6,
        _items("jobs", *_options(progress=({"done": 5},), checkpoint=({"page": 5},))),
    ),
    "Release": (6, _items("jobs", *_why)),
    "Snooze": (6, _items("jobs", *_why, *_options(delay_ms=(1_000, 2_500)))),
    "Retry": (6, _jobs()),
    "Requeue": (4, _jobs()),
    "Expedite": (3, _jobs()),
    "Cancel": (4, _jobs(why=st.sampled_from(("", "enough")))),
    "Move": (
        6,
        _jobs(queue=st.sampled_from((*HERE, *HERE, ELSEWHERE)), reset_attempts=st.booleans()),
    ),
    "Delete": (2, _jobs()),
    "Hold": (4, _jobs(reason=st.just("look"), token=st.sampled_from(("", "", "present", "old")))),
    "Approve": (6, _jobs()),
    "Reject": (2, _jobs(why=st.sampled_from(("", "bad")))),
    "ChangePriority": (3, _jobs(priority=st.integers(0, 2))),
    "Pause": (1, _queue()),
    "Resume": (4, _queue()),
    "Drain": (1, _queue()),
    "Clear": (2, _queue()),
    "DeleteQueue": (1, _queue()),
    "SetConcurrency": (2, _queue(max=st.sampled_from((0, 0, 1, 2)))),
    "SetThrottle": (6, _queue(rate=st.integers(1, 3), window_ms=st.sampled_from((1_000, 60_000)))),
    "RemoveThrottle": (3, _queue()),
    "SetRetention": (1, _queue(retention_ms=st.sampled_from((0, 1_000, 5_000)))),
    "Promote": (8, _walks),
    "Reclaim": (8, _walks),
    "Expire": (3, _walks),
    "Purge": (
        2,
        _queue(keep_ms=st.sampled_from((1_000, 3_600_000)), limit=_limits),
    ),
    "CleanUnique": (2, _walks),
    "CleanRateLimits": (1, _queue(limit=_limits)),
    "CleanRequests": (2, _walks),
    "CleanWorkers": (1, _walks),
    "Sweep": (3, _queue(limit=_limits)),
    "Receive": (10, _queue(pick=_picks, how=st.sampled_from((*(5 * ("next",)), "again", "gap")))),
    "ReceiveMany": (
        6,
        st.fixed_dictionaries(
            {
                "arrivals": st.lists(
                    _queue(pick=_picks, by=st.sampled_from(("", "ada"))), min_size=1, max_size=3
                ),
                "how": st.sampled_from((*(5 * ("next",)), "again", "gap")),
            }
        ),
    ),
    "Delivered": (1, st.just({"shard": 1})),
    "Lead": (2, st.just({"grace_ms": 1_000})),
    "BeginEpoch": (1, st.just({})),
}


def names() -> tuple[str, ...]:
    """Every op that is intended."""
    return tuple(_OPS)


@st.composite
def _intention(draw: st.DrawFn, weighted: tuple[str, ...]) -> Intention:
    name = draw(st.sampled_from(weighted))
    fields = draw(_OPS[name][1])
    extra = draw(_extras)
    return name, {**fields, **extra}


_extras: st.SearchStrategy[Fields] = st.sampled_from(
    (
        *({} for _ in range(24)),
        {"by": "ada"},
        {"by": "ada"},
        *({"request_key": key} for key in KEYS),
        *({"again": key} for key in KEYS),
    )
)


def intentions() -> st.SearchStrategy[list[Intention]]:
    """The ops of one entry."""
    weighted = tuple(name for name, (weight, _) in _OPS.items() for _ in range(weight))
    return st.lists(_intention(weighted), min_size=1, max_size=6)


moments = st.one_of(
    st.sampled_from(
        (*(8 * (0, 1, 100, 500)), 1_000, 2_500, -5_000, 10_000, 3_600_000, 86_400_000)
    ).map(lambda ms: ("pass", ms, 0)),
    st.builds(
        lambda at, off: ("due", at, off),
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from((-1, 0, 0, 1)),
    ),
)
"""How the time of an entry follows: so many milliseconds on, or to about where something is due."""

firsts = st.sampled_from((*(50 * ("",)), "start anew", "start anew", "fail often"))
"""What happens before an entry, now and then."""
