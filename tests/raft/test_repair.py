"""Repair: a replica that lost what it once acknowledged does not count until it is whole again."""

import zlib
from collections.abc import Callable
from functools import partial

import pytest

from corvo.raft import (
    Action,
    AnyMessage,
    Change,
    Flow,
    HardState,
    ProgressView,
    Role,
    Snapshot,
    Step,
)
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tests.raft.group import Group, members, with_log
from tests.raft.snapshotting import chunks, snapshot, stall_at

wants = partial(AppendResponse, rejected=True, wants_snapshot=True)


def damaged(group: Group, replica: int, *, keep: int) -> None:
    """Restart this replica for repair; of its log only the first entries are left."""
    storage = group.storages[replica]
    del storage._entries[keep:]
    group.start(replica, applied=keep, repair=True)


def amnesiac(group: Group, *, keep: int = 1) -> Group:
    """Leader 1 committed four entries, the last two with 2 alone; 2 kept only `keep` of them."""
    group.elect(1)
    group.propose(1, b"a")
    group.isolate(3)
    group.propose(1, b"b", b"c")
    damaged(group, 2, keep=keep)
    return group


def alone(*, terms: tuple[int, ...] = (1, 1, 1), applied: int = 0) -> Group:
    """Replica 2 of three, under repair; nobody else is heard."""
    group = Group(3, storages={2: with_log(members(1, 2, 3), terms)})
    group.start(2, applied=applied, repair=True)
    group.work(2)
    return group


def view(group: Group, replica: int, *, leader: int) -> ProgressView:
    [found] = [each for each in group[leader].statistics().progress if each.replica == replica]
    return found


def requests(group: Group) -> list[AppendResponse]:
    """Where a snapshot was asked for, among what was delivered."""
    answers = [each for each in group.delivered if isinstance(each, AppendResponse)]
    return [each for each in answers if each.wants_snapshot]


def offer(index: int, *, goal: int, term: int = 5, state: bytes = b"0123") -> SnapshotOffer:
    """Leader 1 offers replica 2 a snapshot."""
    made = with_log(members(1, 2, 3), [1] * index)
    found = made.make_snapshot(index=index, membership=members(1, 2, 3), data=state)
    return SnapshotOffer(1, 2, term, 0, snapshot=found, goal=goal)


def chunk(offered: SnapshotOffer, data: bytes = b"0123") -> SnapshotChunk:
    """All of that snapshot in one piece."""
    return SnapshotChunk(
        1, 2, offered.term, 0, offered.snapshot, offset=0, data=data, checksum=zlib.crc32(data)
    )


# No vote, no lead, a new term.


def test_repair_begins_in_a_new_term_without_a_vote() -> None:
    storage = with_log(members(1, 2, 3), (1, 1))
    storage.hard_state = HardState(term=4, vote=3)
    group = Group(3, storages={2: storage})

    group.start(2, repair=True)
    write = group[2].ready().write

    assert (group[2].term, group[2].statistics().vote, group[2].is_repairing) == (5, 0, True)
    assert write is not None
    assert write.hard_state == HardState(term=5, vote=0, commit=0)


def test_nothing_leaves_before_the_new_term_is_durable() -> None:
    group = Group(3, storages={2: with_log(members(1, 2, 3), (1,))})
    group.start(2, repair=True)
    group.slow_disks = {2}

    group[2].step(Heartbeat(1, 2, 2, 0, commit=0, round=0))
    group.work(2)
    early = group.mail[:]
    group.store(2)

    assert early == []
    assert {each.term for each in group.mail} == {2}


@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize("forced", [True, False])
def test_a_replica_under_repair_has_no_vote(pre: bool, forced: bool) -> None:
    group = alone()

    group[2].step(VoteRequest(1, 2, 9, 0, last_index=99, last_term=8, pre=pre, forced=forced))
    group.work(2)

    [answer] = group.mail
    assert isinstance(answer, VoteResponse)
    assert not answer.granted
    assert group[2].statistics().vote == 0


def by_waiting(group: Group) -> None:
    for _ in range(100):
        group[2].tick()


def by_its_driver(group: Group) -> None:
    group[2].campaign()


def by_the_leader(group: Group) -> None:
    group[2].step(TimeoutNow(1, 2, group[2].term, 0))


@pytest.mark.parametrize("asked", [by_waiting, by_its_driver, by_the_leader])
def test_a_replica_under_repair_never_campaigns(asked: Callable[[Group], None]) -> None:
    group = alone()
    term = group[2].term

    asked(group)
    group.work(2)

    assert group.mail == []
    assert (group[2].statistics().role, group[2].term) == (Role.FOLLOWER, term)


