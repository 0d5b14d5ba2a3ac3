"""`Node` as its driver meets it: the contract, refusals and what can be looked at."""

from random import Random

import msgspec
import pytest

from corvo.raft import (
    LEAVE,
    Action,
    AnyMessage,
    Change,
    ChangeRefused,
    Entry,
    Flow,
    InvalidSettings,
    Kind,
    Membership,
    MemoryStorage,
    Misuse,
    Node,
    NotLeader,
    Overloaded,
    ProgressView,
    Ready,
    Refused,
    Role,
    Settings,
    Snapshot,
    Statistics,
    Step,
    Transferring,
    Write,
)
from corvo.raft.errors import TooLarge
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
)
from tests.raft.digest import digest
from tests.raft.group import Group, members, with_log
from tests.raft.lone import Lone, accept, append, entries, heartbeat, pulse, vote, vote_request
from tests.raft.stages import (
    STAGES,
    Scene,
    follower,
    fresh,
    leader_handing_over,
    leader_new,
    leader_removed,
    pulling,
    repairing,
)
from tests.raft.test_codec import SAMPLES


def add(replica: int, *, auto: bool = True) -> Change:
    return Change((Step(Action.ADD_VOTER, replica),), auto=auto)


def remove(replica: int) -> Change:
    return Change((Step(Action.REMOVE, replica),))


def acks(messages: tuple[AnyMessage, ...] | list[AnyMessage]) -> list[int]:
    """What is acknowledged by these messages."""
    found = [message for message in messages if isinstance(message, AppendResponse)]
    return [message.index for message in found if not message.rejected]


def indexes(committed: tuple[Entry, ...] | list[Entry]) -> list[int]:
    return [entry.index for entry in committed]


NO_SUCH_NAME = "lease_reads"


# ---- Settings.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replica", 0),
        ("replica", -1),
        ("instance", -1),
        ("heartbeat_ticks", 0),
        ("election_ticks", 1),
        ("election_ticks", 0),
        ("entry_bytes_max", 0),
        ("append_bytes_max", 0),
        ("window_messages_max", 0),
        ("window_bytes_max", 0),
        ("uncommitted_bytes_max", 0),
        ("page_bytes_max", 0),
        ("chunk_bytes_max", 0),
        ("reads_waiting_max", 0),
        ("promotion_lag_max", -1),
    ],
)
@pytest.mark.conformance("T07", "T08")
def test_t07_a_setting_out_of_bounds_is_refused_by_its_name(name: str, value: int) -> None:
    settings = Settings(**{"replica": 1, name: value})

    with pytest.raises(InvalidSettings, match=rf"^{name} is {value}; "):
        Node(settings, MemoryStorage(members(1)), Random(1))


@pytest.mark.conformance("T07", "T08")
def test_t08_the_defaults_and_the_smallest_settings_are_in_bounds() -> None:
    Settings(replica=1).check()
    ones = {
        field.name: 1
        for field in msgspec.structs.fields(Settings)
        if field.name != "election_ticks"
    }

    Settings(**{**ones, "election_ticks": 2}).check()


@pytest.mark.conformance("X13")
def test_x13_there_is_no_setting_that_would_trust_a_clock() -> None:
    names = {field.name for field in msgspec.structs.fields(Settings)}

    assert not [name for name in names if "lease" in name or "check_quorum" in name]
    with pytest.raises(TypeError, match="lease_reads"):
        Settings(**{"replica": 1, NO_SUCH_NAME: 1})


@pytest.mark.conformance("X13")
def test_x13_a_leader_heard_by_everybody_a_moment_ago_still_answers_no_read_alone() -> None:
    group = Group(3)
    group.elect(1)
    group.tick()
    group.isolate(1)

    group[1].read_index()
    group.settle()

    assert group[1].is_leader
    assert group.reads[1] == []


# ---- Starting.


@pytest.mark.conformance("N05")
def test_n05_a_new_node_follows_nobody_and_has_nothing_to_do() -> None:
    node = Lone(3).node

    assert not node.has_ready
    assert not node.ready()
    assert (node.leader, node.is_leader, node.term, node.is_repairing) == (None, False, 0, False)


