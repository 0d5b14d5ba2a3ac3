"""Scenarios that raft-rs tests and etcd does not, as far as they belong to no other file."""

from functools import partial
from random import Random

import pytest

from corvo.raft import (
    LEAVE,
    AnyMessage,
    Change,
    Entry,
    HardState,
    InvalidSettings,
    Kind,
    Membership,
    MemoryStorage,
    Node,
    NotLeader,
    Overloaded,
    Role,
    Settings,
    Write,
)
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tests.raft.changing import add, log_of, remove
from tests.raft.group import Group, members, raft_of, with_log

# What a leader knows of commits, and what a follower learns from answers.


def known_commits(group: Group) -> dict[int, int]:
    return {each.replica: each.commit for each in group[1].statistics().progress}


@pytest.mark.conformance("T01")
def test_t01_a_leader_knows_what_each_replica_knows_to_be_committed() -> None:
    group = Group(3)
    group.elect(1)
    first = known_commits(group)
    group[1].propose(b"x")
    group.work(1)
    group.deliver()
    group.work()
    group.deliver()
    acknowledged = known_commits(group)

    group.settle()

    # The replica that is told of a commit answers with it.
    assert first == {2: 1, 3: 1}
    assert acknowledged == {2: 1, 3: 1}
    assert known_commits(group) == {2: 2, 3: 2}


@pytest.mark.conformance("T01")
def test_t01_a_replica_that_hears_nothing_stays_where_it_was() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)

    group.propose(1, b"x", b"y")

    assert known_commits(group) == {2: 3, 3: 1}


@pytest.mark.conformance("T01")
@pytest.mark.parametrize(
    "answer",
    [
        AppendResponse(2, 1, 1, 0, index=1, commit=99),
        AppendResponse(2, 1, 1, 0, index=1, rejected=True, commit=99),
        HeartbeatResponse(2, 1, 1, 0, round=0, commit=99),
    ],
    ids=["acceptance", "rejection", "heartbeat"],
)
def test_t01_nobody_knows_of_more_than_the_leader_has_committed(answer: AnyMessage) -> None:
    group = Group(3)
    group.elect(1)

    group[1].step(answer)
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0, commit=0))

    assert known_commits(group) == {2: 1, 3: 1}


def commitless(message: AnyMessage) -> bool:
    """Passes nothing to replica 3 that tells of the commit of entry 2."""
    tells = isinstance(message, AppendRequest | Heartbeat) and message.commit >= 2
    return not (message.target == 3 and tells)


@pytest.mark.conformance("T03")
def test_t03_the_answer_to_a_read_moves_the_commit_of_a_follower_that_missed_it() -> None:
    group = Group(3)
    group.elect(1)
    group.passes = commitless
    group.propose(1, b"x")
    assert (group[3].statistics().last_index, group[3].statistics().commit) == (2, 1)

    context = group[3].read_index()
    group.settle()

    assert [(read.context, read.index) for read in group.reads[3]] == [(context, 2)]
    assert group[3].statistics().commit == 2
    assert group.normal(3) == [b"x"]


@pytest.mark.conformance("T03")
@pytest.mark.parametrize(
    ("index", "term"), [(3, 1), (2, 2), (1, 1)], ids=["missing", "another's", "known already"]
)
def test_t03_the_answer_to_a_read_moves_no_commit_that_the_log_does_not_have(
    index: int, term: int
) -> None:
    group = Group(3)
    group.elect(1)
    group.passes = commitless
    group.propose(1, b"x")
    context = group[3].read_index()
    group.work(3)

    group[3].step(ReadResponse(1, 3, 1, 0, context=context, index=index, index_term=term))
    group.work(3)

    assert [(read.context, read.index) for read in group.reads[3]] == [(context, index)]
    assert group[3].statistics().commit == 1


# Settings.


@pytest.mark.conformance("T02", "T29", "T30", "T31")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("read_only_option", id="T02 reads on a lease"),
        pytest.param("lease_reads", id="T02 by another name"),
        pytest.param("check_quorum", id="T29 CheckQuorum"),
        pytest.param("pre_vote", id="T29 PreVote"),
        pytest.param("skip_bcast_commit", id="T30"),
        pytest.param("priority", id="T31"),
        pytest.param("disable_proposal_forwarding", id="T32"),
    ],
)
def test_t02_t29_t30_t31_what_could_weaken_the_group_is_no_setting(name: str) -> None:
    with pytest.raises(TypeError, match="Unexpected keyword argument"):
        Settings(**{"replica": 1, name: 1})

    assert not hasattr(Node, f"set_{name}")


