"""Wrong histories in which answers, events and the rules of a job disagree."""

from msgspec.structs import replace

from chaos.history import (
    Args,
    Callback,
    Chain,
    Created,
    Event,
    Fault,
    Feed,
    FinalDone,
    FinalReplica,
    JobRow,
    NewJob,
    Op,
    Record,
    Res,
    Run,
    Template,
)
from tests.chaos.story import MS, Story, edited, sha, worked
from tests.chaos.wrong.registry import wrong


def stop_at(record: Record, kind: str, job: str = "", node: str = "n2") -> bool:
    """Whether a record is a node's event of a kind, about a job."""
    return (
        isinstance(record, Event)
        and record.type == kind
        and record.job_id == job
        and record.node == node
    )


# ---- sanity


@wrong("sanity", "S5")
def a_run_without_operations() -> list[Record]:
    return Story().records()


@wrong("sanity", "S1")
def a_history_without_its_run() -> list[Record]:
    return edited(worked(), lambda record: not isinstance(record, Run))


@wrong("sanity", "S2")
def two_operations_with_one_number() -> list[Record]:
    return edited(
        worked(), change=lambda r: replace(r, n=2) if isinstance(r, Op) and r.n == 3 else r
    )


@wrong("sanity", "S2")
def an_operation_without_its_fields() -> list[Record]:
    return edited(
        worked(), change=lambda r: replace(r, res=Res()) if isinstance(r, Op) and r.n == 3 else r
    )


@wrong("sanity", "S4")
def a_fault_that_counts_without_a_proof() -> list[Record]:
    fault = Fault(n=1, t=1, name="kill", target="n1", verified=True)
    return [*worked().records(), fault]


@wrong("sanity", "S5")
def fewer_faults_than_the_run_needs() -> list[Record]:
    fault = Fault(n=1, t=1, name="kill", target="n1", verified=False)
    story = worked()
    story.run = replace(story.run, minima={"faults": 1})
    return [*story.records(), fault]


@wrong("sanity", "S6")
def no_final_reading() -> list[Record]:
    return edited(worked(), lambda record: not isinstance(record, FinalDone))


@wrong("sanity", "S7")
def replicas_without_digests() -> list[Record]:
    return edited(
        worked(), change=lambda r: replace(r, digest="") if isinstance(r, FinalReplica) else r
    )


@wrong("sanity", "S7")
def replicas_that_were_not_read_at_one_index() -> list[Record]:
    return edited(
        worked(),
        change=lambda r: (
            replace(r, index=r.index + 1) if isinstance(r, FinalReplica) and r.node == "n2" else r
        ),
    )


@wrong("sanity", "S7")
def a_shard_whose_replicas_were_not_read() -> list[Record]:
    return edited(worked(), lambda r: not isinstance(r, FinalReplica) or r.shard == 0)


# ---- witness


@wrong("witness", "M1")
def one_node_lacks_an_event() -> list[Record]:
    return edited(worked(), lambda record: not stop_at(record, "completed", "a"))


@wrong("witness", "M1")
def one_node_sends_an_event_twice() -> list[Record]:
    records = worked().records()
    at = next(at for at, record in enumerate(records) if stop_at(record, "started", "b"))
    return [*records[: at + 1], records[at], *records[at + 1 :]]


@wrong("witness", "M1")
def one_node_sends_events_out_of_order() -> list[Record]:
    records = worked().records()
    at = next(at for at, record in enumerate(records) if stop_at(record, "started", "b"))
    records[at], records[at + 2] = records[at + 2], records[at]
    return records


@wrong("witness", "M1")
def every_node_lacks_the_second_event_of_an_entry() -> list[Record]:
    story = worked()
    story.event("queue.paused", "", 200, queue="z")
    story.event("queue.resumed", "", 200, queue="z", same=True)
    story.event("queue.paused", "", 200, queue="z", same=True)
    return edited(story, lambda r: not (isinstance(r, Event) and r.type == "queue.resumed"))


@wrong("witness", "A2")
def two_nodes_send_different_events_at_one_place() -> list[Record]:
    return edited(
        worked(),
        change=lambda r: (
            replace(r, attempt=9) if isinstance(r, Event) and stop_at(r, "started", "a") else r
        ),
    )


@wrong("witness", "A3")
def two_nodes_have_different_digests_after_an_entry() -> list[Record]:
    def other(record: Record) -> Record:
        if isinstance(record, Event) and record.node == "n2" and record.seq == 5:
            return replace(record, id="s0=5-0000beef")
        return record

    return edited(worked(), change=other)


