"""What the Raft paper promises, section by section, asked of one replica at a time."""

from collections import Counter
from itertools import chain, combinations, product
from typing import Final

import pytest

from corvo.raft import AnyMessage, Membership, Role, Snapshot
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    ReadRequest,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
    TimeoutNow,
    TransferRequest,
    VoteRequest,
    VoteResponse,
)
from tests.raft.group import Group, members, with_log
from tests.raft.lone import (
    Lone,
    accept,
    append,
    entries,
    heartbeat,
    in_role,
    pulse,
    reject,
    vote,
    vote_request,
)

THREE: Final = members(1, 2, 3)
FROM_LEADERS: Final = (AppendRequest, Heartbeat, SnapshotOffer, SnapshotChunk)


def every_message(term: int) -> tuple[AnyMessage, ...]:
    """One message of each kind from replica 2, in `term`; the snapshot is one that never was."""
    snapshot = Snapshot(1, 1, THREE)
    return (
        append(2, term),
        heartbeat(2, term),
        vote_request(2, term),
        vote_request(2, term, forced=True),
        vote(2, term),
        vote(2, term, granted=False),
        vote(2, term, granted=False, pre=True),
        accept(2, term, 0),
        reject(2, term, 1, hint=(0, 0)),
        pulse(2, term),
        TransferRequest(2, 1, term, 0, heir=3),
        ReadRequest(2, 1, term, 0, context=7),
        ReadResponse(2, 1, term, 0, context=7, index=0),
        SnapshotOffer(2, 1, term, 0, snapshot=snapshot, goal=1),
        SnapshotPull(2, 1, term, 0, snapshot=snapshot, offset=0),
        SnapshotChunk(2, 1, term, 0, snapshot=snapshot, offset=0, data=b"", checksum=0),
    )


def named(message: AnyMessage) -> str:
    return type(message).__name__


# ---- Terms (5.1).


@pytest.mark.conformance("P01", "P02", "P03")
@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
@pytest.mark.parametrize("message", every_message(2), ids=named)
def test_p01_p02_p03_a_later_term_makes_a_follower(role: Role, message: AnyMessage) -> None:
    lone = in_role(role, term=1)
    heeded = not (role is Role.LEADER and message == vote_request(2, 2))

    lone.node.step(message)

    if heeded:
        leader = 2 if isinstance(message, FROM_LEADERS) else None
        assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 2, leader)
    else:
        # Its own leadership is the freshest there is: see CheckQuorum.
        assert (lone.role, lone.node.term, lone.node.leader) == (Role.LEADER, 1, 1)


@pytest.mark.conformance("P04")
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("message", [*every_message(1), TimeoutNow(2, 1, 1, 0)], ids=named)
def test_p04_an_earlier_term_changes_nothing(role: Role, message: AnyMessage) -> None:
    lone = in_role(role, term=2)
    lone.tick(3)
    before = lone.picture

    sent = lone.hear(message)

    assert lone.picture == before
    # A leader of the past has nobody else to tell it so.
    told = [AppendResponse(1, 2, 2, 0, index=0)] if isinstance(message, FROM_LEADERS) else []
    assert sent == told


@pytest.mark.conformance("P04")
def test_p04_a_pre_vote_for_an_earlier_term_is_refused_with_the_present_one() -> None:
    lone = Lone(term=5)

    sent = lone.hear(vote_request(2, 4, pre=True))

    assert sent == [VoteResponse(1, 2, 5, 0, pre=True, granted=False)]


# ---- Elections (5.2).


@pytest.mark.conformance("P05")
def test_p05_a_replica_starts_as_a_follower() -> None:
    fresh, old = Lone(), Lone(terms=(1, 2), term=3, vote=1)

    assert (fresh.role, fresh.node.term, fresh.node.leader) == (Role.FOLLOWER, 0, None)
    assert (old.role, old.node.term, old.node.leader) == (Role.FOLLOWER, 3, None)


