"""An older copy of a replica's directory: it has forgotten what it acknowledged, and is told so."""

from copy import deepcopy
from functools import partial

import pytest

from corvo.raft import Entry, HardState, MemoryStorage, Role
from corvo.raft.messages import AppendResponse, Heartbeat, TimeoutNow, VoteRequest, VoteResponse
from tests.raft.changing import change, learn
from tests.raft.group import Group, members
from tests.raft.lone import Lone, append, entries, heartbeat, vote_request

pytestmark = pytest.mark.conformance("X35")

OWN = 77
acknowledged = partial(Heartbeat, 2, 1, 3, 0, commit=0, round=0)
"""What leader 2 of term 3 believes that replica 1 has."""


class Copy:
    """A replica's whole directory at a moment."""

    def __init__(self, group: Group, replica: int) -> None:
        self.storage: MemoryStorage = deepcopy(group.storages[replica])
        self.applied: list[Entry] = list(group.applied[replica])

    def put_back(self, group: Group, replica: int) -> None:
        """Start the replica with it; frames of its former life are lost with their connections."""
        group.storages[replica] = deepcopy(self.storage)
        group.applied[replica] = list(self.applied)
        group.start(replica)
        group.mail = [each for each in group.mail if each.source != replica]


def rolled_back(group: Group, *, replica: int = 2) -> Copy:
    """Leader 1 commits an entry, and two more after the copy that the replica is started with."""
    group.elect(1)
    group.propose(1, b"a")
    copy = Copy(group, replica)
    group.propose(1, b"b", b"c")
    copy.put_back(group, replica)
    return copy


def until_whole(group: Group, replica: int = 2) -> None:
    for _ in range(60):
        group.tick()
    assert not group[replica].is_repairing
    [leader] = group.leaders
    assert group[replica].statistics().applied == group[leader].statistics().applied


# ---- What is found out.


def test_x35_a_replica_with_an_older_copy_is_repaired_while_its_leader_goes_on() -> None:
    group = Group(3)
    rolled_back(group)

    group.tick(1)
    seen = [group[2].is_repairing, group.storages[2].repairing]
    until_whole(group)

    assert seen == [True, True]
    assert group[2].statistics().refused["forgotten"] == 1


def test_x35_before_anything_was_committed_after_the_copy_it_is_found_out_too() -> None:
    group = Group(5)
    group.elect(1)
    group.propose(1, b"a")
    copy = Copy(group, 2)
    for other in (3, 4, 5):
        group.cut(1, other)
    group.propose(1, b"b")
    copy.put_back(group, 2)

    group.tick(1)

    assert group[1].commit == 2
    assert group[2].is_repairing


def test_x35_a_heartbeat_of_what_is_there_begins_no_repair() -> None:
    lone = Lone(terms=(1, 1, 3), term=3)

    answers = lone.hear(acknowledged(acknowledged=3, acknowledged_term=3))

    assert len(answers) == 1
    assert not lone.node.is_repairing


@pytest.mark.parametrize(
    ("index", "term"),
    [(4, 3), (4, 0), (3, 3), (2, 3)],
    ids=["beyond the end", "beyond the end, of any term", "another entry", "another one before"],
)
def test_x35_what_was_acknowledged_and_is_not_there_begins_a_repair(index: int, term: int) -> None:
    lone = Lone(terms=(1, 2, 2), term=3)

    answers = lone.hear(acknowledged(acknowledged=index, acknowledged_term=term))

    assert answers == []
    assert (lone.node.is_repairing, lone.node.term, lone.storage.repairing) == (True, 4, True)
    assert lone.storage.hard_state == HardState(term=4)


def test_x35_what_a_leader_cannot_name_is_neither_believed_nor_taken_for_a_loss() -> None:
    lone = Lone(terms=(1, 2, 2), term=3)

    lone.hear(Heartbeat(2, 1, 3, 0, commit=2, round=0, acknowledged=2))

    assert not lone.node.is_repairing
    assert lone.node.commit == 0


def test_x35_an_entry_of_another_leader_is_not_committed_by_a_heartbeat() -> None:
    lone = Lone(terms=(1, 2, 2), term=3)

    lone.hear(Heartbeat(2, 1, 3, 0, commit=3, round=0, acknowledged=3, acknowledged_term=3))

    assert lone.node.commit == 0
    assert lone.applied == []


def test_x35_a_leader_of_an_earlier_release_is_believed_as_before() -> None:
    lone = Lone(terms=(1, 3, 3), term=3)

    lone.hear(heartbeat(2, 3, commit=2))

    assert lone.node.commit == 2


def test_x35_what_is_committed_here_is_no_loss() -> None:
    lone = Lone(terms=(1, 2, 2), term=3, commit=3)

    lone.hear(acknowledged(acknowledged=2, acknowledged_term=2))

    assert not lone.node.is_repairing


