"""Documents that no server has stored are refused, and the shard goes on."""

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import Batch, Job, Queue, Run, Schedule, State
from corvo.protocol.ops.base import Rejected, encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.restore import Restore, RestoredJob, RestoredSpawn
from corvo.protocol.ops.workflow import Chain, Step
from corvo.shard.state.outbox import Spawn
from tests.shard.shard import Shard

CHAIN = encode_json(Chain(steps=[Step(queue="mail"), Step(queue="mail")]))
SPAWN = Spawn(queue="mail", payload=msgspec.Raw(b"{}"), why="", chain=msgspec.Raw(CHAIN))
SCHEDULE = Schedule(
    id="mail~tick", name="tick", queue="mail", cron="@hourly", job='{"queue":"mail"}'
)
JOB = Job(id="s00_job_1", queue="mail", state=State.PENDING, payload=b"", created_ns=1, order_ns=1)


def with_job(**changed: object) -> Restore:
    job = replace(JOB, **changed)  # type: ignore[arg-type]  # any field
    return Restore(shards=1, jobs=(RestoredJob(job=job),))


def with_schedule(**changed: object) -> Restore:
    schedule = replace(SCHEDULE, **changed)  # type: ignore[arg-type]  # any field
    return Restore(shards=1, schedules=(schedule,))


def with_spawn(spawn: Spawn) -> Restore:
    return Restore(shards=1, spawns=(RestoredSpawn("mail", msgspec.Raw(encode_json(spawn))),))


def with_chain(step: int) -> Restore:
    restored = RestoredJob(
        job=replace(JOB, chain_id="c", chain_step=step), json={"chain": msgspec.Raw(CHAIN)}
    )
    return Restore(shards=1, jobs=(restored,))


def with_error(error: bytes) -> Restore:
    job = replace(JOB, failures=1)
    return Restore(shards=1, jobs=(RestoredJob(job=job, errors=[msgspec.Raw(error)]),))


@pytest.mark.parametrize(
    "op",
    [
        with_job(id="a\0b"),
        with_job(queue="a\0b"),
        with_job(order_ns=-1),
        with_job(order_ns=1 << 63),
        with_job(priority=-1),
        with_job(priority=300),
        with_job(unique_key="a\ud800", unique_until_ns=1 << 61),
        with_job(waits_for=("a\0b",)),
        with_job(batch_id="no batch"),
        with_job(state=State.SCHEDULED, scheduled_ns=-5),
        Restore(
            shards=1, jobs=(RestoredJob(job=JOB, json={"chain": msgspec.Raw(b'{"steps": 7}')}),)
        ),
        Restore(shards=1, queues=(Queue(name="a\0b"),)),
        Restore(shards=1, batches=(Batch(id="s00_batch_1", total=5),)),
        Restore(shards=1, spawns=(RestoredSpawn("mail", msgspec.Raw(b'{"a": 1}')),)),
        Restore(shards=1, spawns=(RestoredSpawn("mail", msgspec.Raw(b"7")),)),
        with_job(chain_id="c"),
        with_chain(2),
        with_chain(-9),
        with_spawn(replace(SPAWN, chain_step=2)),
        with_spawn(replace(SPAWN, chain=msgspec.Raw(b"7"))),
        with_error(b"7"),
        with_job(failures=1 << 40),
        with_schedule(job="7"),
        with_schedule(job="no JSON"),
        with_schedule(queue="a\0b"),
        with_schedule(id="mail~another"),
        with_schedule(runs=(Run(due_ns=-1, at_ns=1),)),
    ],
)
def test_what_no_server_has_stored_is_refused_and_changes_nothing(op: Restore) -> None:
    shard = Shard(shards=1)
    shard.put(NewJob(queue="mail"))
    before = {k: v for k, v in shard.store.content().items() if k[:2] in (b"j|", b"qc", b"b|")}

    try:
        told = shard.do(op)
    except UnicodeEncodeError:
        return  # it is no JSON, so it cannot be sent

    assert isinstance(told, Rejected), told
    assert told.code == "bad_request"
    after = {k: v for k, v in shard.store.content().items() if k[:2] in (b"j|", b"qc", b"b|")}
    assert after == before
    shard.put(NewJob(queue="mail"))


@pytest.mark.parametrize(
    "op",
    [with_chain(1), with_spawn(replace(SPAWN, chain_step=1)), with_schedule(), with_job()],
)
def test_what_a_server_has_stored_is_taken(op: Restore) -> None:
    told = Shard(shards=1).do(op)

    assert not isinstance(told, Rejected), told
    assert told.jobs + told.spawned + told.schedules == 1