@wrong("witness", "A3")
def a_node_has_another_digest_at_rest() -> list[Record]:
    def other(record: Record) -> Record:
        if isinstance(record, Feed) and record.what == "id" and record.node == "n2":
            return replace(record, id=record.id.replace("s0=9-00000009", "s0=9-0000beef"))
        return record

    return edited(worked(), change=other)


@wrong("witness", "A4")
def the_time_of_a_shard_goes_back() -> list[Record]:
    return edited(
        worked(),
        change=lambda r: (
            replace(r, at_ns=r.at_ns - 100 * MS) if isinstance(r, Event) and r.seq == 7 else r
        ),
    )


# ---- outcomes


@wrong("outcomes", "D1")
def a_confirmed_enqueue_without_an_event() -> list[Record]:
    story = worked()
    story.enqueue("d", 200, event=False)
    return story.records()


@wrong("outcomes", "D6")
def a_rejected_enqueue_that_created_its_job() -> list[Record]:
    story = worked()
    story.enqueue("q~d", 200, kind="fail", code="OVERLOADED")
    return story.records()


@wrong("outcomes", "D6")
def a_rejected_enqueue_whose_job_is_delivered() -> list[Record]:
    story = Story()
    spec = NewJob(queue="q", mark="a", sha=sha("a"))
    story.op("enqueue", 10, Args(jobs=(spec,)), kind="fail", code="OVERLOADED")
    story.event("enqueued", "s00_job_1", 10, "pending")
    story.fetch("s00_job_1", 50, 7, mark="a")
    return story.records()


@wrong("outcomes", "D7")
def a_confirmed_ack_whose_attempt_ended_otherwise() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7, lease_ms=10)
    story.call("ack", "a", 35, token=7, event="crashed", state="pending", attempt=0)
    return story.records()


@wrong("outcomes", "D7")
def a_confirmed_ack_without_an_event() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.call("ack", "a", 30, token=7, state="completed")
    return story.records()


@wrong("outcomes", "D6")
def a_rejected_ack_that_completed_its_job() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.call("ack", "a", 30, token=7, event="completed", state="completed", kind="fail")
    return story.records()


@wrong("outcomes", "D7")
def a_delivery_without_an_event() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7, event=False)
    return story.records()


@wrong("outcomes", "D7")
def a_start_for_a_worker_that_never_got_it() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.enqueue("b", 11)
    story.fetch("a", 20, 7)
    story.fetch("b", 30, 8, op=False)
    return story.records()


@wrong("outcomes", "D2")
def a_job_that_is_completed_without_a_call() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.event("completed", "a", 30, "completed", attempt=1)
    story.set_state("a", "completed", 1)
    return story.records()


@wrong("outcomes", "M4")
def an_answer_with_a_position_before_its_effect() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.call("ack", "a", 30, token=7, event="completed", state="completed", seq=4)
    return story.records()


@wrong("outcomes", "D7")
def a_confirmed_retry_without_an_event() -> list[Record]:
    story = worked()
    story.call("retry", "a", 200, status="retried", client="o")
    return story.records()


@wrong("outcomes", "D6")
def a_rejected_retry_that_had_its_effect() -> list[Record]:
    story = worked()
    story.call("retry", "a", 200, event="retried", state="pending", kind="fail", attempt=0)
    return story.records()


# ---- realtime


@wrong("realtime", "W2")
def a_log_in_another_order_than_the_calls() -> list[Record]:
    story = Story()
    story.enqueue("b", 20)
    story.enqueue("a", 21)
    story.ops[1] = replace(story.ops[1], t_inv=10 * MS, t_ret=12 * MS)
    return story.records()


@wrong("realtime", "W1")
def an_event_that_was_seen_before_its_call() -> list[Record]:
    return edited(
        worked(),
        change=lambda r: replace(r, t=9 * MS) if isinstance(r, Event) and r.job_id == "b" else r,
    )


@wrong("realtime", "W2")
def a_read_of_a_state_before_a_confirmed_change() -> list[Record]:
    story = worked()
    story.get("b", 200, "active", seq=8)
    return story.records()


@wrong("realtime", "M5")
def a_search_with_a_position_that_its_rows_have_not_reached() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.ack("a", 30, 7)
    row = JobRow(job_id="a", queue="q", state="active")
    story.op("search", 40, Args(), Res(rows=(row,), as_of={"0": story.seq[0]}))
    return story.records()


# ---- replay


@wrong("replay", "X2")
def a_job_with_two_holders() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.fetch("a", 30, 8, worker="v", attempt=2)
    return story.records()


