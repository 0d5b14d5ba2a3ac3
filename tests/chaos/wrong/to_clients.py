"""Wrong histories that clients can see by themselves, and wrong ends."""

from msgspec.structs import replace

from chaos.history import (
    Args,
    BatchRow,
    Callback,
    Chain,
    Created,
    Fault,
    FinalBatch,
    FinalJob,
    FinalQueue,
    FinalReplica,
    JobRow,
    NewJob,
    Phase,
    Record,
    Res,
    Template,
)
from tests.chaos.story import MS, Story, edited, sha, worked
from tests.chaos.wrong.registry import wrong

# ---- black box: nothing of the server's own is looked at


def fault(begin: int, end: int) -> Fault:
    """A fault that lasts for a while."""
    return Fault(
        n=1, t=begin * MS, t_end=end * MS, name="kill", target="n1", verified=True, proof="gone"
    )


def blind(*names: str) -> Story:
    """A story without events, and jobs that were enqueued one after the other."""
    story = Story(witness=False)
    for at, name in enumerate(names):
        story.enqueue(name, 10 + 10 * at)
    return story


def called_back(*counts: int) -> list[Record]:
    """A batch of two jobs, and a callback with these counts."""
    total, succeeded, failed, cancelled = counts
    story = Story(witness=False)
    jobs = tuple(NewJob(queue="q", mark=name, sha=sha(name)) for name in ("a", "b"))
    args = Args(jobs=jobs, batch=Callback(queue="cb", mark="back"))
    created = tuple(Created(job_id=name, status="pending") for name in ("a", "b"))
    story.op("enqueue", 10, args, Res(created=created, batch_id="B"))
    for number, name in enumerate(("a", "b")):
        story.fetch(name, 20 + number, 7 + number)
        story.ack(name, 30 + number, 7 + number)
        story.rows[name] = JobRow(
            job_id=name, queue="q", state="completed", mark=name, batch_id="B", attempt=1
        )
    batch = ("B", total, succeeded, failed, cancelled)
    story.fetch("x", 40, 40, queue="cb", mark="back", batch=batch)
    story.rows["x"] = JobRow(job_id="x", queue="cb", state="active", mark="back", attempt=1)
    return story.records()


@wrong("blackbox", "D1")
def a_confirmed_job_that_is_gone() -> list[Record]:
    story = blind("a", "b")
    del story.rows["b"]
    return story.records()


@wrong("blackbox", "D2")
def a_job_from_nowhere() -> list[Record]:
    story = blind("a")
    story.fetch("z", 50, 7)
    return story.records()


@wrong("blackbox", "D2")
def a_payload_of_another_job() -> list[Record]:
    story = blind("a", "b")
    story.fetch("a", 50, 7, mark="b")
    return story.records()


@wrong("blackbox", "D2")
def a_payload_with_other_bytes() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7, bytes_of="other")
    return story.records()


@wrong("blackbox", "D3")
def a_job_that_is_delivered_after_its_ack() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7)
    story.ack("a", 60, 7)
    story.fetch("a", 70, 8)
    return story.records()


@wrong("blackbox", "L1")
def a_job_with_two_workers_at_a_time() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7)
    story.fetch("a", 70, 8, worker="v")
    return story.records()


@wrong("blackbox", "L1")
def a_lease_token_that_falls() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7, lease_ms=10)
    story.fetch("a", 100, 6, worker="v")
    return story.records()


@wrong("blackbox", "L1")
def a_lease_token_that_two_calls_got() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7, ret=200)
    story.fetch("a", 60, 7, worker="v", ret=190)
    return story.records()


@wrong("blackbox", "L2")
def an_old_lease_token_that_still_counts() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7, lease_ms=10)
    story.fetch("a", 100, 8, worker="v")
    story.ack("a", 110, 7)
    return story.records()


@wrong("blackbox", "L2")
def an_old_lease_token_that_is_renewed() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7, lease_ms=10)
    story.fetch("a", 100, 8, worker="v")
    story.call("heartbeat", "a", 110, token=7, expires_ms=60_000)
    return story.records()


@wrong("blackbox", "L2")
def an_attempt_that_ends_twice() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7)
    story.call("fail", "a", 60, token=7, status="retrying")
    story.ack("a", 70, 7)
    return story.records()


@wrong("blackbox", "O2")
def a_later_job_that_is_delivered_first() -> list[Record]:
    story = blind("a", "b")
    story.fetch("b", 50, 7)
    story.fetch("a", 60, 8)
    return story.records()


@wrong("blackbox", "O3")
def a_better_job_that_waits_while_another_is_delivered() -> list[Record]:
    story = blind("a")
    story.enqueue("b", 20, job=NewJob(queue="q", priority=0))
    story.fetch("a", 50, 7)
    story.fetch("b", 60, 8)
    return story.records()


