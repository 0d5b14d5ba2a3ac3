"""Dependencies on jobs that do not exist yet: how long they are waited for, and who is told."""

from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from corvo.kv import keys
from corvo.model import State
from corvo.protocol.ops.enqueue import Enqueue, Enqueued, NewJob
from corvo.protocol.ops.jobs import Cancel, Delete
from corvo.protocol.ops.queues import Clear
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.queries import Explanation
from corvo.shard.ops.upkeep import Tell
from corvo.shard.state import dependencies, select
from corvo.shard.state.tables import ENDINGS
from corvo.shard.state.tx import ERRANDS_MAX
from corvo.shard.upkeep import BATCH, Upkeep
from tests.shard.cluster import QUEUES, Cluster
from tests.shard.links import Links
from tests.shard.shard import MS, Shard
from tests.shard.test_dependencies import complete, given, left_over

[[SMS, NOTE], [MAIL, VIDEO], [PUSH, BILL]] = QUEUES
A, B, C = 0, 1, 2
WAIT_MS: Final = 80_000
MANY: Final = 90


def put(shard: Shard, queue: str, *awaited: str, own: str = "", wait_ms: int = WAIT_MS) -> str:
    """A job that waits for others."""
    new = NewJob(queue=queue, depends_on=awaited, dependency_wait_ms=wait_ms if awaited else 0)
    if own:
        new = replace(new, id=f"{queue}~{own}")
    return enqueue(shard, new).job_id


def enqueue(shard: Shard, new: NewJob) -> Enqueued:
    [made] = shard.enqueue(Enqueue(jobs=[new], has_full_ids=True)).jobs
    return made


def tell(shard: Shard) -> None:
    """Do what is due of dependencies, as a leader does."""
    for op in Upkeep(retention_ms=1).due(shard.tx, shard.clock_ns):
        if isinstance(op, Tell):
            shard.do(op)


def explained(shard: Shard, job_id: str) -> Explanation:
    return select.explain(shard.tx, shard.job(job_id), now_ns=shard.clock_ns)


@pytest.fixture
def shard() -> Shard:
    return Shard(shards=1)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_job_waits_for_one_that_is_created_later(shard: Shard) -> None:
    job = put(shard, NOTE, f"{SMS}~a")
    before, missing = given(shard), dependencies.count_missing(shard.tx)

    first = put(shard, SMS, own="a")
    counted = dependencies.count_missing(shard.tx)
    still = given(shard)
    complete(shard, first)

    assert (before, still, missing, counted) == ([], [], 1, 0)
    assert given(shard) == [job]
    assert left_over(shard) == []
    shard.check()
    shard.check_replay()


def test_what_is_created_later_and_fails_holds_those_that_waited(shard: Shard) -> None:
    job = put(shard, NOTE, f"{SMS}~a")

    shard.do(Cancel(job_ids=[put(shard, SMS, own="a")]))

    assert shard.job(job).hold_reason == f"dependency_failed: {SMS}~a"
    assert left_over(shard) == []


def test_a_job_is_held_when_the_other_was_not_created_in_time(shard: Shard) -> None:
    job = put(shard, NOTE, f"{SMS}~a")
    shard.pass_time(WAIT_MS - 1)
    tell(shard)
    before = shard.job(job).state

    shard.pass_time(1)
    tell(shard)

    held = shard.job(job)
    assert before is State.PENDING
    assert (held.state, held.hold_reason) == (State.HELD, f"dependency_missing: {SMS}~a")
    assert (left_over(shard), dependencies.count_missing(shard.tx)) == ([], 0)
    shard.check()
    shard.check_replay()


def test_the_longest_wait_counts_for_all_that_wait_for_one_job(shard: Shard) -> None:
    jobs = [put(shard, NOTE, f"{SMS}~a", wait_ms=wait_ms) for wait_ms in (500, 900, 100)]

    shard.pass_time(899)
    tell(shard)
    before = {shard.job(job).state for job in jobs}
    shard.pass_time(1)
    tell(shard)

    assert before == {State.PENDING}
    assert {shard.job(job).state for job in jobs} == {State.HELD}
    assert left_over(shard) == []


