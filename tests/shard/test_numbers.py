"""What a replica counts of its work, and what it tells of queues and workers."""

from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pytest

from corvo import clock
from corvo.model import State
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterNode, first_map
from corvo.protocol.numbers import (
    PAGE_NUMBERS_MAX,
    PAGE_QUEUES,
    Counters,
    Numbers,
    QueueNumbers,
    QueuePage,
    Upkeep,
    WorkerPage,
)
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.queues import Pause
from corvo.protocol.ops.schedules import CreateSchedule, NewSchedule
from corvo.protocol.ops.work import Ack, AckItem, Fetch
from corvo.protocol.queries import GetNumbers, GetQueueNumbers, GetWorkerNumbers, Query
from corvo.raft import Action, Change, Step
from corvo.shard import gathering
from corvo.shard.ops import NUMBERS, OPS
from tests.shard.processes import ask, calling, config_in, put, result, running
from tests.shard.replicas import MS, START_NS, Replicas
from tests.support.links import on_sockets

JOB: Final = NewJob(queue="mail")
D = TypeVar("D", bound=msgspec.Struct)


def told(group: Replicas, query: Query, kind: type[D], *, of: int = 1) -> D:
    """An answer that needs no other replica."""
    request = group.ask(query, to=of)
    group.work(of)
    answer = group.answer(request, of=of)
    assert isinstance(answer, wire.Reply)
    assert not answer.code, answer.body
    return msgspec.json.decode(answer.body, type=kind)


def numbers(group: Replicas, *, of: int = 1) -> Numbers:
    return told(group, GetNumbers(), Numbers, of=of)


def ops(group: Replicas) -> dict[str, int]:
    """Ops by name."""
    return {op.__name__: numbers(group).counted.ops[number] for number, op in OPS.items()}


def counted(group: Replicas) -> dict[str, int]:
    """Ops by name, without the leader's first."""
    return {op: count for op, count in ops(group).items() if count and op != "Lead"}


def counts_of(**states: int) -> tuple[int, ...]:
    return tuple(states.get(state.value, 0) for state in sorted(State, key=lambda it: it.number))


# ---- What it counts.


def test_ops_are_counted_by_kind_when_they_are_applied_also_those_refused() -> None:
    group = Replicas()

    group.put(JOB, JOB)
    group.put(JOB)
    [claim] = group.fetch()
    late = Ack(acks=[AckItem(job_id=claim.job_id, lease_token=claim.lease_token + 1)])
    group.do(late)
    group.do(Enqueue(jobs=[JOB], request_key="once"))
    group.do(Enqueue(jobs=[JOB, JOB], request_key="once"))

    assert counted(group) == {"Enqueue": 4, "Fetch": 1, "Ack": 1}
    assert numbers(group).counted.refused == {"request_key_reused": 1}


def test_an_op_is_not_counted_before_it_is_applied() -> None:
    group = Replicas()
    group.slow[1] = None
    group.submit(Enqueue(jobs=[JOB]))
    group.settle()

    early, waiting = counted(group), numbers(group).waiting
    group.store(1)
    group.settle()

    assert (early, waiting) == ({}, 1)
    assert (counted(group), numbers(group).waiting) == ({"Enqueue": 1}, 0)


def test_a_digest_is_that_of_the_state_at_the_applied_index() -> None:
    group = Replicas()
    known: dict[int, int] = {}
    for _ in range(5):
        group.put(JOB)
        for number in group.replicas:
            told_by = numbers(group, of=number)

            assert known.setdefault(told_by.applied, told_by.digest) == told_by.digest
            machine = group.replicas[number].machine
            assert (told_by.applied, told_by.digest) == (machine.applied, machine.digest)
    assert len(known) > 4
    assert len(set(known.values())) == len(known)


def test_an_index_that_is_not_applied_yet_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Replicas()
    group.put(JOB)
    before = numbers(group)
    node = group.replicas[1].node
    further = msgspec.structs.replace(node.statistics(), applied=before.applied + 1)
    monkeypatch.setattr(node, "statistics", lambda: further)

    told_by = numbers(group)

    assert (told_by.applied, told_by.digest) == (before.applied, before.digest)


def test_a_replica_says_how_much_of_a_snapshot_it_has_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Replicas()
    before = numbers(group).snapshot_received
    node = group.replicas[1].node
    pulling = msgspec.structs.replace(node.statistics(), snapshot_received=(3, 9))
    monkeypatch.setattr(node, "statistics", lambda: pulling)

    assert (before, numbers(group).snapshot_received) == (None, (3, 9))


def test_a_leader_says_which_map_it_follows_and_that_it_changes_its_members() -> None:
    group = Replicas(2)
    nodes = [ClusterNode(number=number, name=f"n{number}") for number in (1, 2)]
    known = first_map(nodes, shards=1, replicas=2)
    group.replicas[1].map = msgspec.structs.replace(known, version=7)
    before = numbers(group)
    group.cut_off[2] = None
    group.replicas[1].change_membership(Change((Step(Action.REMOVE, 2),)))
    group.work(1)

    during, follower = numbers(group), numbers(group, of=2)

    assert (before.map_version, before.is_changing) == (7, False)
    assert (during.map_version, during.is_changing) == (7, True)
    assert (follower.map_version, follower.is_changing) == (0, False)


