"""What a leader knows of a follower, move by move, and the window beside a dumb twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.raft import Flow, Membership, ProgressView, Snapshot
from corvo.raft.progress import Progress, Window

SNAPSHOT = Snapshot(7, 2, Membership(voters=(1, 2)), size=100)


def progress(
    flow: Flow = Flow.REPLICATE, *, match: int = 3, messages_max: int = 3, bytes_max: int = 100
) -> Progress:
    """One that holds everything up to `match`."""
    made = Progress(next_index=match + 1, messages_max=messages_max, bytes_max=bytes_max)
    made.match = match
    match flow:
        case Flow.PROBE:
            made.become_probe()
        case Flow.REPLICATE:
            made.become_replicate()
        case Flow.SNAPSHOT:
            made.become_snapshot(SNAPSHOT)
    return made


def look(made: Progress) -> dict[str, object]:
    """What decides about sending."""
    return {
        "flow": made.flow,
        "match": made.match,
        "next": made.next,
        "paused": made.is_paused,
        "in_flight": (len(made.window), made.window.size),
    }


def state(
    flow: Flow, *, match: int, after: int, paused: bool = False, in_flight: tuple[int, int] = (0, 0)
) -> dict[str, object]:
    return {
        "flow": flow,
        "match": match,
        "next": after,
        "paused": paused,
        "in_flight": in_flight,
    }


# ---- The window.


class Twin:
    """The appends under way as a plain list; everything is counted anew each time."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max, self.bytes_max = messages_max, bytes_max
        self.under_way: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        return sum(size for _, size in self.under_way)

    @property
    def is_full(self) -> bool:
        return len(self.under_way) >= self.messages_max or self.size >= self.bytes_max

    def free_to(self, index: int) -> None:
        while self.under_way and self.under_way[0][0] <= index:
            self.under_way = self.under_way[1:]


@pytest.mark.conformance("N15")
@given(
    st.integers(1, 5),
    st.integers(1, 30),
    st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=60),
)
def test_n15_the_window_counts_as_its_twin_does_however_often_it_wraps(
    messages_max: int, bytes_max: int, deeds: list[tuple[bool, int]]
) -> None:
    window = Window(messages_max=messages_max, bytes_max=bytes_max)
    twin = Twin(messages_max, bytes_max)
    last = 0

    for adds, number in deeds:
        if adds and not twin.is_full:
            last += 1
            window.add(last, number)
            twin.under_way.append((last, number))
        elif not adds:
            window.free_to(last - number)
            twin.free_to(last - number)
        assert (len(window), window.size, window.is_full) == (
            len(twin.under_way),
            twin.size,
            twin.is_full,
        )


@pytest.mark.conformance("N15")
def test_n15_the_window_is_full_by_number_or_by_bytes() -> None:
    by_number = Window(messages_max=2, bytes_max=100)
    by_bytes = Window(messages_max=9, bytes_max=100)

    seen = []
    for window, size in ((by_number, 0), (by_number, 0), (by_bytes, 99), (by_bytes, 500)):
        window.add(len(window) + 1, size)
        seen.append(window.is_full)

    assert seen == [False, True, False, True]
    assert by_bytes.size == 599  # one may overshoot, or it could never go


@pytest.mark.conformance("N15")
def test_n15_nothing_goes_into_a_full_window() -> None:
    window = Window(messages_max=1, bytes_max=100)
    window.add(1, 1)

    with pytest.raises(AssertionError, match="full window"):
        window.add(2, 1)


@pytest.mark.conformance("N15")
@pytest.mark.parametrize(
    ("index", "left", "size"),
    [(0, 3, 60), (4, 3, 60), (5, 2, 50), (9, 2, 50), (15, 1, 30), (99, 0, 0)],
)
def test_n15_arriving_frees_every_append_up_to_there(index: int, left: int, size: int) -> None:
    window = Window(messages_max=3, bytes_max=1000)
    for last_index, bytes_ in ((5, 10), (10, 20), (20, 30)):
        window.add(last_index, bytes_)

    window.free_to(index)

    assert (len(window), window.size) == (left, size)


