"""A leader that has lost its majority, and what its clients are answered, and when."""

from typing import Final

from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.queries import GetQueue, QueueView
from corvo.raft.messages import Heartbeat
from tests.shard.processes import result
from tests.shard.replicas import ELECTION_TICKS, Replicas, refusal

MAIL: Final = Enqueue(jobs=[NewJob(queue="mail")])


def test_a_leader_without_a_majority_does_not_let_clients_wait() -> None:
    group = Replicas(3)
    group.cut_off[1] = None
    request = group.submit(MAIL)
    group.settle()
    early = group.answers(request)

    for _ in range(2 * ELECTION_TICKS):
        group.tick(1, 1)

    assert early == []
    refused = refusal(group.answer(request))
    assert refused.code == "unknown"
    assert "could not reach a majority" in refused.error
    assert not group.replicas[1].node.is_leader


def test_a_leader_that_follows_no_other_does_not_let_clients_wait() -> None:
    group = Replicas(3)
    group.cut_off[2] = group.cut_off[3] = None
    request = group.submit(MAIL)
    group.settle()
    term = group.replicas[1].node.term + 1
    group.replicas[1].step(Heartbeat(3, 1, term, 0, commit=0, round=0))
    group.settle()
    early = group.answers(request)

    group.tick(4 * ELECTION_TICKS, 1)

    assert early == []
    assert refusal(group.answer(request)).code == "unknown"


def test_what_was_told_to_be_unknown_may_still_come_about() -> None:
    group = Replicas(3)
    group.cut_off[1] = None
    request = group.submit(MAIL)
    group.settle()
    group.tick(2 * ELECTION_TICKS, 1)
    assert refusal(group.answer(request)).code == "unknown"

    group.cut_off.clear()
    group.elect(1, 2, 3)

    asked = group.ask(GetQueue(queue="mail"))
    group.settle()
    assert result(group.answer(asked), QueueView).counts["pending"] == 1
    assert group.answers(request) == []