@pytest.mark.conformance("N05")
def test_n05_after_a_restart_the_state_is_what_it_was() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"one", b"two")
    group[1].propose_change(add(2))
    group.settle()
    before = group[2].statistics()

    group.start(2)

    expected = msgspec.structs.replace(before, leader=None, commit=group[2].statistics().commit)
    assert group[2].statistics() == expected
    assert not group[2].ready()


@pytest.mark.conformance("N05")
def test_n05_a_restart_from_a_snapshot_begins_with_its_state_and_membership() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"one", b"two")
    group[1].propose_change(remove(3))
    group.settle()
    before = group[1].statistics()
    group.snapshot(1)
    group.storages[1].compact(index=before.applied, membership=before.membership)

    node = group.start(1)

    assert node.membership == members(1, 2)
    assert (node.statistics().applied, node.statistics().first_index) == (5, 6)
    assert node.describe_state() == Snapshot(5, 1, before.membership)
    assert not node.ready()


@pytest.mark.conformance("N05")
def test_n05_membership_is_that_of_the_applied_index_and_not_of_the_log() -> None:
    group = Group(3)
    group.elect(1)
    group[1].propose_change(remove(3))
    group.settle()  # the joint state is entered at 2 and left at 3

    found = [group.start(2, applied=applied).membership for applied in (1, 2, 3)]

    assert found == [
        members(1, 2, 3),
        Membership((1, 2), outgoing=(1, 2, 3), auto_leave=True),
        members(1, 2),
    ]


@pytest.mark.parametrize(("applied", "base"), [(4, 0), (-1, 0), (1, 2), (0, 2)])
def test_a_state_machine_that_cannot_belong_to_the_log_is_misuse(applied: int, base: int) -> None:
    storage = with_log(members(1), [1, 1, 1])
    if base:
        storage.compact(index=base, membership=members(1))

    with pytest.raises(Misuse, match=f"has applied {applied}, but the log holds {base + 1} to 3"):
        Node(Settings(replica=1), storage, Random(1), applied=applied)


@pytest.mark.conformance("X09")
def test_x09_a_commit_beyond_the_log_is_taken_down_to_its_end() -> None:
    lone = Lone(3, terms=(1, 1), term=1, commit=9)

    lone.work()

    assert lone.node.statistics().commit == lone.node.commit == 2
    assert indexes(lone.applied) == [1, 2]
    assert acks(lone.hear(append(2, 1, after=(2, 1), new=entries(3, 1), commit=9))) == [3]
    assert indexes(lone.applied) == [1, 2, 3]


# ---- Misuse.


def test_applying_beyond_what_was_handed_out_is_misuse() -> None:
    group = Group(1)
    group.auto_apply = False
    group.elect(1)

    for index in (0, 2, -1):
        with pytest.raises(Misuse, match=f"advance to {index}"):
            group[1].advance(index)
    group[1].advance(1)
    with pytest.raises(Misuse, match="advance to 1"):
        group[1].advance(1)


def test_reporting_writes_out_of_order_or_twice_is_misuse() -> None:
    lone = Lone(3)
    lone.node.step(append(2, 1, new=entries(1, 1)))
    first = lone.node.ready().write
    lone.node.step(append(2, 1, after=(1, 1), new=entries(2, 1)))
    second = lone.node.ready().write
    assert first is not None
    assert second is not None

    with pytest.raises(Misuse, match=f"write {second.token} is not the oldest"):
        lone.node.stored(second.token)
    lone.node.stored(first.token)
    with pytest.raises(Misuse, match=f"write {first.token} is not the oldest"):
        lone.node.stored(first.token)
    lone.node.stored(second.token)
    with pytest.raises(Misuse):
        lone.node.stored(second.token)


# ---- Refusals.


@pytest.mark.conformance("N10")
@pytest.mark.parametrize(
    ("scene", "refusal", "words"),
    [
        (fresh, NotLeader, "no leader is known"),
        (follower, NotLeader, "replica 1 leads"),
        (repairing, NotLeader, "no leader is known"),
        (leader_handing_over, Transferring, "being handed to replica 3"),
        (leader_removed, Transferring, "was removed"),
    ],
)
def test_n10_a_proposal_that_cannot_be_taken_is_refused_and_changes_nothing(
    scene: Scene, refusal: type[Refused], words: str
) -> None:
    stage = scene()
    before = digest(stage.node)

    with pytest.raises(refusal, match=words):
        stage.node.propose(b"refused")
    with pytest.raises(refusal, match=words):
        stage.node.propose_change(add(9))

    assert digest(stage.node) == before


