"""Replication: what a leader sends and when, what a follower takes, and what that commits."""

from collections.abc import Sequence
from itertools import product

import pytest

from corvo.raft import AnyMessage, Entry, Flow, Kind, NotLeader, Overloaded, Role, core
from corvo.raft.messages import AppendRequest, AppendResponse, Heartbeat
from tests.raft.group import Group, members
from tests.raft.lone import Lone, accept, append, entries, heartbeat, pulse, reject, vote


def appends(sent: Sequence[AnyMessage], target: int) -> list[tuple[int, ...]]:
    """The indexes in each append to `target`."""
    return [
        tuple(entry.index for entry in message.entries)
        for message in sent
        if isinstance(message, AppendRequest) and message.target == target
    ]


def leader(**settings: int) -> Lone:
    """A leader of three in term 1, whose first entry is committed and who has told everybody so."""
    lone = Lone(settings=settings)
    lone.lead()
    lone.hear(accept(2, 1, 1), accept(3, 1, 1))
    assert lone.raft.log.commit == 1
    return lone


# ---- What is under way to one follower.


@pytest.mark.conformance("R001")
def test_r001_a_leaders_own_match_moves_when_its_write_is_durable() -> None:
    lone = leader()
    lone.node.propose(b"2")
    lone.node.propose(b"3")
    unwritten = lone.raft.match_of(1)

    write = lone.node.ready().write
    assert write is not None
    handed_out = lone.raft.match_of(1)
    lone.storage.put(write)
    lone.node.stored(write.token)

    assert (unwritten, handed_out, lone.raft.match_of(1)) == (1, 1, 3)


@pytest.mark.conformance("R002")
def test_r002_a_heartbeats_answer_unpauses_a_follower() -> None:
    lone = Lone()
    lone.lead()
    progress = lone.node.statistics().progress[0]
    assert (progress.flow, progress.is_paused) == (Flow.PROBE, True)

    lone.tick()
    after_beat = lone.node.statistics().progress[0].is_paused
    lone.node.step(pulse(2, 1))
    after_answer = lone.node.statistics().progress[0].is_paused

    assert (after_beat, after_answer) == (True, False)


@pytest.mark.conformance("R003")
def test_r003_while_probing_one_append_is_on_its_way() -> None:
    lone = Lone()
    sent = lone.lead()

    for _ in range(3):
        lone.node.propose(b"more")
        sent += lone.work()

    assert lone.node.statistics().progress[0].flow is Flow.PROBE
    assert appends(sent, 2) == [(1,)]


@pytest.mark.conformance("R004")
def test_r004_appends_under_way_are_bounded_by_number() -> None:
    lone = leader(append_bytes_max=2048, window_messages_max=3, window_bytes_max=1 << 20)
    for _ in range(10):
        lone.node.propose(bytes(1000))

    first = lone.work()
    half_freed = lone.hear(accept(2, 1, 2))
    one_freed = lone.hear(accept(2, 1, 3))
    all_freed = lone.hear(accept(2, 1, 9))

    assert appends(first, 2) == [(2, 3), (4, 5), (6, 7)]
    assert appends(half_freed, 2) == [()], "still full: it is told of the commit only"
    assert appends(one_freed, 2)[:1] == [(8, 9)]
    assert appends(all_freed, 2)[:1] == [(10, 11)]


