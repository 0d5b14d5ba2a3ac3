"""The server's side of `corvo top`, in a thread of its own: a slow server never stops the keys.

Each refresh is one request for the summary, and one or two more while a view with its own document
is open. Every quarter of a minute has the history of the queues, when a new minute has begun.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from corvo.client import cluster, dashboard
from corvo.client.calls import Client, read
from corvo.client.errors import ClientError
from corvo.tui import keys
from corvo.tui.model import Data, Detail, Document, Meter
from corvo.tui.ui import Change
from corvo.tui.views import ERRORS_READ, JOBS_READ, Place

_EVENTS: Final = 500
LATE_S: Final = 3.0
"""Time after which a request without an answer is shown."""


class Collector:
    """Documents of a server, and the data that follows from them. For one thread."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._meter = Meter()
        self._minute = ""
        self._answered_at = clock()
        self.data = Data()

    def collect(self, place: Place | None) -> None:
        """Ask for the summary and for the document of an open place. Raises `ClientError`."""
        has_minutes = self._is_new_minute()
        summary = dashboard.read_summary(self._client, has_minutes=has_minutes)
        minutes = self.data.minutes
        if has_minutes:
            self._minute = summary.minute
            minutes = {
                queue.name: queue.minutes
                for queue in summary.queues
                if isinstance(queue.minutes, dashboard.Minutes)
            }
        self._meter.add(summary)
        self._answered_at = self._clock()
        details: dict[str, Detail] = {}
        if place is not None:
            details[place.wanted] = self._detail(place)
        self.data = Data(
            summary=summary,
            rates=self._meter.rates(),
            minutes=minutes,
            details=details,
            server=self._client.server.url.partition("://")[2],
        )

    def _is_new_minute(self) -> bool:
        last = self.data.summary
        return last is None or last.minute != self._minute

    def fail(self, error: ClientError) -> None:
        """Keep the data, with the reason why newer data are missing."""
        self.data = Data(
            summary=self.data.summary,
            rates=self.data.rates,
            minutes=self.data.minutes,
            details=self.data.details,
            server=self.data.server,
            error=error.message,
            silent_s=self._clock() - self._answered_at,
        )

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
                return dashboard.search_jobs(client, wanted)
        wanted = {"state": "active,retrying,dead", "limit": JOBS_READ}
        if place.about:
            wanted["queue"] = place.about
        if place.worker:
            wanted["worker_id"] = place.worker
        return dashboard.search_jobs(client, wanted)

    def change(self, change: Change) -> str:
        """Change something; returns a sentence about it."""
        try:
            if change.queue:
                dashboard.change_queue(self._client, change.queue, change.action)
            else:
                dashboard.change_jobs(self._client, list(change.job_ids), change.action)
        except ClientError as error:
            return f"failed: {error.message}"
        return change.said


class Fetcher:
    """A thread that collects again and again, and calls `changed` after each time."""

    def __init__(self, collector: Collector, changed: Callable[[], None]) -> None:
        self._collector = collector
        self._changed = changed
        self._wake = threading.Condition()
        self._place: Place | None = None
        self._delay_s = 2.0
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

    def want(self, place: Place | None, delay_s: float, *, now: bool = False) -> None:
        """Say what is open, and how often to ask; `now` asks at once."""
        with self._wake:
            self._place, self._delay_s = place, delay_s
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
            data = msgspec.structs.replace(data, error=error, silent_s=waited_s)
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
                place, changes = self._place, self._changes
                self._changes = []
                begun_at = self._asked_at = time.monotonic()
            said = [self._collector.change(change) for change in changes]
            try:
                self._collector.collect(place)
            except ClientError as error:
                self._collector.fail(error)
            took_s = time.monotonic() - begun_at
            with self._wake:
                self._asked_at = None
                self._said += said
            self._changed()