@pytest.mark.conformance("N10")
def test_n10_who_is_refused_is_told_who_leads() -> None:
    with pytest.raises(NotLeader) as known:
        follower().node.propose(b"")
    with pytest.raises(NotLeader) as unknown:
        fresh().node.propose(b"")

    assert (known.value.leader, unknown.value.leader) == (1, None)


@pytest.mark.conformance("N10")
def test_n10_an_entry_larger_than_any_may_be_is_refused() -> None:
    group = Group(1, entry_bytes_max=10)
    group.elect(1)
    before = digest(group[1])

    with pytest.raises(TooLarge, match="11 bytes; entry_bytes_max is 10"):
        group[1].propose(bytes(11))

    assert digest(group[1]) == before
    group[1].propose(bytes(10))


@pytest.mark.conformance("N10")
def test_n10_without_a_leader_there_is_nobody_to_ask_for_a_read_or_a_transfer() -> None:
    node = fresh().node
    before = digest(node)

    with pytest.raises(NotLeader):
        node.read_index()
    with pytest.raises(NotLeader):
        node.transfer(2)

    assert digest(node) == before


@pytest.mark.parametrize("heir", [0, 3, 9])
def test_leadership_goes_to_voters_only(heir: int) -> None:
    group = Group(members(1, 2, learners=(3,)))
    group.elect(1)
    before = digest(group[1])

    with pytest.raises(Refused, match=f"replica {heir} is not a voter"):
        group[1].transfer(heir)

    assert digest(group[1]) == before


@pytest.mark.parametrize("at", ["leader", "follower"])
def test_reads_that_wait_are_bounded(at: str) -> None:
    group = Group(3, reads_waiting_max=2)
    group.elect(1)
    node = group[1] if at == "leader" else group[2]

    contexts = {node.read_index(), node.read_index()}
    with pytest.raises(Overloaded, match="2 reads wait"):
        node.read_index()
    group.settle()

    assert node.read_index() not in contexts
    assert len(group.reads[1] + group.reads[2]) == 2


def test_a_leader_takes_no_more_reads_from_followers_than_it_may_hold() -> None:
    group = Group(3, reads_waiting_max=1)
    group.elect(1)
    group[1].read_index()

    group[1].step(ReadRequest(2, 1, 1, 0, context=5))

    assert group[1].statistics().refused == {"read_not_taken": 1}
    assert group[1].statistics().reads_waiting == 1


def test_before_its_first_commit_a_leader_changes_no_membership() -> None:
    stage = leader_new()

    with pytest.raises(ChangeRefused, match="not committed anything"):
        stage.node.propose_change(remove(3))


def test_leaving_is_proposed_by_the_group_itself_where_it_was_asked_to() -> None:
    group = Group(3)
    group.elect(1)
    group.auto_apply = False
    group[1].propose_change(remove(3))
    group.settle()
    group.passes = lambda message: not isinstance(message, AppendRequest)
    group[1].advance(group.applied[1][-1].index)

    with pytest.raises(ChangeRefused, match="not applied yet"):
        group[1].propose_change(LEAVE)


def test_leaving_by_hand_is_refused_where_the_joint_state_ends_by_itself() -> None:
    lone = Lone(Membership((1, 2), outgoing=(1, 2, 3), auto_leave=True))
    lone.lead()
    lone.node.step(accept(2, 1, 1))
    lone.raft.log.applied = 9  # as if it had all been applied, and leaving not proposed

    with pytest.raises(ChangeRefused, match="ends by itself"):
        lone.node.propose_change(LEAVE)


# ---- Changes.


@pytest.mark.conformance("N03")
def test_n03_the_next_leader_leaves_the_joint_state_that_the_first_entered() -> None:
    group = Group(4)
    group.elect(1)
    group.passes = lambda message: (
        not (isinstance(message, AppendRequest) and any(each.index > 2 for each in message.entries))
    )
    group[1].propose_change(remove(4))
    group.settle()
    assert {group[replica].membership.outgoing for replica in group.nodes} == {(1, 2, 3, 4)}
    group.heal()
    group.isolate(1)

    group.elect(2)

    assert group[2].membership == members(1, 2, 3)
    assert [each.kind for each in group.applied[2]].count(Kind.CONFIG) == 2