@pytest.mark.parametrize("awaited", ["letter-1", "s00_job_none", "s09_job_none"])
def test_a_job_that_cannot_be_created_any_more_is_not_waited_for(
    shard: Shard, awaited: str
) -> None:
    assert shard.job(put(shard, NOTE, awaited)).hold_reason == f"dependency_missing: {awaited}"
    assert left_over(shard) == []


def test_a_job_that_does_not_want_to_wait_is_held_at_once(shard: Shard) -> None:
    assert shard.job(put(shard, NOTE, f"{SMS}~a", wait_ms=0)).state is State.HELD


def test_it_is_explained_which_job_does_not_exist_and_until_when_it_is_waited_for(
    cluster: Cluster,
) -> None:
    here, there = cluster.shards[A], cluster.shards[B]
    there_is = put(here, SMS, own="b")
    of_here, of_there = (
        put(here, NOTE, there_is, f"{SMS}~a"),
        put(there, MAIL, there_is, f"{SMS}~a"),
    )
    cluster.settle()

    before = [explained(here, of_here), explained(there, of_there)]
    put(here, SMS, own="a")
    cluster.settle()
    after = [explained(here, of_here), explained(there, of_there)]

    text = (
        f"the job waits for {SMS}~a, which does not exist yet; create that job, or this one will "
        "be held"
    )
    assert [(it.code, it.text) for it in before] == [("missing", text)] * 2
    waits = [here.job(of_here), there.job(of_there)]
    assert all(
        0 <= it.until_ns - job.created_ns - WAIT_MS * MS <= WAIT_MS // 7 * MS
        for it, job in zip(before, waits, strict=True)
    )
    assert [it.code for it in after] == ["waits", "waits"]


