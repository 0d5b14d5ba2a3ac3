"""Snapshots: who is offered one, who takes it, and what both do meanwhile."""

import pytest

from corvo.raft import Flow, Membership, MemoryStorage, Role, Snapshot
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatResponse,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
)
from tests.raft.group import Group, members, with_log
from tests.raft.snapshotting import (
    STATE,
    chunk_of,
    left_behind,
    snapshot,
    stall_at,
    until_install,
    view,
)

# Installing.


@pytest.mark.conformance("R069")
def test_r069_an_installed_snapshot_gives_index_term_and_members() -> None:
    group = Group(3)
    made = left_behind(group)

    group.tick(1)

    seen = group[3].statistics()
    assert (seen.commit, seen.applied, seen.stable, seen.first_index, seen.last_index) == (
        4,
        4,
        4,
        5,
        4,
    )
    assert group[3].describe_state() == Snapshot(4, 1, group.membership)
    assert group.storages[3].snapshot() == made
    assert group.storages[3].snapshot_data == STATE


@pytest.mark.conformance("R069")
def test_r069_the_same_snapshot_offered_again_is_not_installed_again() -> None:
    group = Group(3)
    made = left_behind(group)
    group.tick(1)
    before = group[3].statistics()

    group[3].step(SnapshotOffer(1, 3, 1, 0, snapshot=made, goal=4))

    ready = group[3].ready()
    assert ready.messages == (AppendResponse(3, 1, 1, 0, index=4, commit=4),)
    assert ready.write is None
    assert group[3].statistics() == before


@pytest.mark.conformance("R069")
def test_r069_nobody_campaigns_on_a_snapshot_that_is_not_installed_yet() -> None:
    group = Group(3)
    left_behind(group)
    group.slow_disks = {3}
    until_install(group, 3)

    group[3].campaign()
    early = group[3].statistics().role
    group.store(3)
    group.settle()
    group[3].campaign()

    assert early is Role.FOLLOWER
    assert group[3].statistics().role is Role.PRE_CANDIDATE


@pytest.mark.conformance("R069")
def test_r069_a_snapshot_is_acknowledged_only_when_it_is_durable() -> None:
    group = Group(3)
    left_behind(group)
    group.slow_disks = {3}
    until_install(group, 3)
    assert view(group, 3).match == 0

    group.store(3)
    group.settle()

    assert (view(group, 3).match, view(group, 3).flow) == (4, Flow.REPLICATE)


@pytest.mark.conformance("R069")
def test_r069_a_state_is_not_replaced_while_entries_are_being_applied_to_it() -> None:
    group = Group(3)
    group.elect(1)
    group.auto_apply = False
    group.propose(1, b"first")
    group[1].advance(2)
    group[2].advance(2)
    group.isolate(3)
    group.propose(1, b"second")
    group[1].advance(3)
    snapshot(group, 1)
    group.heal()
    # The leader starts anew and needs to ask: its log no longer reaches back far enough.
    group[1].step(AppendResponse(3, 1, 1, 0, index=1, rejected=True, hint_index=1, hint_term=1))
    group.raft(1).leadership.progress[3].become_probe()  # type: ignore[union-attr]
    group.tick(1)
    assert group[3].statistics().last_index == 3
    assert group.storages[3].base.index == 0

    group[3].advance(2)
    group.settle()

    assert group.storages[3].base.index == 3
    assert group[3].statistics().applied == 3


def holder(membership: Membership, *, before: Membership) -> MemoryStorage:
    """A log that is nothing but a snapshot at index 11 with this membership."""
    storage = with_log(before, [1] * 11)
    storage.make_snapshot(index=11, membership=membership, data=STATE)
    storage.compact(index=11, membership=membership)
    return storage


@pytest.mark.conformance("R070", "R071", "R072", "R073", "T25")
@pytest.mark.parametrize(
    ("before", "after", "promotable"),
    [
        pytest.param(
            members(1, 2, 3), members(1, 2, learners=[3, 4]), False, id="R070 with learners"
        ),
        pytest.param(
            members(1, 2, 3),
            Membership(voters=(1, 2), outgoing=(1, 2, 3)),
            True,
            id="R071 with outgoing voters",
        ),
        pytest.param(
            members(1, 2, 3),
            Membership(voters=(1, 2), outgoing=(1, 2, 3), learners_next=(3,)),
            True,
            id="R071 with an outgoing voter that will learn",
        ),
        pytest.param(
            members(1, 2, 3), members(1, 2, learners=[3]), False, id="R072 T25 voter to learner"
        ),
        pytest.param(
            members(1, 2, learners=[3]), members(1, 2, 3), True, id="R073 learner to voter"
        ),
    ],
)
def test_r070_r071_r072_r073_t25_a_snapshot_brings_the_membership_it_was_made_under(
    before: Membership, after: Membership, promotable: bool
) -> None:
    storages = {1: holder(after, before=before), 2: holder(after, before=before)}
    group = Group(before, storages=storages)
    assert group[3].membership == before

    group.elect(1)

    assert group[3].membership == after
    assert group.storages[3].base.membership == after
    assert group.raft(3).is_promotable is promotable
    group[3].campaign()
    asked = Role.PRE_CANDIDATE if promotable else Role.FOLLOWER
    assert group[3].statistics().role is asked