def test_entries_that_only_a_damaged_replica_had_acknowledged_are_not_lost() -> None:
    group = amnesiac(Group(3))
    group.heal()
    group.isolate(1)

    # Without repair, 2 would elect 3, and what 1 and 2 had committed would be overwritten.
    group[3].forget_leader()
    group[3].campaign()
    group.settle()
    group.tick(2, 3, times=60)
    without_1 = group.leaders
    group.heal()
    group.tick(1, 2, 3, times=60)

    assert 2 not in without_1
    assert 3 not in without_1
    assert group.leaders == [1]
    assert group.normal(1) == group.normal(3) == [b"a", b"b", b"c"]


def test_the_same_without_repair_would_lose_them() -> None:
    """The test above can fail: this is what it looks like."""
    group = amnesiac(Group(3))
    group.start(2, applied=1)
    group.heal()
    group.isolate(1)

    group[3].forget_leader()
    group[3].campaign()
    group.settle()

    assert group[3].is_leader
    assert group.storages[3].last_index == 3


# Old acknowledgements are void.


def test_an_acknowledgement_from_before_the_damage_is_not_counted() -> None:
    group = amnesiac(Group(3))
    old = AppendResponse(2, 1, 1, 0, index=4)
    group.heal()
    group.tick(1, 3, times=3)
    group.elect(1)
    assert group[1].term > 1
    before = view(group, 2, leader=1).match

    group[1].step(old)

    assert view(group, 2, leader=1).match == before
    assert group[1].statistics().refused["old_term"] >= 1


def test_asking_for_a_snapshot_takes_back_what_was_acknowledged_in_the_same_term() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)
    index = group[1].propose(b"x")
    group.work(1)
    assert view(group, 2, leader=1).match == 1

    group[1].step(wants(2, 1, 1, 0, index=1))

    seen = view(group, 2, leader=1)
    assert (seen.match, seen.next, seen.flow) == (0, 1, Flow.PROBE)
    assert group[1].statistics().commit == index - 1


# The goal.


def test_repair_ends_when_what_the_leader_had_committed_at_the_offer_is_here() -> None:
    group = alone()
    offered = offer(3, goal=5)
    group[2].step(offered)
    group.work(2)
    group[2].step(chunk(offered))
    group.work(2)
    assert group[2].statistics().first_index == 4
    seen = [group[2].is_repairing]
    log = with_log(members(1, 2, 3), [1, 1, 1, 4, 5, 5])

    for index, commit in ((4, 3), (5, 4), (6, 4), (7, 5)):
        previous = index - 1
        group[2].step(
            AppendRequest(
                1,
                2,
                5,
                0,
                previous_index=previous,
                previous_term=log.term(previous),
                entries=tuple(log.entries(index, index, 100)) if index < 7 else (),
                commit=commit,
            )
        )
        group.work(2)
        seen.append(group[2].is_repairing)

    assert seen == [True, True, True, True, False]


def test_repair_does_not_end_before_the_goal_is_durable() -> None:
    group = alone()
    offered = offer(3, goal=4)
    group[2].step(offered)
    group.work(2)
    group[2].step(chunk(offered))
    group.work(2)
    group.slow_disks = {2}
    entries = tuple(with_log(members(1, 2, 3), [1, 1, 1, 5]).entries(4, 4, 100))

    group[2].step(
        AppendRequest(1, 2, 5, 0, previous_index=3, previous_term=1, entries=entries, commit=4)
    )
    group.work(2)
    early = group[2].is_repairing
    group.store(2)

    assert (early, group[2].is_repairing) == (True, False)


def test_repair_does_not_end_before_the_snapshot_is_installed() -> None:
    group = alone()
    offered = offer(3, goal=3)
    group[2].step(offered)
    group.work(2)
    group.slow_disks = {2}
    group[2].step(chunk(offered))
    group.work(2)
    seen = [group[2].is_repairing]

    while group.writes[2]:
        group.store(2, 1)
        seen.append(group[2].is_repairing)
        group.work(2)

    assert seen == [True, True, False]


def test_repair_does_not_end_while_the_snapshot_is_pulled_though_the_log_reaches_the_goal() -> None:
    group = alone()
    group[2].step(offer(3, goal=3))
    group.work(2)

    group[2].step(Heartbeat(1, 2, 5, 0, commit=3, round=0))
    group.work(2)

    assert (group[2].is_repairing, group[2].statistics().commit) == (True, 0)