@wrong("blackbox", "O6")
def an_empty_answer_while_a_job_waits() -> list[Record]:
    story = blind("a")
    story.empty(50)
    story.fetch("a", 60, 7)
    return story.records()


@wrong("blackbox", "O6")
def a_fetch_that_waits_beside_a_job() -> list[Record]:
    story = Story(witness=False)
    story.empty(50, wait_ms=5_000)
    story.enqueue("a", 100)
    story.fetch("a", 6_000, 7)
    return story.records()


@wrong("blackbox", "O6")
def an_empty_answer_while_a_job_waits_since_before_a_fault() -> list[Record]:
    story = blind("a")
    story.empty(50)
    story.fetch("a", 60, 7)
    return [*story.records(), fault(30, 40)]


@wrong("blackbox", "O6")
def an_empty_answer_long_after_a_fault() -> list[Record]:
    story = Story(witness=False)
    story.enqueue("a", 10_000)
    story.empty(10_050)
    story.fetch("a", 10_060, 7)
    return [*story.records(), fault(30, 40)]


@wrong("blackbox", "B1")
def a_callback_whose_counts_do_not_add_up() -> list[Record]:
    return called_back(2, 1, 0, 0)


@wrong("blackbox", "B1")
def a_callback_without_one_of_the_jobs() -> list[Record]:
    return called_back(1, 1, 0, 0)


@wrong("blackbox", "C1")
def more_jobs_at_once_than_the_limit() -> list[Record]:
    story = Story(witness=False)
    story.limit("concurrency", 5, 2)
    for at, name in enumerate(("a", "b", "c")):
        story.enqueue(name, 10 + 10 * at)
    for at, name in enumerate(("a", "b", "c")):
        story.fetch(name, 50 + 10 * at, 7 + at, worker=f"w{at}")
    return story.records()


@wrong("blackbox", "Q1")
def a_request_key_that_made_two_jobs() -> list[Record]:
    story = Story(witness=False)
    for number, name in enumerate(("x", "y"), 1):
        spec = NewJob(queue="q", mark="a", sha=sha("a"))
        story.op(
            "enqueue", 10 * number, Args(jobs=(spec,)), op_id="k", number=number, keyed=True,
            res=Res(created=(Created(job_id=name, status="pending"),)),
        )  # fmt: skip
        story.rows[name] = JobRow(job_id=name, queue="q", state="pending", mark="a", sha=sha("a"))
    return story.records()


@wrong("blackbox", "U2")
def a_duplicate_of_a_job_with_another_unique_key() -> list[Record]:
    story = Story(witness=False)
    story.enqueue("a", 10, job=NewJob(queue="q", unique_key="k"))
    spec = NewJob(queue="q", mark="b", unique_key="other")
    created = Created(job_id="a", status="duplicate", existing=True)
    story.op("enqueue", 20, Args(jobs=(spec,)), Res(created=(created,)))
    return story.records()


@wrong("blackbox", "U2")
def a_duplicate_of_a_job_that_was_completed() -> list[Record]:
    story = Story(witness=False)
    story.enqueue("a", 10, job=NewJob(queue="q", unique_key="k"))
    story.fetch("a", 20, 7, event=False)
    story.ack("a", 30, 7)
    spec = NewJob(queue="q", mark="b", unique_key="k")
    created = Created(job_id="a", status="duplicate", existing=True)
    story.op("enqueue", 40, Args(jobs=(spec,)), Res(created=(created,)))
    return story.records()


@wrong("blackbox", "Q1")
def a_request_without_an_answer_whose_repetition_makes_another_job() -> list[Record]:
    story = Story(witness=False)
    story.enqueue("a", 10, kind="info", op_id="p.first", keyed=True)
    story.fetch("a", 20, 7, event=False)
    story.rows["b"] = replace(story.rows["a"], job_id="b")
    spec = NewJob(queue="q", mark="a", sha=sha("a"))
    created = Created(job_id="b", status="pending")
    story.op(
        "enqueue", 30, Args(jobs=(spec,)), Res(created=(created,)), client="p", op_id="p.first",
        number=2, keyed=True,
    )  # fmt: skip
    return story.records()


@wrong("blackbox", "V2")
def a_read_that_is_older_than_its_position() -> list[Record]:
    story = blind("a")
    op = story.op("search", 50, Args(), Res(as_of={"0": 4}))
    story.ops[-1] = replace(op, min_seq={"0": 5})
    return story.records()


@wrong("blackbox", "V2")
def a_read_that_misses_a_confirmed_job() -> list[Record]:
    story = blind("a")
    story.get("a", 50)
    return story.records()


@wrong("blackbox", "V2")
def a_read_that_misses_a_confirmed_ack() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7)
    story.ack("a", 60, 7)
    story.get("a", 70, "active")
    return story.records()


