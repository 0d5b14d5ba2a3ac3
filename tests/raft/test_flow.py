"""How much a leader sends to whom: probing, replicating, pulling, and the windows between."""

from functools import partial

import pytest
from msgspec import structs

from corvo.raft import Entry, Flow, Kind, MemoryStorage, ProgressView, Role
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from tests.raft.group import Group, members, with_log

accept = partial(AppendResponse, 2, 1, 1, 0)
reject = partial(AppendResponse, 2, 1, 1, 0, rejected=True)


def led(group: Group) -> Group:
    """The group at rest under leader 1 of term 1, whose first entry is committed."""
    group.elect(1)
    return group


def elected_only(storages: dict[int, MemoryStorage]) -> Group:
    """Leader 1 was elected in term 2, but nobody has answered an append yet."""
    group = Group(members(1, 2, 3), storages=storages)
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    group.elect(1)
    return group


def probing(group: Group) -> None:
    """Make the leader forget where replica 2 stands."""
    group.raft(1).leadership.progress[2].become_probe()  # type: ignore[union-attr]
    group.ready(1)
    group.mail.clear()


def view(group: Group, replica: int) -> ProgressView:
    [found] = [each for each in group[1].statistics().progress if each.replica == replica]
    return found


def appends_to(group: Group, replica: int) -> list[AppendRequest]:
    """What the leader hands out now, as far as it is an append to this replica."""
    group.mail.clear()
    group.work(1)
    mine = [each for each in group.mail if each.target == replica]
    return [each for each in mine if isinstance(each, AppendRequest)]


def spans(appends: list[AppendRequest]) -> list[tuple[int, int]]:
    """The previous index of each append and the number of its entries."""
    return [(each.previous_index, len(each.entries)) for each in appends]


# Answers to appends.


@pytest.mark.conformance("R061")
@pytest.mark.parametrize(
    "answer",
    [
        AppendResponse(2, 1, 2, 0, index=1, rejected=True),
        AppendResponse(2, 1, 2, 0, index=3, rejected=True, hint_index=3, hint_term=2),
        AppendResponse(2, 1, 2, 0, index=4),
        AppendResponse(2, 1, 1, 0, index=3),
        AppendResponse(4, 1, 2, 0, index=3),
    ],
    ids=["an older probe", "a later probe", "beyond the log", "an earlier term", "a stranger"],
)
def test_r061_an_answer_to_nothing_that_was_asked_is_ignored(answer: AppendResponse) -> None:
    group = elected_only({1: with_log(members(1, 2, 3), (1, 1))})
    before = structs.replace(view(group, 2), is_active=True)

    group[1].step(answer)

    assert structs.replace(view(group, 2), is_active=True) == before
    assert appends_to(group, 2) == []


@pytest.mark.conformance("R061")
def test_r061_a_rejection_steps_back_and_probes_from_there() -> None:
    group = elected_only({1: with_log(members(1, 2, 3), (1, 1))})

    group[1].step(AppendResponse(2, 1, 2, 0, index=2, rejected=True, hint_index=1, hint_term=1))

    assert spans(appends_to(group, 2)) == [(1, 2)]
    assert (view(group, 2).flow, view(group, 2).match, view(group, 2).next) == (Flow.PROBE, 0, 2)
    assert group[1].statistics().commit == 0


@pytest.mark.conformance("R061")
def test_r061_an_acceptance_advances_commits_and_tells_everybody() -> None:
    group = elected_only({1: with_log(members(1, 2, 3), (1, 1))})
    group[1].step(AppendResponse(3, 1, 2, 0, index=2))
    group.work(1)

    group[1].step(AppendResponse(2, 1, 2, 0, index=3))

    group.mail.clear()
    group.work(1)
    told = {each.target: each.commit for each in group.mail if isinstance(each, AppendRequest)}
    assert told == {2: 3, 3: 3}
    assert group[1].statistics().commit == 3
    assert (view(group, 2).flow, view(group, 2).match) == (Flow.REPLICATE, 3)