@wrong("replay", "O1")
def a_job_that_is_started_before_its_turn() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.enqueue("b", 20)
    story.fetch("b", 30, 7)
    return story.records()


@wrong("replay", "O3")
def a_job_that_is_started_before_a_better_one() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.enqueue("b", 20, job=NewJob(queue="q", priority=0))
    story.fetch("a", 30, 7)
    return story.records()


@wrong("replay", "O4")
def jobs_of_one_request_in_another_order() -> list[Record]:
    story = Story()
    batch(story)
    at = [at for at, event in enumerate(story.events) if event.job_id == "a"]
    for place in at:
        other = story.events[place + 2]
        story.events[place], story.events[place + 2] = (
            replace(story.events[place], job_id="b"),
            replace(other, job_id="a"),
        )
    return story.records()


@wrong("replay", "C1")
def more_active_jobs_than_the_limit() -> list[Record]:
    story = Story()
    story.limit("concurrency", 5, 1)
    story.enqueue("a", 10)
    story.enqueue("b", 11)
    story.fetch("a", 20, 7)
    story.fetch("b", 30, 8)
    return story.records()


@wrong("replay", "C3")
def more_starts_than_the_rate_limit() -> list[Record]:
    story = Story()
    story.limit("throttle", 5, 1, window_ms=1_000)
    story.enqueue("a", 10)
    story.enqueue("b", 11)
    story.fetch("a", 20, 7)
    story.ack("a", 30, 7)
    story.fetch("b", 40, 8)
    return story.records()


@wrong("replay", "C4")
def a_start_in_a_paused_queue() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.limit("pause", 15, event="queue.paused")
    story.fetch("a", 20, 7)
    return story.records()


@wrong("replay", "U1")
def two_jobs_with_one_unique_key() -> list[Record]:
    story = Story()
    story.enqueue("a", 10, job=NewJob(queue="q", unique_key="k"))
    story.enqueue("b", 20, job=NewJob(queue="q", unique_key="k"))
    return story.records()


@wrong("replay", "L3")
def a_lease_that_ends_early() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7, lease_ms=1_000)
    story.event("crashed", "a", 100, "pending")
    story.set_state("a", "pending")
    return story.records()


@wrong("replay", "L3")
def a_heartbeat_that_did_not_renew_the_lease() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7, lease_ms=1_000)
    story.call("heartbeat", "a", 500, token=7, expires_ms=1_500)
    story.event("crashed", "a", 1_100, "pending")
    story.set_state("a", "pending")
    return story.records()


@wrong("replay", "L2")
def an_ack_after_the_end_of_the_lease() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7, lease_ms=100)
    story.ack("a", 200, 7)
    return story.records()


@wrong("replay", "R1")
def an_attempt_that_skips_a_number() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7, attempt=2)
    return story.records()


@wrong("replay", "R1")
def one_attempt_too_many() -> list[Record]:
    story = Story()
    story.enqueue("a", 10, job=NewJob(queue="q", max_retries=1))
    story.fetch("a", 20, 7)
    story.call("fail", "a", 30, token=7, event="failed", state="retrying", status="retrying")
    return story.records()


@wrong("replay", "R3")
def a_job_that_is_dead_with_attempts_left() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.call("fail", "a", 30, token=7, event="dead", state="dead", status="dead")
    return story.records()


@wrong("replay", "R2")
def a_retry_before_its_delay_is_over() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.call("fail", "a", 30, token=7, event="failed", state="retrying", status="retrying")
    story.event("promoted", "a", 4_000, "pending", attempt=1)
    story.set_state("a", "pending", 1)
    return story.records()


@wrong("replay", "E1")
def a_start_after_the_job_expired() -> list[Record]:
    story = Story()
    story.enqueue("a", 10, job=NewJob(queue="q", expire_after_ms=50))
    story.fetch("a", 100, 7)
    return story.records()


@wrong("replay", "E2")
def a_start_before_a_job_that_it_waits_for() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.enqueue("b", 20, job=NewJob(queue="q", depends_on=("a",)))
    story.fetch("a", 30, 6)
    story.fetch("b", 40, 7)
    return story.records()


@wrong("replay", "R4")
def a_job_that_was_asked_to_stop_and_is_retried() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.fetch("a", 20, 7)
    story.call("cancel", "a", 30, event="asked_to_stop", state="active", status="cancelling")
    story.call("fail", "a", 40, token=7, event="failed", state="retrying")
    return story.records()


