"""Elections that ask first, those that must not stand at all, and finding where logs part."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.raft import Flow, HardState, MemoryStorage, ProgressView, Role
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tests.raft.group import Group, members, with_log


def roles(group: Group) -> list[Role]:
    return [node.statistics().role for node in group.nodes.values()]


def until_led(group: Group, *replicas: int, ticks: int = 100) -> int:
    """Tick these until one of them leads; returns which."""
    for _ in range(ticks):
        group.tick(*replicas)
        leading = [replica for replica in replicas if group[replica].is_leader]
        if leading:
            [leader] = leading
            return leader
    raise AssertionError("nobody was elected")


# Asking first.


@pytest.mark.conformance("R109")
@pytest.mark.parametrize("seed", range(5))
def test_r109_a_replica_that_was_away_for_terms_helps_to_elect_when_the_leader_dies(
    seed: int,
) -> None:
    group = Group(3, seed=seed)
    group.elect(1)
    group.isolate(3)
    group[1].transfer(2)
    group.settle()
    group[2].transfer(1)
    group.settle()
    assert (group[1].term, group[3].term) == (3, 1)
    group.heal()
    group.isolate(1)

    group[2].forget_leader()
    group[3].forget_leader()
    group[3].campaign()
    group[2].campaign()
    group.settle()
    leader = until_led(group, 2, 3)

    # The other lacks what is committed.
    assert leader == 2
    assert (group[3].leader, group[3].term) == (2, group[2].term)
    assert group[2].term > 3


@pytest.mark.conformance("R109")
def test_r109_a_stale_replica_that_asks_first_learns_the_term_and_disturbs_nobody() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)
    group[1].transfer(2)
    group.settle()
    group.tick(3, times=100)
    assert group[3].term == 1
    group.heal()

    group[3].campaign()
    group.settle()
    group.tick(2)

    assert group.leaders == [2]
    assert [node.term for node in group.nodes.values()] == [2, 2, 2]


@pytest.mark.conformance("R110")
@pytest.mark.parametrize("seed", range(5))
def test_r110_after_a_split_vote_the_next_round_elects(seed: int) -> None:
    group = Group(3, seed=seed)
    group.elect(1)
    group.isolate(1)
    group[2].forget_leader()
    group[3].forget_leader()
    group[2].campaign()
    group[3].campaign()
    group.settle()
    split = [(group[each].statistics().role, group[each].term) for each in (2, 3)]

    leader = until_led(group, 2, 3)

    assert split == [(Role.CANDIDATE, 2)] * 2
    assert group[5 - leader].leader == leader
    assert group[leader].term == 3


@pytest.mark.conformance("R111")
@pytest.mark.parametrize("seed", range(5))
def test_r111_followers_that_heard_their_leader_lately_elect_once_it_is_gone(seed: int) -> None:
    group = Group(3, seed=seed, election_ticks=10)
    group.elect(1)
    group.tick()
    group.isolate(1)

    group[2].campaign()
    group.settle()
    fresh = group[2].statistics().role
    leader = until_led(group, 2, 3, ticks=60)

    assert fresh is Role.PRE_CANDIDATE
    assert leader in (2, 3)
    assert group[5 - leader].leader == leader


@pytest.mark.conformance("R112")
@pytest.mark.parametrize("how", ["told by its driver", "told by the leader", "waiting"])
def test_r112_a_learner_never_campaigns(how: str) -> None:
    group = Group(members(1, 2, learners=[3]))
    group.elect(1)
    group.tick(1)
    before = group[3].statistics()

    match how:
        case "told by its driver":
            group[3].campaign()
        case "told by the leader":
            group[3].step(TimeoutNow(1, 3, 1, 0))
        case _:
            for _ in range(100):
                group[3].tick()
    group.work(3)

    assert group.mail == []
    assert group[3].statistics() == before


def ahead_in_term(seed: int = 1) -> Group:
    """Replica 3 is in term 10 with an empty log; 1 leads 2 in term 1, and has committed entries."""
    far = MemoryStorage(members(1, 2, 3))
    far.hard_state = HardState(term=10)
    group = Group(3, storages={3: far}, seed=seed)
    group.isolate(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    return group


@pytest.mark.conformance("R113")
@pytest.mark.parametrize("seed", range(5))
def test_r113_with_a_replica_ahead_in_term_and_behind_in_log_an_election_completes(
    seed: int,
) -> None:
    group = ahead_in_term(seed)
    group.heal()
    group.isolate(1)

    leader = until_led(group, 2, 3)

    assert leader == 2
    assert group[2].term > 10
    group.tick(2, times=2)
    assert group.normal(3) == [b"a", b"b"]


@pytest.mark.conformance("R114")
@pytest.mark.parametrize("seed", range(5))
def test_r114_a_replica_ahead_in_term_is_freed_by_the_leader_stepping_down(seed: int) -> None:
    group = ahead_in_term(seed)
    group.heal()

    group.tick(1)
    stepped_down = (group.leaders, group[1].term)
    leader = until_led(group, 1, 2, 3)
    group.tick(leader, times=2)

    assert stepped_down == ([], 10)
    assert leader in (1, 2)
    assert group[leader].term > 10
    assert [group.normal(replica) for replica in (1, 2, 3)] == [[b"a", b"b"]] * 3


@pytest.mark.conformance("R114")
@pytest.mark.parametrize("pre", [True, False])
def test_r114_a_replica_ahead_in_term_answers_a_pre_vote_of_the_past_with_its_term(
    pre: bool,
) -> None:
    group = ahead_in_term()

    group[3].step(VoteRequest(2, 3, 2, 0, last_index=3, last_term=1, pre=pre, forced=False))
    group.work(3)

    answer = VoteResponse(3, 2, 10, 0, pre=True, granted=False)
    assert group.mail == ([answer] if pre else [])


@pytest.mark.conformance("R114")
@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(1, 3, 1, 0, commit=0, round=0),
        AppendRequest(1, 3, 1, 0, previous_index=0, previous_term=0, entries=(), commit=0),
    ],
    ids=["heartbeat", "append"],
)
def test_r114_a_leader_of_the_past_is_told_the_term(message: Heartbeat | AppendRequest) -> None:
    group = ahead_in_term()

    group[3].step(message)
    group.work(3)
    [answer] = group.mail
    group[1].step(answer)

    assert answer == AppendResponse(3, 1, 10, 0, index=0)
    assert (group[1].statistics().role, group[1].term) == (Role.FOLLOWER, 10)


# Where logs part.


def probed(leader: MemoryStorage, follower: MemoryStorage) -> Group:
    """Leader 1 was elected by 3; replica 2 has heard nothing of it."""
    voter = MemoryStorage(members(1, 2, 3))
    group = Group(3, storages={1: leader, 2: follower, 3: voter})
    group.isolate(2)
    group.elect(1)
    group.heal()
    group.delivered.clear()
    return group


def log(*terms: int, compacted: int = 0) -> MemoryStorage:
    """A log in term 9 whose entries up to `compacted` are cut off."""
    storage = with_log(members(1, 2, 3), terms, term=9, commit=compacted)
    if compacted:
        storage.compact(index=compacted, membership=members(1, 2, 3))
    return storage


@pytest.mark.conformance("R117")
@pytest.mark.parametrize(
    ("leader", "follower", "compacted", "hint", "probe"),
    [
        # Each (index, term). The follower skips down to the leader's term ...
        ((1, 2, 2, 4, 4, 4, 4), (1, 2, 2, *[3] * 8), 0, (7, 3), (3, 2)),
        ((1, 2, 2, 3, 4, 4, 4, 5), (1, 2, 2, *[3] * 8), 0, (8, 3), (4, 3)),
        ((1, 1, 1, 1), (1, 2, 2, 4), 0, (1, 1), (1, 1)),
        # ... also from the end of a shorter log ...
        ((1, 1, 1, 1, 1, 1), (1, 2, 2, 4), 0, (1, 1), (1, 1)),
        # ... or in the middle of a longer one.
        ((1, 1, 1, 1), (1, 2, 2, 4, 4, 4), 0, (1, 1), (1, 1)),
        ((1, 1, 1, 4, 5), (1, 1, 1, 4), 0, (4, 4), (4, 4)),
        # The leader skips a whole term of its own.
        ((2, 5, 5, 5, 5), (2, 4, 4, 4, 4, 4), 0, (5, 4), (1, 2)),
        ((2, 2, 2, 2, 2), (2, 4, 4, 4, 4, 4), 0, (1, 2), (1, 2)),
        # What is cut off was committed, so there they agree.
        ((1, 1, 1, 3, 3), (1, 1, 2, 2, 2), 2, (5, 2), (3, 1)),
        ((1, 1, 1, 1), (1, 1, 2, 2), 2, (2, 1), (2, 1)),
    ],
)
def test_r117_a_rejection_skips_whole_terms(
    leader: tuple[int, ...],
    follower: tuple[int, ...],
    compacted: int,
    hint: tuple[int, int],
    probe: tuple[int, int],
) -> None:
    group = probed(log(*leader), log(*follower, compacted=compacted))
    group.tick(1)

    answers = [
        (each.hint_index, each.hint_term)
        for each in group.delivered
        if isinstance(each, AppendResponse) and each.source == 2 and each.rejected
    ]
    probes = [
        (each.previous_index, each.previous_term)
        for each in group.delivered
        if isinstance(each, AppendRequest) and each.target == 2
    ]
    assert answers[0] == hint
    assert probes[1] == probe
    assert terms(group, 2) == terms(group, 1)


def terms(group: Group, replica: int) -> dict[int, int]:
    """The term at each index, as far down as the most compacted log here goes."""
    storage = group.storages[replica]
    first = max(group.storages[each].base.index for each in (1, 2))
    return {index: storage.term(index) for index in range(first, storage.last_index + 1)}


@st.composite
def parted_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Terms of two logs with a common beginning, and no term in common behind it."""
    rising = st.lists(st.integers(1, 3), max_size=6).map(sorted)
    common = draw(rising)
    behind = draw(st.lists(st.tuples(st.integers(4, 20), st.booleans()), max_size=12))
    ours = dict(sorted(behind))
    one = sorted(term for term, _ in behind if ours[term])
    other = sorted(term for term, _ in behind if not ours[term])
    return common + one, common + other