@pytest.mark.conformance("R061")
def test_r061_an_acceptance_of_nothing_still_ends_the_probing() -> None:
    group = elected_only({1: with_log(members(1, 2, 3), (1, 1))})
    group[1].step(AppendResponse(2, 1, 2, 0, index=2, rejected=True, hint_index=0))
    group.work(1)

    group[1].step(AppendResponse(2, 1, 2, 0, index=0))

    assert spans(appends_to(group, 2)) == [(0, 3)]
    assert (view(group, 2).flow, view(group, 2).match, view(group, 2).next) == (
        Flow.REPLICATE,
        0,
        4,
    )


# Heartbeats.


@pytest.mark.conformance("R062")
def test_r062_a_heartbeat_never_tells_a_replica_of_more_than_it_holds() -> None:
    group = led(Group(3))
    group.isolate(3)
    group.propose(1, b"a", b"b")

    group[1].tick()
    group.work(1)

    beats = {each.target: each.commit for each in group.mail if isinstance(each, Heartbeat)}
    assert beats == {2: 3, 3: 1}


@pytest.mark.conformance("R062")
def test_r062_a_heartbeat_to_a_replica_that_nothing_is_known_of_tells_of_no_commit() -> None:
    group = Group(3)
    group.isolate(3)
    group.elect(1)

    group[1].tick()
    group.work(1)

    beats = {each.target: each.commit for each in group.mail if isinstance(each, Heartbeat)}
    assert beats == {2: 1, 3: 0}


@pytest.mark.conformance("R063")
@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_r063_only_a_leader_beats(role: Role) -> None:
    group = Group(3, election_ticks=10, heartbeat_ticks=1)
    if role is not Role.FOLLOWER:
        group[1].campaign()
    if role is Role.CANDIDATE:
        group[1].step(VoteResponse(2, 1, 1, 0, pre=True, granted=True))
    group.work(1)
    group.mail.clear()
    assert group.raft(1).role is role

    for _ in range(9):
        group[1].tick()
        group.work(1)

    assert group.mail == []


# What is sent ahead.


@pytest.mark.conformance("R064")
def test_r064_next_runs_ahead_of_what_is_acknowledged_only_while_replicating() -> None:
    group = led(Group(3))
    probing(group)
    group[1].propose(b"before")
    group.work(1)

    group[1].propose(b"x")
    group.work(1)

    assert (view(group, 2).flow, view(group, 2).next) == (Flow.PROBE, 2)
    assert (view(group, 3).flow, view(group, 3).next) == (Flow.REPLICATE, 4)


@pytest.mark.conformance("R065")
def test_r065_a_probed_replica_gets_one_append_until_it_gives_a_sign_of_life() -> None:
    group = led(Group(3))
    probing(group)

    sent = []
    for _ in range(10):
        group[1].propose(b"x")
        sent += appends_to(group, 2)
    for _ in range(3):
        group[1].tick()
        sent += appends_to(group, 2)

    assert spans(sent) == [(1, 1)]
    assert view(group, 2).is_paused


@pytest.mark.conformance("R065")
def test_r065_a_heartbeat_response_lets_a_probe_go_again_once() -> None:
    group = led(Group(3))
    probing(group)
    for _ in range(10):
        group[1].propose(b"x")
        group.work(1)

    sent = []
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
    sent += appends_to(group, 2)
    sent += appends_to(group, 2)

    assert spans(sent) == [(1, 10)]
    assert view(group, 2).is_paused


@pytest.mark.conformance("R066")
def test_r066_a_replicated_replica_gets_every_append_at_once() -> None:
    group = led(Group(3))

    sent = []
    for _ in range(10):
        group[1].propose(b"x")
        sent += appends_to(group, 2)

    assert spans(sent) == [(index, 1) for index in range(1, 11)]
    assert view(group, 2).messages_in_flight == 10
    assert not view(group, 2).is_paused


@pytest.mark.conformance("R067")
def test_r067_a_replica_that_pulls_a_snapshot_gets_no_append() -> None:
    group = Group(3)
    group.isolate(3)
    group.elect(1)
    group.propose(1, b"a")
    storage = group.storages[1]
    storage.make_snapshot(index=2, membership=group.membership, data=b"state")
    storage.compact(index=2, membership=group.membership)
    group[1].step(AppendResponse(3, 1, 1, 0, index=0, rejected=True))
    group.work(1)
    assert view(group, 3).flow is Flow.SNAPSHOT

    sent = []
    for _ in range(10):
        group[1].propose(b"x")
        sent += appends_to(group, 3)
        group[1].tick()
        group[1].step(HeartbeatResponse(3, 1, 1, 0, round=0))
        sent += appends_to(group, 3)

    assert sent == []