@pytest.mark.conformance("N15")
def test_n15_a_window_that_is_cleared_counts_nothing() -> None:
    window = Window(messages_max=1, bytes_max=10)
    window.add(1, 10)

    window.clear()

    assert (len(window), window.size, window.is_full) == (0, 0, False)
    window.free_to(1)
    assert window.size == 0


# ---- From flow to flow.


@pytest.mark.conformance("N15")
def test_n15_a_replica_begins_as_one_to_be_probed_from_the_end_of_our_log() -> None:
    made = Progress(next_index=8, messages_max=3, bytes_max=100)

    assert look(made) == state(Flow.PROBE, match=0, after=8)
    assert made.wants_append


@pytest.mark.conformance("N15")
@pytest.mark.parametrize("flow", Flow)
def test_n15_probing_begins_behind_what_is_acknowledged_with_an_empty_window(flow: Flow) -> None:
    made = progress(flow)
    made.sent(last_index=5, count=2, size=20)
    made.wants_append = False
    made.quiet_ticks = 9

    made.become_probe()

    assert look(made) == state(Flow.PROBE, match=3, after=4)
    assert (made.wants_append, made.offered, made.quiet_ticks) == (True, None, 0)


@pytest.mark.conformance("N15")
@pytest.mark.parametrize("flow", Flow)
def test_n15_replicating_begins_behind_what_is_acknowledged(flow: Flow) -> None:
    made = progress(flow)
    made.sent(last_index=5, count=2, size=20)

    made.become_replicate()

    assert look(made) == state(Flow.REPLICATE, match=3, after=4)
    assert made.offered is None


@pytest.mark.conformance("N15")
@pytest.mark.parametrize("flow", Flow)
def test_n15_a_replica_that_pulls_a_snapshot_is_paused_and_has_nothing_under_way(
    flow: Flow,
) -> None:
    made = progress(flow)
    made.sent(last_index=5, count=2, size=20)

    made.become_snapshot(SNAPSHOT)

    assert (made.flow, made.match, made.is_paused, made.offered) == (
        Flow.SNAPSHOT,
        3,
        True,
        SNAPSHOT,
    )
    assert (len(made.window), made.window.size) == (0, 0)
    made.paused = False  # a sign of life
    assert made.is_paused


@pytest.mark.conformance("N15")
def test_n15_what_was_told_of_the_commit_may_be_lost_with_the_window() -> None:
    made = progress()
    made.sent(last_index=6, count=3, size=30)
    made.sent_commit = 6

    made.become_probe()

    assert made.sent_commit == 3


# ---- Sending.


@pytest.mark.conformance("N15")
def test_n15_replicating_runs_ahead_until_the_window_is_full() -> None:
    made = progress()

    made.sent(last_index=5, count=2, size=40)
    assert look(made) == state(Flow.REPLICATE, match=3, after=6, in_flight=(1, 40))
    made.sent(last_index=6, count=1, size=60)
    assert look(made) == state(Flow.REPLICATE, match=3, after=7, paused=True, in_flight=(2, 100))
    assert not made.may_carry_entries


@pytest.mark.conformance("N15")
def test_n15_an_empty_append_takes_no_room_and_pauses_a_full_window_again() -> None:
    made = progress(messages_max=1)
    made.sent(last_index=3, count=0, size=0)
    assert look(made) == state(Flow.REPLICATE, match=3, after=4)

    made.sent(last_index=4, count=1, size=1)
    made.paused = False  # a sign of life
    made.sent(last_index=4, count=0, size=0)

    assert look(made) == state(Flow.REPLICATE, match=3, after=5, paused=True, in_flight=(1, 1))


