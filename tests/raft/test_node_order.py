"""In which order a node hands out what is to be stored, sent and applied, and how much at once."""

import pytest

from corvo.raft import (
    AnyMessage,
    Entry,
    HardState,
    Kind,
)
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    VoteResponse,
)
from tests.raft.group import Group
from tests.raft.lone import Lone, append, entries, heartbeat, vote_request
from tests.raft.stages import (
    installing,
    pulling,
)


def acks(messages: tuple[AnyMessage, ...] | list[AnyMessage]) -> list[int]:
    """What is acknowledged by these messages."""
    found = [message for message in messages if isinstance(message, AppendResponse)]
    return [message.index for message in found if not message.rejected]


def indexes(committed: tuple[Entry, ...] | list[Entry]) -> list[int]:
    return [entry.index for entry in committed]


def ten_bytes(group: Group, count: int) -> None:
    """Propose entries of ten bytes at the leader of one."""
    group.propose(1, *(b"%010d" % number for number in range(count)))


# ---- Pages.


@pytest.mark.conformance("N07")
def test_n07_committed_entries_are_handed_out_in_pages_one_at_a_time() -> None:
    group = Group(1, page_bytes_max=25)
    group.auto_apply = False
    group.elect(1)
    group[1].advance(1)
    ten_bytes(group, 5)

    pages = [indexes(group.applied[1])[1:]]
    while pages[-1]:
        group[1].advance(pages[-1][-1])
        pages.append(indexes(group[1].ready().committed))

    assert pages == [[2, 3], [4, 5], [6], []]


@pytest.mark.conformance("N07")
def test_n07_an_append_holds_as_many_entries_as_its_bytes_allow() -> None:
    group = Group(2, append_bytes_max=25)
    group.elect(1)
    group.delivered.clear()

    ten_bytes(group, 5)

    sent = [message for message in group.delivered if isinstance(message, AppendRequest)]
    assert [indexes(message.entries) for message in sent if message.entries] == [
        [2, 3],
        [4, 5],
        [6],
    ]


@pytest.mark.conformance("N07")
def test_n07_an_entry_larger_than_a_page_is_a_page() -> None:
    group = Group(1, page_bytes_max=5)
    group.elect(1)

    ten_bytes(group, 2)

    assert indexes(group.applied[1]) == [1, 2, 3]


@pytest.mark.conformance("N08")
def test_n08_with_writes_under_way_pages_hold_only_what_is_durable_here() -> None:
    group = Group(3, page_bytes_max=25)
    group.elect(1)
    group.slow_disks.add(1)
    for _ in range(4):
        group[1].propose(b"ten bytes!")
        group.ready(1)
    group.settle()

    assert (group[1].statistics().commit, group[1].statistics().stable) == (5, 1)
    seen = [len(group.applied[1])]
    for _ in range(4):
        group.store(1, 1)
        group.work(1)
        seen.append(len(group.applied[1]))

    assert seen == [1, 2, 3, 4, 5]
    assert indexes(group.applied[1]) == [1, 2, 3, 4, 5]


@pytest.mark.conformance("N09")
@pytest.mark.parametrize("applied", range(7))
def test_n09_a_restart_in_the_middle_of_a_page_skips_nothing(applied: int) -> None:
    group = Group(1, page_bytes_max=25)
    group.elect(1)
    ten_bytes(group, 5)

    group.start(1, applied=applied)
    group.elect(1)

    assert indexes(group.applied[1]) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.conformance("N09")
def test_n09_part_of_a_page_can_be_reported_and_the_rest_still_counts_as_handed_out() -> None:
    group = Group(1)
    group.auto_apply = False
    group.elect(1)
    group[1].advance(1)
    ten_bytes(group, 4)

    group[1].advance(3)

    assert not group[1].ready().committed
    group[1].advance(5)
    assert indexes(group.applied[1]) == [1, 2, 3, 4, 5]
    assert group[1].statistics().applied == 5


# ---- The order of storing, sending and applying.


@pytest.mark.conformance("N11")
def test_n11_a_leader_with_writes_under_way_sends_at_once_and_counts_itself_later() -> None:
    group = Group(3)
    group.elect(1)
    group.slow_disks.add(1)
    group.isolate(3)

    group[1].propose(b"one")
    first = group.ready(1)
    group[1].propose(b"two")
    second = group.ready(1)
    group.settle()

    sent = [m for ready in (first, second) for m in ready.messages if m.target == 2]
    assert [indexes(m.entries) for m in sent if isinstance(m, AppendRequest)] == [[2], [3]]
    assert group[1].statistics().commit == 1
    group.store(1, 1)
    assert group[1].statistics().commit == 2
    group.store(1, 1)
    assert group[1].statistics().commit == 3


@pytest.mark.conformance("N11")
def test_n11_a_follower_acknowledges_each_write_when_it_is_durable() -> None:
    lone = Lone(3)
    lone.hear(heartbeat(2, 1))
    handed = []
    for index in (1, 2, 3):
        lone.node.step(append(2, 1, after=(index - 1, min(index - 1, 1)), new=entries(index, 1)))
        ready = lone.node.ready()
        assert acks(ready.messages) == []
        handed.append(ready.write)

    released = []
    for write in handed:
        assert write is not None
        lone.storage.put(write)
        released.append((indexes(write.entries), acks(write.messages)))
        lone.node.stored(write.token)

    assert released == [([1], [1]), ([2], [2]), ([3], [3])]
    assert lone.node.statistics().writes_under_way == 0