@pytest.mark.conformance("R068")
def test_r068_a_replica_that_lost_appends_is_probed_behind_what_it_acknowledged() -> None:
    group = led(Group(3))
    group.cut(1, 2)
    group.propose(1, b"lost", b"lost too")
    group.heal()
    assert (view(group, 2).flow, view(group, 2).next) == (Flow.REPLICATE, 4)
    group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
    [empty] = appends_to(group, 2)
    assert (empty.previous_index, empty.entries) == (3, ())

    group[1].step(reject(index=3, hint_index=1, hint_term=1))

    assert (view(group, 2).flow, view(group, 2).match, view(group, 2).next) == (Flow.PROBE, 1, 2)
    assert spans(appends_to(group, 2)) == [(1, 2)]


@pytest.mark.conformance("R068")
def test_r068_a_replica_that_lost_appends_catches_up_without_a_new_proposal() -> None:
    group = led(Group(3))
    group.cut(1, 2)
    group.propose(1, b"lost", b"lost too")
    group.heal()

    group.tick(1, times=2)

    assert group.normal(2) == [b"lost", b"lost too"]
    assert view(group, 2).flow is Flow.REPLICATE


@pytest.mark.conformance("R068")
def test_r068_an_old_rejection_does_not_disturb_a_replicated_replica() -> None:
    group = led(Group(3))
    group.propose(1, b"a", b"b")
    before = view(group, 2)

    group[1].step(reject(index=2, hint_index=0))

    assert view(group, 2) == before
    assert appends_to(group, 2) == []


# Windows.


@pytest.mark.conformance("F01")
def test_f01_nothing_is_sent_into_a_window_that_is_full_of_messages() -> None:
    group = led(Group(3, window_messages_max=3))
    sent = []
    for _ in range(3):
        group[1].propose(b"x")
        sent += appends_to(group, 2)
    assert spans(sent) == [(1, 1), (2, 1), (3, 1)]
    assert view(group, 2).is_paused

    more = []
    for _ in range(10):
        group[1].propose(b"x")
        more += appends_to(group, 2)
        group[1].tick()
        more += appends_to(group, 2)

    assert more == []
    assert view(group, 2).messages_in_flight == 3


@pytest.mark.conformance("F01")
def test_f01_nothing_is_sent_into_a_window_that_is_full_of_bytes() -> None:
    group = led(Group(3, window_bytes_max=10, window_messages_max=100, append_bytes_max=4))
    group[1].propose(b"1234")
    group[1].propose(b"5678")
    group[1].propose(b"9012")
    group[1].propose(b"3456")

    sent = appends_to(group, 2)

    assert spans(sent) == [(1, 1), (2, 1), (3, 1)]
    assert (view(group, 2).bytes_in_flight, view(group, 2).is_paused) == (12, True)
    assert appends_to(group, 2) == []


@pytest.mark.conformance("F01")
def test_f01_an_entry_larger_than_the_window_goes_out_alone() -> None:
    group = led(Group(3, window_bytes_max=10, append_bytes_max=4))
    group[1].propose(b"x" * 50)
    group[1].propose(b"y")

    assert spans(appends_to(group, 2)) == [(1, 1)]

    group[1].step(accept(index=2))
    assert spans(appends_to(group, 2))[-1] == (2, 1)


@pytest.mark.conformance("F02")
@pytest.mark.parametrize("acknowledged", [2, 3, 4, 5])
def test_f02_an_acknowledgement_frees_the_window_up_to_itself(acknowledged: int) -> None:
    group = led(Group(3, window_messages_max=4))
    for _ in range(8):
        group[1].propose(b"x")
        group.work(1)
    assert view(group, 2).messages_in_flight == 4
    freed = acknowledged - 1

    group[1].step(accept(index=acknowledged))

    assert view(group, 2).messages_in_flight == 4 - freed
    # All that waited fits into one append.
    assert spans(appends_to(group, 2)) == [(5, 4)]
    assert view(group, 2).messages_in_flight == 4 - freed + 1