@pytest.mark.conformance("R004")
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1000,) * 6, [(2, 3), (4, 5), (6, 7)]),
        ((4000,) * 6, [(2,), (3,), (4,)]),  # the third overshoots 10,000 bytes
        ((20_000,) * 6, [(2,)]),
        ((1000, 20_000, 1000, 1000), [(2,), (3,)]),
        ((1000, 1000, 20_000, 1000), [(2, 3), (4,)]),
    ],
)
def test_r004_appends_under_way_are_bounded_by_bytes(
    sizes: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    lone = leader(append_bytes_max=2048, window_messages_max=8, window_bytes_max=10_000)
    for size in sizes:
        lone.node.propose(bytes(size))

    sent = lone.work()
    rest = []
    for index in range(2, len(sizes) + 2):
        rest += lone.hear(accept(2, 1, index))

    assert appends(sent, 2) == expected
    told = [index for group in appends([*sent, *rest], 2) for index in group]
    assert told == list(range(2, len(sizes) + 2)), "each entry once, in order"


@pytest.mark.conformance("R005")
def test_r005_bytes_that_wait_for_commit_are_bounded() -> None:
    lone = leader(uncommitted_bytes_max=50)
    for _ in range(5):
        lone.node.propose(bytes(10))

    with pytest.raises(Overloaded):
        lone.node.propose(b"x")
    empty = lone.node.propose(b"")
    lone.work()
    waiting = lone.node.statistics().uncommitted_bytes
    lone.hear(accept(2, 1, empty))

    assert (waiting, lone.node.statistics().uncommitted_bytes) == (50, 0)
    assert lone.node.propose(bytes(50)) == empty + 1, "the refused one left nothing behind"


@pytest.mark.conformance("R005")
def test_r005_one_oversize_entry_passes_when_nothing_waits() -> None:
    lone = leader(uncommitted_bytes_max=50)

    index = lone.node.propose(bytes(1000))
    with pytest.raises(Overloaded):
        lone.node.propose(b"x")
    lone.work()
    lone.hear(accept(2, 1, index))

    assert lone.node.statistics().uncommitted_bytes == 0
    assert lone.node.propose(b"x") == index + 1


@pytest.mark.conformance("R005")
def test_r005_an_empty_proposal_always_passes() -> None:
    lone = leader(uncommitted_bytes_max=50)
    lone.node.propose(bytes(1000))

    index = lone.node.propose(b"")

    assert index == 3
    assert lone.node.statistics().uncommitted_bytes == 1000


@pytest.mark.conformance("R035")
def test_r035_who_lags_is_sent_an_append_per_answered_heartbeat_until_it_accepts() -> None:
    lone = Lone(terms=(1, 1), term=1)
    lone.lead()

    probes = [appends(lone.hear(pulse(2, 2)), 2) for _ in range(3)]
    lone.hear(accept(2, 2, 3))
    afterwards = [lone.hear(pulse(2, 2)) for _ in range(3)]

    assert probes == [[(3,)]] * 3
    assert afterwards == [[]] * 3


@pytest.mark.conformance("R035")
def test_r035_a_lost_append_is_found_out_by_the_answers_to_heartbeats() -> None:
    lone = leader()
    lone.node.propose(b"lost")
    lone.work()

    asked = lone.hear(pulse(2, 1))
    again = lone.hear(reject(2, 1, 2, hint=(1, 1)))

    assert asked == [
        AppendRequest(1, 2, 1, 0, previous_index=2, previous_term=1, entries=(), commit=1)
    ]
    assert appends(again, 2) == [(2,)]


@pytest.mark.conformance("R037")
def test_r037_after_an_election_each_follower_is_sent_more_only_once_it_answered() -> None:
    lone = Lone()
    first = lone.lead()

    lone.hear(accept(2, 1, 1))
    lone.node.propose(b"2")
    second = lone.work()
    third = lone.hear(accept(3, 1, 1))

    assert (appends(first, 2), appends(first, 3)) == ([(1,)], [(1,)])
    assert (appends(second, 2), appends(second, 3)) == ([(2,)], [])
    assert (appends(third, 2), appends(third, 3)) == ([], [(2,)])


# ---- Committing.


@pytest.mark.conformance("R017")
def test_r017_proposals_commit_everywhere_in_order_across_a_change_of_leader() -> None:
    group = Group(3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.isolate(2)
    group.propose(1, b"c")
    group.heal()
    group.tick(1)
    group.elect(2)

    group.propose(2, b"d")
    group.propose(2, b"e")

    assert [group.normal(replica) for replica in (1, 2, 3)] == [[b"a", b"b", b"c", b"d", b"e"]] * 3
    assert group.applied[1] == group.applied[2] == group.applied[3]
    assert [(entry.index, entry.term) for entry in group.applied[1]] == [
        (1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2),
    ]  # fmt: skip


@pytest.mark.conformance("R018")
def test_r018_a_learner_receives_entries_and_learns_of_commits() -> None:
    group = Group(members(1, 2, learners=(3,)))
    group.elect(1)

    group.propose(1, b"for the learner too")

    assert group.normal(3) == [b"for the learner too"]
    assert group[3].statistics().commit == group[1].statistics().commit == 2
    learner = group[1].statistics().progress[1]
    assert (learner.replica, learner.match, learner.is_learner) == (3, 2, True)


@pytest.mark.conformance("R018")
def test_r018_a_learner_is_not_counted() -> None:
    group = Group(members(1, 2, learners=(3, 4, 5)))
    group.elect(1)
    group.isolate(2)

    group.propose(1, b"four hold it, one counts")

    assert group.normal(1) == []
    assert group[1].statistics().commit == 1


@pytest.mark.conformance("R019")
def test_r019_a_group_of_one_commits_alone() -> None:
    group = Group(1)
    group.elect(1)

    group.propose(1, b"a", b"b")

    assert group.normal(1) == [b"a", b"b"]
    assert group[1].statistics().commit == 3
    assert group.mail == group.delivered == []


@pytest.mark.conformance("R019")
def test_r019_a_group_of_one_commits_when_its_disk_is_done() -> None:
    lone = Lone(1)
    lone.lead()
    lone.node.propose(b"2")

    ready = lone.node.ready()
    before = lone.raft.log.commit
    assert ready.write is not None
    assert ready.write.entries == (Entry(2, 1, Kind.NORMAL, b"2"),)
    lone.storage.put(ready.write)
    lone.node.stored(ready.write.token)

    assert (before, lone.raft.log.commit) == (1, 2)


def split_tail() -> Group:
    """Five; the leader of term 1 got an entry to replica 2 only, and its successor is 2, in term 2.

    Each append carries one entry, and whoever holds that tail gets none of the new term.
    """
    group = Group(5, append_bytes_max=1)
    group.elect(1)
    for replica in (3, 4, 5):
        group.cut(1, replica)
    group.propose(1, b"tail")
    assert group[1].statistics().commit == 1
    group.heal()
    group.passes = lambda message: (
        not isinstance(message, AppendRequest)
        or group.storages[message.target].last_index < 2
        or all(entry.term == 1 for entry in message.entries)
    )
    group.elect(2)
    return group


@pytest.mark.conformance("R020")
def test_r020_an_inherited_tail_is_not_committed_without_an_entry_of_the_term() -> None:
    group = split_tail()

    group.tick(times=3)

    known = {view.replica: view.match for view in group[2].statistics().progress}
    assert known == {1: 0, 3: 2, 4: 2, 5: 2}, "a majority holds the tail"
    assert [node.statistics().commit for node in group.nodes.values()] == [1] * 5
    assert [group.normal(replica) for replica in group.nodes] == [[]] * 5


@pytest.mark.conformance("R020", "R021")
def test_r020_r021_the_new_leaders_first_entry_commits_the_inherited_tail() -> None:
    group = split_tail()
    group.tick(times=3)

    group.heal()
    group.tick(times=2)

    assert [group.normal(replica) for replica in group.nodes] == [[b"tail"]] * 5
    assert [node.statistics().commit for node in group.nodes.values()] == [3] * 5


@pytest.mark.conformance("R028")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_r028_a_proposal_succeeds_if_and_only_if_a_majority_is_reached(size: int) -> None:
    for gone in range(size):
        group = Group(size)
        group.elect(1)
        for replica in range(size, size - gone, -1):
            group.isolate(replica)

        group.propose(1, b"x")

        reached = size - gone
        expected = [b"x"] if reached > size / 2 else []
        told = [group.normal(replica) for replica in range(1, reached + 1)]
        assert told == [expected] * reached, gone


@pytest.mark.conformance("R028")
@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_r028_without_a_leader_a_proposal_is_refused(role: Role) -> None:
    lone = Lone()
    if role is Role.PRE_CANDIDATE:
        lone.node.campaign()
    elif role is Role.CANDIDATE:
        lone.stand()

    with pytest.raises(NotLeader) as refusal:
        lone.node.propose(b"x")

    assert refusal.value.leader is None
    assert lone.log == []


@pytest.mark.conformance("R029")
def test_r029_a_proposal_at_a_follower_is_refused_and_names_the_leader() -> None:
    group = Group(3)
    group.elect(1)

    with pytest.raises(NotLeader) as refusal:
        group[2].propose(b"not here")
    group.settle()

    assert refusal.value.leader == 1
    assert [group.normal(replica) for replica in (1, 2, 3)] == [[]] * 3
    assert [node.statistics().last_index for node in group.nodes.values()] == [1] * 3


@pytest.mark.conformance("R030")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("own", [2, 4])
def test_r030_commit_moves_to_what_a_majority_has_if_of_the_term(size: int, own: int) -> None:
    terms = (1, 2, 3, 3)
    for matches in product(range(5), repeat=size - 1):
        lone = Lone(size, terms=terms[:2], term=2)
        lone.win_pre_vote()
        write = lone.node.ready().write
        assert write is not None
        lone.node.stored(write.token)
        for peer in range(2, size + 1):
            lone.node.step(vote(peer, 3))
        lone.node.propose(b"4")
        assert lone.log == [*enumerate(terms, 1)]
        write = lone.node.ready().write
        assert write is not None

        if own == 4:
            lone.storage.put(write)
            lone.node.stored(write.token)
        for peer, match in enumerate(matches, 2):
            lone.node.step(accept(peer, 3, match))

        held = [
            index
            for index, term in enumerate(terms, 1)
            if term == 3 and sum(match >= index for match in (own, *matches)) > size / 2
        ]
        assert lone.raft.log.commit == max(held, default=0), matches


@pytest.mark.conformance("R047")
def test_r047_a_leaders_write_that_ends_after_its_term_counts_for_nothing() -> None:
    lone = leader()
    lone.node.propose(b"2")
    write = lone.node.ready().write
    assert write is not None
    lone.node.step(accept(2, 1, 2))
    lone.node.step(accept(3, 1, 2))
    assert lone.raft.log.commit == 2, "the two others are two of three"
    lone.node.propose(b"3")
    second = lone.node.ready().write
    assert second is not None

    lone.node.step(append(3, 2, after=(2, 1), new=entries(3, 2)))
    for done in (write, second):
        lone.storage.put(done)
        lone.node.stored(done.token)

    assert (lone.role, lone.node.term) == (Role.FOLLOWER, 2)
    assert lone.raft.log.commit == 2
    assert lone.raft.log.stable == 2, "entry 3 is another one now"
    assert lone.log == [(1, 1), (2, 1), (3, 2)]


@pytest.mark.conformance("R047")
def test_r047_a_leader_deposed_before_its_write_commits_nothing_by_it() -> None:
    lone = Lone(1)
    lone.lead()
    lone.node.propose(b"2")
    write = lone.node.ready().write
    assert write is not None

    lone.node.step(heartbeat(2, 5))
    lone.storage.put(write)
    lone.node.stored(write.token)

    assert (lone.role, lone.raft.log.commit, lone.raft.log.stable) == (Role.FOLLOWER, 1, 2)


# ---- The follower.


@pytest.mark.conformance("R027")
def test_r027_an_append_of_an_earlier_leader_is_ignored() -> None:
    group = Group(3)
    for replica in (1, 2, 1):
        group.elect(replica)
    late = AppendRequest(
        2, 1, 2, 0, previous_index=2, previous_term=2, entries=entries(3, 2), commit=3
    )

    group[1].step(late)
    group.settle()
    group.propose(1, b"after it")

    assert (group.leaders, group[1].term) == ([1], 3)
    log = [(1, 1), (2, 2), (3, 3), (4, 3)]
    for replica in (1, 2, 3):
        assert [(entry.index, entry.term) for entry in group.applied[replica]] == log


@pytest.mark.conformance("R032")
def test_r032_a_message_of_an_earlier_term_reaches_no_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[AnyMessage] = []
    monkeypatch.setattr(core, "_handle", lambda raft, message: handled.append(message))
    lone = Lone(term=2)

    for term in (1, 2):
        lone.node.step(append(2, term))

    assert handled == [append(2, 2)]
    assert lone.node.statistics().refused == {"old_term": 1}


@pytest.mark.conformance("R033")
@pytest.mark.parametrize(
    ("request_", "rejected", "last", "commit"),
    [
        # No match: nothing is learnt.
        (append(2, 2, after=(2, 1), commit=3), True, 2, 0),
        (append(2, 2, after=(3, 2), commit=3), True, 2, 0),
        # Appended, cut where it conflicts.
        (append(2, 2, after=(1, 1), commit=1), False, 2, 1),
        (append(2, 2, after=(0, 0), new=entries(1, 2), commit=1), False, 1, 1),
        (append(2, 2, after=(2, 2), new=entries(3, 2, 2), commit=3), False, 4, 3),
        (append(2, 2, after=(2, 2), new=entries(3, 2), commit=4), False, 3, 3),
        (append(2, 2, after=(1, 1), new=entries(2, 2), commit=4), False, 2, 2),
        # Only what the append vouches for: entry 2 may be another one at the leader.
        (append(2, 2, after=(1, 1), commit=3), False, 2, 1),
        (append(2, 2, after=(1, 1), new=entries(2, 2), commit=3), False, 2, 2),
        (append(2, 2, after=(2, 2), commit=3), False, 2, 2),
        (append(2, 2, after=(2, 2), commit=4), False, 2, 2),
    ],
)
def test_r033_a_followers_commit_is_what_the_append_vouches_for(
    request_: AppendRequest, rejected: bool, last: int, commit: int
) -> None:
    lone = Lone(terms=(1, 2), term=2)

    (answer,) = lone.hear(request_)

    assert isinstance(answer, AppendResponse)
    assert answer.rejected is rejected
    assert (lone.raft.log.last_index, lone.raft.log.commit) == (last, commit)


@pytest.mark.conformance("R034")
@pytest.mark.parametrize(("told", "commit"), [(3, 3), (2, 2), (1, 2), (0, 2), (9, 3)])
def test_r034_a_heartbeat_moves_commit_up_and_never_down(told: int, commit: int) -> None:
    lone = Lone(terms=(1, 2, 3), commit=2)

    lone.hear(heartbeat(2, 3, commit=told))

    assert lone.raft.log.commit == commit


@pytest.mark.conformance("R034")
def test_r034_a_heartbeat_tells_a_follower_of_what_it_holds_only() -> None:
    lone = leader()
    for _ in range(3):
        lone.node.propose(b"x")
    lone.work()
    lone.hear(accept(2, 1, 4))

    beats = [message for message in lone.tick() if isinstance(message, Heartbeat)]

    assert beats == [
        Heartbeat(1, 2, 1, 0, commit=4, round=0, acknowledged=4, acknowledged_term=1),
        Heartbeat(1, 3, 1, 0, commit=1, round=0, acknowledged=1, acknowledged_term=1),
    ]