@pytest.mark.conformance("N11")
def test_n11_entries_overwritten_while_being_written_are_acknowledged_by_their_own_write() -> None:
    lone = Lone(3)
    lone.hear(heartbeat(2, 1))
    lone.node.step(append(2, 1, new=entries(1, 1, 1, 1)))
    first = lone.node.ready().write
    lone.node.step(append(3, 2, after=(1, 1), new=entries(2, 2)))
    second = lone.node.ready().write
    assert first is not None
    assert second is not None

    stable = []
    for write in (first, second):
        lone.storage.put(write)
        lone.node.stored(write.token)
        stable.append(lone.node.statistics().stable)

    assert (acks(first.messages), acks(second.messages)) == ([3], [2])
    assert stable == [1, 2]
    assert lone.log == [(1, 1), (2, 2)]
    assert [lone.storage.term(index) for index in (1, 2)] == [1, 2]


@pytest.mark.conformance("N11")
def test_n11_the_write_of_a_vote_releases_the_answer_and_the_next_write_waits_behind_it() -> None:
    lone = Lone(3)
    lone.node.step(vote_request(2, 1))
    first = lone.node.ready()
    lone.node.step(append(2, 1, new=entries(1, 1)))
    second = lone.node.ready()

    assert (first.messages, second.messages) == ((), ())
    assert first.write is not None
    assert second.write is not None
    assert [type(message) for message in first.write.messages] == [VoteResponse]
    assert (first.write.hard_state, second.write.hard_state) == (
        HardState(term=1, vote=2),
        None,
    )
    assert acks(second.write.messages) == [1]


@pytest.mark.conformance("N11")
def test_n11_a_barrier_carries_messages_that_wait_for_the_writes_before_it() -> None:
    lone = Lone(3)
    lone.node.step(vote_request(2, 1))
    vote_write = lone.node.ready().write
    lone.node.step(vote_request(2, 1))  # again: the answer waits for the same vote

    barrier = lone.node.ready().write

    assert vote_write is not None
    assert barrier is not None
    assert (vote_write.is_barrier, barrier.is_barrier) == (False, True)
    assert [type(message) for message in barrier.messages] == [VoteResponse]


@pytest.mark.conformance("N11")
def test_n11_what_waited_goes_out_free_when_all_it_waited_for_is_durable() -> None:
    lone = Lone(3)
    lone.node.step(vote_request(2, 1))
    write = lone.node.ready().write
    lone.node.step(vote_request(2, 1))
    assert write is not None
    lone.storage.put(write)
    lone.node.stored(write.token)

    ready = lone.node.ready()

    assert ready.write is None
    assert [type(message) for message in ready.messages] == [VoteResponse]


@pytest.mark.conformance("N11")
def test_n11_a_busy_disk_makes_one_write_and_one_answer_of_what_gathers() -> None:
    lone = Lone(3)
    for index in (1, 2, 3):
        lone.node.step(append(2, 1, after=(index - 1, min(index - 1, 1)), new=entries(index, 1)))
        ready = lone.node.ready(may_write=False)
        assert (ready.write, ready.messages) == (None, ())
    assert lone.node.has_ready

    write = lone.node.ready().write

    assert write is not None
    assert (indexes(write.entries), acks(write.messages)) == ([1, 2, 3], [3])


@pytest.mark.conformance("N11")
def test_n11_an_answer_takes_the_place_of_those_to_the_same_leader_in_the_same_term_alone() -> None:
    lone = Lone(3)
    lone.node.step(append(2, 1, new=entries(1, 1)))
    lone.node.step(append(3, 2, after=(1, 1), new=entries(2, 2)))
    lone.node.step(append(3, 2, after=(2, 2), new=entries(3, 2)))

    write = lone.node.ready().write

    assert write is not None
    answers = [each for each in write.messages if isinstance(each, AppendResponse)]
    assert [(each.target, each.term, each.index) for each in answers] == [(2, 1, 1), (3, 2, 3)]


@pytest.mark.conformance("N11")
def test_n11_entries_behind_a_snapshot_that_is_being_installed_are_not_acknowledged_early() -> None:
    stage = installing()
    group, node = stage.group, stage.node
    base = stage.raft.log.last_index
    term = stage.raft.term

    node.step(
        AppendRequest(
            1, 3, term, 0, base, stage.raft.log.last_term, (Entry(base + 1, term, Kind.NOOP, b""),),
            commit=base + 1,
        )
    )  # fmt: skip
    ready = group.ready(3)
    before = (acks(ready.messages), node.statistics().stable)
    group.store(3)
    group.work(3)

    assert before == ([], 0)
    assert node.statistics().stable == base + 1
    assert acks(group.mail)[-1] == base + 1
    assert group.applied[3][-1].index == base + 1


@pytest.mark.conformance("N11")
def test_n11_an_install_waits_until_what_is_being_applied_is_applied() -> None:
    stage = pulling()
    group, node = stage.group, stage.node
    group.auto_apply = False
    raft = stage.raft
    node.step(append_to(3, raft.log.last_index, raft.term))
    group.settle()

    before = (raft.log.is_installing, group.storages[3].base.index)
    node.advance(group.applied[3][-1].index)
    group.settle()

    assert before == (True, 0)
    assert group.storages[3].base.index == 5
    assert node.statistics().applied == 5


def append_to(target: int, previous: int, term: int) -> AppendRequest:
    """One more entry from leader 1, committed at once."""
    entry = Entry(previous + 1, term, Kind.NORMAL, b"late")
    return AppendRequest(1, target, term, 0, previous, term, (entry,), commit=previous + 1)


@pytest.mark.conformance("N11")
def test_n11_applying_may_lag_behind_any_number_of_writes() -> None:
    group = Group(1)
    group.auto_apply = False
    group.elect(1)
    for number in range(5):
        group.propose(1, b"%d" % number)

    assert indexes(group.applied[1]) == [1]
    group[1].advance(1)
    group.work(1)

    assert indexes(group.applied[1]) == [1, 2, 3, 4, 5, 6]