@pytest.mark.conformance("R071")
def test_r071_a_joint_state_that_came_with_a_snapshot_is_left_by_the_next_leader() -> None:
    before = members(1, 2, 3)
    joint = Membership(voters=(1, 2), outgoing=(1, 2, 3), auto_leave=True)
    group = Group(before, storages={1: holder(joint, before=before)})
    group.isolate(3)
    group.passes = lambda message: not isinstance(message, SnapshotChunk)
    group.elect(1)
    assert (group[1].membership, group[2].membership) == (joint, before)

    group.heal()
    for _ in range(35):
        group.tick()

    assert group[1].membership == group[2].membership == members(1, 2)


@pytest.mark.conformance("R074")
def test_r074_a_learner_far_behind_is_caught_up_by_a_snapshot() -> None:
    group = Group(members(1, 2, learners=[3]), chunk_bytes_max=3)
    made = left_behind(group)
    group[1].transfer(2)

    group.settle()
    group.tick(2)
    group.propose(2, b"d")

    assert group.leaders == [2]
    assert group.storages[3].snapshot() == made
    assert group.normal(3) == [b"d"]
    seen = view(group, 3, leader=2)
    assert (seen.match, seen.is_learner) == (group[2].statistics().last_index, True)


# Offers that are not needed.


def follower_with(*, terms: list[int], commit: int) -> Group:
    """Replica 3 alone, in term 5, with a log of these terms."""
    group = Group(3, storages={3: with_log(members(1, 2, 3), terms, term=5, commit=commit)})
    group.work(3)
    group.mail.clear()
    return group


def offer(index: int, term: int, *, of_term: int = 5) -> SnapshotOffer:
    made = Snapshot(index, term, members(1, 2, 3), len(STATE), b"checksum")
    return SnapshotOffer(1, 3, of_term, 0, snapshot=made, goal=index)


@pytest.mark.conformance("R075")
@pytest.mark.parametrize("index", [1, 2])
def test_r075_a_snapshot_of_what_is_committed_already_is_not_pulled(index: int) -> None:
    group = follower_with(terms=[1, 1, 2], commit=2)
    group.work(3)

    group[3].step(offer(index, 1))
    group.work(3)

    assert group.mail == [AppendResponse(3, 1, 5, 0, index=2, commit=2)]
    assert group[3].statistics().last_index == 3


@pytest.mark.conformance("R075")
def test_r075_a_snapshot_that_the_log_agrees_with_only_moves_the_commit() -> None:
    group = follower_with(terms=[1, 1, 2, 2], commit=1)

    group[3].step(offer(3, 2))
    group.work(3)

    assert group.mail == [AppendResponse(3, 1, 5, 0, index=3, commit=3)]
    seen = group[3].statistics()
    assert (seen.commit, seen.applied, seen.last_index) == (3, 3, 4)


@pytest.mark.conformance("R075")
def test_r075_a_snapshot_that_the_log_disagrees_with_is_pulled() -> None:
    group = follower_with(terms=[1, 1, 2, 2], commit=1)

    group[3].step(offer(3, 4))
    group.work(3)

    assert group.mail == [SnapshotPull(3, 1, 5, 0, snapshot=offer(3, 4).snapshot, offset=0)]


@pytest.mark.conformance("R075")
def test_r075_a_pulled_snapshot_that_appends_have_overtaken_is_not_installed() -> None:
    group = follower_with(terms=[1], commit=1)
    made = left_behind(Group(3))
    group[3].step(SnapshotOffer(1, 3, 5, 0, snapshot=made, goal=4))
    group.work(3)
    catching_up = with_log(members(1, 2, 3), [1, 1, 1, 1, 5]).entries(2, 5, 100)
    group[3].step(
        AppendRequest(
            1, 3, 5, 0, previous_index=1, previous_term=1, entries=tuple(catching_up), commit=5
        )
    )
    group.work(3)

    group[3].step(chunk_of(made, 0, STATE, term=5))
    group.work(3)

    seen = group[3].statistics()
    assert (seen.commit, seen.applied, seen.first_index, seen.last_index) == (5, 5, 1, 5)


# Offering.


