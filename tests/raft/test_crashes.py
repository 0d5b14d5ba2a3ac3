"""What a crash may not undo, and the one scene of the paper that everybody gets wrong."""

import pytest

from corvo.raft import AnyMessage, Entry, HardState, Kind, MemoryStorage, Ready, Role, Write
from corvo.raft.messages import AppendRequest, VoteRequest, VoteResponse
from tests.raft.group import Group, members
from tests.raft.lone import Lone, append, entries, heartbeat, vote_request


def grants(messages: tuple[AnyMessage, ...] | list[AnyMessage]) -> list[int]:
    """Who is granted a vote by these messages."""
    answers = [message for message in messages if isinstance(message, VoteResponse)]
    return [answer.target for answer in answers if answer.granted]


def restarted(group: Group, replica: int) -> Group:
    """What was under way is lost."""
    group.mail.clear()
    group.start(replica)
    return group


def asks_for_vote(source: int, target: int, term: int) -> VoteRequest:
    return VoteRequest(source, target, term, 0, last_index=0, last_term=0, pre=False, forced=False)


# ---- Votes.


@pytest.mark.conformance("X01")
def test_x01_a_vote_that_was_written_is_the_same_after_a_crash_before_the_answer() -> None:
    group = Group(3)
    group.slow_disks.add(1)
    group[1].step(asks_for_vote(2, 1, 1))
    write = group[1].ready().write
    assert write is not None
    group.storages[1].put(write)

    restarted(group, 1)
    group.slow_disks.clear()
    group[1].step(asks_for_vote(3, 1, 1))
    group[1].step(asks_for_vote(2, 1, 1))
    group.work(1)

    assert (group.raft(1).term, group.raft(1).vote) == (1, 2)
    assert grants(group.mail) == [2]


@pytest.mark.conformance("X02")
def test_x02_before_the_vote_is_durable_no_answer_leaves_and_a_crash_forgets_it() -> None:
    group = Group(3)
    group.slow_disks.add(1)
    group[1].step(asks_for_vote(2, 1, 1))
    group.work(1)
    escaped = grants(group.mail)

    restarted(group, 1)
    group.slow_disks.clear()
    group[1].step(asks_for_vote(3, 1, 1))
    group.work(1)

    assert escaped == []
    assert group.storages[1].hard_state == HardState(term=1, vote=3)
    assert grants(group.mail) == [3]


@pytest.mark.conformance("X02")
def test_x02_nothing_at_all_of_a_new_term_leaves_before_the_term_is_durable() -> None:
    group = Group(3)
    group.slow_disks |= {1, 2, 3}
    group[1].campaign()
    group.work()
    group.deliver()
    group.work()
    group.deliver()
    group.work()

    assert group.raft(1).role is Role.CANDIDATE
    assert [message for message in group.mail if message.term == 1] == []
    group.store(1)
    asked = [message for message in group.mail if isinstance(message, VoteRequest)]
    assert [(message.target, message.term) for message in asked] == [(2, 1), (3, 1)]


@pytest.mark.conformance("X02")
def test_x02_a_candidate_is_not_elected_by_its_own_vote_before_that_is_durable() -> None:
    group = Group(1)
    group.slow_disks.add(1)

    group[1].campaign()
    group.work(1)
    before = group[1].is_leader
    group.store(1)

    assert (before, group[1].is_leader) == (False, True)


@pytest.mark.conformance("X03")
def test_x03_a_candidate_that_steps_down_keeps_its_vote_of_the_term() -> None:
    lone = Lone(3)
    lone.stand()

    lone.hear(heartbeat(2, 1))
    answers = lone.hear(vote_request(3, 1))

    assert (lone.role, lone.raft.vote, lone.node.term) == (Role.FOLLOWER, 1, 1)
    assert grants(answers) == []
    assert lone.storage.hard_state == HardState(term=1, vote=1)


@pytest.mark.conformance("X03")
def test_x03_a_leader_that_steps_down_keeps_its_vote_of_the_term() -> None:
    lone = Lone(3)
    lone.lead()

    lone.node.tick(missed=10)
    answers = lone.hear(vote_request(3, 1))

    assert (lone.role, lone.raft.vote) == (Role.FOLLOWER, 1)
    assert grants(answers) == []


@pytest.mark.conformance("X04")
def test_x04_terms_never_go_back_when_the_whole_group_restarts_again_and_again() -> None:
    group = Group(3)
    terms = [0]

    for leader in (1, 2, 3, 1):
        group.elect(leader)
        group.propose(leader, b"in term %d" % group[leader].term)
        terms.append(group[leader].term)
        for replica in group.nodes:
            restarted(group, replica)
        assert min(node.term for node in group.nodes.values()) >= terms[-1]

    assert terms == [0, 1, 2, 3, 4]
    assert [group.storages[replica].last_index for replica in (1, 2, 3)] == [8, 8, 8]


@pytest.mark.conformance("X01", "X04")
@pytest.mark.parametrize("stored", [0, 1])
def test_x04_a_crash_before_or_after_the_write_of_a_term_never_leads_twice_in_it(
    stored: int,
) -> None:
    group = Group(1)
    group.slow_disks.add(1)
    group[1].campaign()
    group.work(1)
    for write in group.writes[1][:stored]:
        group.storages[1].put(write)

    restarted(group, 1)
    group.slow_disks.clear()
    group.elect(1)

    assert group[1].term == 1 + stored