@pytest.mark.parametrize("comes", [True, False])
def test_a_job_of_another_shard_is_waited_for_before_it_exists(
    cluster: Cluster, comes: bool
) -> None:
    jobs = [
        put(cluster.shards[number], queue, f"{SMS}~a") for number, queue in ((B, MAIL), (C, PUSH))
    ]
    cluster.settle()
    missing = [dependencies.count_missing(shard.tx) for shard in cluster.shards]
    if comes:
        first = put(cluster.shards[A], SMS, own="a")
        cluster.settle()
        before = [*given(cluster.shards[B], MAIL), *given(cluster.shards[C], PUSH)]
        complete(cluster.shards[A], first)
    else:
        before = []
        for shard in cluster.shards:
            shard.pass_time(WAIT_MS * 9 // 8)
        tell(cluster.shards[A])
    cluster.settle()

    assert (missing, before) == ([1, 0, 0], [])
    if comes:
        assert [*given(cluster.shards[B], MAIL), *given(cluster.shards[C], PUSH)] == jobs
    else:
        held = [cluster.shards[B].job(jobs[0]), cluster.shards[C].job(jobs[1])]
        assert {job.hold_reason for job in held} == {f"dependency_missing: {SMS}~a"}
    assert [left_over(shard) for shard in cluster.shards] == [[], [], []]
    for shard in cluster.shards:
        shard.check()
        shard.check_replay()


def test_many_that_wait_in_a_row_ask_the_other_shard_seldom(cluster: Cluster) -> None:
    shard = cluster.shards[B]
    for _ in range(100):
        put(shard, MAIL, f"{SMS}~a")
        shard.pass_time(WAIT_MS // 100)

    assert len(shard.rows(keys.OUTBOX)) <= 9


@pytest.mark.parametrize("wait_ms", [0, 1_000])
def test_who_waits_longer_than_the_others_asks_the_other_shard_again(
    cluster: Cluster, wait_ms: int
) -> None:
    [first] = cluster.shards[A].put(NewJob(queue=SMS))
    if not wait_ms:
        # A question of an older router, which says nothing of time, and is open.
        older = NewJob(queue=MAIL, depends_on=(first,))
        cluster.shards[B].enqueue(Enqueue(jobs=[older]))
    before = put(cluster.shards[B], MAIL, first, f"{SMS}~a", wait_ms=wait_ms or 5)
    job = put(cluster.shards[B], MAIL, first, f"{SMS}~a")
    cluster.settle()

    for milliseconds in (WAIT_MS - 1, WAIT_MS // 7):
        cluster.shards[A].pass_time(milliseconds)
        tell(cluster.shards[A])
        cluster.settle()
        states = [cluster.shards[B].job(each).state for each in (before, job)]
        assert states == [[State.PENDING] * 2, [State.HELD] * 2][milliseconds < WAIT_MS - 1]
    complete(cluster.shards[A], first)
    cluster.settle()

    assert [left_over(shard) for shard in cluster.shards] == [[], [], []]


def test_a_job_that_moves_waits_on_for_one_that_does_not_exist(cluster: Cluster) -> None:
    job = put(cluster.shards[A], SMS, f"{NOTE}~a", f"{PUSH}~a")

    cluster.move((A, job), MAIL)
    cluster.settle()
    complete(cluster.shards[C], put(cluster.shards[C], PUSH, own="a"))
    before = given(cluster.shards[B], MAIL)
    complete(cluster.shards[A], put(cluster.shards[A], NOTE, own="a"))
    cluster.settle()

    assert before == []
    assert given(cluster.shards[B], MAIL) == [job]


def test_any_number_that_waited_in_vain_are_held_a_bounded_number_at_a_time(shard: Shard) -> None:
    jobs = [put(shard, NOTE, f"{SMS}~a") for _ in range(ERRANDS_MAX + BATCH + 10)]
    shard.pass_time(WAIT_MS)
    held = []
    for _ in range(3):
        tell(shard)
        held.append(sum(shard.job(job).state is State.HELD for job in jobs))

    assert held[-1] == len(jobs)
    assert held[0] <= ERRANDS_MAX + BATCH
    assert {shard.job(job).hold_reason for job in jobs} == {f"dependency_missing: {SMS}~a"}
    assert left_over(shard) == []
    shard.check()


def test_those_that_are_not_held_yet_wait_on_when_the_job_is_created_after_all(
    shard: Shard,
) -> None:
    jobs = [put(shard, NOTE, f"{SMS}~a") for _ in range(ERRANDS_MAX + 10)]
    shard.pass_time(WAIT_MS)
    shard.do(Tell(limit=1))
    held = [job for job in jobs if shard.job(job).state is State.HELD]

    first = put(shard, SMS, own="a")
    late = put(shard, NOTE, first)
    tell(shard)
    before = [shard.job(job).waits_for for job in (jobs[-1], late)]
    complete(shard, first)
    tell(shard)

    assert 0 < len(held) < len(jobs)
    assert before == [(first,), (first,)]
    assert {shard.job(job).state for job in (*jobs, late) if job not in held} == {State.PENDING}
    assert left_over(shard) == []
    shard.check()


def test_those_of_another_shard_that_are_not_held_yet_wait_on_with_who_comes_later(
    cluster: Cluster,
) -> None:
    home, shard = cluster.shards[A], cluster.shards[B]
    jobs = [put(shard, MAIL, f"{SMS}~a") for _ in range(ERRANDS_MAX + 10)]
    cluster.settle()
    home.pass_time(WAIT_MS * 2)
    tell(home)
    cluster.settle()
    held = [job for job in jobs if shard.job(job).state is State.HELD]

    first = put(home, SMS, own="a")
    late = put(shard, MAIL, first)
    shard.pass_time(1_000)
    tell(shard)
    cluster.settle()
    complete(home, first)
    cluster.settle()
    shard.pass_time(1_000)
    tell(shard)

    assert 0 < len(held) < len(jobs)
    free = [job for job in (*jobs, late) if shard.job(job).state is State.PENDING]
    assert free == [job for job in (*jobs, late) if job not in held]
    assert {shard.job(job).waits_for for job in free} == {()}
    assert [left_over(each) for each in cluster.shards] == [[], [], []]


def test_who_names_a_job_that_is_being_told_of_is_told_the_same(shard: Shard) -> None:
    first = put(shard, SMS, own="a")
    for _ in range(ERRANDS_MAX + 5):
        put(shard, NOTE, first)
    complete(shard, first)
    shard.do(Delete(job_ids=[first]))
    there = [ending.state for ending in shard.documents(ENDINGS)]

    late = put(shard, NOTE, first)

    assert there == ["completed"]
    assert (shard.job(late).state, shard.job(late).waits_for) == (State.PENDING, ())


def test_a_job_that_is_being_swept_is_no_longer_there(shard: Shard) -> None:
    first = put(shard, SMS, own="a")
    shard.do(Clear(queue=SMS))

    job = put(shard, NOTE, first)

    assert shard.job(job).hold_reason == f"dependency_failed: {first}"
    assert left_over(shard) == []


def test_a_job_can_come_again_and_is_waited_for_again(shard: Shard) -> None:
    first = put(shard, SMS, own="a")
    shard.do(Delete(job_ids=[first]))
    job = put(shard, NOTE, first)

    complete(shard, put(shard, SMS, own="a"))

    assert given(shard) == [job]


@pytest.mark.parametrize("part", range(3))
def test_whatever_happens_nobody_runs_too_early_and_nobody_waits_for_ever(part: int) -> None:
    for seed in range(part * MANY // 3, (part + 1) * MANY // 3):
        _trial(seed)


def _trial(seed: int) -> None:
    """Jobs that name each other by ids that are created later, never, or again."""
    random = Random(seed)
    cluster = (Cluster, Links)[seed % 2]()
    ids = [f"{queue}~{number}" for pair in QUEUES for queue in pair for number in range(2)]
    needs: dict[str, set[str]] = {}
    done: set[str] = set()
    for _ in range(70):
        number = random.randrange(3)
        shard = cluster.shards[number]
        match random.randrange(6):
            case 0 | 1:
                queue, own = random.choice(ids).split("~")
                shard = cluster.shards[[queue in pair for pair in QUEUES].index(True)]
                # Only later ones, so that no two wait for each other.
                names = [name for name in ids if name > f"{queue}~{own}"]
                awaited = random.sample(names, min(len(names), random.randint(0, 2)))
                wait_ms = random.choice((0, 1_000, 9_000))
                new = NewJob(
                    queue=queue,
                    id=f"{queue}~{own}",
                    depends_on=tuple(awaited),
                    dependency_wait_ms=wait_ms,
                )
                if not enqueue(shard, new).unique_existing:
                    needs[f"{queue}~{own}"] = set(awaited)
            case 2:
                cluster.stray(random)
            case 3:
                for each in cluster.shards:
                    each.pass_time(700)
                    tell(each)
            case 4:
                name = random.choice(ids)
                op = random.choice((Cancel, Delete, None))
                if op is not None:
                    shard.do(op(job_ids=[name]))
                elif [job.id for _, job in cluster.live()].count(name) == 1:
                    home = [name.split("~")[0] in pair for pair in QUEUES].index(True)
                    cluster.move((home, name), random.choice(random.choice(QUEUES)))
            case _:
                _work(cluster, needs, done)
    for _ in range(60):
        cluster.settle()
        for shard in cluster.shards:
            shard.pass_time(700)
            tell(shard)
        for number, job in list(cluster.live()):
            if job.state is State.HELD:
                cluster.shards[number].do(Cancel(job_ids=[job.id]))
        _work(cluster, needs, done)
    cluster.settle()
    assert [job for _, job in cluster.live() if not job.finished_ns] == []
    for shard in cluster.shards:
        shard.check()
        assert left_over(shard) == []
        assert dependencies.count_missing(shard.tx) == 0
        shard.check_replay()


def _work(cluster: Cluster, needs: dict[str, set[str]], done: set[str]) -> None:
    for shard in cluster.shards:
        for claim in shard.fetch(*(queue for pair in QUEUES for queue in pair), count=3):
            assert needs[claim.job_id] <= done
            shard.do(Ack(acks=[AckItem(job_id=claim.job_id)]))
            done.add(claim.job_id)
