"""Whatever arrives, in whatever situation: `step` never raises, and a refusal changes nothing.

A leader that lies may break safety, since Raft trusts its members; but it may not break `step`.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from corvo.raft import (
    LEAVE,
    Action,
    AnyMessage,
    Change,
    Entry,
    Kind,
    Membership,
    Refused,
    Snapshot,
    Step,
)
from corvo.raft.membership import encode
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
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
from corvo.raft.state import Raft
from tests.raft.digest import digest, without
from tests.raft.group import Group
from tests.raft.stages import STAGES, Scene, Stage, pulling_slowly

HOSTILE: Final = (-1, -(1 << 63), 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
"""Numbers that no replica means; msgpack can carry all of them."""

NOTHING_DONE: Final = {
    "not_for_us",
    "source",
    "negative",
    "too_large",
    "gap",
    "terms",
    "instance",
    "vote_in_lease",
}
"""Refused at the door: nothing at all has changed."""

NOTHING_LEARNT: Final = {"heir", "read_not_taken", "unknown_read", "not_a_member", "second_leader"}
"""Refused further in: nothing has changed, save that the sender's instance may be known now."""


# ---- Messages of every kind, most of them nearly right.


@st.composite
def numbers(draw: st.DrawFn, *near: int) -> int:
    """Mostly a number near one of those that matter now, at times one from nowhere."""
    if draw(st.integers(0, 29)) == 0:
        return draw(st.sampled_from(HOSTILE))
    return max(draw(st.sampled_from(near)) + draw(st.integers(-2, 2)), 0)


@st.composite
def heads(draw: st.DrawFn, raft: Raft) -> tuple[int, int, int, int]:
    """Source, target, term, instance."""
    odd = draw(st.integers(0, 9)) == 0
    source = draw(st.sampled_from((0, -1, 9, raft.id)) if odd else st.integers(1, 4))
    target = draw(st.sampled_from((0, 9, raft.id, raft.id))) if odd else raft.id
    term = raft.term if draw(st.booleans()) else draw(numbers(raft.term))
    return source, target, term, draw(st.sampled_from((0, 0, 0, 7, 8, -1)))


@st.composite
def payloads(draw: st.DrawFn, kind: Kind) -> bytes:
    """What an entry carries; a change is well-formed, though not always possible."""
    if kind is not Kind.CONFIG:
        return draw(st.sampled_from((b"", b"x", b"twelve bytes")))
    steps = st.builds(Step, st.sampled_from(Action), st.integers(0, 5), st.sampled_from((0, 7)))
    changes = st.builds(Change, st.lists(steps, max_size=2).map(tuple), st.booleans())
    return encode(draw(st.one_of(st.just(LEAVE), changes)))


@st.composite
def entries_after(draw: st.DrawFn, index: int, low: int, high: int) -> tuple[Entry, ...]:
    """Entries behind `index` with rising terms; at times with a gap or a falling term."""
    entries = []
    for _ in range(draw(st.integers(0, 4))):
        index += 2 if draw(st.integers(0, 19)) == 0 else 1
        low = draw(st.integers(low, max(high, low)))
        term = 0 if draw(st.integers(0, 19)) == 0 else low
        kind = draw(st.sampled_from(Kind))
        entries.append(Entry(index, term, kind, draw(payloads(kind))))
    return tuple(entries)


@st.composite
def snapshots(draw: st.DrawFn, raft: Raft) -> Snapshot:
    """One that is in use here, or an empty one that can be pulled at once, or nonsense."""
    known = [raft.storage.snapshot(), raft.incoming.snapshot if raft.incoming else None]
    in_use = [snapshot for snapshot in known if snapshot is not None]
    if in_use and draw(st.integers(0, 3)) > 0:
        return draw(st.sampled_from(in_use))
    some = st.lists(st.integers(0, 5), max_size=3, unique=True).map(lambda ids: tuple(sorted(ids)))
    return Snapshot(
        draw(numbers(raft.log.commit, raft.log.last_index)),
        draw(numbers(raft.log.last_term, raft.term)),
        Membership(draw(some), draw(some), draw(some), draw(some), draw(st.booleans())),
        draw(st.sampled_from((0, 0, 5, 1 << 63))),
        hashlib.sha256(b"").digest(),
    )