@pytest.mark.conformance("T02")
def test_t02_a_read_waits_for_proof_however_lately_the_leader_was_confirmed() -> None:
    group = Group(3)
    group.elect(1)
    group.tick(times=2)
    group.isolate(1)

    group[1].read_index()
    group.tick(1, times=9)

    assert group[1].is_leader
    assert group.reads[1] == []
    group.tick(1, times=11)
    assert len(group.reads_lost[1]) == 1


@pytest.mark.conformance("T29")
def test_t29_a_leader_that_hears_nobody_stops_leading_from_the_first_term_on() -> None:
    group = Group(3, election_ticks=10)
    group.elect(1)
    group.isolate(1)

    group.tick(1, times=20)

    assert (group[1].statistics().role is Role.LEADER, group[1].leader) == (False, None)


@pytest.mark.conformance("T30")
def test_t30_a_commit_is_told_at_once_and_not_with_the_next_heartbeat() -> None:
    group = Group(3)
    group.elect(1)

    group.propose(1, b"x")

    assert [group.normal(replica) for replica in (1, 2, 3)] == [[b"x"]] * 3


@pytest.mark.conformance("T31")
@pytest.mark.parametrize("first", [1, 2, 3])
def test_t31_of_equals_whoever_asks_first_is_elected(first: int) -> None:
    group = Group(3)

    group.elect(first)

    assert group.leaders == [first]


@pytest.mark.conformance("T32")
def test_t32_a_follower_passes_no_proposal_on() -> None:
    group = Group(3)
    group.elect(1)
    before = group[2].statistics()

    with pytest.raises(NotLeader) as refusal:
        group[2].propose(b"x")

    assert refusal.value.leader == 1
    assert (group[2].statistics(), bool(group[2].ready())) == (before, False)


@pytest.mark.conformance("T07")
@pytest.mark.parametrize("ticks", [2, 3, 10])
def test_t07_an_election_timeout_lies_between_the_setting_and_twice_that(ticks: int) -> None:
    node = Node(Settings(replica=1, election_ticks=ticks), MemoryStorage(members(1, 2)), Random(1))
    drawn = set()
    for _ in range(50 * ticks):
        node.forget_leader()
        drawn.add(raft_of(node).timeout)

    assert drawn == set(range(ticks, 2 * ticks))


@pytest.mark.conformance("T08")
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"replica": 0}, "replica"),
        ({"replica": -1}, "replica"),
        ({"instance": -1}, "instance"),
        ({"heartbeat_ticks": 0}, "heartbeat_ticks"),
        ({"election_ticks": 0}, "election_ticks"),
        ({"election_ticks": 1}, "election_ticks"),
        ({"election_ticks": 5, "heartbeat_ticks": 5}, "election_ticks"),
        ({"election_ticks": 5, "heartbeat_ticks": 6}, "election_ticks"),
        ({"append_bytes_max": 0}, "append_bytes_max"),
        ({"window_messages_max": 0}, "window_messages_max"),
        ({"window_bytes_max": 0}, "window_bytes_max"),
        ({"uncommitted_bytes_max": 0}, "uncommitted_bytes_max"),
        ({"page_bytes_max": 0}, "page_bytes_max"),
        ({"chunk_bytes_max": 0}, "chunk_bytes_max"),
        ({"reads_waiting_max": 0}, "reads_waiting_max"),
        ({"promotion_lag_max": -1}, "promotion_lag_max"),
    ],
)
def test_t08_a_setting_out_of_bounds_is_refused_by_name(
    settings: dict[str, int], named: str
) -> None:
    with pytest.raises(InvalidSettings, match=f"^{named} is "):
        Node(Settings(**{"replica": 1, **settings}), MemoryStorage(), Random(1))


@pytest.mark.conformance("T08")
@pytest.mark.parametrize(
    "settings",
    [{}, {"election_ticks": 2}, {"heartbeat_ticks": 9}, {"promotion_lag_max": 0}],
)
def test_t08_settings_at_their_bounds_are_taken(settings: dict[str, int]) -> None:
    node = Node(Settings(**{"replica": 1, **settings}), MemoryStorage(), Random(1))

    assert node.statistics().replica == 1


# Appends together.