@pytest.mark.parametrize(("by", "repairs"), [(OWN, True), (OWN + 1, False), (0, False)])
def test_x35_what_another_directory_acknowledged_is_not_owed(by: int, repairs: bool) -> None:
    lone = Lone(terms=(1,), term=3, settings={"instance": OWN})
    said = acknowledged(acknowledged=9, acknowledged_term=3, acknowledged_by=by)

    lone.hear(said)

    assert lone.node.is_repairing == repairs
    assert lone.node.commit == 0


def test_x35_a_leader_names_the_directory_that_acknowledged() -> None:
    group = Group(3, instance=OWN)
    group.elect(1)
    group.tick(1)
    group.delivered.clear()

    group.tick(1)

    beats = [each for each in group.delivered if isinstance(each, Heartbeat)]
    assert {each.acknowledged_by for each in beats} == {OWN}


def test_x35_a_leader_says_nothing_of_a_term_that_its_log_has_no_more() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)
    group.propose(1, b"a", b"b")
    group.snapshot(1)
    group.storages[1].compact(index=3, membership=group.membership)

    group[1].tick()
    group.work(1)

    beats = {each.target: each for each in group.mail if isinstance(each, Heartbeat)}
    assert (beats[3].acknowledged, beats[3].acknowledged_term) == (1, 0)
    assert (beats[2].acknowledged, beats[2].acknowledged_term) == (3, 1)


def test_x35_a_learner_with_an_older_copy_is_repaired_too() -> None:
    group = Group(members(1, 3, learners=[2]))
    rolled_back(group)

    group.tick(1)
    seen = group[2].is_repairing
    until_whole(group)

    assert seen


def test_x35_a_copy_from_before_the_first_state_is_repaired_too() -> None:
    group = Group(1)
    group.elect(1)
    group.start(2)
    copy = Copy(group, 2)
    change(group, learn(2))
    group.tick(1, times=5)
    copy.put_back(group, 2)

    group.tick(1)
    seen = group[2].is_repairing
    until_whole(group)

    assert seen


# ---- No vote, no lead, a new term; and all of it durable.


def test_x35_nothing_leaves_before_the_repair_is_durable() -> None:
    group = Group(3)
    rolled_back(group)
    group.slow_disks = {2}

    group[1].tick()
    group.work()
    group.deliver()
    group.work(2)
    group[2].step(Heartbeat(1, 2, 1, 0, commit=0, round=0))
    group.work(2)
    early = [each for each in group.mail if each.source == 2]
    [first, *_] = group.writes[2]
    group.store(2)

    assert early == []
    assert first.repair
    assert first.hard_state == HardState(term=2, commit=2)
    assert {each.term for each in group.mail if each.source == 2} == {2}


def test_x35_a_repair_is_written_once() -> None:
    lone = Lone(terms=(1,), term=3)
    lone.node.step(acknowledged(acknowledged=2, acknowledged_term=3))

    first = lone.node.ready().write
    lone.node.step(Heartbeat(2, 1, 5, 0, commit=0, round=0))
    second = lone.node.ready().write

    assert first is not None
    assert second is not None
    assert (first.repair, second.repair) == (True, False)


def test_x35_it_has_no_vote_before_it_has_what_it_forgot() -> None:
    lone = Lone(terms=(1, 1), term=3)
    lone.hear(acknowledged(acknowledged=3, acknowledged_term=3))

    [answer] = lone.hear(vote_request(3, 5, last=(9, 4)))

    assert isinstance(answer, VoteResponse)
    assert not answer.granted


def test_x35_it_does_not_stand_for_election() -> None:
    lone = Lone(terms=(1, 1), term=3)
    lone.hear(acknowledged(acknowledged=3, acknowledged_term=3))

    lone.node.campaign()
    lone.hear(TimeoutNow(2, 1, 4, 0))

    assert lone.role is Role.FOLLOWER
    assert not any(isinstance(each, VoteRequest) for each in lone.tick(50))


def test_x35_what_only_the_leader_has_left_is_not_lost_with_it() -> None:
    """Without repair, 2 would elect 3, and what 1 and 2 had committed would be overwritten."""
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    copy = Copy(group, 2)
    group.isolate(3)
    group.propose(1, b"b")
    copy.put_back(group, 2)
    group.tick(1)
    group.heal()
    group.isolate(1)

    for replica in (3, 2):
        group[replica].forget_leader()
        group[replica].campaign()
        group.settle()
    without_1 = group.leaders
    group.heal()
    until_whole(group)

    assert [each for each in without_1 if each != 1] == []
    assert group.normal(1) == group.normal(3) == [b"a", b"b"]