@pytest.mark.conformance("N04")
def test_n04_adding_who_is_there_is_harmless_and_the_next_change_works() -> None:
    group = Group(3)
    group.elect(1)

    for _ in range(2):
        group[1].propose_change(add(2))
        group.settle()
        assert group[1].membership == members(1, 2, 3)
    group[1].propose_change(remove(3))
    group.settle()

    assert group[1].membership == members(1, 2)


@pytest.mark.conformance("N06")
def test_n06_a_leader_cut_off_piles_up_a_bounded_log_and_counts_from_zero_afterwards() -> None:
    group = Group(3, uncommitted_bytes_max=100)
    group.elect(1)
    group.isolate(1)

    for _ in range(10):
        group[1].propose(b"ten bytes!")
    with pytest.raises(Overloaded, match="100 bytes wait"):
        group[1].propose(b"ten bytes!")
    assert group[1].statistics().uncommitted_bytes == 100
    group.heal()
    group.tick()

    assert group[1].statistics().uncommitted_bytes == 0
    assert len(group.normal(3)) == 10


# ---- Messages from nowhere.


@pytest.mark.conformance("N01")
@pytest.mark.parametrize("scene", STAGES, ids=lambda scene: scene.__name__)
def test_n01_no_message_can_pretend_to_be_our_own_nor_be_for_another(scene: Scene) -> None:
    stage = scene()
    before = digest(stage.node)
    refused = sum(stage.raft.refused.values())

    for sample in SAMPLES:
        for source, target in ((stage.replica, stage.replica), (2, 99), (0, stage.replica)):
            stage.node.step(addressed(sample, source, target))

    assert digest(stage.node) == before
    assert sum(stage.raft.refused.values()) == refused + 3 * len(SAMPLES)


def addressed(sample: AnyMessage, source: int, target: int) -> AnyMessage:
    return msgspec.structs.replace(sample, source=source, target=target, term=1 << 20)


@pytest.mark.conformance("N02")
def test_n02_a_read_asked_of_a_leader_of_the_past_is_not_answered_by_it() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(1)
    context = group[1].read_index()
    group.settle()
    group.elect(2)
    group.heal()

    late = ReadRequest(3, 1, 1, 0, context=77)  # sent when 3 still believed in 1
    group.tick()
    group[1].step(late)
    group.settle()

    assert group.reads[1] == []
    assert group.reads_lost[1] == [context]
    answers = [message for message in group.delivered if isinstance(message, ReadResponse)]
    assert answers == []


@pytest.mark.conformance("N02")
def test_n02_a_read_forwarded_to_a_leader_that_fell_is_reported_as_lost() -> None:
    group = Group(3)
    group.elect(1)
    group.cut(3, 1)
    context = group[3].read_index()
    group.settle()

    group[1].tick(missed=10)
    group.elect(2)

    assert (group.reads[3], group.reads_lost[3]) == ([], [context])


@pytest.mark.conformance("X31", "X34")
def test_x34_another_life_of_a_replica_is_not_listened_to() -> None:
    lone = Lone(3)
    lone.node.step(vote_request_of(7, term=1))
    lone.work()

    assert lone.hear(vote_request_of(8, term=2)) == []
    assert lone.raft.refused == {"instance": 1}
    assert lone.node.term == 1
    assert len(lone.hear(vote_request_of(7, term=2))) == 1


def vote_request_of(instance: int, *, term: int) -> AnyMessage:
    return msgspec.structs.replace(vote_request(2, term), instance=instance)


@pytest.mark.conformance("X31")
def test_x31_a_wiped_replica_cannot_acknowledge_what_it_forgot() -> None:
    group = Group(3, instance=0)
    group.settings["instance"] = 33
    group.start(3)
    group.elect(1)
    group.propose(1, b"one")
    group.isolate(2)
    group.settings["instance"] = 44  # an empty directory, made anew
    group.storages[3], group.applied[3] = MemoryStorage(group.membership), []
    group.start(3)

    group[1].propose(b"two")
    group.tick(1, times=3)

    assert group[1].statistics().commit == 2
    assert group[1].statistics().refused["instance"] > 0