@pytest.mark.conformance("F02")
def test_f02_an_old_acknowledgement_frees_nothing() -> None:
    group = led(Group(3, window_messages_max=4))
    for _ in range(8):
        group[1].propose(b"x")
        group.work(1)
    group[1].step(accept(index=4))
    for _ in range(3):
        group[1].propose(b"x")
        group.work(1)
    before = view(group, 2)
    assert before.messages_in_flight == 4

    for index in (0, 1, 2, 3, 4):
        group[1].step(accept(index=index))

    assert view(group, 2) == before
    assert appends_to(group, 2) == []


@pytest.mark.conformance("F03")
def test_f03_a_sign_of_life_lets_one_empty_append_into_a_full_window() -> None:
    group = led(Group(3, window_messages_max=2))
    for _ in range(4):
        group[1].propose(b"x")
        group.work(1)
    assert view(group, 2).messages_in_flight == 2

    for _ in range(3):
        group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))
        sent = appends_to(group, 2)

        assert spans(sent) == [(3, 0)]
        assert appends_to(group, 2) == []
    assert view(group, 2).messages_in_flight == 2


@pytest.mark.conformance("F03")
def test_f03_several_signs_of_life_at_once_let_out_one_empty_append() -> None:
    group = led(Group(3, window_messages_max=2))
    for _ in range(4):
        group[1].propose(b"x")
        group.work(1)

    for _ in range(5):
        group[1].step(HeartbeatResponse(2, 1, 1, 0, round=0))

    assert spans(appends_to(group, 2)) == [(3, 0)]


@pytest.mark.conformance("F03")
def test_f03_a_full_window_of_lost_appends_is_filled_again() -> None:
    group = led(Group(3, window_messages_max=2))
    group.cut(1, 2)
    for _ in range(6):
        group.propose(1, b"x")
    assert view(group, 2).messages_in_flight == 2
    group.heal()

    group.tick(1, times=2)

    assert group.normal(2) == [b"x"] * 6
    assert view(group, 2).messages_in_flight == 0


@pytest.mark.conformance("F04")
def test_f04_acknowledgements_of_a_window_that_was_given_up_do_no_harm() -> None:
    group = led(Group(3, window_messages_max=4))
    for _ in range(4):
        group[1].propose(b"x")
        group.work(1)
    group[1].step(reject(index=3, hint_index=1, hint_term=1))
    assert (view(group, 2).flow, view(group, 2).messages_in_flight) == (Flow.PROBE, 0)

    for index in (2, 3, 4, 5):
        group[1].step(accept(index=index))
        group.work(1)

    seen = view(group, 2)
    assert (seen.flow, seen.match, seen.messages_in_flight) == (Flow.REPLICATE, 5, 0)
    assert group[1].statistics().commit == 5


@pytest.mark.conformance("F05")
def test_f05_the_smallest_window_pauses_after_each_append_and_resumes() -> None:
    group = led(Group(3, window_messages_max=1, window_bytes_max=1, append_bytes_max=1))
    for letter in (b"aa", b"bb", b"cc"):
        group[1].propose(letter)

    first = appends_to(group, 2)
    paused = view(group, 2).is_paused
    group[1].step(accept(index=2))
    second = appends_to(group, 2)
    group[1].step(accept(index=3))
    third = appends_to(group, 2)

    assert paused
    assert [each.entries for each in first + second + third if each.entries] == [
        (Entry(2, 1, Kind.NORMAL, b"aa"),),
        (Entry(3, 1, Kind.NORMAL, b"bb"),),
        (Entry(4, 1, Kind.NORMAL, b"cc"),),
    ]


@pytest.mark.conformance("F05")
def test_f05_one_peer_with_a_full_window_does_not_hold_back_the_other() -> None:
    group = led(Group(3, window_messages_max=1))
    group.cut(1, 2)

    for _ in range(5):
        group.propose(1, b"x")

    assert view(group, 2).is_paused
    assert group.normal(3) == [b"x"] * 5
    assert group.normal(1) == [b"x"] * 5
