"""Linearizable reads: the index of the asking, proven by a round that began after it."""

from functools import partial

import pytest

from corvo.raft import NotLeader, Read, ReadContext
from corvo.raft.messages import (
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
)
from tests.raft.group import Group, members
from tests.raft.lone import Lone, accept, append, heartbeat, pulse


def established(size: int = 3) -> Lone:
    """A leader in term 1 whose first entry is committed."""
    lone = Lone(size)
    lone.lead()
    lone.hear(*(accept(peer, 1, 1) for peer in range(2, size + 1)))
    return lone


def beats(round_: int, *, commit: int = 1) -> list[Heartbeat]:
    """What a leader of three sends to start a round."""
    beat = partial(Heartbeat, commit=commit, round=round_, acknowledged=1, acknowledged_term=1)
    return [beat(1, peer, 1, 0) for peer in (2, 3)]


# ---- Answering.


@pytest.mark.conformance("R036")
def test_r036_a_read_that_was_answered_is_forgotten() -> None:
    lone = established()
    context = lone.node.read_index()
    own = ReadContext(77)
    lone.node.step(ReadRequest(2, 1, 1, 0, context=own))
    sent = lone.work()
    waiting = lone.node.statistics().reads_waiting

    answers = lone.hear(pulse(2, 1, round_=1))

    assert sent == beats(1), "one round proves both"
    assert waiting == 2
    assert lone.reads == [Read(context, 1)]
    assert answers == [ReadResponse(1, 2, 1, 0, context=own, index=1, index_term=1)]
    assert lone.node.statistics().reads_waiting == 0
    assert lone.hear(pulse(3, 1, round_=1)) == []
    assert lone.reads == [Read(context, 1)]


@pytest.mark.conformance("R056")
@pytest.mark.parametrize("asker", [1, 2, 3])
def test_r056_a_read_is_answered_at_the_commit_index_of_its_asking(asker: int) -> None:
    group = Group(3)
    group.elect(1)
    expected = []

    for count in range(4):
        for number in range(count):
            group.propose(1, b"%d" % number)
        expected.append(Read(group[asker].read_index(), group[1].statistics().commit))
        group.settle()

    assert group.reads[asker] == expected
    assert [read.index for read in expected] == [1, 2, 4, 7]
    assert len({read.context for read in expected}) == 4
    assert not [read for other in (1, 2, 3) if other != asker for read in group.reads[other]]


@pytest.mark.conformance("R056")
def test_r056_a_read_is_answered_at_no_earlier_index_than_was_committed_when_asked() -> None:
    lone = established()
    lone.node.propose(b"2")
    before = lone.node.read_index()
    lone.work()
    lone.node.step(accept(2, 1, 2))
    after = lone.node.read_index()
    lone.work()

    lone.hear(pulse(3, 1, round_=2))

    assert lone.reads == [Read(before, 1), Read(after, 2)]


@pytest.mark.conformance("R056")
@pytest.mark.parametrize(("size", "needed"), [(1, 0), (3, 1), (5, 2)])
def test_r056_a_majority_has_to_confirm_the_round(size: int, needed: int) -> None:
    lone = established(size)
    context = lone.node.read_index()
    lone.work()

    early = list(lone.reads)
    for peer in range(2, needed + 2):
        early = list(lone.reads)
        lone.hear(pulse(peer, 1, round_=1), pulse(peer, 1, round_=1))

    assert early == ([] if needed else [Read(context, 1)])
    assert lone.reads == [Read(context, 1)]


@pytest.mark.conformance("R056")
def test_r056_an_isolated_leader_answers_no_read() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(1)

    context = group[1].read_index()
    group.tick(1, times=20)

    assert group.reads[1] == []
    assert group.reads_lost[1] == [context], "it stepped down, and says so"


@pytest.mark.conformance("R056")
def test_r056_a_follower_waits_an_election_timeout_for_its_answer() -> None:
    lone = Lone()
    with pytest.raises(NotLeader):
        lone.node.read_index()
    lone.hear(heartbeat(2, 1))
    context = lone.node.read_index()
    sent = lone.work()

    lost = []
    for _ in range(10):
        lone.node.tick()
        lone.node.step(heartbeat(2, 1))
        lost.append(lone.node.ready().reads_lost)
    lone.hear(ReadResponse(2, 1, 1, 0, context=context, index=0))

    assert sent == [ReadRequest(1, 2, 1, 0, context=context)]
    assert lost == [()] * 9 + [(context,)]
    assert lone.reads == []


@pytest.mark.conformance("R057")
def test_r057_a_read_at_a_learner_is_answered_at_the_commit_index_of_its_asking() -> None:
    group = Group(members(1, 2, learners=(3,)))
    group.elect(1)
    expected = []

    for count in range(4):
        for number in range(count):
            group.propose(1, b"%d" % number)
        expected.append(Read(group[3].read_index(), group[1].statistics().commit))
        group.settle()

    assert group.reads[3] == expected
    assert [read.index for read in expected] == [1, 2, 4, 7]


@pytest.mark.conformance("R057")
def test_r057_a_learners_answer_proves_nothing() -> None:
    group = Group(members(1, 2, learners=(3,)))
    group.elect(1)
    group.cut(1, 2)

    group[1].read_index()
    group.settle()

    assert group.reads[1] == []


# ---- A new leader.