@st.composite
def appends(draw: st.DrawFn, raft: Raft) -> AppendRequest:
    head = draw(heads(raft))
    log = raft.log
    previous = draw(numbers(log.commit, log.last_index))
    agreed = draw(st.integers(0, 4)) > 0 and log.base.index <= previous <= log.last_index
    terms = numbers(log.last_term, raft.term)
    term = _term(raft, previous) if agreed else draw(terms)
    entries = draw(entries_after(previous, term, head[2]))
    return AppendRequest(*head, previous, term, entries, draw(numbers(log.commit, log.last_index)))


def _term(raft: Raft, index: int) -> int:
    """The term there, or 0 where a snapshot has taken its place."""
    return next((term for term in range(raft.term + 1) if raft.log.matches(index, term)), 0)


@st.composite
def chunks(draw: st.DrawFn, raft: Raft) -> SnapshotChunk:
    offset = draw(numbers(0, 8, raft.incoming.expected if raft.incoming else 0))
    if raft.incoming is not None and draw(st.booleans()):
        offset = raft.incoming.expected
    data = draw(st.sampled_from((b"", b"a state ", b"of several", b"chunks")))
    checksum = draw(st.sampled_from((zlib.crc32(data), zlib.crc32(data), 0)))
    return SnapshotChunk(*draw(heads(raft)), draw(snapshots(raft)), offset, data, checksum)


@st.composite
def votes(draw: st.DrawFn, raft: Raft) -> VoteRequest | VoteResponse:
    commit, term = draw(numbers(raft.log.commit)), draw(numbers(raft.log.last_term))
    pre, other = draw(st.booleans()), draw(st.booleans())
    if draw(st.booleans()):
        return VoteResponse(*draw(heads(raft)), pre, other, commit, term)
    last, last_term = draw(numbers(raft.log.last_index)), draw(numbers(raft.log.last_term))
    return VoteRequest(*draw(heads(raft)), last, last_term, pre, other, commit, term)


@st.composite
def small_ones(draw: st.DrawFn, raft: Raft) -> AnyMessage:
    """The messages that are a head and a number or two."""
    head, log = draw(heads(raft)), raft.log
    leadership = raft.leadership
    rounds = numbers(leadership.reads.round if leadership else 0)
    contexts = numbers(*(read.context for read in raft.forwarded), 5)
    match draw(st.integers(0, 6)):
        case 0:
            return Heartbeat(*head, draw(numbers(log.commit, log.last_index)), draw(rounds))
        case 1:
            return HeartbeatResponse(*head, draw(rounds), draw(numbers(log.commit)))
        case 2:
            return TimeoutNow(*head)
        case 3:
            return TransferRequest(*head, draw(numbers(2)))
        case 4:
            return ReadRequest(*head, draw(contexts))
        case 5:
            return ReadResponse(*head, draw(contexts), draw(numbers(log.commit)), raft.term)
        case _:
            return AppendResponse(
                *head,
                draw(numbers(log.commit, log.last_index)),
                draw(st.booleans()),
                draw(numbers(log.commit, log.last_index)),
                draw(numbers(log.last_term)),
                draw(numbers(log.commit)),
                draw(st.integers(0, 5)) == 0,
            )


def messages(raft: Raft) -> st.SearchStrategy[AnyMessage]:
    """Any message, as far as the present state of `raft` helps to make it a hard one."""
    heads_, snapshots_, offsets = heads(raft), snapshots(raft), numbers(0, 8, 24)
    commits = numbers(raft.log.commit, raft.log.last_index)
    return st.one_of(
        appends(raft),
        chunks(raft),
        votes(raft),
        small_ones(raft),
        st.builds(lambda head, *rest: SnapshotOffer(*head, *rest), heads_, snapshots_, commits),
        st.builds(lambda head, *rest: SnapshotPull(*head, *rest), heads_, snapshots_, offsets),
    )


# ---- The tests.


