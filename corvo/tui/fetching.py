"""The server's side of `corvo top`, in a thread of its own: a slow server never stops the keys.

Each refresh is one request for the summary, and one or two more while a view with its own document
is open. Every quarter of a minute has the history of the queues, when a new minute has begun.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

from msgspec.structs import replace

from corvo.client import cluster, dashboard, queues
from corvo.client.calls import Client, read
from corvo.client.dashboard import Jobs, Summary
from corvo.client.errors import ClientError, RequestFailed
from corvo.tui import keys
from corvo.tui.model import HOUR, QUARTER, Data, Detail, Document, Meter, together
from corvo.tui.places import Place
from corvo.tui.ui import Change
from corvo.tui.views import ERRORS_READ, JOBS_READ

_EVENTS: Final = 500
LATE_S: Final = 3.0
"""Time after which a request without an answer is shown."""


class Collector:
    """Documents of a server, and the data that follows from them. For one thread."""

    def __init__(
        self, client: Client, clock: Callable[[], float] = time.monotonic, queues: str = ""
    ) -> None:
        """`queues` is a pattern of queue names; empty: all."""
        self._client = client
        self._clock = clock
        self._queues = queues
        self._has_hours = True
        """Whether the server knows more than a quarter of an hour."""
        self._meter = Meter()
        self._minute = ""
        self._asked = 0
        """Minutes that were asked for last."""
        self._answered_at = clock()
        self.data = Data()

    def collect(self, place: Place | None, span: str = QUARTER) -> None:
        """Ask for the summary and for the document of an open place. Raises `ClientError`."""
        wanted = dashboard.MINUTES_MAX if span == HOUR and self._has_hours else dashboard.MINUTES
        is_new = self._is_new_minute() or wanted > self._asked
        summary = self._summary(wanted if is_new else 0)
        minutes, every = self.data.minutes, self.data.all_minutes
        if is_new:
            self._minute, self._asked = summary.minute, wanted
            minutes = {
                queue.name: queue.minutes
                for queue in summary.queues
                if isinstance(queue.minutes, dashboard.Minutes)
            }
            every = together(minutes.values())
        self._meter.add(summary)
        self._answered_at = self._clock()
        details: dict[str, Detail] = {}
        if place is not None:
            details[place.wanted] = self._detail(place)
        self.data = Data(
            summary=summary,
            rates=self._meter.rates(),
            minutes=minutes,
            all_minutes=every,
            recent=self._meter.recent(),
            details=details,
            server=self._client.server.url.partition("://")[2],
            pattern=self._queues,
        )

    def _is_new_minute(self) -> bool:
        last = self.data.summary
        return last is None or last.minute != self._minute

    def fail(self, error: ClientError) -> None:
        """Keep the data, with the reason why newer data are missing."""
        silent_s = self._clock() - self._answered_at
        is_refused = isinstance(error, RequestFailed)
        self.data = replace(
            self.data, error=error.message, silent_s=silent_s, is_refused=is_refused
        )

    def _summary(self, minutes: int) -> Summary:
        try:
            summary = dashboard.read_summary(self._client, minutes=minutes)
        except RequestFailed as error:
            if error.status != 400 or minutes <= dashboard.MINUTES:
                raise
            self._has_hours = False  # a server of an older version
            summary = dashboard.read_summary(self._client, minutes=dashboard.MINUTES)
        if not self._queues:
            return summary
        shown = [each for each in summary.queues if fnmatchcase(each.name, self._queues)]
        totals: Counter[str] = Counter()
        for each in shown:
            totals.update(each.counts)
        return replace(summary, queues=shown, totals=dict(totals))

    def _jobs(self, wanted: dict[str, str | int]) -> Jobs:
        if not self._queues:
            return dashboard.search_jobs(self._client, wanted)
        if "*" not in self._queues and "?" not in self._queues and "[" not in self._queues:
            return dashboard.search_jobs(self._client, {"queue": self._queues, **wanted})
        found = dashboard.search_jobs(self._client, wanted)
        shown = [each for each in found.jobs if fnmatchcase(each.queue, self._queues)]
        return replace(found, jobs=shown)

    def _detail(self, place: Place) -> Detail:
        try:
            return Detail(self._read(place))
        except ClientError as error:
            before = self.data.details.get(place.wanted, Detail())
            return Detail(before.document, error.message)

    def _read(self, place: Place) -> Document | None:
        client = self._client
        match place.view:
            case keys.WORKERS:
                return dashboard.read_workers(client)
            case keys.SHARDS:
                return read(cluster.get_status(client), cluster.Status)
            case keys.EVENTS:
                answer = cluster.get_events(client, after_seq=0, limit=_EVENTS)
                return read(answer, cluster.Events)
            case keys.JOB:
                job = dashboard.read_job(client, place.about)
                return job, dashboard.read_timeline(client, place.about)
            case keys.ERRORS:
                wanted: dict[str, str | int] = {"state": "retrying,dead", "limit": ERRORS_READ}
                return self._jobs(wanted)
        wanted = {"state": "active,retrying,dead", "limit": JOBS_READ}
        if place.about:
            wanted["queue"] = place.about
        if place.worker:
            wanted["worker_id"] = place.worker
        return self._jobs(wanted)

    def change(self, change: Change) -> str:
        """Change something; returns a sentence about it."""
        done: list[str] = []
        try:
            for name in change.queues:
                queues.act(self._client, name, change.action, change.body)
                done.append(name)
            if change.job_ids:
                dashboard.change_jobs(self._client, list(change.job_ids), change.action)
        except ClientError as error:
            before = f" (done before: {', '.join(done)})" if done else ""
            return f"failed: {error.message}{before}"
        return change.said


class Fetcher:
    """A thread that collects again and again, and calls `changed` after each time."""

    def __init__(self, collector: Collector, changed: Callable[[], None]) -> None:
        self._collector = collector
        self._changed = changed
        self._wake = threading.Condition()
        self._place: Place | None = None
        self._delay_s = 2.0
        self._span = QUARTER
        self._is_due = True
        self._is_over = False
        self._changes: list[Change] = []
        self._said: list[str] = []
        self._asked_at: float | None = None
        """When the requests began that are not answered yet."""
        self._thread = threading.Thread(target=self._run, name="fetcher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon; a request that waits is not waited for."""
        with self._wake:
            self._is_over = True
            self._wake.notify()

    def want(
        self, place: Place | None, delay_s: float, span: str = QUARTER, *, now: bool = False
    ) -> None:
        """Say what is open, and how often to ask; `now` asks at once, as does a longer history."""
        with self._wake:
            now = now or (span == HOUR and span != self._span)
            self._place, self._delay_s, self._span = place, delay_s, span
            self._is_due = self._is_due or now
            self._wake.notify()

    def do(self, change: Change) -> None:
        """Change something as soon as the server has answered what it was asked before."""
        with self._wake:
            self._changes.append(change)
            self._is_due = True
            self._wake.notify()

    def take(self) -> tuple[Data, list[str]]:
        """The latest data, and sentences about changes."""
        with self._wake:
            said, self._said = self._said, []
            data, asked_at = self._collector.data, self._asked_at
        waited_s = time.monotonic() - asked_at if asked_at is not None else 0.0
        if waited_s >= LATE_S and not data.error:
            error = f"{data.server} has not answered yet"
            data = replace(data, error=error, silent_s=waited_s)
        return data, said

    def _run(self) -> None:
        took_s = 0.0
        while True:
            with self._wake:
                ends_at = time.monotonic()
                while not (self._is_due or self._is_over):
                    # A server that needs long is asked less often.
                    left_s = ends_at + max(self._delay_s, 2 * took_s) - time.monotonic()
                    if left_s <= 0:
                        break
                    self._wake.wait(left_s)
                if self._is_over:
                    return
                self._is_due = False
                place, changes, span = self._place, self._changes, self._span
                self._changes = []
                begun_at = self._asked_at = time.monotonic()
            said = [self._collector.change(change) for change in changes]
            try:
                self._collector.collect(place, span)
            except ClientError as error:
                self._collector.fail(error)
            took_s = time.monotonic() - begun_at
            with self._wake:
                self._asked_at = None
                self._said += said
            self._changed()