def test_every_op_of_the_registry_can_be_counted() -> None:
    assert max(OPS) < len(numbers(Replicas()).counted.ops)


def test_a_fetch_that_needs_no_entry_is_counted_apart() -> None:
    group = Replicas()
    entries = numbers(group).counted.entries

    group.fetch()
    group.fetch()

    assert numbers(group).counted.fetches_empty == 2
    assert numbers(group).counted.entries == entries
    assert counted(group) == {}


def test_whoever_is_turned_away_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WAITING_OPS_MAX", 1)
    group = Replicas()
    group.slow[1] = None

    for _ in range(3):
        group.submit(Enqueue(jobs=[JOB]))

    assert numbers(group).counted.busy == 2


def test_upkeep_is_counted_by_what_it_did_and_when() -> None:
    group = Replicas()
    group.put(JOB, NewJob(queue="mail", scheduled_ns=START_NS + 1_000 * MS))
    group.fetch(lease_ms=10_000)

    group.pass_time(1_000)
    promoted = numbers(group).counted.upkeep
    group.pass_time(10_000)
    reclaimed = numbers(group).counted.upkeep

    assert promoted["Promote"].done == 1
    assert promoted["Promote"].last_ns == START_NS + 1_000 * MS
    assert "Reclaim" not in promoted or promoted["Reclaim"].done == 0
    assert reclaimed["Promote"] == promoted["Promote"]
    assert reclaimed["Reclaim"].done == 1


def test_upkeep_that_found_nothing_to_do_is_not_the_last_that_did() -> None:
    counters = Counters()

    counters.kept_up("Purge", 3, 100)
    counters.kept_up("Purge", 0, 200)

    assert counters.upkeep == {"Purge": Upkeep(done=3, last_ns=100)}


def test_due_times_are_counted_by_what_became_of_them_where_they_were_proposed() -> None:
    group = Replicas(3)
    jittered = NewSchedule(name="late", cron="@every 1h", jitter_ms=60_000, job=JOB)
    every = NewSchedule(name="tick", cron="@every 10s", overlap="skip", job=JOB)
    group.do(CreateSchedule(schedule=every))
    group.settle()

    group.pass_time(10_000)
    fired = numbers(group)
    group.pass_time(10_000)
    skipped = numbers(group)
    group.do(CreateSchedule(schedule=jittered))
    group.pass_time(3_600_000 + 30_000)
    group.pass_time(30_000)
    late, follower = numbers(group), numbers(group, of=2)

    assert (fired.counted.fired, fired.counted.skipped) == (1, {})
    assert fired.counted.lateness.count == 1
    assert fired.counted.lateness.total < 0.01
    assert (skipped.counted.fired, skipped.counted.skipped) == (1, {"overlap": 1})
    assert late.counted.fired == 2
    assert late.counted.skipped["missed"] >= 1
    assert late.counted.lateness.total < 60
    assert (late.schedules, follower.schedules) == (2, 2)
    assert (follower.counted.fired, follower.counted.skipped) == (0, {})


def test_a_due_time_that_waits_for_a_job_is_not_counted_as_late() -> None:
    group = Replicas()
    group.do(
        CreateSchedule(schedule=NewSchedule(name="a", cron="@every 10s", overlap="queue", job=JOB))
    )
    group.pass_time(10_000)
    group.pass_time(10_000)
    group.pass_time(5_000)
    [claim] = group.fetch()

    group.do(Ack(acks=[AckItem(job_id=claim.job_id, lease_token=claim.lease_token)]))
    group.settle()

    assert numbers(group).counted.fired == 2
    assert numbers(group).counted.lateness.count == 1


def test_the_time_to_agreement_is_measured_by_entry_and_its_size() -> None:
    group = Replicas()
    before = numbers(group)
    group.slow[1] = None
    group.submit(Pause(queue="mail"))
    group.settle()
    for _ in range(3):
        group.submit(Enqueue(jobs=[JOB]))
    group.now_ns += 20 * MS

    group.store(1)
    group.settle()
    group.now_ns += 5 * MS
    group.store(1)
    group.settle()

    seen = numbers(group)
    assert seen.counted.commit.count - before.counted.commit.count == 2
    assert seen.counted.commit.total - before.counted.commit.total == pytest.approx(0.025)
    assert seen.counted.batch.count - before.counted.batch.count == 2
    assert seen.counted.batch.total - before.counted.batch.total == 1 + 3


def test_an_entry_that_another_leader_put_in_the_place_of_ours_is_not_our_time() -> None:
    group = Replicas(3)
    seen = numbers(group).counted.commit.count
    group.cut_off[1] = None
    lost = group.submit(Enqueue(jobs=[JOB]))
    group.settle()

    group.elect(2, 2, 3)
    group.put(JOB, to=2)
    del group.cut_off[1]
    group.tick(5)

    assert group.answers(lost)
    assert numbers(group).counted.commit.count == seen
    assert counted(group) == {}