def take(stage: Stage, message: AnyMessage) -> None:
    """Step, and see that a refusal at the door is one."""
    raft, node = stage.raft, stage.node
    refused, term, before = raft.refused.copy(), raft.term, digest(node)

    node.step(message)

    reasons = set(raft.refused - refused)
    if reasons & NOTHING_DONE:
        assert digest(node) == before, f"{reasons} left traces"
    if reasons & {"old_term"} and not (
        isinstance(message, VoteResponse) and raft.log.matches(message.commit, message.commit_term)
    ):
        # The sender is told our term; that is all. What was committed then is so for ever.
        told = ("messages", "messages_after_write")
        assert without(digest(node), *told) == without(before, *told), "the past left traces"
    if reasons & NOTHING_LEARNT and message.term == term:
        assert without(digest(node), "instances") == without(before, "instances")


def drive(data: st.DataObject, stage: Stage) -> None:
    """What a driver may do between two messages."""
    group, replica, node = stage.group, stage.replica, stage.node
    match data.draw(st.sampled_from(("work", "store", "slow", "tick", "ask", "rest"))):
        case "work":
            group.slow_disks.discard(replica)
            group.store(replica)
            group.work(replica)
        case "store" if group.writes[replica]:
            group.store(replica, 1)
        case "slow":
            group.slow_disks.add(replica)
            group.ready(replica)
        case "tick":
            node.tick(missed=data.draw(st.sampled_from((0, 0, 0, 10))))
        case "ask":
            _ask(data, stage)
        case _:
            pass


def _ask(data: st.DataObject, stage: Stage) -> None:
    node = stage.node
    change = Change(
        (Step(Action.REMOVE, data.draw(st.integers(1, 4))),), auto=data.draw(st.booleans())
    )
    wishes: tuple[Callable[[], object], ...] = (
        node.campaign,
        node.forget_leader,
        node.read_index,
        lambda: node.propose(b"asked"),
        lambda: node.propose_change(change),
        lambda: node.transfer(2),
    )
    with contextlib.suppress(Refused):
        data.draw(st.sampled_from(wishes))()


@pytest.mark.conformance("X34")
@pytest.mark.parametrize("scene", STAGES, ids=lambda scene: scene.__name__)
@settings(max_examples=max(10, settings().max_examples // 2))
@given(data=st.data())
def test_x34_whatever_arrives_a_node_goes_on_and_a_refusal_changes_nothing(
    scene: Scene, data: st.DataObject
) -> None:
    stage = scene()

    for _ in range(data.draw(st.integers(1, 12), label="messages")):
        message = data.draw(messages(stage.raft))
        note(repr(message))
        for _ in range(data.draw(st.sampled_from((1, 1, 2)), label="times")):
            take(stage, message)
        try:
            drive(data, stage)
        except AssertionError as error:
            # The lie of a leader has reached the state machine: the process ends.
            assert str(error).startswith("a committed change does not fit")  # noqa: PT017
            return


@pytest.mark.parametrize("number", [(1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_number_that_no_record_can_hold_is_refused(number: int) -> None:
    stage = Stage(Group(3), 1)

    stage.node.step(Heartbeat(2, 1, number, 0, commit=0, round=0))

    assert (stage.raft.term, stage.raft.refused) == (0, {"too_large": 1})


def test_a_refused_message_from_the_past_does_not_pin_its_data_directory() -> None:
    group = Group(3)
    group.elect(2)
    stage = Stage(group, 1)

    stage.node.step(Heartbeat(2, 1, 0, 7, commit=0, round=0))
    stage.node.step(Heartbeat(2, 1, 1, 8, commit=0, round=0))

    assert stage.raft.refused == {"old_term": 1}
    assert stage.raft.instances == {2: 8}


def test_strangers_leave_nothing_behind() -> None:
    stage = Stage(Group(3), 1)

    for source in range(4, 100):
        stage.node.step(HeartbeatResponse(source, 1, 0, source, round=0))

    assert stage.raft.instances == {}


def test_an_offer_again_while_a_chunk_is_being_written_does_not_write_it_twice() -> None:
    stage = pulling_slowly()
    group, raft = stage.group, stage.raft
    assert raft.incoming is not None
    offer = SnapshotOffer(1, 3, raft.term, 0, raft.incoming.snapshot, goal=5)

    stage.node.step(offer)
    group.settle()
    group.slow_disks.clear()
    group.store(3)
    group.settle()

    assert group.storages[3].snapshot_data == group.storages[1].snapshot_data
    chunks = [message for message in group.delivered if isinstance(message, SnapshotChunk)]
    assert [chunk.offset for chunk in chunks] == [16, 24]  # 0 and 8 were there before
