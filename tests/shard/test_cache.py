"""What a shard keeps in memory: the jobs that are still to be worked on, and what they take."""

from corvo.kv.tables import COUNTS_MAX, HEADS_MAX, HELD_BYTES
from corvo.model import State
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.queries import NUMBERS as QUERY_NUMBERS
from corvo.protocol.queries import GetQueue
from corvo.shard.queries import answer_bytes
from corvo.shard.state.tables import JOBS
from tests.shard.replicas import Replicas
from tests.shard.shard import Shard


def finish_one(shard: Shard) -> str:
    [claim] = shard.fetch()
    shard.do(Ack(acks=[AckItem(job_id=claim.job_id, lease_token=claim.lease_token)]))
    return claim.job_id


def test_a_job_leaves_memory_when_it_is_finished() -> None:
    shard = Shard()
    _, waiting = shard.put(NewJob(queue="mail"), NewJob(queue="mail"))

    finished = finish_one(shard)

    kept = shard.tx.cache.young
    assert JOBS.prefix + waiting.encode() in kept
    assert JOBS.prefix + finished.encode() not in kept
    assert shard.state(finished) is State.COMPLETED


def test_what_left_memory_does_not_count_any_more() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"), NewJob(queue="mail"))

    finish_one(shard)

    cache = shard.tx.cache
    assert cache.size == sum(held.size + HELD_BYTES for held in cache.young.values())


def test_questions_alone_do_not_fill_memory() -> None:
    group = Replicas()
    asked = group.replicas[1]

    for number in range(COUNTS_MAX + 2):
        answer_bytes(asked, QUERY_NUMBERS[GetQueue], b'{"queue":"%d"}' % number)

    tx = asked.machine.tx
    assert len(tx.counts) <= COUNTS_MAX
    assert len(tx.heads) <= HEADS_MAX