@pytest.mark.conformance("R117")
@given(parted_logs())
def test_r117_any_two_logs_meet_within_one_rejection_a_term(
    logs: tuple[list[int], list[int]],
) -> None:
    one, other = logs
    membership = members(1, 2, 3)
    group = probed(
        with_log(membership, one, term=30),
        with_log(membership, other, term=30),
    )

    group.tick(1, times=2)

    rejections = sum(isinstance(each, AppendResponse) and each.rejected for each in group.delivered)
    assert terms(group, 2) == terms(group, 1)
    assert rejections <= len({*one, *other}) + 1
    appended = [each for each in group.delivered if isinstance(each, AppendRequest)]
    probes = [each.previous_index for each in appended if each.target == 2][: rejections + 1]
    assert all(after < before for before, after in pairwise(probes))


def view(group: Group, replica: int) -> ProgressView:
    [found] = [each for each in group[1].statistics().progress if each.replica == replica]
    return found


@pytest.mark.conformance("R118")
def test_r118_a_late_rejection_of_a_reordered_append_never_probes_below_what_is_held() -> None:
    group = Group(3)
    group.elect(1)
    first, second = (send_one(group, data) for data in (b"first", b"second"))
    group[2].step(second)
    group.work(2)
    [rejection] = group.mail
    group.mail.clear()
    group[2].step(first)
    group.work(2)
    [acceptance] = group.mail
    group.mail.clear()
    assert isinstance(rejection, AppendResponse)
    assert rejection.rejected

    group[1].step(acceptance)
    # Something else has made the leader probe meanwhile.
    group.raft(1).leadership.progress[2].become_probe()  # type: ignore[union-attr]
    group.work(1)
    group.mail.clear()
    group[1].step(rejection)
    group.work(1)
    at_once = [each for each in group.mail if each.target == 2]
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
    group.work(1)

    # It is no news: the next sign of life brings the next probe.
    assert at_once == []
    [again] = [each for each in group.mail if each.target == 2]
    assert isinstance(again, AppendRequest)
    assert (again.previous_index, [each.data for each in again.entries]) == (2, [b"second"])
    assert (view(group, 2).flow, view(group, 2).match, view(group, 2).next) == (Flow.PROBE, 2, 3)


@pytest.mark.conformance("R118")
def test_r118_appends_that_arrive_in_reverse_all_get_there() -> None:
    group = Group(3)
    group.elect(1)
    appends = [send_one(group, b"%d" % number) for number in range(5)]
    for append in reversed(appends):
        group[2].step(append)
    group.work(2)
    group.mail.reverse()

    group.settle()
    group.tick(1, times=2)

    assert group.normal(2) == [b"0", b"1", b"2", b"3", b"4"]


def send_one(group: Group, data: bytes) -> AppendRequest:
    """Propose, and catch what goes to replica 2."""
    group[1].propose(data)
    group.work(1)
    [append] = [each for each in group.mail if each.target == 2]
    assert isinstance(append, AppendRequest)
    group.mail.clear()
    return append