@pytest.mark.conformance("P06")
def test_p06_a_leader_beats_at_each_interval_without_entries() -> None:
    lone = Lone(settings={"heartbeat_ticks": 3, "election_ticks": 30})
    lone.lead()
    for _ in range(10):
        lone.node.propose(b"unsent: both followers are still being probed")
    lone.work()

    early, beat, again = lone.tick(2), lone.tick(1), lone.tick(3)

    assert early == []
    assert beat == again == [Heartbeat(1, peer, 1, 0, commit=0, round=0) for peer in (2, 3)]


@pytest.mark.conformance("P07")
def test_p07_a_follower_that_hears_nobody_stands_for_election() -> None:
    lone = Lone(term=1)

    ticks = lone.tick_until_it_asks()

    assert 10 <= ticks < 20
    assert (lone.role, lone.node.term) == (Role.PRE_CANDIDATE, 1)

    sent = lone.hear(vote(2, 2, pre=True))

    assert (lone.role, lone.node.term) == (Role.CANDIDATE, 2)
    assert lone.raft.votes == {1: True}
    assert (lone.storage.hard_state.term, lone.storage.hard_state.vote) == (2, 1)
    assert sent == [
        VoteRequest(1, peer, 2, 0, last_index=0, last_term=0, pre=False, forced=False)
        for peer in (2, 3)
    ]


@pytest.mark.conformance("P07")
def test_p07_a_follower_that_hears_its_leader_does_not() -> None:
    lone = Lone()
    lone.hear(append(2, 1))

    for _ in range(10):
        lone.tick(9)
        lone.hear(heartbeat(2, 1))

    assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, 1, 2)


@pytest.mark.conformance("P08")
def test_p08_a_candidate_whose_election_does_not_end_stands_again() -> None:
    lone = in_role(Role.CANDIDATE, term=2)

    ticks = lone.tick_until_it_asks()
    sent = lone.hear(vote(3, 3, pre=True))

    assert 10 <= ticks < 20
    assert (lone.role, lone.node.term, lone.raft.votes) == (Role.CANDIDATE, 3, {1: True})
    assert sent == [
        VoteRequest(1, peer, 3, 0, last_index=0, last_term=0, pre=False, forced=False)
        for peer in (2, 3)
    ]


@pytest.mark.conformance("P09")
@pytest.mark.parametrize("size", [1, 3, 5])
def test_p09_a_majority_decides_an_election_in_one_round(size: int) -> None:
    for answers in product((True, False, None), repeat=size - 1):
        lone = Lone(size)
        lone.stand()

        for voter, granted in enumerate(answers, 2):
            if granted is not None:
                lone.hear(vote(voter, 1, granted=granted))

        if 1 + answers.count(True) > size / 2:
            expected = Role.LEADER
        elif answers.count(False) > size / 2:
            expected = Role.FOLLOWER
        else:
            expected = Role.CANDIDATE
        assert (lone.role, lone.node.term) == (expected, 1), answers


@pytest.mark.conformance("P09")
def test_p09_an_answer_that_comes_twice_counts_once() -> None:
    lone = Lone(5)
    lone.stand()

    lone.hear(vote(2, 1), vote(2, 1), vote(2, 1))

    assert lone.role is Role.CANDIDATE


@pytest.mark.conformance("P10")
@pytest.mark.parametrize("voted", [0, 2, 3])
@pytest.mark.parametrize("asker", [2, 3])
def test_p10_a_vote_is_given_once_a_term_and_again_if_asked(voted: int, asker: int) -> None:
    lone = Lone(term=1, vote=voted)
    granted = voted in (0, asker)

    sent = lone.hear(vote_request(asker, 1))

    assert sent == [VoteResponse(1, asker, 1, 0, pre=False, granted=granted)]
    assert lone.storage.hard_state.vote == (asker if granted else voted)


@pytest.mark.conformance("P10")
def test_p10_first_come_first_served_and_durable_before_it_is_said() -> None:
    lone = Lone(term=1)
    lone.node.step(vote_request(3, 1))
    lone.node.step(vote_request(2, 1))

    ready = lone.node.ready()

    assert ready.messages == ()
    assert ready.write is not None
    assert ready.write.hard_state is not None
    assert (ready.write.hard_state.term, ready.write.hard_state.vote) == (1, 3)
    assert ready.write.messages == (
        VoteResponse(1, 3, 1, 0, pre=False, granted=True),
        VoteResponse(1, 2, 1, 0, pre=False, granted=False),
    )


