"""The judge finds each wrong that it is there for."""

import pytest

from tests.node.history import Acked, Claimed, Enqueued, Event, Refused, judge

GOOD: list[Event] = [
    Enqueued(1, "a"),
    Enqueued(1, "a"),
    Enqueued(2, "b"),
    Claimed(1.0, 1, "a", 1),
    Claimed(2.0, 1, "a", 2),
    Refused("a", 1),
    Acked(3.0, "a", 2),
    Acked(3.5, "a", 2),
    Claimed(1.5, 2, "b", 1),
    Acked(4.0, "b", 1),
]
FOUND = {"a": "completed", "b": "completed"}


def test_a_history_of_retries_and_lost_leases_is_good() -> None:
    assert judge(GOOD, FOUND) == []


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (Enqueued(1, "c"), "request 1 made 2 jobs"),
        (Enqueued(3, "a"), "job a is that of 2 requests"),
        (Acked(5.0, "a", 1), "completed under the leases"),
        (Claimed(3.2, 1, "a", 3), "given out after it had been completed"),
        (Claimed(0.5, 1, "a", 1), "given out twice"),
        (Refused("b", 1), "told both yes and no"),
    ],
)
def test_a_wrong_that_was_done_to_a_client_is_found(event: Event, says: str) -> None:
    wrongs = judge([*GOOD, event], {**FOUND, "c": "completed"})

    assert any(says in wrong for wrong in wrongs), wrongs


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"a": "completed"}, "job b is lost"),
        ({**FOUND, "b": "pending"}, "job b was completed, and is pending"),
    ],
)
def test_a_job_that_is_not_as_its_client_was_told_is_found(
    found: dict[str, str], says: str
) -> None:
    assert judge(GOOD, found) == [says]


@pytest.mark.parametrize(
    ("state", "says"),
    [("retrying", "never worked on to its end"), ("completed", "nobody was told so")],
)
def test_a_job_that_nobody_completed_is_found(state: str, says: str) -> None:
    [wrong] = judge([*GOOD, Enqueued(3, "c")], {**FOUND, "c": state})

    assert says in wrong