@wrong("replay", "E2")
def a_start_in_another_shard_before_the_ack_of_its_job_was_sent() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.enqueue("b", 20, job=NewJob(queue="r", depends_on=("a",)), shard=1)
    story.fetch("a", 30, 6)
    story.fetch("b", 40, 7, queue="r", shard=1)
    story.ack("a", 50, 6)
    return story.records()


def batch(story: Story) -> None:
    """Two jobs in a batch."""
    jobs = tuple(NewJob(queue="q", mark=name, sha=sha(name)) for name in ("a", "b"))
    story.event("enqueued", "a", 10, "pending")
    story.event("enqueued", "b", 10, "pending", same=True)
    created = tuple(Created(job_id=name, status="pending") for name in ("a", "b"))
    for name in ("a", "b"):
        story.rows[name] = JobRow(
            job_id=name, queue="q", state="pending", mark=name, sha=sha(name), batch_id="B"
        )
    story.op(
        "enqueue", 10, Args(jobs=jobs, batch=Callback(queue="cb", mark="back")),
        Res(created=created, batch_id="B"),
    )  # fmt: skip


def calls_back(story: Story, name: str, at: int, *, shard: int = 0) -> None:
    """The callback of that batch."""
    story.event("enqueued", name, at, "pending", queue="cb", shard=shard)
    story.rows[name] = JobRow(job_id=name, queue="cb", state="pending", mark="back")
    story.fetch(name, at + 5, at, queue="cb", mark="back", batch=("B", 2, 2, 0, 0))


@wrong("replay", "B2")
def a_batch_that_calls_back_before_its_jobs_ended() -> list[Record]:
    story = Story()
    batch(story)
    story.fetch("a", 20, 7)
    story.ack("a", 30, 7)
    calls_back(story, "x", 40)
    return story.records()


@wrong("replay", "B2")
def a_batch_that_calls_back_in_another_shard_before_the_last_ack_was_sent() -> list[Record]:
    story = Story()
    batch(story)
    for at, name in enumerate(("a", "b")):
        story.fetch(name, 20 + at, 7 + at)
    story.ack("a", 30, 7)
    calls_back(story, "x", 40, shard=1)
    story.ack("b", 50, 8)
    return story.records()


@wrong("replay", "B2")
def a_batch_that_calls_back_twice() -> list[Record]:
    story = Story()
    batch(story)
    for at, name in enumerate(("a", "b")):
        story.fetch(name, 20 + 10 * at, 7 + at)
        story.ack(name, 25 + 10 * at, 7 + at)
    calls_back(story, "x", 40)
    calls_back(story, "y", 50)
    return story.records()


@wrong("replay", "H1")
def a_step_that_is_enqueued_twice() -> list[Record]:
    steps = (Template(queue="q", mark="a"), Template(queue="q", mark="next"))
    story = Story()
    story.enqueue("a", 10, job=NewJob(queue="q", chain=Chain(steps=steps)))
    story.fetch("a", 20, 7)
    story.ack("a", 30, 7)
    for at, name in enumerate(("x", "y")):
        story.event("enqueued", name, 40 + at, "pending")
        story.rows[name] = JobRow(job_id=name, queue="q", state="pending", mark="next")
    for at, name in enumerate(("x", "y")):
        story.fetch(name, 50 + at, 50 + at, mark="next", after="a")
    return story.records()


@wrong("replay", "Z2")
def a_job_that_arrives_in_two_shards() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.call("move", "a", 20, client="o")
    story.event("moved", "a", 20, why="from q to r")
    story.event("arrived", "a", 21, "pending", queue="r", shard=1)
    story.event("arrived", "a", 22, "pending", queue="r", shard=1)
    return story.records()


@wrong("replay", "Q1")
def a_job_that_is_created_twice() -> list[Record]:
    story = worked()
    story.enqueue("q~a", 110, kind="info")
    story.event("enqueued", "q~a", 120, "pending")
    return story.records()


@wrong("replay", "X2")
def a_finished_job_that_is_started_again() -> list[Record]:
    story = worked()
    story.fetch("a", 200, 300, attempt=2)
    return story.records()


@wrong("replay", "O6")
def an_empty_answer_at_a_position_where_a_job_waits() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.enqueue("b", 20)
    story.empty(50)
    return story.records()


@wrong("replay", "O6")
def an_empty_answer_after_a_pause() -> list[Record]:
    story = Story()
    story.enqueue("a", 10)
    story.limit("pause", 20, event="queue.paused")
    story.empty(30)
    story.limit("resume", 40, event="queue.resumed")
    story.enqueue("b", 50)
    story.empty(60)
    return story.records()
