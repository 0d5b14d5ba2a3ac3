"""Documents that no server has stored are refused, and the shard goes on."""

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import Batch, Job, Queue, State
from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.restore import Restore, RestoredJob, RestoredSpawn
from tests.shard.shard import Shard

JOB = Job(id="s00_job_1", queue="mail", state=State.PENDING, payload=b"", created_ns=1, order_ns=1)


def with_job(**changed: object) -> Restore:
    job = replace(JOB, **changed)  # type: ignore[arg-type]  # any field
    return Restore(shards=1, jobs=(RestoredJob(job=job),))


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