@pytest.mark.conformance("R059")
def test_r059_reads_at_a_new_leader_wait_for_its_first_commit() -> None:
    lone = Lone(terms=(1, 1), term=1, commit=1)
    lone.lead()
    own = lone.node.read_index()
    lone.node.step(ReadRequest(3, 1, 2, 0, context=77))

    early = lone.work() + lone.hear(pulse(2, 2), pulse(3, 2))
    started = lone.hear(accept(2, 2, 3))
    answered = lone.hear(pulse(2, 2, round_=1))

    assert not [message for message in early if isinstance(message, Heartbeat | ReadResponse)]
    assert [message.round for message in started if isinstance(message, Heartbeat)] == [1, 1]
    assert lone.reads == [Read(own, 3)], "at what the new leader has committed, not at 1"
    assert answered == [ReadResponse(1, 3, 2, 0, context=77, index=3, index_term=2)]


@pytest.mark.conformance("R059")
def test_r059_in_a_group_the_answer_comes_with_the_commit() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"x")
    group.passes = lambda message: not isinstance(message, AppendRequest)
    group.elect(2)
    group.tick(2)

    contexts = [group[2].read_index(), group[3].read_index()]
    group.tick(times=2)
    early = [*group.reads[2], *group.reads[3]]
    group.heal()
    group.tick(times=2)

    assert early == []
    assert [*group.reads[2], *group.reads[3]] == [Read(context, 3) for context in contexts]


# ---- Answers that come late.


@pytest.mark.conformance("R060")
def test_r060_answers_to_an_earlier_round_confirm_no_later_read() -> None:
    lone = established()
    first = lone.node.read_index()
    lone.work()
    second = lone.node.read_index()
    sent = lone.work()

    lone.hear(pulse(2, 1, round_=0), pulse(3, 1, round_=1))
    only_first = list(lone.reads)
    lone.hear(pulse(3, 1, round_=1), pulse(2, 1, round_=1))
    still = list(lone.reads)
    lone.hear(pulse(2, 1, round_=2))

    assert sent == beats(2)
    assert only_first == still == [Read(first, 1)]
    assert lone.reads == [Read(first, 1), Read(second, 1)]


@pytest.mark.conformance("R060")
def test_r060_answers_to_a_round_that_never_was_confirm_nothing() -> None:
    lone = established()
    lone.node.read_index()
    lone.work()

    lone.hear(pulse(2, 1, round_=9), pulse(3, 1, round_=9))

    assert lone.reads == []
    assert lone.node.statistics().refused == {"unknown_round": 2}


@pytest.mark.conformance("R060")
def test_r060_a_request_that_comes_twice_is_answered_by_rounds_of_its_own() -> None:
    lone = established()
    request = ReadRequest(2, 1, 1, 0, context=77)
    lone.hear(request)
    again = lone.hear(request)

    first = lone.hear(pulse(3, 1, round_=1))
    second = lone.hear(pulse(3, 1, round_=2))

    answer = ReadResponse(1, 2, 1, 0, context=77, index=1, index_term=1)
    assert again == beats(2)
    assert (first, second) == ([answer], [answer])


@pytest.mark.conformance("R060")
def test_r060_a_follower_takes_one_answer_to_a_read() -> None:
    lone = Lone()
    lone.hear(append(2, 1))
    context = lone.node.read_index()
    lone.work()
    answer = ReadResponse(2, 1, 1, 0, context=context, index=0)

    lone.hear(answer, answer)

    assert lone.reads == [Read(context, 0)]
    assert lone.node.statistics().refused == {"unknown_read": 1}


@pytest.mark.conformance("R060")
def test_r060_answers_held_back_across_two_elections_prove_nothing_to_the_deposed() -> None:
    group = Group(3)
    group.elect(1)
    group.passes = lambda message: not isinstance(message, HeartbeatResponse)
    first = group[1].read_index()
    group.settle()
    late = [pulse(peer, 1, round_=1) for peer in (2, 3)]
    group.heal()
    group.elect(2)
    group.propose(2, b"newer")
    group.elect(1)
    group.isolate(1)
    assert group.reads_lost[1] == [first]

    second = group[1].read_index()
    group.work(1)
    for message in late:
        group[1].step(message)
    group.settle()

    assert group[1].term == 3
    assert second != first
    assert group.reads[1] == [], "round 1 of term 1 is not round 1 of term 3"


@pytest.mark.conformance("R060")
def test_r060_a_deposed_leader_answers_nothing_with_what_it_gathered() -> None:
    group = Group(3)
    group.elect(1)
    context = group[1].read_index()
    group.work(1)
    group.mail.clear()
    group.isolate(1)
    group.elect(2)
    group.propose(2, b"newer")

    for peer in (2, 3):
        group[1].step(pulse(peer, 2, round_=1))
    group.settle()

    assert group.reads[1] == []
    assert group.reads_lost[1] == [context]


@pytest.mark.conformance("R060")
def test_r060_no_attempt_to_read_reuses_the_name_of_another() -> None:
    lone = established()

    contexts = [lone.node.read_index() for _ in range(100)]
    lone.hear(heartbeat(2, 2))
    contexts += [lone.node.read_index() for _ in range(100)]

    assert len({*contexts}) == 200
    restarted = Lone(seed=2)
    restarted.hear(heartbeat(2, 2))
    assert restarted.node.read_index() not in contexts