@pytest.mark.conformance("X31")
def test_x31_the_membership_says_which_directory_speaks_for_a_replica_and_can_change_it() -> None:
    lone = Lone(Membership((1, 2, 3), pins=((2, 7),)))

    lone.hear(vote_request_of(8, term=1))
    assert lone.node.term == 0
    lone.hear(vote_request_of(7, term=1))
    assert lone.node.term == 1
    lone.hear(vote_request_of(0, term=2))  # a sender without a guard is taken at its word
    assert lone.node.term == 2


@pytest.mark.conformance("X31")
def test_x31_a_replica_that_was_removed_may_come_back_with_another_directory() -> None:
    group = Group(3)
    group.elect(1)
    group[1].step(msgspec.structs.replace(pulse(3, 1), instance=33))
    group[1].propose_change(remove(3))
    group.settle()
    assert group.raft(1).instances == {}

    group[1].propose_change(Change((Step(Action.ADD_LEARNER, 3, instance=44),)))
    group.settle()
    group[1].step(msgspec.structs.replace(pulse(3, 1), instance=44))

    assert group[1].membership == Membership((1, 2), learners=(3,), pins=((3, 44),))
    assert group.raft(1).leadership is not None
    assert group[1].statistics().progress[-1].is_active


@pytest.mark.conformance("X31")
@pytest.mark.parametrize("returned", [False, True])
def test_x31_a_replica_that_came_back_blank_elects_no_second_leader(returned: bool) -> None:
    """It was removed, and voted in the group that a replica which was away still knows."""
    group = Group(members(1, 2, 4))
    group.elect(2)
    group.start(5)
    group.isolate(1)
    group[2].propose_change(Change((Step(Action.ADD_LEARNER, 5),)))
    group.tick(2, times=3)
    group[2].propose_change(Change((Step(Action.ADD_VOTER, 5), Step(Action.REMOVE, 4))))
    group.settle()
    group.storages[4], group.applied[4] = MemoryStorage(), []
    group.start(4, returned=returned)
    group.start(1)
    group.heal()
    for away in (2, 5):
        group.cut(1, away)
        group.cut(4, away)

    group.tick(1, times=60)

    assert group[2].membership.voters == (1, 2, 5)
    assert group[1].is_leader is not returned  # without the rule there are two
    assert group[2].is_leader


@pytest.mark.conformance("X31")
def test_x31_a_snapshot_may_bring_a_group_in_which_a_replica_has_another_directory() -> None:
    group = Group(5)
    group.elect(1)
    group[2].step(msgspec.structs.replace(vote_request(3, 1), target=2, instance=33))
    assert group.raft(2).instances == {3: 33}
    group.isolate(2)
    for change in (remove(3), Change((Step(Action.ADD_LEARNER, 3),))):
        group[1].propose_change(change)
        group.settle()
    made = group.snapshot(1)
    group.storages[1].compact(index=made.index, membership=made.membership)
    group.heal()
    group.tick(1, times=4)

    assert group.storages[2].base == group.storages[1].base
    assert group.raft(2).instances == {}


def test_a_late_grant_of_an_older_pre_vote_is_not_counted() -> None:
    lone = Lone(5, term=4)
    lone.node.campaign()
    lone.hear(heartbeat(2, 5))  # a leader of the term that was asked about
    lone.node.forget_leader()
    lone.node.campaign()

    roles = []
    for term in (5, 6):
        for voter in (3, 4):
            lone.hear(vote(voter, term, pre=True))
        roles.append(lone.role)

    assert roles == [Role.PRE_CANDIDATE, Role.CANDIDATE]


# ---- After a pause.


@pytest.mark.conformance("X32")
@pytest.mark.parametrize(("missed", "leads"), [(0, True), (9, True), (10, False), (1000, False)])
def test_x32_a_leader_that_stood_still_for_an_election_timeout_stops(
    missed: int, leads: bool
) -> None:
    group = Group(3)
    group.elect(1)
    context = group[1].read_index()

    group[1].tick(missed=missed)

    assert group[1].is_leader is leads
    assert group[1].ready().reads_lost == (() if leads else (context,))
    assert group[1].term == 1


