"""A reference model of the queue: plain dicts and heaps, written from the public pages only.

`docs/semantics.md`, `work.md`, `http.md` and `events.md` are its sources, and no line of the
product: two programs that share no author do not share an error. One method is one change of a job
or queue. It first asks whether the rules allow the change, and blames it if not, then makes it, so
that one wrong change does not hide the next. The checker feeds it with events
(`chaos.checks.replay`), the generator of histories with what it makes up.

What an observer cannot know is left open: a job without a `spec` (its enqueue was not seen) has no
known priority and no known number of attempts, and a limit of `None` is not checked.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from chaos.history import NewJob

MS: Final = 1_000_000
NEVER: Final = 1 << 62

PENDING, SCHEDULED, ACTIVE, RETRYING, HELD = "pending", "scheduled", "active", "retrying", "held"
COMPLETED, DEAD, CANCELLED = "completed", "dead", "cancelled"
FINISHED: Final = frozenset({COMPLETED, DEAD, CANCELLED})
WAITING: Final = frozenset({PENDING, SCHEDULED, RETRYING})
OPEN: Final = frozenset({*WAITING, HELD})
STATES: Final = (PENDING, SCHEDULED, ACTIVE, RETRYING, HELD, COMPLETED, DEAD, CANCELLED)
UNKNOWN: Final = "unknown"

ATTEMPT_SHIFT: Final = 4  # of a finished job only state and attempt are kept, in one integer


class Blame(NamedTuple):
    """A change that the rules do not allow."""

    rule: str
    text: str


class Job:
    """An unfinished job."""

    __slots__ = (
        "attempt", "crashes", "due", "expires", "id", "is_approved", "is_asked", "key_until",
        "lease_least", "lease_most", "place", "priority", "queue", "spec", "started", "state",
        "vague",
    )  # fmt: skip

    def __init__(self, job_id: int, queue: str, state: str, spec: NewJob | None) -> None:
        self.id, self.queue, self.state, self.spec = job_id, queue, state, spec
        self.attempt = self.crashes = self.place = self.due = self.started = 0
        self.priority = spec.priority if spec is not None else 2
        self.vague = spec is None or bool(spec.depends_on)
        """Whether its place among others is not known."""
        self.expires = NEVER
        self.key_until = 0
        self.lease_least = 0
        """The lease certainly lasts until then."""
        self.lease_most = NEVER
        """The lease is certainly over then."""
        self.is_asked = self.is_approved = False


class Queue:
    """A queue with its limits and its waiting jobs."""

    __slots__ = (
        "active", "cap", "cleared", "heap", "is_paused", "rate", "starts", "window_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_paused: bool | None = False
        self.cap: int | None = 0
        self.rate: int | None = 0
        self.window_ns = 0
        self.active: set[int] = set()
        self.starts: deque[int] = deque()
        self.heap: list[tuple[int, int, int]] = []
        self.cleared = -1
        """Jobs with a place up to here were cleared."""


class Model:
    """All jobs and queues of a cluster."""

    def __init__(self, spec_of: Callable[[int], NewJob | None]) -> None:
        self.spec_of = spec_of
        self.with_grace: Callable[[int], int] = lambda end: end
        """The time at which a lease ends at the latest, if a leader may have begun with grace."""
        self.jobs: dict[int, Job] = {}
        self.done: dict[int, int] = {}
        self.expiries: dict[int, int] = {}
        """Jobs that expire, to when: a job that is retried has its old time."""
        self.priorities: dict[int, int] = {}
        """Jobs whose priority was changed, to the new one; -1: not known. A retry keeps it."""
        self.queues: dict[str, Queue] = {}
        self.locks: dict[tuple[str, str], int] = {}
        self.ghosts: dict[int, int] = {}
        """Cleared jobs whose removal was not seen yet."""
        self.away: dict[int, Job] = {}
        """Jobs on their way to another shard."""
        self.watched: set[int] = set()
        """Jobs that others wait for."""
        self.completed: set[int] = set()
        self.ended: set[int] = set()
        """Those of `watched` that were completed, and that ended in any way."""
        self.places = 0
        self.blames: list[Blame] = []

    # ---- what is asked

    def queue(self, name: str) -> Queue:
        """A queue; it begins with its first mention."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = Queue()
        return found

    def state(self, job_id: int) -> str:
        """The state of a job; empty if it does not exist."""
        job = self.jobs.get(job_id)
        if job is not None:
            return job.state
        code = self.done.get(job_id)
        return "" if code is None else STATES[code & (1 << ATTEMPT_SHIFT) - 1]

    def next_of(self, name: str, now: int) -> int:
        """The job that a fetch has to take from a queue; 0 if no job whose place is known waits."""
        heap = self.queue(name).heap
        aside = []
        found = 0
        while heap:
            priority, place, job_id = heap[0]
            job = self.jobs.get(job_id)
            if (
                job is None or job.state != PENDING or job.vague
                or (job.priority, job.place, job.queue) != (priority, place, name)
            ):  # fmt: skip
                heappop(heap)
            elif job.expires <= now:
                aside.append(heappop(heap))
            else:
                found = job_id
                break
        for row in aside:
            heappush(heap, row)
        return found

    def may_start(self, name: str, now: int) -> Blame | None:
        """Why a queue gives no jobs now."""
        queue = self.queue(name)
        if queue.is_paused:
            return Blame("C4", f"queue {name} is paused")
        if queue.cap and len(queue.active) >= queue.cap:
            return Blame("C1", f"queue {name} has {len(queue.active)} active jobs, of {queue.cap}")
        if queue.rate:
            while queue.starts and queue.starts[0] <= now - queue.window_ns:
                queue.starts.popleft()
            if len(queue.starts) >= queue.rate:
                return Blame("C3", f"queue {name} gave {queue.rate} jobs within its window")
        return None

    def backoff_least_ns(self, job: Job) -> int:
        """The shortest delay before the next attempt, after the present one failed."""
        spec = job.spec
        if spec is None or spec.backoff == "none":
            return 0
        growth = 1
        if spec.backoff == "linear":
            growth = job.attempt
        elif spec.backoff == "exponential":
            growth = 1 << max(job.attempt - 1, 0)
        delay = spec.base_ms * growth
        if spec.max_delay_ms:
            delay = min(delay, spec.max_delay_ms)
        return (delay * MS) - (delay * MS) * spec.jitter // 100

    # ---- helpers of all changes

    def blame(self, rule: str, text: str) -> None:
        """The present change is not allowed."""
        self.blames.append(Blame(rule, text))

    def take(self, job_id: int, change: str, *states: str, queue: str = "") -> Job:
        """The job that a change is about; blamed if its state does not allow the change."""
        job = self.jobs.get(job_id)
        if job is None:
            state = self.state(job_id)
            if state:
                job = Job(job_id, queue, state, self.spec_of(job_id))
                job.expires = self.expiries.get(job_id, NEVER)
                job.priority = self.priorities.get(job_id, job.priority)
                job.vague |= job.priority < 0
                job.attempt = self.done.pop(job_id) >> ATTEMPT_SHIFT
            else:
                self.blame("X1", f"{change} of a job that does not exist")
                job = Job(job_id, queue, UNKNOWN, None)
            self.jobs[job_id] = job
        if job.state not in states and job.state != UNKNOWN:
            self.blame("X2", f"{change} of a job that is {job.state}")
        return job

    def know(self, job_id: int, queue: str) -> None:
        """A job that existed before anything was seen of it."""
        if job_id not in self.jobs and job_id not in self.done:
            self.jobs[job_id] = Job(job_id, queue, UNKNOWN, None)

    def set_state(self, job: Job, state: str) -> None:
        """Change the state, and count the active jobs of its queue."""
        if job.state == ACTIVE:
            self.queue(job.queue).active.discard(job.id)
        job.state = state
        if state == ACTIVE:
            self.queue(job.queue).active.add(job.id)

    def wait(self, job: Job, *, is_new: bool) -> None:
        """A job becomes pending, at a new place or at its old one."""
        self.set_state(job, PENDING)
        queue = self.queue(job.queue)
        if is_new or job.place <= queue.cleared:
            self.places += 1
            job.place = self.places
        if not job.vague:
            heappush(queue.heap, (job.priority, job.place, job.id))

    def place_last(self, job: Job) -> None:
        """A job that is not pending gets a new place in its queue, to which it may come back."""
        self.places += 1
        job.place = self.places

    def finish(self, job: Job, state: str) -> None:
        """A job ends: its unique key is free."""
        self.set_state(job, state)
        self.unlock(job)
        if job.id in self.watched:
            self.ended.add(job.id)
            if state == COMPLETED:
                self.completed.add(job.id)
        self.jobs.pop(job.id, None)
        self.done[job.id] = STATES.index(state) | job.attempt << ATTEMPT_SHIFT

    def lock(self, job: Job, now: int) -> None:
        """A job takes its unique key; blamed if another unfinished job has it."""
        spec = job.spec
        if spec is None or not spec.unique_key:
            return
        holder = self.jobs.get(self.locks.get((job.queue, spec.unique_key), 0))
        if holder is not None and holder.id != job.id and holder.key_until > now:
            self.blame("U1", f"unique key {spec.unique_key!r} is held by another unfinished job")
        self.locks[job.queue, spec.unique_key] = job.id
        job.key_until = now + spec.unique_ms * MS

    def unlock(self, job: Job) -> None:
        """A job frees its unique key."""
        spec = job.spec
        if spec is not None and spec.unique_key:
            key = (job.queue, spec.unique_key)
            if self.locks.get(key) == job.id:
                del self.locks[key]

    # ---- a job begins

    def enqueue(self, job_id: int, queue: str, state: str, spec: NewJob | None, now: int) -> None:
        """A job is created."""
        if self.state(job_id) not in ("", UNKNOWN):
            self.blame("Q1", "a job is created that exists")
            self.jobs.pop(job_id, None)
        self.done.pop(job_id, None)
        self.priorities.pop(job_id, None)
        job = Job(job_id, queue, UNKNOWN, spec)
        self.jobs[job_id] = job
        if spec is not None:
            if spec.queue != queue:
                self.blame("D2", f"a job for queue {spec.queue} is created in {queue}")
            if spec.expire_after_ms:
                job.expires = self.expiries[job_id] = now + spec.expire_after_ms * MS
            job.due = max(spec.scheduled_at_ns, now + spec.delay_ms * MS)
            is_later = job.due > now
            if is_later != (state == SCHEDULED) and state != HELD:
                self.blame("E3", f"a job due in {(job.due - now) // MS} ms is created {state}")
            self.lock(job, now)
        if state == PENDING:
            self.wait(job, is_new=True)
        else:
            self.set_state(job, state)

    def retry(self, job_id: int, queue: str, now: int, *, is_whole: bool) -> None:
        """A finished or scheduled job is pending again; `is_whole`: with all attempts."""
        if is_whole:
            job = self.take(job_id, "a retry", *FINISHED, SCHEDULED, queue=queue)
            job.attempt = 0
        else:
            job = self.take(job_id, "a requeue", DEAD, queue=queue)
        job.crashes = 0
        job.is_asked = False
        self.lock(job, now)
        self.wait(job, is_new=True)

    # ---- an attempt

    def start(
        self, job_id: int, now: int, attempt: int, lease_ns: int | None, lease_most: int | None
    ) -> None:
        """A worker fetches a job. The end of a lease can be unknown, and moved by heartbeats."""
        job = self.take(job_id, "a start", PENDING)
        why = self.may_start(job.queue, now)
        if why is not None:
            self.blames.append(why)
        first = self.next_of(job.queue, now)
        if first and first != job_id and job.state == PENDING and not job.vague:
            other = self.jobs[first]
            if (other.priority, other.place) < (job.priority, job.place):
                rule = "O3" if other.priority < job.priority else "O1"
                self.blame(rule, f"another job of queue {job.queue} is before it: {{job:{first}}}")
        if job.expires <= now:
            self.blame("E1", "a job is started after it expired")
        if job.state != UNKNOWN and attempt != job.attempt + 1:
            self.blame("R1", f"attempt {attempt} follows attempt {job.attempt}")
        queue = self.queue(job.queue)
        if queue.rate:
            queue.starts.append(now)
        self.set_state(job, ACTIVE)
        job.attempt = attempt
        job.started = now
        job.lease_least = now + lease_ns if lease_ns is not None else now
        job.lease_most = max(lease_most, job.lease_least) if lease_most is not None else NEVER

    def renew(self, job_id: int, until: int) -> None:
        """A heartbeat was confirmed."""
        job = self.jobs.get(job_id)
        if job is not None and job.state == ACTIVE:
            job.lease_least = max(job.lease_least, until)

    def holder(self, job_id: int, change: str, now: int) -> Job:
        """The job whose worker reports: its lease must not have ended."""
        job = self.take(job_id, change, ACTIVE)
        if job.state == ACTIVE and now >= job.lease_most and now >= self.with_grace(job.lease_most):
            late = (now - job.lease_most) // MS
            self.blame("L2", f"{change} is accepted {late} ms after the lease ended")
        return job

    def complete(self, job_id: int, now: int) -> None:
        """The worker finished the job."""
        self.finish(self.holder(job_id, "an ack", now), COMPLETED)

    def fail(self, job_id: int, now: int, *, retry_after_ms: int | None) -> None:
        """An attempt failed, and another follows."""
        job = self.take(job_id, "a failure", ACTIVE)
        if job.is_asked:
            self.blame("R4", "a job that was asked to stop is retried")
        if job.spec is not None and job.attempt >= job.spec.max_retries:
            self.blame("R1", f"attempt {job.attempt + 1} of {job.spec.max_retries} will follow")
        least = self.backoff_least_ns(job) if retry_after_ms is None else retry_after_ms * MS
        job.due = now + least
        self.set_state(job, RETRYING)

    def die(self, job_id: int, now: int, *, is_final: bool) -> None:
        """The last attempt failed, or the job expired. `is_final`: its worker may have said so."""
        job = self.take(job_id, "death", ACTIVE, *OPEN)
        has_expired = job.expires <= now and (
            job.state != ACTIVE or (job.spec is not None and job.spec.expire_active)
        )
        has_failed = job.state == ACTIVE and (
            is_final or job.spec is None or job.attempt >= job.spec.max_retries
        )
        if job.state != UNKNOWN and not (has_expired or has_failed or job.spec is None):
            self.blame("R3", f"a job is dead after attempt {job.attempt}, with attempts left")
        self.finish(job, DEAD)

    def crash(self, job_id: int, now: int, state: str) -> None:
        """The lease expired."""
        job = self.take(job_id, "the end of a lease", ACTIVE)
        if job.state == ACTIVE and now < job.lease_least:
            left = (job.lease_least - now) // MS
            self.blame("L3", f"a lease is ended {left} ms before its time")
        if job.is_asked:
            self.blame("R4", "a job that was asked to stop is given out again")
        job.attempt = max(job.attempt - 1, 0)
        job.crashes += 1
        if job.spec is not None and job.state == ACTIVE:
            is_loop = job.crashes >= max(job.spec.max_crashes, 1)
            if is_loop != (state == HELD):
                self.blame("R5", f"a job with {job.crashes} crashes is {state}")
        if state == HELD:
            self.set_state(job, HELD)
        else:
            self.wait(job, is_new=False)

    def release(self, job_id: int, now: int) -> None:
        """The worker, or a server whose client is gone, gave the job back."""
        job = self.holder(job_id, "a release", now)
        job.attempt = max(job.attempt - 1, 0)
        self.wait(job, is_new=False)

    def snooze(self, job_id: int, now: int, delay_ms: int) -> None:
        """The worker gave the job back for later."""
        job = self.holder(job_id, "a snooze", now)
        job.attempt = max(job.attempt - 1, 0)
        job.due = now + delay_ms * MS
        self.set_state(job, SCHEDULED)

    def again(self, job_id: int, now: int, state: str) -> None:
        """The next iteration of an agent's job."""
        job = self.holder(job_id, "a continuation", now)
        job.attempt = job.crashes = 0
        if state == HELD:
            self.set_state(job, HELD)
        else:
            self.wait(job, is_new=True)

    # ---- between attempts

    def promote(self, job_id: int, now: int, *, is_early: bool) -> None:
        """The delay is over; `is_early`: an operator may have ended it."""
        job = self.take(job_id, "a promotion", SCHEDULED, RETRYING)
        if job.state != UNKNOWN and now < job.due and not is_early:
            self.blame("R2", f"a job is pending {(job.due - now) // MS} ms before it is due")
        self.wait(job, is_new=True)

    def ask_to_stop(self, job_id: int) -> None:
        """An active job is cancelled: its worker is asked to stop."""
        self.take(job_id, "asking to stop", ACTIVE).is_asked = True

    def cancel(self, job_id: int) -> None:
        """The job is cancelled."""
        job = self.take(job_id, "a cancellation", ACTIVE, *OPEN)
        if job.state == ACTIVE and not job.is_asked and job.spec is not None:
            self.blame("R4", "an active job is cancelled that was not asked to stop")
        self.finish(job, CANCELLED)

    def hold(self, job_id: int) -> None:
        """The job waits for approval; a job can be created so, if it waits for one that failed."""
        job = self.jobs.get(job_id)
        if job is None or job.state != HELD or job.place:
            job = self.take(job_id, "holding", ACTIVE, *WAITING)
        job.is_asked = False  # the lease ends, and with it the request to its worker
        self.set_state(job, HELD)

    def approve(self, job_id: int) -> None:
        """The held job is pending."""
        job = self.take(job_id, "an approval", HELD)
        job.crashes = 0
        job.is_approved = True
        self.wait(job, is_new=True)

    def reject(self, job_id: int) -> None:
        """The held job is dead."""
        self.finish(self.take(job_id, "a rejection", HELD), DEAD)

    def prioritise(self, job_id: int, before: int | None, after: int | None) -> None:
        """The job has another priority, at its old place."""
        job = self.take(job_id, "a change of priority", *OPEN)
        self.priorities[job_id] = -1 if after is None else after
        if after is None:
            job.vague = True
            return
        if before is not None and not job.vague and job.priority != before:
            self.blame("O3", f"priority {job.priority} is changed as if it were {before}")
        job.priority = after
        if job.state == PENDING and not job.vague:
            heappush(self.queue(job.queue).heap, (after, job.place, job_id))

    # ---- a job leaves

    def move(self, job_id: int, queue: str, now: int, attempt: int) -> None:
        """The job goes to another queue of its shard."""
        job = self.jobs.get(job_id)
        if job is None:
            if not self.state(job_id):
                self.blame("X1", "a move of a job that does not exist")
            return  # a finished job has no place
        state = job.state
        self.unlock(job)
        self.set_state(job, UNKNOWN)
        job.queue = queue
        job.attempt = attempt
        self.lock(job, now)
        if state == PENDING:
            self.wait(job, is_new=True)
        else:
            self.place_last(job)
            self.set_state(job, state)

    def leave(self, job_id: int) -> None:
        """The job goes to another shard."""
        state = self.state(job_id)
        job = self.jobs.get(job_id) or Job(job_id, "", state or UNKNOWN, None)
        if not state:
            self.blame("X1", "a move of a job that does not exist")
        if job_id in self.done:
            job.attempt = self.done.pop(job_id) >> ATTEMPT_SHIFT
        self.unlock(job)
        if job.state == ACTIVE:
            self.queue(job.queue).active.discard(job_id)
        self.jobs.pop(job_id, None)
        self.away[job_id] = job

    def arrive(self, job_id: int, queue: str, state: str, now: int, attempt: int) -> None:
        """The job comes from another shard."""
        job = self.away.pop(job_id, None)
        if job is None:
            self.blame("Z2", "a job arrives that no shard sent")
            job = Job(job_id, queue, state, None)
        if job.state not in (state, UNKNOWN) and state != HELD:
            self.blame("Z2", f"a job leaves as {job.state} and arrives as {state}")
        job.queue, job.attempt = queue, attempt
        job.lease_least = 0  # the other shard has another clock
        job.lease_most = job.expires = NEVER
        job.state = UNKNOWN
        if state in FINISHED:
            self.finish(job, state)
            return
        self.jobs[job_id] = job
        self.lock(job, now)
        if state == PENDING:
            self.wait(job, is_new=True)
        else:
            self.place_last(job)
            self.set_state(job, state)

    def remove(self, job_id: int, *, is_purge: bool) -> None:
        """The job is deleted, or its retention is over."""
        ghosts = self.ghosts.get(job_id, 0)
        if ghosts and not is_purge:
            self.ghosts[job_id] = ghosts - 1
            return
        if is_purge:
            job = self.take(job_id, "a purge", *FINISHED)
        else:
            job = self.take(job_id, "a deletion", ACTIVE, *OPEN, *FINISHED)
        if job.id in self.watched:
            self.ended.add(job.id)
        self.forget(job)

    def forget(self, job: Job) -> None:
        """A job exists no more."""
        if job.state == ACTIVE:
            self.queue(job.queue).active.discard(job.id)
        self.unlock(job)
        self.jobs.pop(job.id, None)

    # ---- queues

    def clear(self, name: str, *, is_deleted: bool) -> None:
        """The waiting jobs of a queue are gone at once, or all of a deleted queue."""
        self.places += 1
        self.queue(name).cleared = self.places
        for job in [job for job in self.jobs.values() if job.queue == name]:
            if job.state in WAITING or is_deleted:
                self.ghosts[job.id] = self.ghosts.get(job.id, 0) + 1
                if job.id in self.watched:
                    self.ended.add(job.id)
                self.forget(job)
        if is_deleted:
            self.queues[name] = Queue()

    def limit(self, name: str, cap: int | None, rate: int | None, window_ms: int) -> None:
        """A queue has other limits; None: unknown from now on."""
        queue = self.queue(name)
        queue.cap, queue.rate, queue.window_ns = cap, rate, window_ms * MS
        if not rate:
            queue.starts.clear()  # jobs that were fetched without a rate limit never count