def test_a_leader_that_has_committed_nothing_yet_sets_its_whole_log_as_the_goal() -> None:
    log = with_log(members(1, 2, 3), [1] * 6, commit=4)
    log.make_snapshot(index=2, membership=members(1, 2, 3), data=b"state")
    group = Group(3, storages={1: log})
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    group.elect(1)
    assert (group[1].statistics().commit, group[1].statistics().last_index) == (4, 7)

    group[1].step(wants(2, 1, 2, 0, index=1))
    group.work(1)

    [offered] = [each for each in group.mail if isinstance(each, SnapshotOffer)]
    assert (offered.snapshot.index, offered.goal) == (2, 7)


def test_the_log_that_is_left_is_no_reason_to_end_the_repair() -> None:
    group = alone(terms=(1, 1, 1, 1, 1), applied=3)

    group[2].step(Heartbeat(1, 2, 5, 0, commit=5, round=0))
    group[2].step(
        AppendRequest(1, 2, 5, 0, previous_index=5, previous_term=1, entries=(), commit=5)
    )
    group[2].step(offer(4, goal=5))
    group.work(2)

    seen = group[2].statistics()
    assert (seen.is_repairing, seen.commit, seen.snapshot_received) == (True, 3, (0, 4))


def test_an_answer_to_a_read_does_not_move_the_commit_under_repair() -> None:
    group = alone(applied=1)
    group[2].step(Heartbeat(1, 2, 5, 0, commit=0, round=0))
    context = group[2].read_index()
    group.work(2)

    group[2].step(ReadResponse(1, 2, 5, 0, context=context, index=3, index_term=1))
    group.work(2)

    assert [(read.context, read.index) for read in group.reads[2]] == [(context, 3)]
    assert group[2].statistics().commit == 1


def test_votes_seen_under_repair_do_not_move_the_commit() -> None:
    group = alone()

    group[2].step(
        VoteRequest(
            1,
            2,
            5,
            0,
            last_index=3,
            last_term=1,
            pre=False,
            forced=False,
            commit=3,
            commit_term=1,
        )
    )

    assert group[2].statistics().commit == 0


def test_what_is_acknowledged_under_repair_is_not_cut_by_a_snapshot_that_came_late() -> None:
    group = alone()
    first, second = offer(3, goal=9), offer(5, goal=9, state=b"4567")
    group[2].step(first)
    group.work(2)
    group[2].step(chunk(first))
    group.work(2)
    group[2].step(second)
    group.work(2)
    entries = tuple(with_log(members(1, 2, 3), [1, 1, 1, 4, 4, 5, 5]).entries(4, 7, 100))
    group[2].step(
        AppendRequest(1, 2, 5, 0, previous_index=3, previous_term=1, entries=entries, commit=6)
    )
    group.work(2)
    assert group.mail[-1] == AppendResponse(2, 1, 5, 0, index=7, commit=6)

    group[2].step(chunk(second, b"4567"))
    group.work(2)

    seen = group[2].statistics()
    assert (seen.commit, seen.applied, seen.last_index, seen.first_index) == (6, 6, 7, 4)
    assert seen.is_repairing


def test_a_repaired_replica_votes_and_leads_again() -> None:
    group = amnesiac(Group(3))
    group.heal()
    group.tick(1, 2, 3, times=40)
    [leader] = group.leaders
    snapshot(group, leader)
    for _ in range(5):
        group.tick()
    assert not group[2].is_repairing

    group[leader].transfer(2)
    group.settle()

    assert group.leaders == [2]
    assert group[2].statistics().applied == group[1].statistics().applied
    assert group[2].membership == members(1, 2, 3)


# The leader's side.


@pytest.mark.conformance("T14")
def test_t14_a_replica_that_wants_a_snapshot_gets_one_though_its_log_would_do() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.storages[1].make_snapshot(index=3, membership=group.membership, data=b"state")
    group.delivered.clear()

    damaged(group, 2, keep=3)
    group.tick(1, 2, 3, times=40)
    for _ in range(3):
        group.tick()

    assert not group[2].is_repairing
    assert group.storages[2].snapshot_data == b"state"
    assert group[2].statistics().first_index == 4
    assert len({each.snapshot for each in chunks(group)}) == 1