@pytest.mark.conformance("X32")
def test_x32_a_follower_that_stood_still_does_not_campaign_at_once() -> None:
    group = Group(3)
    group.elect(1)

    group[2].tick(missed=1000)
    group.work(2)

    assert group.raft(2).role is Role.FOLLOWER
    assert group[2].leader == 1


# ---- What can be looked at.


def test_statistics_of_a_leader_show_its_followers() -> None:
    group = Group(members(1, 2, learners=(3,)))
    group.elect(1)
    group.propose(1, b"one")
    group.isolate(3)
    group[1].propose(b"three")
    group[1].read_index()
    group[1].transfer(2)

    seen = group[1].statistics()

    one = ProgressView(
        replica=2,
        flow=Flow.REPLICATE,
        match=2,
        next=3,
        commit=2,
        is_paused=False,
        is_active=True,
        is_learner=False,
        messages_in_flight=0,
        bytes_in_flight=0,
        snapshot_index=None,
    )
    assert seen == Statistics(
        replica=1,
        role=Role.LEADER,
        term=1,
        vote=1,
        leader=1,
        commit=2,
        applied=2,
        stable=2,
        first_index=1,
        last_index=3,
        membership=members(1, 2, learners=(3,)),
        is_repairing=False,
        transfer_to=2,
        uncommitted_bytes=5,
        reads_waiting=1,
        writes_under_way=0,
        snapshot_received=None,
        progress=(one, msgspec.structs.replace(one, replica=3, is_learner=True)),
        refused={},
    )


def test_statistics_of_a_follower_show_what_it_pulls_and_waits_for() -> None:
    stage = pulling()
    stage.node.read_index()

    seen = stage.node.statistics()

    assert seen.snapshot_received == (8, 25)
    assert seen.reads_waiting == 1
    assert seen.progress == ()
    assert (seen.leader, seen.role, seen.transfer_to) == (1, Role.FOLLOWER, None)
    assert repairing().node.statistics().is_repairing


@pytest.mark.parametrize("scene", STAGES, ids=lambda scene: scene.__name__)
def test_the_state_that_is_applied_can_be_named_unless_it_is_being_replaced(scene: Scene) -> None:
    stage = scene()

    state = stage.node.describe_state()

    if stage.raft.log.is_installing:
        assert state is None
    else:
        assert state is not None
        assert (state.index, state.size) == (stage.node.statistics().applied, 0)


@pytest.mark.parametrize("scene", STAGES, ids=lambda scene: scene.__name__)
def test_without_anything_ready_there_is_nothing_to_be_handed_out(scene: Scene) -> None:
    stage = scene()

    for _ in range(3):
        promised = stage.node.has_ready
        ready = stage.node.ready()
        assert promised or not ready
        if ready.write is not None:
            stage.group.storages[stage.replica].put(ready.write)
    assert not stage.node.ready()


def test_an_empty_ready_is_falsy_and_anything_in_it_makes_it_true() -> None:
    full = Ready(
        messages=(TimeoutNow(1, 2, 3, 4),),
        write=Write(token=1),
        committed=(Entry(1, 1, Kind.NOOP, b""),),
        reads=(),
        reads_lost=(),
        snapshot_wanted=0,
    )

    assert not Ready()
    for name in ("messages", "write", "committed", "snapshot_wanted"):
        assert Ready(**{name: getattr(full, name)}), name


def test_a_tick_makes_something_due_when_time_alone_has_changed_something() -> None:
    group = Group(3)
    group.elect(1)
    at_rest = [group[replica].is_due for replica in (1, 2)]

    group[1].tick()
    group[2].tick()
    leader, follower = group[1].is_due, group[2].is_due
    for _ in range(30):  # more than an election timeout
        group[3].tick()

    assert at_rest == [False, False]
    assert (leader, follower) == (True, False)
    assert group[3].is_due, "it asks for votes"


def test_a_new_leader_knows_all_when_it_has_applied_what_was_committed_before_it() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    told = [group[1].knows_all, group[2].knows_all]  # a follower never does
    group.auto_apply = False
    leader = group.elect(2)
    told.append(leader.knows_all)
    leader.advance(leader.commit)
    told.append(leader.knows_all)

    assert told == [True, False, False, True]
