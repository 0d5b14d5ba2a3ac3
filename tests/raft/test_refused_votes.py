"""The commit index in a refused vote of an earlier term: the one thing that is still true in it."""

import pytest

from corvo.raft import LEAVE, Membership, MemoryStorage
from corvo.raft.messages import AppendRequest, VoteRequest, VoteResponse
from tests.raft.changing import change, remove
from tests.raft.group import Group, members
from tests.raft.lone import Lone


def shrunk_to_one() -> Group:
    """Replica 1 is all that is left of three, and missed the commit of the end of the joint state.

    Replica 2 knows of it, and refuses its vote because it has a longer log; the disk of replica 3
    is damaged. Replica 1 is a term ahead of replica 2.
    """
    group = Group(3, append_bytes_max=1)
    group.elect(2)
    group.isolate(3)
    change(group, remove(2), remove(3), auto=False, leader=2)
    left = group[2].propose_change(LEAVE)
    longer = group[2].propose(b"of the leader alone")
    group.passes = lambda message: (
        not (
            isinstance(message, AppendRequest)
            and (message.commit >= left or message.previous_index >= longer - 1)
        )
    )
    group.settle()
    group.start(2)

    # Replica 1 gets ahead in term: its pre-vote succeeds, its vote requests are lost.
    group.heal()
    group.isolate(2)
    group.passes = lambda message: not isinstance(message, VoteRequest) or message.pre
    group[1].forget_leader()
    group[3].forget_leader()
    group[1].campaign()
    group.settle()

    group.heal()
    group.storages[3] = MemoryStorage()
    group.start(3, applied=0, repair=True)
    return group


def test_who_is_left_of_three_learns_from_a_vote_refused_in_an_earlier_term() -> None:
    group = shrunk_to_one()
    assert group[1].membership == Membership(voters=(1,), outgoing=(1, 2, 3), auto_leave=False)
    assert group[2].membership == members(1)
    assert group[2].term < group[1].term

    group.tick(1, times=40)

    assert group.leaders == [1]
    assert group[1].membership == members(1)
    group.propose(1, b"alone")
    assert group.normal(1)[-1] == b"alone"


# What is believed.


def refused(*, source: int = 2, instance: int = 0, commit: int = 2, of: int = 1) -> VoteResponse:
    """A pre-vote, refused in term 1 by a voter that knows the entry at `commit` as one of `of`."""
    return VoteResponse(
        source, 1, 1, instance, pre=True, granted=False, commit=commit, commit_term=of
    )


def ahead_in_term(membership: Membership | int = 3) -> Lone:
    """Replica 1 in term 5 with three entries of term 1, of which it knows one to be committed."""
    return Lone(membership, terms=(1, 1, 1), term=5, commit=1)


def test_a_commit_in_a_refused_vote_of_an_earlier_term_is_learnt_and_nothing_else() -> None:
    lone = ahead_in_term()

    sent = lone.hear(refused(instance=7))

    assert [entry.index for entry in lone.applied] == [1, 2]
    assert (lone.raft.term, lone.raft.leader, lone.raft.instances, sent) == (5, 0, {}, [])
    assert lone.raft.refused == {"old_term": 1}


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(refused(of=2), id="another entry at that index"),
        pytest.param(refused(commit=4), id="an entry that is not here"),
        pytest.param(refused(source=4), id="not of a voter"),
    ],
)
def test_a_commit_that_is_not_proven_is_not_learnt(message: VoteResponse) -> None:
    lone = ahead_in_term()

    lone.hear(message)

    assert [entry.index for entry in lone.applied] == [1]


def test_a_commit_that_another_data_directory_states_is_not_learnt() -> None:
    lone = ahead_in_term(Membership(voters=(1, 2, 3), pins=((2, 8),)))

    lone.hear(refused(instance=7))

    assert [entry.index for entry in lone.applied] == [1]
    assert lone.raft.refused == {"instance": 1}
