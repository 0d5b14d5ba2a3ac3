"""The rules of `docs/semantics.md` once more, as simply as they can be said.

Jobs are in one dict; whatever is first, due or counted is found by looking at all of them. Nothing
here is shared with Corvo, nothing is stored, nothing is quick. What the page leaves to chance or
to the code is taken from the real answer: ids, tokens, and how fast swept jobs are removed.
"""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias, cast

from tests.shard.map_twin import MapTwin
from tests.shard.shapes import MS, Fields, Job, Queue, Refusal, Request, names, number, rows, text

Rule: TypeAlias = Callable[[Fields, Fields], Fields]
"""From an op and its real answer to what it should be."""

MAP_OPS: Final = ("Announce", "DrainNode", "RemoveNode", "Place", "SetReplicas")
DAY_NS: Final = 24 * 3_600_000 * MS
FINISHED: Final = ("completed", "dead", "cancelled")
WAITING: Final = ("pending", "scheduled", "retrying")
STATES: Final = (*WAITING, "active", "held", *FINISHED)
NOBODY: Final = Job("", "", {}, 0)


def refused(rule: Callable[[], Fields]) -> Fields:
    """What a rule answers, or why it says no."""
    try:
        return rule()
    except Refusal as no:
        return no.answer


class Reference:
    """What a shard should hold, and answer."""

    def __init__(self, *, local: Iterable[str], shards: int = 1) -> None:
        self.local = tuple(local)
        """The queues of this shard."""
        self.map = MapTwin(shards)
        self.jobs: dict[str, Job] = {}
        self.ghosts: dict[str, Job] = {}
        """Jobs that are being swept."""
        self.queues: dict[str, Queue] = {}
        self.fetches: dict[str, list[int]] = {}
        self.locks: dict[tuple[str, str], str] = {}
        self.requests: dict[str, Request] = {}
        self.workers: dict[str, int] = {}
        self.away: dict[str, tuple[Job, int, int, bool]] = {}
        """Jobs in the other shard: their leases' rests, locks' ends, and if attempts become 0."""
        self.outbox: list[int] = []
        self.left: dict[int, str] = {}
        """The job that each effect on the other shard took away."""
        self.sent = self.taken = 0
        self.ids: set[str] = set()
        self.cleared: dict[str, int] = {}
        """The last place when a queue was cleared, while it is being swept."""
        self.now = self.last = self.graced_ns = self.place = self.dice = 0
        """Now, at the entry before; the end of grace; the last place."""
        self.by = ""
        self.ops: dict[str, Rule] = {
            "Enqueue": self._enqueue,
            "Fetch": self._fetch,
            "Ack": self._words("acks", "Ack", self._ack),
            "Fail": self._words("fails", "Fail", self._fail),
            "Heartbeat": self._words("jobs", "Heartbeat", self._heartbeat),
            "Release": self._words("jobs", "Release", self._give_back),
            "Snooze": self._words("jobs", "Snooze", self._give_back),
            "Retry": self._each((*FINISHED, "scheduled"), self._retry),
            "Requeue": self._each(("dead",), self._back),
            "Expedite": self._each(("scheduled", "retrying"), lambda job, _: self._again(job)),
            "Cancel": self._each((*WAITING, "held", "active"), self._cancel),
            "Move": self._each(STATES, self._move),
            "Delete": self._each(STATES, lambda job, _: self._leave(job)),
            "Hold": self._hold,
            "Approve": self._each(("held",), self._approve),
            "Reject": self._each(("held",), lambda job, _: self._finish(job, "dead")),
            "ChangePriority": self._each((*WAITING, "held"), self._change_priority),
            "Pause": self._setting("paused", paused=True),
            "Resume": self._setting("resumed", paused=False, draining=False),
            "Drain": self._setting("draining", paused=True, draining=True),
            "SetConcurrency": self._setting("ok", max_concurrency="max"),
            "SetThrottle": self._setting("ok", rate_limit="rate", rate_window_ms="window_ms"),
            "RemoveThrottle": self._setting("ok", rate_limit=0, rate_window_ms=0),
            "SetRetention": self._setting("ok", retention_ms="retention_ms"),
            "Clear": self._clear,
            "DeleteQueue": self._delete_queue,
            "Promote": self._promote,
            "Reclaim": self._reclaim,
            "Expire": self._expire,
            "Purge": self._purge,
            "CleanUnique": self._clean_unique,
            "CleanRateLimits": self._some,
            "CleanRequests": self._clean_requests,
            "CleanWorkers": self._clean_workers,
            "Sweep": self._sweep,
            "Lead": self._lead,
            "BeginEpoch": lambda *_: {},
            "Receive": self._receive,
            "ReceiveMany": self._receive_many,
            "Delivered": self._delivered,
            **{op: self._of_map(op) for op in MAP_OPS},
        }
        self.effects: dict[str, Callable[[Fields], None]] = {}
        """Rules for effects of the other shard that are no jobs, by their kind."""

    # An op.

    def begin(self, *, now_ns: int, dice: int, last_ns: int = 0) -> None:
        """`last_ns`: the last place of the entry before, which counts as its time."""
        self.last, self.now, self.dice = max(self.now, last_ns), now_ns, dice

    def do(self, op: str, fields: Fields, seen: Fields) -> Fields:
        """What `op` has to be answered. `seen` is the real answer, for ids and tokens alone."""
        self.by = text(fields, "by")
        key = text(fields, "request_key")
        if not key:
            return self.ops[op](fields, seen)
        body = {name: fields[name] for name in fields if name not in {"request_key", "by"}}
        known = self.requests.get(key)
        if known is None:
            answer = self.ops[op](fields, seen)
            if op != "Fetch" or rows(answer, "jobs"):
                self.requests[key] = Request(op, copy.deepcopy(body), self.now, answer)
            return answer
        if (known.op, known.body) != (op, body):
            return Refusal("request_key_reused").answer
        if op == "Fetch":
            claims = rows(known.answer, "jobs")
            given = [(text(it, "job_id"), number(it, "lease_token")) for it in claims]
            kept = [job_id for job_id, token in given if self.jobs.get(job_id, NOBODY).has(token)]
            return {"jobs": [self.jobs[job_id].claim() for job_id in kept]}
        return known.answer

    def _of_map(self, op: str) -> Rule:
        return lambda fields, _: self.map.do(op, fields, now_ns=self.now)

    def _each(self, states: tuple[str, ...], rule: Callable[[Job, Fields], str]) -> Rule:
        """Do something to each job named that is in one of some states."""

        def one(fields: Fields, job_id: str) -> Fields:
            job = self._find(job_id)
            if job.state not in states:
                raise Refusal("bad_state", job_id)
            return {"job_id": job_id, "status": rule(job, fields)}

        return lambda fields, _: {
            "results": [refused(partial(one, fields, it)) for it in names(fields, "job_ids")]
        }

    def _words(self, where: str, word: str, rule: Callable[[Job, Fields], Fields]) -> Rule:
        """What is said under a lease; a word that ends it is remembered."""

        def one(item: Fields, is_old: bool) -> Fields:
            job = self._find(text(item, "job_id"))
            if job.settled is not None and job.settled[:2] == (item.get("lease_token"), word):
                return job.settled[2]
            if word == "Heartbeat" and not is_old and self._was_ended_by(job, item):
                return {"job_id": job.id, "status": "ended", "lease_expires_ns": 0}
            self._check_lease(job, item)
            answer = {"job_id": job.id, **rule(job, item)}
            if word not in ("", "Heartbeat"):
                job.settled = (job.token, word, answer)
            return answer

        # Answers that are kept, and that no router of version 2 has asked for, are those of before.
        return lambda fields, _: {
            "results": [
                refused(
                    partial(
                        one, it, bool(fields.get("request_key")) and "earlier_key" not in fields
                    )
                )
                for it in rows(fields, where)
            ]
        }

    def _was_ended_by(self, job: Job, item: Fields) -> bool:
        """Whether a worker speaks of a lease that it has ended itself."""
        if job.settled is None or job.settled[0] != job.token or job.state == "active":
            return False
        if item.get("lease_token") is None:
            return text(item, "worker_id") == job.worker_id != ""
        return item["lease_token"] == job.token

    def _check_lease(self, job: Job, item: Fields) -> None:
        worker = text(item, "worker_id") or job.worker_id
        if item.get("lease_token") is None:
            if job.state != "active":
                raise Refusal("job_not_active", job.id)
            is_lost = worker != job.worker_id != ""
        else:
            is_lost = not job.has(number(item, "lease_token"))
        if is_lost or self._is_over(job):
            raise Refusal("lease_lost", job.id)

    def _is_over(self, job: Job) -> bool:
        return self.now >= max(job.lease_expires_ns, job.graced_ns)

    def _find(self, job_id: str) -> Job:
        if job_id in self.jobs:
            return self.jobs[job_id]
        raise Refusal("job_moved" if job_id in self.away else "job_not_found", job_id)

    def _queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue())

    # What other rules need.

    def enqueue(self, asked: Fields) -> Fields:
        """Create one job with an id."""
        return self._enqueue_one(asked, text(asked, "id"))

    def cancel(self, job_id: str) -> None:
        """Cancel a job, if it is here."""
        if job_id in self.jobs:
            self._cancel(self.jobs[job_id], {})

    def queue(self, name: str) -> None:
        """Create a queue, unless it is there."""
        self._queue(name)

    # What becomes of jobs.

    def _new_place(self, job: Job) -> None:
        self.place += 1
        job.place = self.place

    def _go(self, job: Job, state: str, due_ns: int = 0) -> str:
        job.lease_expires_ns = job.run_expires_ns = job.graced_ns = 0
        job.cancel_requested = False
        job.scheduled_ns, job.finished_ns, job.hold_reason = due_ns, 0, ""
        job.state = state
        if state not in (*FINISHED, "active"):
            job.worker_id = ""
        if state in WAITING and job.place <= self.cleared.get(job.queue, 0):
            self._new_place(job)
        job.note(self.now, self.by)
        return state

    def _finish(self, job: Job, state: str) -> str:
        self._unlock(job)
        self._go(job, state)
        job.finished_ns = self.now
        return state

    def _unlock(self, job: Job) -> None:
        if job.unique_until_ns:
            del self.locks[job.queue, text(job.asked, "unique_key")]
            job.unique_until_ns = 0

    def _holder(self, queue: str, key: str) -> Job | None:
        """Who holds a lock now; one whose time is over lets go of it."""
        job = self.jobs.get(self.locks.get((queue, key), ""))
        if job is None or job.unique_until_ns > self.now:
            return job
        self._unlock(job)
        return None

    def _lock(self, job: Job, until_ns: int) -> None:
        self.locks[job.queue, text(job.asked, "unique_key")] = job.id
        job.unique_until_ns = until_ns

    def _leave(self, job: Job) -> str:
        self._unlock(job)
        del self.jobs[job.id]
        return "deleted"

    # Producers.

    def _enqueue(self, fields: Fields, seen: Fields) -> Fields:
        each = zip(rows(fields, "jobs"), rows(seen, "jobs"), strict=True)
        return {"jobs": [self._enqueue_one(job, text(made, "job_id")) for job, made in each]}

    def _enqueue_one(self, asked: Fields, made_id: str) -> Fields:
        queue = text(asked, "queue")
        there = self.jobs.get(text(asked, "id"))
        if there is not None:
            return {"job_id": there.id, "status": there.state, "unique_existing": True}
        if "id" in asked and asked["id"] in self.away:
            return {"job_id": asked["id"], "status": "moved", "unique_existing": True}
        key = text(asked, "unique_key")
        holder = self._holder(queue, key)
        if holder is not None:
            return {"job_id": holder.id, "status": "duplicate", "unique_existing": True}
        job_id = text(asked, "id", made_id)
        assert job_id == made_id, "a chosen id is kept"
        assert "id" in asked or job_id not in self.ids, "an id that was made is new"
        self.ids.add(job_id)
        self.ghosts.pop(job_id, None)
        self._queue(queue)
        job = Job(job_id, queue, asked, 0, priority=number(asked, "priority", 2))
        self.jobs[job_id] = job
        self._new_place(job)
        job.note(self.now, self.by)
        job.checkpoint = asked.get("checkpoint")
        delay_ms = number(asked, "delay_ms")
        due_ns = self.now + delay_ms * MS if delay_ms else number(asked, "scheduled_ns")
        if due_ns > self.now:
            job.state, job.scheduled_ns = "scheduled", due_ns
        if number(asked, "expire_after_ms"):
            job.expires_ns = self.now + number(asked, "expire_after_ms") * MS
        if key:
            self._lock(job, self.now + job.period_ns())
        return {"job_id": job_id, "status": job.state, "unique_existing": False}

    # Workers.

    def _fetch(self, fields: Fields, seen: Fields) -> Fields:
        given = rows(seen, "jobs")
        claims: list[Fields] = []
        worker = text(fields, "worker_id")
        if worker:
            self.by = worker
            self.workers[worker] = self.now
        for queue in names(fields, "queues"):
            while len(claims) < number(fields, "count", 1) and self._gives(queue):
                job = self._first(queue)
                if job is None:
                    break
                if 0 < job.expires_ns <= self.now:
                    self._finish(job, "dead")
                    continue
                assert len(claims) < len(given), f"{job.id} can be given, too"
                token = number(given[len(claims)], "lease_token")
                self._take(job, fields, token)
                claims.append(job.claim())
        return {"jobs": claims}

    def _gives(self, queue: str) -> bool:
        settings = self.queues.get(queue, Queue())
        everybody = (*self.jobs.values(), *self.ghosts.values())
        active = sum(job.queue == queue and job.state == "active" for job in everybody)
        begin_ns = self.now - settings.rate_window_ms * MS
        fetched = sum(at_ns > begin_ns for at_ns in self.fetches.get(queue, ()))
        return not (
            settings.paused
            or (settings.max_concurrency and active >= settings.max_concurrency)
            or (settings.rate_limit and fetched >= settings.rate_limit)
        )

    def _first(self, queue: str) -> Job | None:
        pending = [
            job for job in self.jobs.values() if job.queue == queue and job.state == "pending"
        ]
        return min(pending, key=lambda job: (job.priority, job.place), default=None)

    def _take(self, job: Job, fields: Fields, token: int) -> None:
        assert token > job.token, "tokens rise"
        self._go(job, "active")
        job.attempt += 1
        job.token = token
        job.lease_ms = number(fields, "lease_ms", 60_000)
        job.lease_expires_ns = self.now + job.lease_ms * MS
        run_ms = number(job.asked, "max_run_time_ms")
        job.run_expires_ns = self.now + run_ms * MS if run_ms else 0
        job.graced_ns = self.graced_ns
        job.worker_id = text(fields, "worker_id")
        if self._queue(job.queue).rate_limit:
            self.fetches.setdefault(job.queue, []).append(self.now)

    def _ack(self, job: Job, item: Fields) -> Fields:
        job.result = item.get("result", job.result)
        job.checkpoint = item.get("checkpoint", job.checkpoint)
        self._finish(job, "completed")
        return {"status": "completed"}

    def _fail(self, job: Job, item: Fields) -> Fields:
        was_asked = job.cancel_requested
        job.failures += 1
        error: Fields = {
            "attempt": job.attempt,
            "error": text(item, "error"),
            "backtrace": text(item, "backtrace"),
            "error_class": text(item, "error_class"),
            "at_ns": self.now,
            "worker_id": job.worker_id,
        }
        job.errors = [*job.errors, error][-20:]
        left = max(0, number(job.asked, "max_retries", 3) - job.attempt)
        if was_asked or not left or item.get("retryable", True) is False:
            self._finish(job, "cancelled" if was_asked else "dead")
            return {"status": job.state, "next_attempt_ns": 0, "attempts_remaining": 0}
        delay_ms = job.delay_ms(item, self.dice)
        due_ns = self.now + delay_ms * MS
        self._go(job, "retrying", due_ns)
        return {"status": job.state, "next_attempt_ns": due_ns, "attempts_remaining": left}

    def _heartbeat(self, job: Job, item: Fields) -> Fields:
        job.lease_expires_ns = max(job.lease_expires_ns, self.now + job.lease_ms * MS)
        job.progress = item.get("progress", job.progress)
        job.checkpoint = item.get("checkpoint", job.checkpoint)
        status = "cancel" if job.cancel_requested else "ok"
        return {"status": status, "lease_expires_ns": job.lease_expires_ns}

    def _give_back(self, job: Job, item: Fields) -> Fields:
        """Release, or snooze with a delay."""
        job.checkpoint = item.get("checkpoint", job.checkpoint)
        job.attempt = max(0, job.attempt - 1)
        if job.cancel_requested:
            return {"status": self._finish(job, "cancelled")}
        if "delay_ms" not in item:
            return {"status": self._go(job, "pending")}
        return {"status": self._go(job, "scheduled", self.now + number(item, "delay_ms") * MS)}

    # Ops on jobs.

    def _retry(self, job: Job, fields: Fields) -> str:
        self._back(job, fields)
        job.attempt = job.crashes = 0
        return "pending"

    def _back(self, job: Job, _: Fields) -> str:
        if key := text(job.asked, "unique_key"):
            holder = self._holder(job.queue, key)
            if holder is not None and holder is not job:
                raise Refusal("duplicate", holder.id)
            self._lock(job, self.now + job.period_ns())
        return self._again(job)

    def _again(self, job: Job) -> str:
        self._go(job, "pending")
        self._new_place(job)
        return "pending"

    def _cancel(self, job: Job, _: Fields) -> str:
        if job.state != "active":
            return self._finish(job, "cancelled")
        if not job.cancel_requested:
            job.cancel_requested = True
            job.note(self.now, self.by)
        return "cancelling"

    def _move(self, job: Job, fields: Fields) -> str:
        queue = text(fields, "queue")
        if queue == job.queue:
            return "moved"
        if queue not in self.local:
            self._send(job, queue, fields)
            return "moved"
        until_ns = job.unique_until_ns
        if until_ns > self.now:
            holder = self._holder(queue, text(job.asked, "unique_key"))
            if holder is not None:
                raise Refusal("duplicate", holder.id)
        self._unlock(job)
        job.queue = queue
        if until_ns > self.now:
            self._lock(job, until_ns)
        self._land(job, reset=fields.get("reset_attempts") is True)
        return "moved"

    def _land(self, job: Job, *, reset: bool) -> None:
        self._queue(job.queue)
        self._new_place(job)
        if reset:
            job.attempt = job.crashes = 0
        job.note(self.now, self.by)

    def _hold(self, fields: Fields, seen: Fields) -> Fields:
        def rule(job: Job, _: Fields) -> str:
            if job.state not in (*WAITING, "active"):
                raise Refusal("bad_state", job.id)
            self._go(job, "held")
            job.hold_reason = text(fields, "reason")
            return "held"

        if fields.get("lease_token") is None:
            return self._each(STATES, rule)(fields, seen)
        [job_id] = names(fields, "job_ids")
        token = {"job_id": job_id, "lease_token": fields["lease_token"]}
        words = self._words("one", "", lambda job, item: {"status": rule(job, item)})
        return words({"one": [token]}, seen)

    def _approve(self, job: Job, _: Fields) -> str:
        job.crashes = 0
        return self._again(job)

    def _change_priority(self, job: Job, fields: Fields) -> str:
        job.priority = number(fields, "priority")
        job.note(self.now, self.by)
        return job.state

    # Another shard.

    def _send(self, job: Job, queue: str, fields: Fields) -> None:
        until_ns = job.unique_until_ns
        self._leave(job)
        job.note(self.now, self.by)
        self.leave(job.id)
        left_ns = max(job.lease_expires_ns, job.graced_ns) - self.now
        self.away[job.id] = (job, max(0, left_ns), until_ns, fields.get("reset_attempts") is True)

    def leave(self, name: str) -> None:
        """Something goes to the other shard."""
        self.sent += 1
        self.outbox.append(self.sent)
        self.left[self.sent] = name

    def _receive(self, fields: Fields, _: Fields) -> Fields:
        """A job that had left comes back: the tests know no other."""
        seq = number(fields, "seq")
        if seq > self.taken + 1:
            return Refusal("out_of_order").answer
        status = "known" if seq <= self.taken else "taken"
        if status == "taken":
            self.taken = seq
            effect = cast("Fields", fields["effect"])
            if effect["type"] in self.effects:
                self.effects[text(effect, "type")](effect)
                return {"source": fields["source"], "seq": seq, "status": status}
            job, left_ns, until_ns, reset = self.away.pop(names(effect, "job")[0])
            self.jobs[job.id] = job
            job.queue = text(effect, "queue")
            if until_ns > self.now and not self._holder(job.queue, text(job.asked, "unique_key")):
                self._lock(job, until_ns)
            if job.state == "active":
                job.lease_expires_ns = max(job.lease_expires_ns, self.now + left_ns)
                job.graced_ns = self.graced_ns
            self._land(job, reset=reset)
        return {"source": fields["source"], "seq": seq, "status": status}

    def _receive_many(self, fields: Fields, _: Fields) -> Fields:
        """Each by itself, unless one before the first is missing."""
        effects, before = rows(fields, "effects"), self.taken
        if number(effects[0], "seq") > before + 1:
            return Refusal("out_of_order").answer
        for effect in effects:
            self.by = text(effect, "by")
            self._receive(effect, {})
        return {"source": effects[0]["source"], "seq": self.taken, "taken": self.taken - before}

    def _delivered(self, fields: Fields, _: Fields) -> Fields:
        if number(fields, "seq") > self.sent:
            return Refusal("out_of_order").answer
        rest = [seq for seq in self.outbox if seq > number(fields, "seq")]
        done, self.outbox = len(self.outbox) - len(rest), rest
        return {"done": done, "more": False}

    # Queues.

    def _setting(self, status: str, **settings: str | int) -> Rule:
        """Set what is named, to a value or to what is in a field of the op."""

        def do(fields: Fields, _: Fields) -> Fields:
            name = text(fields, "queue")
            queue = self._queue(name)
            if "rate_limit" in settings:
                self._forget_fetches(name, queue)
            for setting, value in settings.items():
                setattr(queue, setting, fields[value] if isinstance(value, str) else value)
            return {"queue": name, "status": status}

        return do

    def _clear(self, fields: Fields, _: Fields) -> Fields:
        self._doom(text(fields, "queue"), WAITING)
        self.cleared[text(fields, "queue")] = self.place
        return {"queue": text(fields, "queue"), "status": "cleared"}

    def _delete_queue(self, fields: Fields, _: Fields) -> Fields:
        queue = text(fields, "queue")
        self._doom(queue, STATES)
        self.queues.pop(queue, None)
        self.fetches.pop(queue, None)
        return {"queue": queue, "status": "deleted"}

    def _forget_fetches(self, name: str, queue: Queue) -> None:
        begin_ns = self.now - queue.rate_window_ms * MS if queue.rate_limit else self.now
        self.fetches[name] = [at_ns for at_ns in self.fetches.get(name, ()) if at_ns > begin_ns]

    def _doom(self, queue: str, states: tuple[str, ...]) -> None:
        for job in list(self.jobs.values()):
            if job.queue == queue and job.state in states:
                self._leave(job)
                self.ghosts[job.id] = job

    # The leader's own.

    def _walk(
        self, fields: Fields, due_ns: dict[str, int], rule: Callable[[str], object]
    ) -> Fields:
        """Deal with what is due (0 is never), the earliest first."""
        due = sorted((at_ns, name) for name, at_ns in due_ns.items() if 0 < at_ns <= self.now)
        limit = number(fields, "limit")
        for _, name in due[:limit]:
            rule(name)
        return {"done": len(due[:limit]), "more": len(due) > limit}

    def _promote(self, fields: Fields, _: Fields) -> Fields:
        due_ns = {job.id: job.scheduled_ns for job in self.jobs.values()}
        return self._walk(fields, due_ns, lambda job_id: self._again(self.jobs[job_id]))

    def _reclaim(self, fields: Fields, _: Fields) -> Fields:
        due_ns = {
            job.id: min(job.lease_expires_ns, job.run_expires_ns or job.lease_expires_ns)
            for job in self.jobs.values()
            if job.state == "active" and (self._is_over(job) or self._runs_too_long(job))
        }
        return self._walk(fields, due_ns, lambda job_id: self._reclaim_one(self.jobs[job_id]))

    def _runs_too_long(self, job: Job) -> bool:
        return 0 < job.run_expires_ns <= self.now

    def _reclaim_one(self, job: Job) -> None:
        if self._runs_too_long(job):
            self._fail(job, {"error": "max_run_time exceeded"})
            return
        job.attempt = max(0, job.attempt - 1)
        job.crashes += 1
        if job.cancel_requested:
            self._finish(job, "cancelled")
        elif job.crashes >= number(job.asked, "max_crashes", 5):
            self._go(job, "held")
            job.hold_reason = "crash_loop"
        else:
            self._go(job, "pending")

    def _expire(self, fields: Fields, _: Fields) -> Fields:
        due_ns = {
            job.id: job.expires_ns
            for job in self.jobs.values()
            if job.state in {*WAITING, "held"}
            or (job.state == "active" and job.asked.get("expire_active") is True)
        }
        return self._walk(fields, due_ns, lambda job_id: self._finish(self.jobs[job_id], "dead"))

    def _purge(self, fields: Fields, _: Fields) -> Fields:
        name = text(fields, "queue")
        keep_ms = self.queues.get(name, Queue()).retention_ms or number(fields, "keep_ms")
        due_ns = {
            job.id: job.finished_ns + keep_ms * MS
            for job in self.jobs.values()
            if job.queue == name and job.finished_ns
        }
        return self._walk(fields, due_ns, lambda job_id: self._leave(self.jobs[job_id]))

    def _clean_unique(self, fields: Fields, _: Fields) -> Fields:
        due_ns = {job.id: job.unique_until_ns for job in self.jobs.values()}
        return self._walk(fields, due_ns, lambda job_id: self._unlock(self.jobs[job_id]))

    def _clean_requests(self, fields: Fields, _: Fields) -> Fields:
        due_ns = {key: request.at_ns + DAY_NS for key, request in self.requests.items()}
        return self._walk(fields, due_ns, self.requests.pop)

    def _clean_workers(self, fields: Fields, _: Fields) -> Fields:
        due_ns = {worker: seen_ns + DAY_NS for worker, seen_ns in self.workers.items()}
        return self._walk(fields, due_ns, self.workers.pop)

    def _some(self, fields: Fields, seen: Fields) -> Fields:
        """How much there is to do is not said; at most `limit` is done, and all but with `more`."""
        assert number(seen, "done") <= number(fields, "limit"), "no more than may be done at once"
        return seen

    def _sweep(self, fields: Fields, seen: Fields) -> Fields:
        doomed = [job for job in self.ghosts.values() if job.queue == fields["queue"]]
        if not seen["more"]:
            for job in doomed:
                del self.ghosts[job.id]
        return self._some(fields, seen)

    def _lead(self, fields: Fields, _: Fields) -> Fields:
        self.graced_ns = until_ns = self.now + number(fields, "grace_ms") * MS
        for job in self.jobs.values():
            if job.state == "active" and self.last < max(job.lease_expires_ns, job.graced_ns):
                job.graced_ns = max(job.graced_ns, until_ns)
        return {}