def appends(group: Group) -> list[tuple[int, list[bytes]]]:
    """What replica 2 is being sent."""
    group.mail.clear()
    group.work(1)
    sent = [each for each in group.mail if isinstance(each, AppendRequest) and each.target == 2]
    return [(each.previous_index, [entry.data for entry in each.entries]) for each in sent]


@pytest.mark.conformance("T09")
def test_t09_proposals_between_two_rounds_go_out_together() -> None:
    group = Group(3)
    group.elect(1)

    for data in (b"a", b"b", b"c"):
        group[1].propose(data)
    together = appends(group)
    group[1].propose(b"d")

    assert together == [(1, [b"a", b"b", b"c"])]
    assert appends(group) == [(4, [b"d"])]


@pytest.mark.conformance("T09")
def test_t09_appends_are_no_larger_than_allowed_unless_one_entry_is() -> None:
    group = Group(3, append_bytes_max=4)
    group.elect(1)

    for data in (b"aa", b"bb", b"c", b"large", b"d"):
        group[1].propose(data)

    assert appends(group) == [(1, [b"aa", b"bb"]), (3, [b"c"]), (4, [b"large"]), (5, [b"d"])]


@pytest.mark.conformance("T09")
def test_t09_entries_with_a_gap_are_never_taken_together() -> None:
    group = Group(3)
    group.elect(1)
    entries = (Entry(2, 1, Kind.NORMAL, b"a"), Entry(4, 1, Kind.NORMAL, b"b"))

    group[2].step(
        AppendRequest(1, 2, 1, 0, previous_index=1, previous_term=1, entries=entries, commit=1)
    )
    group.work(2)

    assert group.mail == []
    assert group[2].statistics().last_index == 1
    assert group[2].statistics().refused == {"gap": 1}


# Votes that tell of commits.

LEFT = members(3, 4, 5)
JOINT = Membership(voters=(3, 4, 5), outgoing=(1, 2, 3), auto_leave=True)


def stranded(*, more: int = 0) -> Group:
    """The group moved from 1, 2, 3 to 3, 4, 5. Only 4 knows that this is done; 1 and 2 are gone.

    Everybody has the whole log; 4 has some entries `more` behind it.
    """
    group = Group(members(3))
    moved = Change((remove(1), remove(2), add(4), add(5)))
    for replica, applied in ((3, 2), (4, 3), (5, 2)):
        storage = log_of(members(1, 2, 3), moved, LEAVE)
        entries = tuple(Entry(4 + at, 1, Kind.NORMAL, b"more") for at in range(more))
        if replica == 4:
            storage.put(Write(token=2, hard_state=HardState(1, 0, 3), entries=entries))
        group.storages[replica] = storage
        group.start(replica, applied=applied)
    assert [group[replica].membership for replica in (3, 4, 5)] == [JOINT, LEFT, JOINT]
    return group


ask = partial(
    VoteRequest, 4, 3, last_index=3, last_term=1, instance=0, commit=3, commit_term=1, forced=False
)


def test_a_stranded_replica_cannot_win_by_itself() -> None:
    group = stranded()
    group.isolate(4)

    group.tick(3, 5, times=100)

    assert group.leaders == []
    assert group[3].membership == JOINT


@pytest.mark.conformance("T10", "T12")
@pytest.mark.parametrize("pre", [False, True], ids=["T10 vote", "T12 pre-vote"])
def test_t10_t12_a_voter_learns_from_a_request_that_a_change_is_done(pre: bool) -> None:
    group = stranded()

    group[3].step(ask(term=2, pre=pre))
    group.work(3)

    assert group[3].membership == LEFT
    assert group[3].statistics().commit == 3
    assert [each for each in group.mail if isinstance(each, VoteResponse) and each.granted]


@pytest.mark.conformance("T10", "T12")
def test_t10_t12_after_a_request_the_election_completes() -> None:
    group = stranded()
    group.cut(4, 5)

    group[4].campaign()
    group.settle()

    assert group.leaders == [4]
    assert group[3].membership == LEFT


@pytest.mark.conformance("T11", "T13")
@pytest.mark.parametrize("forced", [True, False], ids=["T11 vote", "T13 pre-vote"])
def test_t11_t13_a_candidate_learns_from_a_refusal_that_a_change_is_done(forced: bool) -> None:
    group = stranded(more=1)
    group[4].step(Heartbeat(3, 4, 2 if forced else 1, 0, commit=0, round=0))
    group.work(4)
    group[4].forget_leader()
    group.mail.clear()
    group.cut(3, 5)

    if forced:
        group[3].step(TimeoutNow(4, 3, 1, 0))
    else:
        group[3].campaign()
    group.settle()

    refusals = [
        (each.pre, each.granted, each.commit)
        for each in group.delivered
        if isinstance(each, VoteResponse) and each.source == 4
    ]
    assert refusals == [(not forced, False, 3)]
    assert group[3].membership == LEFT
    # Who learns of a change while campaigning gives up: it asked the wrong voters.
    assert group[3].statistics().role is Role.FOLLOWER