@pytest.mark.conformance("T14")
def test_t14_while_a_wanted_snapshot_is_pulled_no_append_is_sent() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    made = group.storages[1].make_snapshot(index=3, membership=group.membership, data=b"state")
    group[1].step(wants(2, 1, 1, 0, index=3))
    group.work(1)
    assert group.mail == [SnapshotOffer(1, 2, 1, 0, snapshot=made, goal=3)]
    group.mail.clear()

    for _ in range(5):
        group[1].propose(b"x")
        group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
        group.work(1)

    assert [each for each in group.mail if each.target == 2] == []
    assert view(group, 2, leader=1).snapshot_index == 3


@pytest.mark.conformance("T15")
def test_t15_a_wanted_snapshot_that_is_not_there_is_ordered_and_offered_when_it_is() -> None:
    group = Group(3)
    group.auto_snapshot = False
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.storages[1].make_snapshot(index=2, membership=group.membership, data=b"too old")

    group[1].step(wants(2, 1, 1, 0, index=3))
    group.work(1)
    assert (group.wanted[1], group.mail) == ([3], [])
    assert view(group, 2, leader=1).flow is Flow.PROBE
    made = group.storages[1].make_snapshot(index=3, membership=group.membership, data=b"state")
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
    group.work(1)

    assert group.mail == [SnapshotOffer(1, 2, 1, 0, snapshot=made, goal=3)]


@pytest.mark.conformance("T15")
def test_t15_no_append_is_sent_while_a_wanted_snapshot_is_not_there() -> None:
    group = Group(3)
    group.auto_snapshot = False
    group.elect(1)
    group.propose(1, b"a", b"b")

    group[1].step(wants(2, 1, 1, 0, index=3))
    for _ in range(5):
        group[1].propose(b"x")
        group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
        group.work(1)

    assert [each for each in group.mail if each.target == 2] == []


@pytest.mark.conformance("T15")
def test_t15_a_snapshot_older_than_what_is_applied_under_repair_is_not_taken() -> None:
    group = alone(applied=3)

    group[2].step(offer(2, goal=5))
    group.work(2)

    assert group.mail == [wants(2, 1, 5, 0, index=3, commit=3)]
    assert group[2].statistics().snapshot_received is None


@pytest.mark.conformance("T16")
@pytest.mark.parametrize("index", [0, 1, 2])
def test_t16_an_older_acknowledgement_does_not_end_the_pulling(index: int) -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.storages[1].make_snapshot(index=3, membership=group.membership, data=b"state")
    group.storages[1].compact(index=3, membership=group.membership)
    group[1].step(wants(2, 1, 1, 0, index=3))
    group.work(1)

    group[1].step(AppendResponse(2, 1, 1, 0, index=index))
    group.work(1)

    seen = view(group, 2, leader=1)
    assert (seen.flow, seen.snapshot_index) == (Flow.SNAPSHOT, 3)


@pytest.mark.conformance("T16")
def test_t16_asking_again_for_what_is_being_pulled_changes_nothing() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.storages[1].make_snapshot(index=3, membership=group.membership, data=b"state")
    group[1].step(wants(2, 1, 1, 0, index=2))
    group.work(1)
    group.mail.clear()
    before = view(group, 2, leader=1)

    group[1].step(wants(2, 1, 1, 0, index=3))
    group.work(1)

    assert (view(group, 2, leader=1), group.mail) == (before, [])


@pytest.mark.conformance("T16")
def test_t16_asking_for_a_newer_snapshot_than_the_one_being_pulled_ends_that_one() -> None:
    group = Group(3)
    group.auto_snapshot = False
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.storages[1].make_snapshot(index=2, membership=group.membership, data=b"state")
    group[1].step(wants(2, 1, 1, 0, index=2))
    group.work(1)
    group.mail.clear()

    group[1].step(wants(2, 1, 1, 0, index=3))
    group.work(1)

    assert view(group, 2, leader=1).flow is Flow.PROBE
    assert (group.wanted[1], group.mail) == ([3], [])


@pytest.mark.conformance("T17")
def test_t17_a_replica_that_is_still_probed_gets_its_snapshot() -> None:
    group = Group(3)
    group.isolate(2)
    group.elect(1)
    group.propose(1, b"a", b"b")
    made = group.storages[1].make_snapshot(index=3, membership=group.membership, data=b"state")
    assert view(group, 2, leader=1).flow is Flow.PROBE

    group[1].step(wants(2, 1, 1, 0, index=1))
    group.work(1)

    assert group.mail[-1] == SnapshotOffer(1, 2, 1, 0, snapshot=made, goal=3)
    assert view(group, 2, leader=1).flow is Flow.SNAPSHOT