@pytest.mark.conformance("P11")
@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
@pytest.mark.parametrize("term", [2, 3])
def test_p11_a_candidate_that_hears_the_leader_follows(role: Role, term: int) -> None:
    for message in (append(2, term), heartbeat(2, term)):
        lone = in_role(role, term=2)

        lone.hear(message)

        assert (lone.role, lone.node.term, lone.node.leader) == (Role.FOLLOWER, term, 2)


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.LEADER])
def test_a_second_leader_of_one_term_is_not_followed(role: Role) -> None:
    lone = in_role(role, term=2)
    if role is Role.FOLLOWER:
        lone.hear(heartbeat(3, 2))
    lone.tick(3)
    before = lone.picture

    sent = lone.hear(append(2, 2, new=entries(1, 2), commit=1), heartbeat(2, 2, commit=1))

    assert sent == []
    assert lone.picture == before
    assert lone.node.statistics().refused == {"second_leader": 2}


@pytest.mark.conformance("P12")
def test_p12_a_follower_draws_every_timeout_between_t_and_twice_t() -> None:
    counted = Counter(Lone(seed=seed).tick_until_it_asks() for seed in range(500))

    assert sorted(counted) == list(range(10, 20))


@pytest.mark.conformance("P13")
def test_p13_a_candidate_draws_every_timeout_between_t_and_twice_t() -> None:
    lone = Lone()
    counted: Counter[int] = Counter()

    for _ in range(500):
        lone.stand()
        counted[lone.tick_until_it_asks()] += 1

    assert sorted(counted) == list(range(10, 20))


@pytest.mark.conformance("P14")
def test_p14_followers_seldom_time_out_together() -> None:
    five = [Lone(5, seed=seed) for seed in range(5)]
    together = 0

    for _ in range(1000):
        for lone in five:
            lone.hear(append(2, lone.node.term + 1))
        first, *others = sorted(lone.tick_until_it_asks() for lone in five)
        together += first in others

    assert together <= 300


@pytest.mark.conformance("P15")
def test_p15_candidates_seldom_time_out_together() -> None:
    five = [Lone(5, seed=seed) for seed in range(5)]
    together = 0

    for _ in range(1000):
        for lone in five:
            lone.stand()
        first, *others = sorted(lone.tick_until_it_asks() for lone in five)
        together += first in others

    assert together <= 300


# ---- Replication (5.3).


def established() -> Lone:
    """A leader of three in term 1 whose first entry is committed everywhere."""
    lone = Lone()
    lone.lead()
    lone.hear(accept(2, 1, 1), accept(3, 1, 1))
    assert lone.raft.log.commit == 1
    return lone


@pytest.mark.conformance("P16")
def test_p16_a_proposal_is_appended_and_sent_and_not_yet_committed() -> None:
    lone = established()

    index = lone.node.propose(b"2")
    ready = lone.node.ready()

    new = entries(2, 1)
    assert index == 2
    assert lone.log == [(1, 1), (2, 1)]
    assert ready.messages == tuple(
        AppendRequest(
            1, peer, 1, 0, previous_index=1, previous_term=1, entries=new, commit=1
        )
        for peer in (2, 3)
    )  # fmt: skip
    assert ready.write is not None
    assert (ready.write.entries, ready.write.hard_state) == (new, None)
    assert ready.committed == ()
    assert lone.raft.log.commit == 1


@pytest.mark.conformance("P17")
def test_p17_what_a_majority_accepted_is_committed_applied_once_and_made_known() -> None:
    lone = established()
    lone.node.propose(b"2")
    lone.work()

    sent = lone.hear(accept(2, 1, 2), accept(3, 1, 2), accept(2, 1, 2))

    assert lone.raft.log.commit == 2
    assert [entry.index for entry in lone.applied] == [1, 2]
    assert lone.applied[1:] == list(entries(2, 1))
    assert sent == [
        AppendRequest(1, peer, 1, 0, previous_index=2, previous_term=1, entries=(), commit=2)
        for peer in (2, 3)
    ]