@pytest.mark.conformance("N15")
def test_n15_probing_sends_once_and_its_next_stays() -> None:
    made = progress(Flow.PROBE)

    made.sent(last_index=3, count=0, size=0)
    assert not made.is_paused
    made.sent(last_index=5, count=2, size=40)

    assert look(made) == state(Flow.PROBE, match=3, after=4, paused=True)
    assert made.may_carry_entries


# ---- Answers.


@pytest.mark.conformance("N15")
@pytest.mark.parametrize(
    ("index", "news", "match", "after"),
    [(2, False, 3, 7), (3, False, 3, 7), (4, True, 4, 7), (6, True, 6, 7), (9, True, 9, 10)],
)
def test_n15_an_acknowledgement_moves_match_and_never_takes_next_back(
    index: int, news: bool, match: int, after: int
) -> None:
    made = progress()
    made.sent(last_index=6, count=3, size=30)
    made.paused = True

    assert made.acked(index) is news

    assert (made.match, made.next, made.is_paused) == (match, after, not news)


@pytest.mark.conformance("N15")
@pytest.mark.parametrize(
    ("index", "hint", "news", "after"),
    [
        (9, 5, True, 6),
        (9, 8, True, 9),
        (9, 9, True, 9),
        (9, 100, True, 9),
        (9, 3, True, 4),
        (9, 0, True, 4),
        (8, 5, False, 10),
        (10, 5, False, 10),
        (3, 2, False, 10),
    ],
)
def test_n15_a_rejected_probe_goes_back_to_the_hint_but_not_below_match(
    index: int, hint: int, news: bool, after: int
) -> None:
    made = progress(Flow.PROBE)
    made.next = 10
    made.paused = True

    assert made.rejected(index=index, hint=hint) is news

    assert (made.match, made.next, made.is_paused) == (3, after, not news)


@pytest.mark.conformance("N15")
@pytest.mark.parametrize(("index", "news", "after"), [(2, False, 7), (3, False, 7), (4, True, 4)])
def test_n15_a_rejection_while_replicating_goes_back_to_match_unless_it_is_old(
    index: int, news: bool, after: int
) -> None:
    made = progress()
    made.sent(last_index=6, count=3, size=30)

    assert made.rejected(index=index, hint=0) is news

    assert (made.match, made.next) == (3, after)


@pytest.mark.conformance("N15")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("sent", "acked", "rejected", "probe", "replicate", "snapshot")),
            st.integers(0, 12),
            st.integers(0, 12),
        ),
        max_size=40,
    )
)
def test_n15_match_stays_below_next_and_the_window_within_both(
    deeds: list[tuple[str, int, int]],
) -> None:
    made = progress(Flow.PROBE, match=0)

    for deed, number, other in deeds:
        before = made.match
        match deed:
            case "sent" if not made.is_paused and made.may_carry_entries:
                made.sent(last_index=made.next + other, count=other + 1, size=number)
            case "acked":
                made.acked(number)
                made.window.free_to(number)
            case "rejected" if made.rejected(index=number, hint=other):
                if made.flow is Flow.REPLICATE:
                    made.become_probe()  # as the leader does: what is under way is lost
            case "probe":
                made.become_probe()
            case "replicate":
                made.become_replicate()
            case "snapshot":
                made.become_snapshot(SNAPSHOT)
            case _:
                pass
        assert made.match < made.next
        assert made.match >= before
        assert all(made.match <= last < made.next for last, _ in made.window._under_way)


@pytest.mark.conformance("N15")
def test_n15_statistics_show_a_follower_as_it_is() -> None:
    made = progress(Flow.SNAPSHOT)
    made.commit = 2
    made.is_active = True

    assert made.view(4, is_learner=True) == ProgressView(
        replica=4,
        flow=Flow.SNAPSHOT,
        match=3,
        next=4,
        commit=2,
        is_paused=True,
        is_active=True,
        is_learner=True,
        messages_in_flight=0,
        bytes_in_flight=0,
        snapshot_index=7,
    )
    made.become_replicate()
    assert made.view(4, is_learner=False).snapshot_index is None
