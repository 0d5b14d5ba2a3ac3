"""The invariants of a queue, asserted from what was asked and answered, in order.

Nothing is known here of how a shard works: a job was given out under a token, that lease ended by
somebody's word or by its time, and so on. Each assertion names its invariant, as in `D3`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from corvo.model import FINISHED, Job, State
from tests.shard.shapes import Fields, names, number, rows, text

MS: Final = 1_000_000
DAY_NS: Final = 86_400_000 * MS
WHERE: Final = {
    "Ack": "acks",
    "Fail": "fails",
    "Heartbeat": "jobs",
    "Release": "jobs",
    "Snooze": "jobs",
}
"""In which field the items of an op are that is said under a lease."""


@dataclass
class Known:
    """What became known of one job."""

    asked: Fields
    asked_ns: int
    queue: str
    token: int = 0
    """Of the last delivery."""
    is_out: bool = False
    """Given out, and no word or end of it heard."""
    may_be_back: bool = False
    """Its time was over when the leader reclaimed."""
    is_done: bool = False
    """Acknowledged, and not asked for again."""
    lease_ms: int = 0
    deadline_ns: int = 0
    run_ends_ns: int = 0
    deliveries: int = 0
    """Since its attempts were last set to 0."""
    said: dict[tuple[int, str], Fields] = field(default_factory=dict)
    """What was answered to a word under a token."""


@dataclass
class Answered:
    op: str
    body: Fields
    answer: Fields
    at_ns: int


class Witness:
    """Looks on, and asserts."""

    def __init__(self) -> None:
        self.jobs: dict[str, Known] = {}
        self.paused: dict[str, bool] = {}
        self.rates: dict[str, tuple[int, int]] = {}
        self.fetched: dict[str, list[int]] = {}
        self.answered: dict[str, Answered] = {}
        self.caps: dict[str, int] = {}
        self.graced_ns = 0
        self.now_ns = 0
        self.made: list[str] = []
        """Jobs that were made in this entry."""
        self.given: list[str] = []
        """Jobs that were given out in this entry."""

    def begin(self, now_ns: int) -> None:
        """An entry begins."""
        self.now_ns = now_ns
        self.made = []
        self.given = []

    def saw(self, op: str, fields: Fields, answer: Fields) -> None:
        """An op was answered."""
        if self._is_repeated(op, fields, answer) or "code" in answer:
            return
        if op in WHERE:
            for item, result in zip(rows(fields, WHERE[op]), rows(answer, "results"), strict=True):
                self._said(op, item, result)
        elif "job_ids" in fields:
            for job_id, result in zip(
                names(fields, "job_ids"), rows(answer, "results"), strict=True
            ):
                if "code" not in result:
                    self._done(op, fields, job_id)
        elif op == "Enqueue":
            for asked, made in zip(rows(fields, "jobs"), rows(answer, "jobs"), strict=True):
                self._enqueued(asked, made)
        elif op == "Fetch":
            for claim in rows(answer, "jobs"):
                self._claimed(fields, claim)
        else:
            self._ruled(op, fields)
        if op == "Receive" and answer["status"] == "taken":
            self._arrived(fields)
        if op == "ReceiveMany":
            effects = rows(fields, "effects")
            for effect in effects[len(effects) - number(answer, "taken") :]:
                self._arrived(effect)
        if op == "CleanRequests":
            oldest = sorted((it.at_ns, key) for key, it in self.answered.items())
            for at_ns, key in oldest[: number(answer, "done")]:
                assert self.now_ns >= at_ns + DAY_NS, "Q1: kept for a day"
                del self.answered[key]

    def _arrived(self, fields: Fields) -> None:
        """A lease goes on for as long as it had; until when, the other shard could not say."""
        effect = cast("Fields", fields["effect"])
        if effect["type"] != "arrival":
            return
        job = self.jobs[names(effect, "job")[0]]
        job.queue = text(effect, "queue")
        left_ns = number(effect, "lease_left_ns")
        job.deadline_ns = max(job.deadline_ns, self.now_ns + left_ns)

    def _is_repeated(self, op: str, fields: Fields, answer: Fields) -> bool:
        key = text(fields, "request_key")
        if not key:
            return False
        body = {name: fields[name] for name in fields if name not in {"request_key", "by"}}
        known = self.answered.get(key)
        if known is None:
            if op == "Fetch" and answer.get("jobs") == []:
                return False  # nothing was done, and nothing is kept
            self.answered[key] = Answered(op, body, answer, self.now_ns)
            return False
        if (known.op, known.body) != (op, body):
            assert answer.get("code") == "request_key_reused", "Q2: another body is refused"
        elif op == "Fetch" and "jobs" in known.answer:
            given = [(it["job_id"], it["lease_token"]) for it in rows(known.answer, "jobs")]
            again = [(it["job_id"], it["lease_token"]) for it in rows(answer, "jobs")]
            assert [claim for claim in given if claim in again] == again, "Q1: the same jobs"
        else:
            assert answer == known.answer, "Q1: the same answer"
        return True

    # One op.

    def created(self, asked: Fields) -> None:
        """A job was created that no client has asked for."""
        self._enqueued(asked, {"job_id": asked["id"], "unique_existing": False})

    def _enqueued(self, asked: Fields, made: Fields) -> None:
        job_id = text(made, "job_id")
        if made["unique_existing"]:
            assert job_id in self.jobs, "U2: the holder is a job"
            if made["status"] == "duplicate":
                holder = self.jobs[job_id]
                assert holder.queue == asked["queue"], "U2: the holder is of the queue"
                assert holder.asked.get("unique_key") == asked["unique_key"], "U2: it has the key"
            return
        self.made.append(job_id)
        token = self.jobs[job_id].token if job_id in self.jobs else 0
        self.jobs[job_id] = Known(asked, self.now_ns, text(asked, "queue"), token)

    def _claimed(self, fields: Fields, claim: Fields) -> None:
        assert claim["job_id"] in self.jobs, "D2: what is given out was enqueued"
        job = self.jobs[text(claim, "job_id")]
        assert claim["payload"] == job.asked.get("payload", {}), "D2: as it was enqueued"
        assert not job.is_done, "D3: what is done is not given out again"
        assert not job.is_out or job.may_be_back, "D5: what is given out again came back before"
        assert number(claim, "lease_token") > job.token, "L1: tokens rise"
        assert not self.paused.get(job.queue), "C4: nothing while the queue is paused"
        expires_ms = number(job.asked, "expire_after_ms")
        assert not expires_ms or self.now_ns < job.asked_ns + expires_ms * MS, "E1: expired"
        self.given.append(text(claim, "job_id"))
        job.token = number(claim, "lease_token")
        job.is_out = True
        job.may_be_back = False
        job.lease_ms = number(fields, "lease_ms")
        job.deadline_ns = number(claim, "lease_expires_ns")
        run_ms = number(job.asked, "max_run_time_ms")
        job.run_ends_ns = self.now_ns + run_ms * MS if run_ms else 0
        job.deliveries += 1
        assert 1 <= number(claim, "attempt") <= job.deliveries, "R1: attempts are deliveries"
        self._count_fetch(job.queue)

    def _count_fetch(self, queue: str) -> None:
        times = self.fetched.setdefault(queue, [])
        if queue in self.rates:
            times.append(self.now_ns)
            rate, window_ns = self.rates[queue]
            inside = sum(at_ns > self.now_ns - window_ns for at_ns in times)
            assert inside <= rate, "C3: no more in any window"

    def _said(self, op: str, item: Fields, result: Fields) -> None:
        if "code" in result:
            return
        job = self.jobs[text(item, "job_id")]
        token = number(item, "lease_token") or job.token
        if (token, op) in job.said:
            assert result == job.said[token, op], "L2: the same word has the same answer"
            return
        assert token == job.token, "L2: only under the present token"
        if result.get("status") == "ended":
            assert op == "Heartbeat"
            assert not job.is_out
            assert token in [of for of, _ in job.said], "L5: by a word under this token"
            return
        assert job.is_out, "L2: only while it is given out"
        assert self.now_ns < max(job.deadline_ns, self.graced_ns), "L2: only while the lease lasts"
        if op == "Heartbeat":
            assert number(result, "lease_expires_ns") >= job.deadline_ns, "L4: never shorter"
            job.deadline_ns = number(result, "lease_expires_ns")
            return
        job.said[token, op] = result
        job.is_out = False
        job.is_done = op == "Ack"
        if op == "Fail":
            self._failed(job, item, result)

    def _failed(self, job: Known, item: Fields, result: Fields) -> None:
        left = number(result, "attempts_remaining")
        if result["status"] == "dead":
            most = number(job.asked, "max_retries", 3)
            assert item.get("retryable") is False or job.deliveries >= most, "R3: a reason to die"
        if result["status"] != "retrying":
            return
        assert left > 0, "R3: whoever has no attempts left is dead"
        delay_ns = number(result, "next_attempt_ns") - self.now_ns
        if "retry_after_ms" in item:
            assert delay_ns == number(item, "retry_after_ms") * MS, "R2: as the worker asked"
            return
        attempt = max(1, number(job.asked, "max_retries", 3) - left)
        least, most = backoff_ns(job.asked, attempt)
        assert least <= delay_ns <= most, "R2: as the backoff says"

    def _done(self, op: str, fields: Fields, job_id: str) -> None:
        job = self.jobs[job_id]
        match op:
            case "Retry":
                job.is_done = False
                job.deliveries = 0
            case "Requeue":
                assert not job.is_done, "R3: what is done is not dead"
            case "Hold":
                job.is_out = False
            case "Move":
                job.queue = text(fields, "queue")
            case "Delete":
                job.is_done = False
                job.is_out = False
            case _:
                pass

    def _ruled(self, op: str, fields: Fields) -> None:
        queue = text(fields, "queue")
        match op:
            case "Pause" | "Drain":
                self.paused[queue] = True
            case "Resume":
                self.paused[queue] = False
            case "SetConcurrency":
                self.caps.pop(queue, None)
                if fields["max"]:
                    self.caps[queue] = number(fields, "max")
            case "SetThrottle":
                _, window_ns = self.rates.get(queue, (0, 0))
                times = self.fetched.get(queue, [])
                self.fetched[queue] = [at for at in times if at > self.now_ns - window_ns]
                self.rates[queue] = (number(fields, "rate"), number(fields, "window_ms") * MS)
            case "RemoveThrottle":
                self.rates.pop(queue, None)
                self.fetched.pop(queue, None)
            case "DeleteQueue":
                self.paused.pop(queue, None)
                self.caps.pop(queue, None)
                self.rates.pop(queue, None)
                self.fetched.pop(queue, None)
            case "Lead":
                self.graced_ns = self.now_ns + number(fields, "grace_ms") * MS
            case "Reclaim":
                # Any of these may be back, and only these: L3.
                for job in self.jobs.values():
                    is_over = self.now_ns >= job.deadline_ns
                    if is_over or 0 < job.run_ends_ns <= self.now_ns:
                        job.may_be_back = True
            case _:
                pass

    # After an entry.

    def look(
        self, ops: Iterable[tuple[str, Fields]], old: Mapping[str, Job], new: Mapping[str, Job]
    ) -> None:
        """What must hold of documents, and of how they changed."""
        done = [op for op, _ in ops]
        self._look_at_locks(done, old, new)
        for job_id, job in new.items():
            if job.state is State.ACTIVE:
                assert job.lease_token == self.jobs[job_id].token, "L1: one token"
            was = old.get(job_id)
            if was is None:
                continue
            if job.crashes > was.crashes:
                assert "Reclaim" in done, "L3: only the leader reclaims"
                assert self.now_ns >= was.lease_expires_ns, "L3: not before the deadline"
            if job.state is State.DEAD and was.state is not State.DEAD:
                expired = 0 < job.expires_ns <= self.now_ns and {"Expire", "Fetch"} & {*done}
                ended = {"Fail", "Reject", "Reclaim"} & {*done}
                assert expired or ended, "R3: a reason to die"
        if {*done} == {"Enqueue"}:
            places = [new[job_id].order_ns for job_id in self.made]
            assert places == sorted(places), "O4: in the order of the request"
        self._look_at_order(old, new)
        self._look_at_limits(done, new)

    def _look_at_limits(self, done: list[str], new: Mapping[str, Job]) -> None:
        if {"SetConcurrency", "Move", "Receive", "ReceiveMany", "DeleteQueue"} & {*done}:
            return
        for queue in {self.jobs[job_id].queue: None for job_id in self.given}:
            active = sum(job.queue == queue and job.state is State.ACTIVE for job in new.values())
            assert active <= self.caps.get(queue, active), "C1: no more than may be active"

    def _look_at_locks(
        self, done: list[str], old: Mapping[str, Job], new: Mapping[str, Job]
    ) -> None:
        held: dict[tuple[str, str], str] = {}
        for job_id, job in new.items():
            if job.unique_until_ns:
                assert job.state not in FINISHED, "U3: free when finished"
                other = held.setdefault((job.queue, job.unique_key), job_id)
                assert other == job_id, "U1: one holder"
            was = old.get(job_id)
            if was is None or was.created_ns != job.created_ns or job.state in FINISHED:
                continue
            if was.unique_until_ns > self.now_ns and not {"Retry", "Requeue"} & {*done}:
                assert job.unique_until_ns == was.unique_until_ns, "U3: never freed earlier"

    def _look_at_order(self, old: Mapping[str, Job], new: Mapping[str, Job]) -> None:
        """O1: whoever waited through the entry is behind all that were given out in it."""
        stayed = [
            job_id for job_id in old if job_id in new and _place(old, job_id) == _place(new, job_id)
        ]
        waited = [
            job_id
            for job_id in stayed
            if job_id not in self.given
            and old[job_id].state is State.PENDING
            and new[job_id].state is State.PENDING
        ]
        for claimed in self.given:
            if claimed in stayed and old[claimed].state is State.PENDING:
                queue, priority, place = _place(old, claimed)
                for job_id in waited:
                    other = _place(old, job_id)
                    assert other[0] != queue or other[1:] > (priority, place), "O1: the first first"


def _place(jobs: Mapping[str, Job], job_id: str) -> tuple[str, int, int]:
    job = jobs[job_id]
    return job.queue, job.priority, job.order_ns


def backoff_ns(asked: Fields, attempt: int) -> tuple[int, int]:
    """The least and the longest delay after an attempt."""
    base = number(asked, "retry_base_delay_ms", 5_000)
    most = number(asked, "retry_max_delay_ms", 600_000)
    by_kind = {"none": 0, "fixed": base, "linear": base * attempt}
    delay = by_kind.get(text(asked, "retry_backoff", "exponential"), base << (attempt - 1))
    delay = min(delay, most) if most else delay
    swing = delay * number(asked, "retry_jitter") // 100
    return (delay - swing) * MS, (delay + swing) * MS