def test_leaders_are_counted_and_their_peers_shown() -> None:
    group = Replicas(3)

    group.elect(2, 2, 3)
    group.settle()

    leader, follower = numbers(group, of=2), numbers(group, of=3)
    assert follower.counted.leaders == 2
    assert (leader.role, follower.role) == ("leader", "follower")
    assert [peer.replica for peer in leader.peers] == [1, 3]
    assert all(peer.match == leader.last_index for peer in leader.peers)
    assert follower.peers == []


def test_a_follower_counts_entries_and_no_ops() -> None:
    group = Replicas(3)
    group.put(JOB)

    follower = numbers(group, of=2)

    assert follower.counted.entries == numbers(group).counted.entries
    assert not any(follower.counted.ops)


# ---- Queues and workers.


def test_a_queue_is_told_with_its_counts_and_since_when_the_first_waits() -> None:
    group = Replicas()
    group.put(JOB)
    group.now_ns += 7_000 * MS
    group.put(JOB, JOB)
    group.fetch()
    group.put(NewJob(queue="archive", scheduled_ns=group.now_ns + 1_000 * MS))
    group.do(Pause(queue="archive"))

    page = told(group, GetQueueNumbers(), QueuePage)
    brief = told(group, GetQueueNumbers(is_brief=True), QueuePage)

    archive, mail = page.queues
    assert archive == QueueNumbers("archive", counts_of(scheduled=1), paused=True, oldest_ns=0)
    assert (mail.name, mail.paused) == ("mail", False)
    assert mail.counts == counts_of(pending=2, active=1)
    assert START_NS + 7_000 * MS <= mail.oldest_ns < START_NS + 7_000 * MS + 1_000
    assert [(each.name, each.counts) for each in brief.queues] == [
        (each.name, each.counts) for each in page.queues
    ]


def test_queues_come_in_pages_each_once() -> None:
    group = Replicas()
    names = [f"queue-{number:03}" for number in range(2 * PAGE_QUEUES + 7)]
    group.put(*[NewJob(queue=name) for name in names])

    pages = [told(group, GetQueueNumbers(), QueuePage)]
    while pages[-1].after:
        pages.append(told(group, GetQueueNumbers(after=pages[-1].after), QueuePage))

    assert [each.name for page in pages for each in page.queues] == names
    assert [len(page.queues) for page in pages] == [PAGE_QUEUES, PAGE_QUEUES, 7]


def test_no_page_is_larger_than_the_largest() -> None:
    group = Replicas()

    request = group.ask(GetQueueNumbers(limit=PAGE_NUMBERS_MAX + 1))
    group.settle()

    answer = group.answer(request)
    assert isinstance(answer, wire.Reply)
    assert answer.code == "bad_request"


def test_workers_are_told_with_when_they_were_heard_of() -> None:
    group = Replicas()
    group.put(JOB, JOB)
    group.do(Fetch(queues=["mail"], worker_id="w-1"))
    group.now_ns += 1_000 * MS
    group.do(Fetch(queues=["mail"], worker_id="w-2"))

    first = told(group, GetWorkerNumbers(limit=1), WorkerPage)
    second = told(group, GetWorkerNumbers(limit=1, after=first.after), WorkerPage)

    [(one, one_ns)], [(two, two_ns)] = first.workers, second.workers
    assert (one, two) == ("w-1", "w-2")
    assert two_ns - one_ns == pytest.approx(1_000 * MS, abs=1_000)


# ---- What only a process sees.


@on_sockets
async def test_a_process_tells_of_its_disk_and_of_itself(tmp_path: Path) -> None:
    config = config_in(tmp_path, checkpoint_entries=5)

    async with running(config), calling(config) as client:
        for _ in range(10):
            await put(client, JOB)
        seen = result(await ask(client, GetNumbers()), Numbers)
        while not (
            seen.counted.disk.checkpoints
            and seen.counted.disk.checkpointed
            and seen.counted.stats.resident_bytes
        ):
            seen = result(await ask(client, GetNumbers()), Numbers)

    assert seen.counted.disk.fsync.count >= 10
    assert 0 < seen.counted.disk.fsync.total < 60
    assert seen.counted.disk.log_bytes > 10 * len(msgspec.json.encode(Enqueue(jobs=[JOB])))
    assert seen.counted.disk.log_bytes_ahead < seen.counted.disk.log_bytes
    assert seen.counted.disk.disk_bytes > seen.counted.disk.room_bytes > 0
    assert 5 <= seen.counted.disk.checkpointed <= seen.applied
    assert 0 <= clock.now_ns() - seen.counted.disk.checkpointed_ns < 60_000 * MS
    assert seen.counted.lag.count > 0
    assert seen.counted.ops[NUMBERS[Enqueue]] == 10
    assert seen.counted.commit.count >= 10