def test_x35_a_repair_that_was_interrupted_is_taken_up_again() -> None:
    group = Group(3)
    rolled_back(group)
    group.passes = lambda message: message.source != 2
    group.tick(1)
    term = group[2].term

    group.start(2, repair=group.storages[2].repairing)

    assert group[2].is_repairing
    assert group[2].term == term + 1
    group.heal()
    until_whole(group)


def test_x35_a_leader_of_a_term_in_which_it_spoke_before_is_found_out_under_repair() -> None:
    """The first write of a repair was lost: its term is one in which the replica was counted."""
    group = Group(3)
    group.elect(1)
    copy = Copy(group, 2)
    for leader in (3, 1, 3):
        group.elect(leader)
    group.propose(3, b"a", b"b")
    copy.put_back(group, 2)
    group.start(2, repair=True)
    spoken = group[3].term
    assert group[2].term < spoken

    group.tick(3)

    assert group[2].is_repairing
    assert group[2].term == spoken + 1


# ---- Acknowledgements that are counted already.


def test_x35_what_was_counted_in_the_old_term_is_counted_no_more() -> None:
    group = Group(3)
    group.isolate(3)
    group.elect(1)
    copy = Copy(group, 2)
    index = group[1].propose(b"x")
    group.work(1)
    group.deliver()
    group.work(2)
    late = [each for each in group.mail if isinstance(each, AppendResponse)]
    copy.put_back(group, 2)
    group[1].step(late[-1])
    group.work(1)
    counted = group[1].commit

    group.tick(1)
    group.heal()
    until_whole(group)

    assert counted == index
    assert group[2].term > 1
    assert group.normal(3) == [b"x"]


def test_x35_a_heir_that_forgot_does_not_lead() -> None:
    group = Group(3)
    rolled_back(group)

    group[1].transfer(2)
    group.settle()
    led = group.leaders
    until_whole(group)

    assert 2 not in led
    assert group.normal(1) == group.normal(3) == [b"a", b"b", b"c"]


def test_x35_a_rejection_of_what_was_acknowledged_is_not_answered_at_once() -> None:
    """Nor are two of them: each would be asked for again, for as long as there is no heartbeat."""
    group = Group(3)
    rolled_back(group)
    group[1].propose(b"d")
    group.settle()  # does not end as long as they answer each other

    rejections = [
        each for each in group.delivered if isinstance(each, AppendResponse) and each.rejected
    ]

    assert [each.index for each in rejections] == [4, 5, 4]
    assert not group[2].is_repairing


# ---- Groups that have no leader to tell.


def test_x35_a_leader_with_an_older_copy_follows_the_one_that_was_elected_meanwhile() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    copy = Copy(group, 1)
    group.propose(1, b"b", b"c")
    group.isolate(1)
    group.elect(3)
    copy.put_back(group, 1)
    group.heal()

    group.tick(3, times=3)

    assert not group[1].is_repairing
    assert group.normal(1) == [b"a", b"b", b"c"]


def test_x35_a_group_whose_majority_is_told_stays_without_a_leader() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    copies = {replica: Copy(group, replica) for replica in (2, 3)}
    group.propose(1, b"b")
    for replica, copy in copies.items():
        copy.put_back(group, replica)

    for _ in range(60):
        group.tick()

    assert group.leaders == []
    assert [group[replica].is_repairing for replica in (1, 2, 3)] == [False, True, True]
    assert group.normal(1) == [b"a", b"b"]


def test_x35_a_majority_is_whole_again_when_its_operator_ends_one_repair() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a")
    copies = {replica: Copy(group, replica) for replica in (2, 3)}
    group.propose(1, b"b")
    for replica, copy in copies.items():
        copy.put_back(group, replica)
    group.tick(1)
    waiting = [group[replica].is_repairing for replica in (2, 3)]

    group.storages[2].repairing = False
    group.start(2)
    until_whole(group, 3)

    assert waiting == [True, True]
    assert group.leaders == [1]
    assert group.normal(2) == [b"a", b"b"]


def test_x35_a_group_of_one_goes_on_from_the_copy() -> None:
    group = Group(1)
    group.elect(1)
    group.propose(1, b"a")
    copy = Copy(group, 1)
    group.propose(1, b"b")
    copy.put_back(group, 1)

    group.elect(1)

    assert group.normal(1) == [b"a"]
    assert not group[1].is_repairing


def test_x35_an_append_after_a_copy_is_taken_like_any_other() -> None:
    lone = Lone(terms=(1, 1), term=1)

    lone.hear(append(2, 3, after=(2, 1), new=entries(3, 3)))
    lone.hear(acknowledged(acknowledged=3, acknowledged_term=3))

    assert lone.log == [(1, 1), (2, 1), (3, 3)]
    assert not lone.node.is_repairing