@pytest.mark.conformance("T11", "T13")
def test_t11_t13_after_a_refusal_the_election_completes_without_those_who_are_gone() -> None:
    group = stranded(more=1)
    group[3].campaign()
    group.settle()
    group.isolate(4)

    group.tick(3, 5, times=60)

    [leader] = [replica for replica in group.leaders if replica != 4]
    assert group[leader].membership == LEFT
    assert group[8 - leader].leader == leader


@pytest.mark.conformance("T10", "T12")
@pytest.mark.parametrize(("commit", "commit_term"), [(4, 1), (3, 2), (1, 1), (0, 0)])
def test_t10_t12_a_commit_that_the_log_does_not_have_is_not_learnt(
    commit: int, commit_term: int
) -> None:
    group = stranded()

    group[3].step(
        VoteRequest(
            4,
            3,
            2,
            0,
            last_index=9,
            last_term=2,
            pre=True,
            forced=False,
            commit=commit,
            commit_term=commit_term,
        )
    )
    group.work(3)

    assert (group[3].statistics().commit, group[3].membership) == (2, JOINT)


# The budget of what is not committed.


@pytest.mark.conformance("T26")
def test_t26_proposals_beyond_the_budget_are_refused_until_some_are_committed() -> None:
    group = Group(3, uncommitted_bytes_max=10)
    group.elect(1)
    group[1].propose(b"12345")
    group[1].propose(b"67890")

    with pytest.raises(Overloaded, match="10 bytes wait"):
        group[1].propose(b"x")
    assert group[1].statistics().last_index == 3
    group[1].propose(b"")
    group.settle()

    assert group[1].statistics().uncommitted_bytes == 0
    group.propose(1, b"x")
    assert group.normal(2) == [b"12345", b"67890", b"", b"x"]


@pytest.mark.conformance("T26")
def test_t26_one_proposal_larger_than_the_budget_passes_when_nothing_waits() -> None:
    group = Group(3, uncommitted_bytes_max=10)
    group.elect(1)

    group[1].propose(b"x" * 50)

    assert group[1].statistics().uncommitted_bytes == 50
    with pytest.raises(Overloaded):
        group[1].propose(b"y")


@pytest.mark.conformance("T27")
def test_t27_a_new_leader_begins_with_the_whole_budget_whatever_its_tail() -> None:
    tail = with_log(members(1, 2, 3), [1] * 20)
    group = Group(3, storages={1: tail}, uncommitted_bytes_max=10)
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)

    group.elect(1)

    assert group[1].statistics().uncommitted_bytes == 0
    group[1].propose(b"1234567890")
    assert group[1].statistics().uncommitted_bytes == 10
    group.heal()
    group.tick(1)
    assert group[1].statistics().uncommitted_bytes == 0
    assert group[1].statistics().commit == 22


@pytest.mark.conformance("T28")
def test_t28_commits_of_an_earlier_term_give_nothing_back() -> None:
    tail = with_log(members(1, 2, 3), [1] * 20)
    group = Group(3, storages={1: tail}, uncommitted_bytes_max=10)
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    group.elect(1)
    group[1].propose(b"12345")
    answer = partial(AppendResponse, 2, 1, 2, 0)

    budget = []
    for index in (20, 21, 22):
        group[1].step(answer(index=index))
        group.work(1)
        budget.append((group[1].statistics().commit, group[1].statistics().uncommitted_bytes))

    assert budget == [(0, 5), (21, 5), (22, 0)]


@pytest.mark.conformance("T28")
def test_t28_the_budget_of_a_lost_leadership_is_gone_with_it() -> None:
    group = Group(3, uncommitted_bytes_max=10)
    group.elect(1)
    group.isolate(1)
    group[1].propose(b"1234567890")
    group.tick(1, times=20)
    assert not group[1].is_leader
    during = group[1].statistics().uncommitted_bytes
    group.heal()

    group.elect(1)

    assert during == 0
    assert group[1].statistics().uncommitted_bytes == 0
    assert group.normal(2) == [b"1234567890"]
