"""Copies of all shards, with effects between them on their way, come back to new shards."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from corvo.backup.digests import Digests
from corvo.backup.documents import Documents, StoredJob
from corvo.backup.restoring import levels
from corvo.model import Job
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Move, Retry
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.ops.workflow import Chain, Step
from corvo.shard.state.tables import BATCHES, JOBS, QUEUES
from corvo.shard.state.tx import ERRANDS_MAX
from tests.backup.back import again, brought_back, cut
from tests.backup.crowd import Crowd
from tests.shard.cluster import SHARDS, Cluster

MANY: Final = 60
"""Random histories that are tried."""


def of_job(job: Job) -> tuple[object, ...]:
    """What does not depend on the number of shards, and on when something was carried out."""
    return (
        job.queue,
        job.state,
        job.payload,
        job.attempt,
        job.waits_for,
        job.batch_id,
        job.unique_key,
        job.chain_step,
        job.priority,
    )


def waits_for_another(job: tuple[object, ...], known: set[str]) -> bool:
    """Whether a job waits for one that does not exist: it does so for a day, as after an enqueue.

    In the first cluster it may know the end of that job by then.
    """
    awaited = job[4]
    assert isinstance(awaited, tuple)
    return any("~" in each and each not in known for each in awaited)


def jobs_of(cluster: Cluster) -> dict[str, tuple[object, ...]]:
    return {job.id: of_job(job) for _, job in cluster.live()}


def unnamed(jobs: dict[str, tuple[object, ...]], known: set[str]) -> Counter[tuple[object, ...]]:
    """The jobs that were created since, which have other ids."""
    return Counter(job for job_id, job in jobs.items() if job_id not in known)


def batches_of(cluster: Cluster) -> dict[str, object]:
    return {batch.id: batch for shard in cluster.shards for batch in shard.documents(BATCHES)}


@pytest.mark.parametrize("start", range(0, MANY, 20))
def test_what_comes_back_becomes_what_it_would_have_become(start: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(start, start + 20):
        crowd = Crowd(seed)
        for _ in range(crowd.random.randrange(20, 120)):
            crowd.step()
        stores = cut(crowd.cluster)
        known = {stored.job.id for stored in Documents(stores).jobs()}
        seen["on their way"] += sum(1 for _ in crowd.cluster.in_transit())
        crowd.end()
        crowd.cluster.check_together()
        expected = jobs_of(crowd.cluster)

        for shards in (1, 2, SHARDS, 5):
            target = brought_back(stores, shards)
            target.cluster.settle()

            found = jobs_of(target.cluster)
            named = {job_id: job for job_id, job in found.items() if job_id in known}
            assert named.keys() == {i for i in expected if i in known}, (seed, shards)
            for job_id, job in named.items():
                is_patient = waits_for_another(job, known)
                assert is_patient or job == expected[job_id], (seed, shards, job_id)
            assert unnamed(found, known) == unnamed(expected, known), (seed, shards)
            assert batches_of(target.cluster) == batches_of(crowd.cluster), (seed, shards)
            target.cluster.check_together()
            for shard in target.cluster.shards:
                shard.check()
            seen["jobs"] += len(named)
            seen["created since"] += len(found) - len(named)
    assert seen["on their way"] > 5, seen
    assert seen["jobs"] > 1_000, seen
    assert seen["created since"] > 5, seen


@pytest.mark.parametrize("start", range(0, MANY, 20))
def test_copies_of_different_moments_fit_as_long_as_effects_are_held(start: int) -> None:
    for seed in range(start, start + 20):
        crowd = Crowd(seed)
        for _ in range(crowd.random.randrange(20, 120)):
            crowd.step()
        crowd.hold()
        stores = {}
        order = crowd.random.sample(range(SHARDS), SHARDS)
        for number in order:
            stores[number] = cut(crowd.cluster)[number]
            for _ in range(crowd.random.randrange(12)):
                crowd.step()
        copies = dict(sorted(stores.items()))

        ids = [stored.job.id for stored in Documents(copies).jobs()]
        target = brought_back(copies, 1 + seed % 4)
        target.cluster.settle()

        assert len(ids) == len(set(ids)), seed
        target.cluster.check_together()
        there = jobs_of(target.cluster)
        lost = {job_id for job_id in ids if job_id not in there}
        assert all(crowd.is_gone(job_id) for job_id in lost), (seed, lost)


@pytest.mark.parametrize("seed", range(12))
def test_the_digests_of_queues_do_not_depend_on_the_number_of_shards(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(100):
        crowd.step()
    crowd.cluster.settle()
    stores = cut(crowd.cluster)

    digests = []
    for copies in (stores, *(cut(brought_back(stores, shards).cluster) for shards in (1, 4, 7))):
        digest = Digests()
        for stored in Documents(copies).jobs():
            digest.add(stored)
        digests.append(digest.queues())

    assert digests[0]
    assert all(each == digests[0] for each in digests)


def test_a_job_that_was_about_to_be_created_is_created_once_however_often_a_backup_comes_back() -> (
    None
):
    cluster = Cluster()
    steps = Chain(steps=[Step(queue="mail"), Step(queue="sms")])
    [first] = cluster.shards[1].put(NewJob(queue="mail", chain=steps))
    [claim] = cluster.shards[1].fetch("mail")
    cluster.shards[1].do(Ack(acks=[AckItem(job_id=first, lease_token=claim.lease_token)]))
    stores = cut(cluster)
    assert [each.spawn.queue for each in Documents(stores).spawns()] == ["sms"]
    target = brought_back(stores, 2)

    again(target, stores)
    again(target, stores, lambda queue: queue == "sms")

    target.cluster.settle()
    assert sorted(job.queue for _, job in target.cluster.live()) == ["mail", "sms"]


def test_a_long_row_of_jobs_that_wait_for_each_other_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    shard, row = cluster.shards[1], cluster.shards[1].put(NewJob(queue="mail"))
    for _ in range(50):
        row += shard.put(NewJob(queue="mail", depends_on=(row[-1],)))
    stores, passes = cut(cluster), list[Documents]()
    jobs = Documents.jobs

    def counted(self: Documents) -> Iterator[StoredJob]:
        passes.append(self)
        return jobs(self)

    monkeypatch.setattr(Documents, "jobs", counted)
    target = brought_back(stores, 2)

    assert jobs_of(target.cluster) == jobs_of(cluster)
    assert len(passes) == 1


def test_jobs_come_after_those_that_they_wait_for_and_a_circle_at_the_end() -> None:
    waiting = {
        "d": ("b", "c"),
        "b": ("a",),
        "c": ("b", "elsewhere"),
        "x": ("y",),
        "y": ("x",),
        "z": ("x",),
        "a": ("elsewhere",),
    }

    assert [*levels(waiting)] == [["a"], ["b"], ["c"], ["d"], ["x", "y", "z"]]


def test_what_exists_is_not_changed() -> None:
    crowd = Crowd(3)
    for _ in range(100):
        crowd.step()
    stores = cut(crowd.cluster)
    target = brought_back(stores, 4)
    target.cluster.settle()
    before = jobs_of(target.cluster)
    queues = [shard.documents(QUEUES) for shard in target.cluster.shards]

    told = again(target, stores)
    target.cluster.settle()

    assert told.jobs == 0
    assert told.existing == sum(1 for _ in Documents(stores).jobs())
    assert jobs_of(target.cluster) == before
    assert [shard.documents(QUEUES) for shard in target.cluster.shards] == queues


def test_some_queues_come_back_without_the_batches_that_they_share_with_others() -> None:
    for seed in range(30):
        crowd = Crowd(seed)
        for _ in range(100):
            crowd.step()
        stores = cut(crowd.cluster)

        target = brought_back(stores, 2, lambda queue: queue in {"mail", "sms"})
        target.cluster.settle()

        jobs = [job for shard in target.cluster.shards for job in shard.documents(JOBS)]
        restored = {job.id for job in jobs}
        wanted = {
            stored.job.id
            for stored in Documents(stores).jobs()
            if stored.job.queue in {"mail", "sms"}
        }
        assert wanted <= restored
        target.cluster.check_together()


def test_dependents_wait_on_for_a_job_that_goes_on_although_their_shard_knows_its_end() -> None:
    """Its home had settled some of many dependents when the job was retried in another shard."""
    cluster = Cluster()
    away, home = cluster.shards[0], cluster.shards[1]
    [awaited] = home.put(NewJob(queue="mail"))
    home.put(*[NewJob(queue="mail", depends_on=(awaited,))] * (ERRANDS_MAX + 10))
    home.do(Move(job_ids=[awaited], queue="sms"))
    cluster.settle()
    [claim] = away.fetch("sms")
    away.do(Ack(acks=[AckItem(job_id=awaited, lease_token=claim.lease_token)]))
    cluster.settle()
    away.do(Retry(job_ids=[awaited]))
    stores = cut(cluster)

    waiting = [stored.job for stored in Documents(stores).jobs() if stored.job.waits_for]

    cluster.settle()
    expected = [job for _, job in cluster.live() if job.waits_for]
    assert len(expected) == 10
    assert sorted(job.id for job in waiting) == sorted(job.id for job in expected)