@wrong("blackbox", "V2")
def a_search_that_misses_a_confirmed_ack() -> list[Record]:
    story = blind("a")
    story.fetch("a", 50, 7)
    story.ack("a", 60, 7)
    row = JobRow(job_id="a", queue="q", state="active")
    story.op("search", 70, Args(), Res(as_of={"0": 9}, rows=(row,)))
    return story.records()


# ---- final


@wrong("final", "C2")
def a_counter_that_differs_from_a_recount() -> list[Record]:
    return edited(
        worked(),
        change=lambda r: (
            replace(r, row=replace(r.row, pending=2)) if isinstance(r, FinalQueue) else r
        ),
    )


@wrong("final", "M3")
def a_mirror_that_lacks_a_job() -> list[Record]:
    return edited(
        worked(),
        lambda r: (
            not (
                isinstance(r, FinalJob)
                and (r.source, r.node, r.row.job_id) == ("mirror", "n2", "b")
            )
        ),
    )


@wrong("final", "M3")
def a_mirror_with_an_old_state() -> list[Record]:
    def old(record: Record) -> Record:
        if isinstance(record, FinalJob) and record.source == "mirror" and record.row.job_id == "b":
            return replace(record, row=replace(record.row, state="active"))
        return record

    return edited(worked(), change=old)


@wrong("final", "A3")
def replicas_with_different_digests() -> list[Record]:
    return edited(
        worked(),
        change=lambda r: (
            replace(r, digest="0000beef") if isinstance(r, FinalReplica) and r.node == "n2" else r
        ),
    )


@wrong("final", "X3")
def a_job_in_another_state_than_its_events_say() -> list[Record]:
    story = worked()
    story.set_state("b", "pending", 1)
    return story.records()


@wrong("final", "O5")
def a_job_that_still_waits_after_the_drain() -> list[Record]:
    story = worked()
    story.drained = True
    return story.records()


@wrong("final", "O5")
def a_job_that_a_worker_has_for_ever() -> list[Record]:
    story = worked()
    story.set_state("b", "active", 1)
    return [*story.records(), Phase(t=10**14, name="drain")]


@wrong("final", "B1")
def a_batch_whose_counts_do_not_add_up() -> list[Record]:
    row = BatchRow(id="B", status="open", total=3, pending=1, succeeded=1)
    return [*worked().records(), FinalBatch(node="n1", row=row)]


@wrong("final", "B1")
def a_batch_that_counts_a_job_wrongly() -> list[Record]:
    story = worked()
    for name in ("a", "b"):
        story.rows[name] = replace(story.rows[name], batch_id="B")
    row = BatchRow(id="B", status="ended", total=2, succeeded=1, failed=1)
    return [*story.records(), FinalBatch(node="n1", row=row)]


def chained(*steps: int) -> Story:
    """A job of a chain with two steps was completed; the rows of some next steps exist."""
    chain = Chain(steps=(Template(queue="q", mark="a"), Template(queue="q", mark="next")))
    story = Story()
    story.enqueue("a", 10, job=NewJob(queue="q", chain=chain))
    story.fetch("a", 20, 7)
    story.ack("a", 30, 7)
    story.rows["a"] = replace(story.rows["a"], chain_id="C", chain_step=0)
    for at, step in enumerate(steps):
        name = f"next{at}"
        story.rows[name] = JobRow(
            job_id=name, queue="q", state="held", mark="next", chain_id="C", chain_step=step
        )
    return story


@wrong("final", "H1")
def a_chain_whose_next_step_is_missing() -> list[Record]:
    return chained().records()


@wrong("final", "H1")
def a_chain_with_one_step_twice() -> list[Record]:
    return chained(1, 1).records()


@wrong("final", "H1")
def a_chain_that_ran_its_handler_without_a_failure() -> list[Record]:
    chain = Chain(
        steps=(Template(queue="q", mark="a"), Template(queue="q", mark="next")),
        on_failure=Template(queue="q", mark="oh"),
    )
    story = Story()
    story.enqueue("a", 10, job=NewJob(queue="q", chain=chain))
    story.rows["a"] = replace(story.rows["a"], chain_id="C", chain_step=0)
    story.rows["h"] = JobRow(
        job_id="h", queue="q", state="held", mark="oh", chain_id="C", chain_step=-2
    )
    return story.records()


# ---- search


@wrong("search", "V1")
def jobs_of_one_request_that_are_delivered_in_another_order() -> list[Record]:
    story = Story(witness=False)
    jobs = tuple(NewJob(queue="q", mark=name, sha=sha(name)) for name in ("a", "b"))
    created = tuple(Created(job_id=name, status="pending") for name in ("a", "b"))
    story.op("enqueue", 10, Args(jobs=jobs), Res(created=created))
    for name in ("a", "b"):
        story.rows[name] = JobRow(job_id=name, queue="q", state="active", mark=name, sha=sha(name))
    story.fetch("b", 20, 7)
    story.fetch("a", 30, 8)
    return story.records()