@pytest.mark.conformance("R076")
def test_r076_a_replica_whose_entries_are_compacted_is_offered_the_snapshot() -> None:
    group = Group(3)
    made = left_behind(group)

    group[1].step(HeartbeatResponse(3, 1, 1, 0, round=0))
    group.work(1)

    assert [each for each in group.mail if each.target == 3] == [
        SnapshotOffer(1, 3, 1, 0, snapshot=made, goal=4)
    ]


@pytest.mark.conformance("R077")
def test_r077_a_replica_that_is_silent_is_offered_nothing() -> None:
    group = Group(3)
    left_behind(group)
    group.raft(1).leadership.progress[3].become_probe()  # type: ignore[union-attr]
    assert not view(group, 3).is_active

    group.work(1)

    assert [each for each in group.mail if each.target == 3] == []
    assert (view(group, 3).flow, view(group, 3).is_paused) == (Flow.PROBE, True)


@pytest.mark.conformance("R076")
def test_r076_without_a_snapshot_to_offer_the_driver_is_asked_for_one() -> None:
    group = Group(3)
    group.auto_snapshot = False
    group.isolate(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.storages[1].compact(index=2, membership=group.membership)
    group.heal()

    group.tick(1)
    assert group.wanted[1] == [2]
    assert (view(group, 3).flow, view(group, 3).is_paused) == (Flow.PROBE, True)

    group.storages[1].make_snapshot(index=3, membership=group.membership, data=STATE)
    group.tick(1)
    assert group.storages[3].snapshot_data == STATE
    assert view(group, 3).match == 3


@pytest.mark.conformance("R078")
def test_r078_the_sender_of_an_offer_is_remembered_as_leader() -> None:
    group = Group(3)

    group[3].step(offer(3, 1))

    assert (group[3].term, group[3].leader) == (5, 1)


@pytest.mark.conformance("R079")
def test_r079_a_replica_that_was_away_past_a_compaction_gets_a_snapshot_and_then_the_log() -> None:
    group = Group(3, chunk_bytes_max=4)
    group.elect(1)
    group.propose(1, b"seen")
    group.isolate(3)
    group.propose(1, *[b"%d" % number for number in range(100)])
    made = snapshot(group, 1)
    group.heal()

    group.tick(1, times=3)
    group.propose(1, b"after")

    assert group.storages[3].snapshot() == made
    assert group.normal(3) == [b"seen", b"after"]
    seen = view(group, 3)
    assert (seen.flow, seen.match, seen.commit) == (Flow.REPLICATE, made.index + 1, made.index + 1)
    assert group[3].statistics().first_index == made.index + 1


# What the leader does meanwhile.


def offered(group: Group) -> Snapshot:
    """Replica 3 was offered a snapshot, and none of its answers has arrived."""
    made = left_behind(group)
    group[1].step(HeartbeatResponse(3, 1, 1, 0, round=0))
    group.work(1)
    group.mail.clear()
    return made


@pytest.mark.conformance("S01")
def test_s01_an_offer_is_remembered_by_its_index() -> None:
    group = Group(3)

    made = offered(group)

    seen = view(group, 3)
    assert (seen.flow, seen.snapshot_index, seen.match) == (Flow.SNAPSHOT, made.index, 0)


@pytest.mark.conformance("S02")
def test_s02_while_a_snapshot_is_pulled_no_append_is_sent() -> None:
    group = Group(3)
    offered(group)

    group[1].propose(b"x")
    group.work(1)

    assert [each.target for each in group.mail if isinstance(each, AppendRequest)] == [2]
    assert view(group, 3).is_paused


@pytest.mark.conformance("S03")
def test_s03_a_replica_that_stops_pulling_is_probed_after_three_timeouts() -> None:
    group = Group(3, election_ticks=10)
    made = offered(group)
    group.cut(1, 3)

    group.tick(1, 2, times=29)
    patient = view(group, 3).flow
    group.tick(1, 2)

    assert patient is Flow.SNAPSHOT
    seen = view(group, 3)
    assert (seen.flow, seen.snapshot_index, seen.next) == (Flow.PROBE, None, 1)
    group.heal()
    group.tick(1, times=2)
    assert group.storages[3].snapshot() == made


@pytest.mark.conformance("S03")
def test_s03_a_pull_of_a_snapshot_that_is_gone_makes_the_leader_offer_the_newer_one() -> None:
    group = Group(3, chunk_bytes_max=4)
    made = left_behind(group)
    stall_at(group, 8)
    group.tick(1)
    assert group[3].statistics().snapshot_received == (8, 10)
    group.propose(1, b"d")
    newer = snapshot(group, 1, b"another state")
    assert newer != made
    group.heal()

    group.tick(3, times=20)

    assert group.storages[3].snapshot() == newer
    assert group.storages[3].snapshot_data == b"another state"


@pytest.mark.conformance("S04")
def test_s04_an_installed_snapshot_is_followed_by_the_entries_behind_it() -> None:
    group = Group(3)
    offered(group)
    group[1].propose(b"x")
    group.work(1)
    group.mail.clear()

    group[1].step(AppendResponse(3, 1, 1, 0, index=4))
    group.work(1)

    seen = view(group, 3)
    assert (seen.match, seen.next, seen.snapshot_index) == (4, 6, None)
    [append] = [each for each in group.mail if each.target == 3]
    assert isinstance(append, AppendRequest)
    assert (append.previous_index, [each.data for each in append.entries]) == (4, [b"x"])


@pytest.mark.conformance("S05")
@pytest.mark.parametrize("index", [4, 5])
def test_s05_an_acknowledgement_at_or_beyond_the_offer_ends_it_at_once(index: int) -> None:
    group = Group(3)
    offered(group)
    group[1].propose(b"x")
    group.work(1)

    group[1].step(AppendResponse(3, 1, 1, 0, index=index))

    seen = view(group, 3)
    assert (seen.flow, seen.match, seen.snapshot_index) == (Flow.REPLICATE, index, None)


@pytest.mark.conformance("S05")
def test_s05_an_acknowledgement_that_the_log_does_not_reach_leaves_the_offer_standing() -> None:
    group = Group(3)
    made = offered(group)

    group[1].step(AppendResponse(3, 1, 1, 0, index=2))

    seen = view(group, 3)
    assert (seen.flow, seen.match, seen.snapshot_index) == (Flow.SNAPSHOT, 2, made.index)


@pytest.mark.conformance("S05")
def test_s05_a_commit_at_the_offer_ends_it_when_the_acknowledgement_was_lost() -> None:
    group = Group(3)
    made = left_behind(group)
    group.passes = lambda message: not isinstance(message, AppendResponse) or message.source != 3
    group.tick(1)
    assert group.storages[3].snapshot() == made
    assert view(group, 3).flow is Flow.SNAPSHOT
    group.passes = lambda _: True

    group.tick(1)

    seen = view(group, 3)
    assert (seen.flow, seen.match) == (Flow.REPLICATE, 4)


@pytest.mark.conformance("S05")
def test_s05_a_commit_at_the_offer_is_not_believed_without_the_entries() -> None:
    """It may be of a data directory that is gone."""
    group = Group(3)
    made = offered(group)

    group[1].step(HeartbeatResponse(3, 1, 1, 0, round=0, commit=4))
    group.work(1)

    seen = view(group, 3)
    assert (seen.flow, seen.match, seen.next) == (Flow.PROBE, 0, 5)
    group.tick(1, times=3)
    assert group.storages[3].snapshot() == made
    assert view(group, 3).match == 4


@pytest.mark.conformance("S05")
@pytest.mark.parametrize("commit", [0, 3])
def test_s05_a_commit_before_the_offer_leaves_it_standing(commit: int) -> None:
    group = Group(3)
    made = offered(group)

    group[1].step(HeartbeatResponse(3, 1, 1, 0, round=0, commit=commit))
    group.work(1)

    seen = view(group, 3)
    assert (seen.flow, seen.snapshot_index) == (Flow.SNAPSHOT, made.index)


@pytest.mark.conformance("S05")
@pytest.mark.parametrize(("wanted", "flow"), [(1, Flow.PROBE), (4, Flow.SNAPSHOT)])
def test_s05_a_commit_that_was_known_before_the_offer_leaves_it_standing(
    wanted: int, flow: Flow
) -> None:
    """A replica under repair knows of commits that it does not hold."""
    group = Group(3)
    offered(group)
    group[1].step(AppendResponse(3, 1, 1, 0, index=wanted, rejected=True, wants_snapshot=True))
    group.work(1)
    assert view(group, 3).flow is Flow.SNAPSHOT

    group[1].step(HeartbeatResponse(3, 1, 1, 0, round=0, commit=4))
    group.work(1)

    assert view(group, 3).flow is flow


@pytest.mark.conformance("S06")
def test_s06_an_empty_replica_is_brought_in_by_a_snapshot_of_the_first_term() -> None:
    membership = members(1, 2)
    first = with_log(membership, [1])
    first.make_snapshot(index=1, membership=membership, data=STATE)
    first.compact(index=1, membership=membership)
    group = Group(membership, storages={1: first, 2: MemoryStorage()})
    assert group[2].membership == Membership()

    group.elect(1)

    assert group[2].membership == membership
    assert group[2].describe_state() == group[1].describe_state()


@pytest.mark.conformance("S06")
def test_s06_the_log_of_a_first_election_can_be_snapshotted_and_sent() -> None:
    group = Group(3)
    group.isolate(3)
    group.elect(1)
    made = snapshot(group, 1)
    assert (made.index, made.term) == (1, 1)
    group.heal()

    group.tick(1)

    assert group[3].describe_state() == Snapshot(1, 1, group.membership)
