"""Messages that no correct replica sends, and correct ones that come at an awkward moment."""

import hashlib
from collections.abc import Iterator

import msgspec
import pytest

from corvo.raft import (
    Action,
    AnyMessage,
    Change,
    Entry,
    Kind,
    Membership,
    MemoryStorage,
    Message,
    Role,
    Snapshot,
    Step,
    Write,
)
from corvo.raft.membership import encode
from corvo.raft.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    ReadResponse,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotPull,
    VoteRequest,
    VoteResponse,
)
from corvo.raft.validity import NUMBER_MAX, problem
from tests.raft.digest import digest
from tests.raft.group import Group, members, with_log
from tests.raft.lone import Lone, append, entries, heartbeat, pulse
from tests.raft.stages import Scene, follower, leader, pulling, pulling_slowly
from tests.raft.test_codec import SAMPLES

SNAPSHOT = Snapshot(9, 1, members(1, 2, 3), 5, hashlib.sha256(b"state").digest())


def numbered() -> Iterator[tuple[AnyMessage, str]]:
    """Every number of every message."""
    for sample in SAMPLES:
        for field in msgspec.structs.fields(sample):
            if field.type is int and field.name not in ("source", "target", "checksum"):
                yield sample, field.name


def with_number(sample: AnyMessage, name: str, number: int) -> AnyMessage:
    return msgspec.structs.replace(sample, **{name: number})  # type: ignore[arg-type]


# ---- Shapes.


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_the_samples_are_valid_for_whom_they_are_for_and_for_nobody_else(
    sample: AnyMessage,
) -> None:
    assert problem(sample, sample.target) is None
    assert problem(sample, 7) == "not_for_us"
    for source in (0, -1, sample.target):
        assert problem(with_number(sample, "source", source), sample.target) == "source"


@pytest.mark.parametrize(("sample", "name"), list(numbered()))
def test_a_negative_number_is_refused_whichever_it_is(sample: AnyMessage, name: str) -> None:
    assert problem(with_number(sample, name, -1), sample.target) == "negative"


@pytest.mark.parametrize(("sample", "name"), list(numbered()))
def test_a_number_that_no_record_can_hold_is_refused_whichever_it_is(
    sample: AnyMessage, name: str
) -> None:
    too_large = NUMBER_MAX + 1
    if name in ("instance", "acknowledged_by"):
        too_large <<= 2  # it may have all 64 bits of what travels

    assert problem(with_number(sample, name, too_large), sample.target) == "too_large"


@pytest.mark.parametrize(
    ("entries_", "expected"),
    [
        (entries(6, 2, 2, 3), None),
        (entries(7, 2), "gap"),
        (entries(5, 2), "gap"),
        ((*entries(6, 2), *entries(8, 2)), "gap"),
        ((*entries(6, 2), *entries(6, 2)), "gap"),
        (entries(6, 1), "terms"),
        (entries(6, 3, 2), "terms"),
        (entries(6, 2, 4), "terms"),
        ((), None),
    ],
)
def test_the_entries_of_an_append_follow_one_another(
    entries_: tuple[Entry, ...], expected: str | None
) -> None:
    assert problem(append(2, 3, after=(5, 2), new=entries_), 1) == expected


def test_nothing_is_of_a_later_term_than_the_message_that_carries_it() -> None:
    beyond = Snapshot(9, 4, Membership(), 0)
    offer = SnapshotOffer(2, 1, 3, 0, snapshot=SNAPSHOT, goal=9)
    vote = VoteRequest(2, 1, 3, 0, last_index=1, last_term=4, pre=False, forced=False)

    assert problem(append(2, 3, after=(5, 4)), 1) == "terms"
    assert problem(vote, 1) == "terms"
    assert problem(offer, 1) is None
    assert problem(msgspec.structs.replace(offer, snapshot=beyond), 1) == "terms"
    assert problem(msgspec.structs.replace(offer, goal=8), 1) == "terms"
    assert problem(Heartbeat(2, 1, 3, 0, 0, 0, 5, acknowledged_term=4), 1) == "terms"


@pytest.mark.parametrize(
    "snapshot",
    [
        msgspec.structs.replace(SNAPSHOT, index=0),
        msgspec.structs.replace(SNAPSHOT, term=-1),
        msgspec.structs.replace(SNAPSHOT, size=-1),
    ],
)
def test_a_snapshot_of_nothing_is_not_offered(snapshot: Snapshot) -> None:
    assert problem(SnapshotOffer(2, 1, 3, 0, snapshot=snapshot, goal=9), 1) == "negative"


# ---- A second leader of the term: one of the two lies.


def from_leader(source: int, target: int, term: int) -> list[AnyMessage]:
    """Everything that only a leader sends."""
    head = (source, target, term, 0)
    return [
        AppendRequest(*head, 3, 1, (Entry(4, term, Kind.NOOP, b""),), commit=4),
        Heartbeat(*head, commit=3, round=1),
        SnapshotOffer(*head, snapshot=SNAPSHOT, goal=9),
        SnapshotChunk(*head, snapshot=SNAPSHOT, offset=0, data=b"state", checksum=0),
    ]


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("scene", [follower, leader])
def test_who_follows_or_is_the_leader_of_a_term_hears_no_other(scene: Scene, position: int) -> None:
    stage = scene()
    other = 3 if stage.replica == 2 else 2
    before = digest(stage.node)

    stage.node.step(from_leader(other, stage.replica, stage.raft.term)[position])

    assert digest(stage.node) == before
    assert stage.raft.refused["second_leader"] == 1