@pytest.mark.conformance("P18")
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("own", [True, False])
def test_p18_exactly_a_majority_commits(size: int, *, own: bool) -> None:
    peers = range(2, size + 1)
    for accepting in chain.from_iterable(combinations(peers, count) for count in range(size)):
        lone = Lone(size)
        lone.lead()
        lone.hear(*(accept(peer, 1, 1) for peer in peers))
        lone.node.propose(b"2")
        write = lone.node.ready().write
        assert write is not None

        if own:
            lone.storage.put(write)
            lone.node.stored(write.token)
        for peer in accepting:
            lone.node.step(accept(peer, 1, 2))

        committed = own + len(accepting) > size / 2
        assert lone.raft.log.commit == (2 if committed else 1), accepting


@pytest.mark.conformance("P19")
@pytest.mark.parametrize("terms", [(), (2,), (1, 2), (1,)])
def test_p19_committing_an_entry_commits_all_before_it(terms: tuple[int, ...]) -> None:
    lone = Lone(terms=terms, term=2)
    lone.lead()
    index = lone.node.propose(b"new")
    lone.work()

    lone.hear(accept(2, 3, index))

    assert [(entry.index, entry.term) for entry in lone.applied] == [*enumerate((*terms, 3, 3), 1)]


@pytest.mark.conformance("P20")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("commit", [0, 1, 2])
def test_p20_a_follower_applies_what_is_committed_in_order(count: int, commit: int) -> None:
    lone = Lone()
    new = entries(1, *[1] * count)

    lone.hear(append(2, 1, new=new, commit=commit))

    assert tuple(lone.applied) == new[:commit]


@pytest.mark.conformance("P21")
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((0, 0), (0, False, 0, 0)),
        ((1, 1), (1, False, 0, 0)),
        ((2, 2), (2, False, 0, 0)),
        ((2, 3), (2, True, 2, 2)),  # another term there
        ((2, 1), (2, True, 1, 1)),  # ours is later: it cannot agree before term 1
        ((3, 3), (3, True, 2, 2)),  # nothing there
        ((9, 1), (9, True, 1, 1)),
    ],
)
def test_p21_an_append_is_accepted_where_its_previous_entry_is(
    after: tuple[int, int], expected: tuple[int, bool, int, int]
) -> None:
    lone = Lone(terms=(1, 2), commit=0)
    index, rejected, hint_index, hint_term = expected

    sent = lone.hear(append(2, 3, after=after))

    assert sent == [
        AppendResponse(
            1, 2, 3, 0, index=index, rejected=rejected, hint_index=hint_index, hint_term=hint_term
        )
    ]
    assert lone.log == [(1, 1), (2, 2)]


@pytest.mark.conformance("P21")
@pytest.mark.parametrize("terms", [(), (1,), (7, 7, 7)])
def test_p21_an_append_from_before_the_commit_is_answered_with_the_commit(
    terms: tuple[int, ...],
) -> None:
    lone = Lone(terms=(1, 2), commit=2)

    sent = lone.hear(append(2, 8, after=(0, 0), new=entries(1, *terms), commit=3))

    assert sent == [AppendResponse(1, 2, 8, 0, index=2, commit=2)]
    assert (lone.log, lone.raft.log.commit) == ([(1, 1), (2, 2)], 2)


@pytest.mark.conformance("P22")
@pytest.mark.parametrize(
    ("after", "terms", "log", "written"),
    [
        ((2, 2), (3,), [(1, 1), (2, 2), (3, 3)], (3,)),
        ((1, 1), (3, 4), [(1, 1), (2, 3), (3, 4)], (2, 3)),
        ((0, 0), (1,), [(1, 1), (2, 2)], ()),
        ((0, 0), (1, 2), [(1, 1), (2, 2)], ()),
        ((0, 0), (3,), [(1, 3)], (1,)),
        ((0, 0), (1, 2, 4), [(1, 1), (2, 2), (3, 4)], (3,)),
        ((0, 0), (), [(1, 1), (2, 2)], ()),
    ],
)
def test_p22_a_log_is_cut_at_a_conflict_only(
    after: tuple[int, int],
    terms: tuple[int, ...],
    log: list[tuple[int, int]],
    written: tuple[int, ...],
) -> None:
    lone = Lone(terms=(1, 2), term=4)
    new = entries(after[0] + 1, *terms)

    lone.node.step(append(2, 4, after=after, new=new))
    write = lone.node.ready().write

    assert lone.log == log
    stored = write.entries if write is not None else ()
    assert tuple(entry.index for entry in stored) == written