# ---- Entries.


@pytest.mark.conformance("X05")
def test_x05_what_a_follower_acknowledged_is_there_after_a_crash() -> None:
    lone = Lone(3)
    lone.node.step(append(2, 1, new=entries(1, 1, 1)))

    ready: Ready = lone.node.ready()

    assert ready.messages == ()
    assert ready.write is not None
    assert ready.write == Write(
        token=1,
        hard_state=HardState(term=1),
        entries=entries(1, 1, 1),
        messages=ready.write.messages,
    )
    assert [type(message).__name__ for message in ready.write.messages] == ["AppendResponse"]


@pytest.mark.conformance("X10")
def test_x10_a_slow_follower_costs_the_leader_a_bounded_number_of_bytes() -> None:
    group = Group(3, window_bytes_max=1000, append_bytes_max=100)
    group.elect(1)
    sent: list[AppendRequest] = []
    group.passes = lambda message: message.target != 3 and message.source != 3

    for _ in range(100):
        group[1].propose(bytes(60))
        ready = group.ready(1)
        sent += [
            message
            for message in ready.messages
            if isinstance(message, AppendRequest) and message.target == 3
        ]
        group.settle()

    bytes_sent = sum(entry.size for message in sent for entry in message.entries)
    slow = group[1].statistics().progress[1]
    assert 1000 <= bytes_sent <= 1100
    assert slow.bytes_in_flight == bytes_sent
    assert slow.is_paused
    assert group[1].statistics().commit == 101


# ---- Figure 8.


def in_figure_8() -> Group:
    """Stage (b) and a half: 1 led term 2 and its entry reached 2; 5 led term 3 and is down.

    Index 1 is of term 1 everywhere. Index 2 is of term 2 at 1 and 2, and of term 3 at 5.
    """
    group = members(1, 2, 3, 4, 5)
    logs = {1: (1, 2), 2: (1, 2), 3: (1,), 4: (1,), 5: (1, 3)}
    storages = {replica: MemoryStorage(group) for replica in logs}
    for replica, terms in logs.items():
        written = tuple(Entry(i, term, Kind.NORMAL, b"data") for i, term in enumerate(terms, 1))
        storages[replica].put(Write(token=0, hard_state=HardState(term=3), entries=written))
    return Group(group, storages=storages, append_bytes_max=1)  # an entry at a time


def terms_of(group: Group) -> dict[int, list[int]]:
    logs = {replica: group.raft(replica).log for replica in group.nodes}
    return {
        replica: [log.term(index) for index in range(1, log.last_index + 1)]
        for replica, log in logs.items()
    }


def old_entry_on_a_majority() -> Group:
    """Stage (c): 1 leads again, in term 4, and its entry of term 2 has reached 3 as well.

    1 knows of all three that hold it: 2 acknowledged it together with the first entry of term 4.
    """
    group = in_figure_8()
    group.isolate(5)

    def passes(message: AnyMessage) -> bool:
        if not isinstance(message, AppendRequest) or message.target == 2:
            return True
        log = group.raft(message.target).log
        would_grow = log.matches(message.previous_index, message.previous_term)
        fresh = any(entry.term == 4 for entry in message.entries)
        return message.target != 4 and not (would_grow and fresh)

    group.passes = passes
    group.elect(1)
    group.tick(1, times=5)
    return group


@pytest.mark.conformance("X07", "P26")
def test_x07_an_entry_of_an_old_term_on_a_majority_is_not_committed() -> None:
    group = old_entry_on_a_majority()

    assert terms_of(group) == {1: [1, 2, 4], 2: [1, 2, 4], 3: [1, 2], 4: [1], 5: [1, 3]}
    assert [each.match for each in group[1].statistics().progress] == [3, 2, 0, 0]
    assert group[1].term == 4
    assert {node.statistics().commit for node in group.nodes.values()} == {0}


@pytest.mark.conformance("X07")
def test_x07_so_it_may_still_be_replaced_by_a_leader_that_does_not_have_it() -> None:
    group = old_entry_on_a_majority()
    group.heal()
    group.isolate(1)
    group[5].campaign()  # it hears of term 4
    group.settle()

    group.elect(5)

    # Stage (d): the entry of term 2 is gone from where it was, and nobody had applied it.
    rest = {replica: terms for replica, terms in terms_of(group).items() if replica != 1}
    assert rest == {replica: [1, 3, 5] for replica in (2, 3, 4, 5)}
    group.heal()
    group.tick(5, times=2)
    applied = [[entry.term for entry in group.applied[replica]] for replica in group.nodes]
    assert applied == [[1, 3, 5]] * 5


@pytest.mark.conformance("X07")
def test_x07_an_entry_of_its_own_term_on_a_majority_commits_both_and_keeps_5_out() -> None:
    group = old_entry_on_a_majority()
    group.passes = lambda message: not (isinstance(message, AppendRequest) and message.target == 4)
    group.tick(1, times=2)
    assert group[1].statistics().commit == 3
    group.heal()
    group.isolate(1)

    for replica in (2, 3, 4, 5):
        group[replica].forget_leader()
    group[5].campaign()
    group.settle()

    # Stage (e): 2 and 3 have an entry of term 4 and do not vote for a log that ends in term 3.
    assert not group[5].is_leader
    group.elect(3)
    assert terms_of(group)[5] == [1, 2, 4, group[3].term]