def half_repaired() -> tuple[Group, Snapshot]:
    """Replica 2 of five is under repair and has half of the snapshot that the leader offered."""
    group = Group(5, chunk_bytes_max=2)
    group.auto_snapshot = False
    group.elect(1)
    group.propose(1, b"a", b"b")
    damaged(group, 2, keep=1)
    stall_at(group, 2)
    for _ in range(40):
        group.tick()
    made = snapshot(group, leader_of(group), b"0123")
    for _ in range(3):
        group.tick()
    assert group[2].statistics().snapshot_received == (2, 4)
    group.heal()
    return group, made


def leader_of(group: Group) -> int:
    [leader] = group.leaders
    return leader


@pytest.mark.conformance("T18", "T20")
def test_t18_t20_a_new_leader_is_asked_anew_and_the_repair_ends_under_it() -> None:
    group, made = half_repaired()
    old = leader_of(group)
    heir = 3 if old != 3 else 4
    group.delivered.clear()
    group[old].transfer(heir)
    group.settle()
    group.tick(heir)
    asked = [each.target for each in requests(group)]
    waiting = group[2].is_repairing

    newer = snapshot(group, heir, b"4567")
    for _ in range(40):
        group.tick()

    assert asked[-1] == heir == leader_of(group)
    assert waiting
    assert not group[2].is_repairing
    assert newer.index > made.index
    assert group.storages[2].snapshot() == newer
    assert group[2].statistics().applied == group[heir].statistics().applied


@pytest.mark.conformance("T18")
def test_t18_a_leader_that_stepped_down_forgets_who_wanted_a_snapshot() -> None:
    group = Group(3)
    group.elect(1)
    group.storages[1].make_snapshot(index=1, membership=group.membership, data=b"state")
    group[1].step(wants(2, 1, 1, 0, index=1))
    group[1].step(Heartbeat(3, 1, 2, 0, commit=0, round=0))

    group.work(1)

    assert [each for each in group.mail if isinstance(each, SnapshotOffer)] == []
    assert group[1].statistics().progress == ()


@pytest.mark.conformance("T19", "S07")
def test_t19_s07_who_does_not_lead_gives_no_snapshot() -> None:
    group = Group(3)
    group.elect(1)
    group.storages[3].make_snapshot(index=1, membership=group.membership, data=b"state")

    group[3].step(wants(2, 3, 1, 0, index=1))
    group.work(3)

    assert group.mail == []
    assert group[3].statistics().progress == ()


@pytest.mark.conformance("T19")
def test_t19_a_complete_stream_is_installed_only_by_a_follower() -> None:
    group = Group(3, storages={2: with_log(members(1, 2, 3), (1, 1))})
    offered = offer(5, goal=5)
    group.slow_disks = {2}
    group[2].step(offered)
    group.work(2)
    group.store(2)
    group[2].step(chunk(offered))
    group.work(2)
    group[2].forget_leader()
    group[2].campaign()
    group.store(2)
    assert group[2].statistics().role is Role.PRE_CANDIDATE
    early = group[2].ready().write

    group[2].step(offered)
    write = group[2].ready().write

    assert early is None
    assert write is not None
    assert write.install == offered.snapshot


@pytest.mark.conformance("T20")
def test_t20_an_offer_of_an_earlier_term_sets_no_goal() -> None:
    group = alone()
    offered = offer(3, goal=3)
    group[2].step(offered)
    group.work(2)
    group[2].step(Heartbeat(3, 2, 6, 0, commit=0, round=0))
    group.work(2)
    group.mail.clear()

    group[2].step(chunk(offered))
    group.work(2)

    assert group[2].is_repairing
    assert group[2].statistics().snapshot_received == (0, 4)
    assert group[2].statistics().refused == {"old_term": 1}


@pytest.mark.conformance("T20")
def test_t20_a_goal_of_an_earlier_term_does_not_end_the_repair_in_a_later_one() -> None:
    group = alone()
    offered = offer(3, goal=4)
    group[2].step(offered)
    group.work(2)
    group[2].step(chunk(offered))
    group.work(2)
    group.mail.clear()
    entries = tuple(with_log(members(1, 2, 3), [1, 1, 1, 1]).entries(4, 4, 100))

    group[2].step(
        AppendRequest(3, 2, 6, 0, previous_index=3, previous_term=1, entries=entries, commit=4)
    )
    group.work(2)

    assert group[2].is_repairing
    assert group.mail == [wants(2, 3, 6, 0, index=3, commit=3)]