def test_an_answer_to_a_round_that_was_never_started_proves_no_read() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(1)

    group[1].step(pulse(2, 1, round_=1))
    group[1].step(pulse(3, 1, round_=1))
    group[1].read_index()
    group.settle()

    assert group.reads[1] == []
    assert group[1].statistics().refused == {"unknown_round": 2}


# ---- A snapshot whose leader is lost on the way.


def test_a_piece_that_lands_when_no_leader_is_known_is_kept_and_the_next_leader_asked_on() -> None:
    stage = pulling_slowly()
    group, raft = stage.group, stage.raft
    stage.node.forget_leader()
    group.mail.clear()

    group.store(3)
    group.work(3)
    pulls = [message for message in group.mail if isinstance(message, SnapshotPull)]

    assert pulls == []
    assert raft.incoming is not None
    assert (raft.incoming.received, raft.incoming.expected) == (16, 16)
    group.slow_disks.clear()
    group.tick(1, times=40)
    assert group.storages[3].snapshot_data == group.storages[1].snapshot_data


def test_a_snapshot_that_is_complete_when_no_leader_is_known_is_installed_and_told_later() -> None:
    stage = pulling()
    group = stage.group
    raft = stage.raft
    group.passes = lambda message: not isinstance(message, AppendResponse)
    while raft.incoming is not None and raft.incoming.expected < 25:
        group.work()
        group.deliver()
    assert raft.incoming is not None
    group.slow_disks.add(3)
    group.work(3)
    stage.node.forget_leader()
    group.mail.clear()

    group.store(3)
    group.slow_disks.clear()
    group.work(3)

    assert (stage.node.statistics().applied, stage.node.leader) == (5, None)
    assert [message for message in group.mail if isinstance(message, AppendResponse)] == []
    group.heal()
    group.tick(1, times=40)
    assert group[1].statistics().progress[1].match == 5


# ---- Campaigns and changes.


@pytest.mark.conformance("R115", "T03")
def test_r115_a_read_that_tells_of_a_committed_change_ends_a_campaign() -> None:
    change = encode(Change((Step(Action.REMOVE, 3),)))
    storage = MemoryStorage(members(1, 2, 3))
    written = (*entries(1, 1), Entry(2, 1, Kind.CONFIG, change))
    storage.put(Write(token=0, entries=written))
    group = Group(3, storages={1: storage})
    group[1].step(heartbeat(2, 1, commit=1))
    context = group[1].read_index()
    group.work(1)
    group[1].campaign()
    assert group.raft(1).role is Role.PRE_CANDIDATE

    group[1].step(ReadResponse(2, 1, 1, 0, context=context, index=2, index_term=1))

    assert group[1].statistics().commit == 2
    assert group.raft(1).role is Role.FOLLOWER


@pytest.mark.conformance("R103")
def test_r103_a_transfer_goes_on_when_a_change_leaves_its_heir_a_voter() -> None:
    group = Group(5)
    group.elect(1)
    group.isolate(2)
    group.propose(1, b"not at 2")
    group[1].propose_change(Change((Step(Action.REMOVE, 5),), auto=False))
    group[1].transfer(2)

    group.settle()

    assert group[1].membership == Membership((1, 2, 3, 4), outgoing=(1, 2, 3, 4, 5))
    assert group[1].statistics().transfer_to == 2


# ---- What a driver asks before it throws something away.


def test_what_followers_pull_is_named_once_each_so_that_it_is_kept() -> None:
    group = Group(5, chunk_bytes_max=8)
    group.elect(1)
    for replica in (4, 5):
        group.isolate(replica)
    group.propose(1, b"one", b"two")
    snapshot = group.snapshot(1)
    group.storages[1].compact(index=snapshot.index, membership=snapshot.membership)
    group.heal()
    group.passes = lambda message: not isinstance(message, SnapshotPull)
    before = group[1].snapshots_in_use

    group.tick(1)

    assert before == ()
    assert group[1].snapshots_in_use == (snapshot,)
    assert group[2].snapshots_in_use == ()
    assert group[1].needed_from == snapshot.index + 1


def test_the_log_is_needed_from_where_the_slowest_follower_that_lives_is() -> None:
    group = Group(3)
    group.elect(1)
    group.isolate(3)
    group.propose(1, b"one", b"two")

    assert group[1].needed_from == 2
    assert group[2].needed_from == 4
    group.tick(1, times=20)  # long enough for 3 to be given up
    assert group[1].needed_from == 4


def test_a_replica_alone_needs_nothing_that_it_has_applied() -> None:
    storage = with_log(members(1), [1, 1, 1], commit=3)
    group = Group(1, storages={1: storage})
    group.elect(1)

    assert group[1].needed_from == group[1].statistics().applied + 1
    assert Lone(3).node.needed_from == 1


def test_every_type_of_message_is_in_the_samples() -> None:
    assert {type(sample) for sample in SAMPLES} == set(Message.__subclasses__())


@pytest.mark.conformance("X14")
def test_x14_a_new_leader_leaves_no_joint_state_before_its_first_commit() -> None:
    joint = Membership(voters=(1, 2, 3), outgoing=(1, 2, 3), auto_leave=True)
    storages = {replica: with_log(joint, [1], commit=1) for replica in joint.voters}
    group = Group(joint, storages=storages)
    group.auto_apply = False
    group.passes = lambda message: isinstance(message, VoteRequest | VoteResponse)
    group[1].campaign()
    group.settle()
    assert group[1].is_leader

    group[1].advance(1)

    assert group[1].statistics().last_index == 2, "nothing but the entry that opens the term"
    group.heal()
    group.auto_apply = True
    group.tick(1)
    assert group[1].membership == Membership(voters=(1, 2, 3))