FIGURE_7: Final = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


@pytest.mark.conformance("P23")
@pytest.mark.parametrize("terms", FIGURE_7.values(), ids=FIGURE_7)
def test_p23_a_leader_makes_every_log_of_figure_7_its_own(terms: tuple[int, ...]) -> None:
    leader_terms = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    storages = {
        1: with_log(THREE, leader_terms, term=7),
        2: with_log(THREE, terms, term=max(terms)),
        3: with_log(THREE, ()),
    }
    group = Group(THREE, storages=storages)
    group.elect(1)

    group.propose(1, b"new")

    expected = [*enumerate((*leader_terms, 8, 8), 1)]
    for storage in storages.values():
        stored = storage.entries(1, storage.last_index, 1 << 20)
        assert [(entry.index, entry.term) for entry in stored] == expected
    assert group.applied[1] == group.applied[2] == group.applied[3]


# ---- Safety (5.4).


@pytest.mark.conformance("P24")
@pytest.mark.parametrize("terms", [(1,), (1, 2)])
def test_p24_vote_requests_go_to_all_and_carry_the_end_of_the_log(terms: tuple[int, ...]) -> None:
    lone = Lone(terms=terms)
    term = terms[-1] + 1

    lone.tick(20)
    assert lone.role is Role.PRE_CANDIDATE
    sent = lone.hear(vote(2, term, pre=True))

    assert sent == [
        VoteRequest(
            1, peer, term, 0,
            last_index=len(terms), last_term=terms[-1], pre=False, forced=False,
        )
        for peer in (2, 3)
    ]  # fmt: skip


@pytest.mark.conformance("P25")
@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("ours", [(1,), (1, 1), (2,), (1, 2), (1, 1, 2), (2, 2)])
@pytest.mark.parametrize("theirs", [(1,), (1, 1), (2,), (1, 2), (1, 1, 2), (2, 2)])
def test_p25_a_vote_goes_to_a_log_that_ends_as_late_as_ours(
    ours: tuple[int, ...], theirs: tuple[int, ...], *, pre: bool
) -> None:
    lone = Lone(terms=ours, term=2)
    granted = theirs[-1] > ours[-1] or (theirs[-1] == ours[-1] and len(theirs) >= len(ours))

    sent = lone.hear(vote_request(2, 3, last=(len(theirs), theirs[-1]), pre=pre))

    term = 3 if granted or not pre else 2
    assert sent == [VoteResponse(1, 2, term, 0, pre=pre, granted=granted)]


@pytest.mark.conformance("P26")
def test_p26_only_an_entry_of_the_leaders_own_term_is_committed_by_counting() -> None:
    lone = Lone(terms=(1, 2), term=2)
    lone.lead()
    assert lone.log == [(1, 1), (2, 2), (3, 3)]

    commits = []
    for index in (1, 2, 3):
        lone.hear(accept(2, 3, index), accept(3, 3, index))
        commits.append(lone.raft.log.commit)

    assert commits == [0, 0, 3]


@pytest.mark.conformance("P26")
def test_p26_in_a_joint_group_both_majorities_have_to_hold_it() -> None:
    joint = Membership(voters=(1, 2, 3), outgoing=(1, 4, 5))
    lone = Lone(joint, terms=(1, 2), term=2)
    lone.lead()

    commits = []
    for peer, index in ((2, 3), (3, 3), (4, 2), (5, 3)):
        lone.hear(accept(peer, 3, index))
        commits.append(lone.raft.log.commit)

    assert commits == [0, 0, 0, 3]