# When a snapshot is asked for.


@pytest.mark.conformance("S07")
def test_s07_nothing_is_asked_for_while_no_leader_is_known() -> None:
    group = alone()

    for _ in range(100):
        group[2].tick()
        group.work(2)

    assert group.mail == []


@pytest.mark.conformance("S07")
@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(1, 2, 5, 0, commit=0, round=0),
        AppendRequest(1, 2, 5, 0, previous_index=3, previous_term=1, entries=(), commit=0),
    ],
    ids=["heartbeat", "append"],
)
def test_s07_every_leader_that_is_heard_is_asked(message: AnyMessage) -> None:
    group = alone()

    group[2].step(message)
    group.work(2)

    assert [each for each in group.mail if isinstance(each, AppendResponse)] == [
        wants(2, 1, 5, 0, index=1, commit=0)
    ]


@pytest.mark.conformance("S07")
def test_s07_a_leader_of_the_past_is_not_asked_but_told_the_term() -> None:
    group = alone()
    assert group[2].term == 2

    group[2].step(Heartbeat(1, 2, 1, 0, commit=0, round=0))
    group.work(2)

    assert group.mail == [AppendResponse(2, 1, 2, 0, index=0)]


@pytest.mark.conformance("S07")
def test_s07_once_it_is_offered_the_snapshot_is_not_asked_for_by_every_heartbeat() -> None:
    group = alone()
    group[2].step(offer(3, goal=3))
    group.work(2)
    group.mail.clear()

    for _ in range(5):
        group[2].step(Heartbeat(1, 2, 5, 0, commit=0, round=0))
    group.work(2)

    assert group.mail == [HeartbeatResponse(2, 1, 5, 0, round=0)] * 5


@pytest.mark.conformance("S07")
def test_s07_a_late_copy_of_a_request_does_no_lasting_harm() -> None:
    group = amnesiac(Group(3))
    group.heal()
    group.tick(1, 2, 3, times=40)
    [leader] = group.leaders
    snapshot(group, leader)
    for _ in range(5):
        group.tick()
    late = requests(group)[-1]
    assert not group[2].is_repairing

    group[leader].step(late)
    for _ in range(3):
        group.tick()
    group.propose(leader, b"after")

    assert view(group, 2, leader=leader).flow is Flow.REPLICATE
    assert group.normal(2)[-1] == b"after"
    assert not group[2].is_repairing


# Groups that need the damaged one.


def test_a_leader_whose_first_commit_needs_the_damaged_replica_repairs_it() -> None:
    group = amnesiac(Group(3))
    group.start(1)
    group.heal()
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    group[3].forget_leader()
    for _ in range(60):
        if not group.leaders:
            group.tick(1)
    assert group.leaders == [1]
    snapshot(group, 1)
    group.heal()
    group.isolate(3)

    for _ in range(9):
        group.tick(1)

    assert not group[2].is_repairing
    assert group.propose(1, b"d") != []
    assert group.normal(1)[-1] == group.normal(2)[-1] == b"d"


def test_a_repair_that_was_interrupted_begins_again_and_goes_on_in_the_stream() -> None:
    group, made = half_repaired()
    term = group[2].term
    group.delivered.clear()

    group.start(2, repair=True)
    restarted = group[2].term
    for _ in range(60):
        group.tick()

    assert restarted == term + 1
    assert not group[2].is_repairing
    assert group.storages[2].snapshot() == made
    assert [each.offset for each in chunks(group)] == [2]


def test_a_learner_is_repaired_like_a_voter() -> None:
    group = Group(members(1, 2, learners=[3]))
    group.elect(1)
    group.tick(1)
    group.propose(1, b"a", b"b")
    damaged(group, 3, keep=1)
    snapshot(group, 1)

    for _ in range(60):
        group.tick()

    assert not group[3].is_repairing
    assert group[3].describe_state() == group[1].describe_state()


def test_a_replica_that_is_removed_under_repair_is_left_alone() -> None:
    group = amnesiac(Group(3))
    group.auto_snapshot = False
    group.heal()
    group.tick(1, 2, 3, times=40)
    [leader] = group.leaders
    group[leader].propose_change(Change((Step(Action.REMOVE, 2),)))
    group.settle()

    for _ in range(60):
        group.tick()

    assert group.leaders == [leader]
    assert group[leader].membership == members(1, 3)
    assert group[2].is_repairing
