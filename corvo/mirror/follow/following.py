"""The mirror's tasks: one follower for each shard, and one writer for the pages that they read.

A follower asks its shard for pages (`position` says for which), and gives them to the writer, which
writes the pages of all shards in one transaction.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import trio

from corvo import clock
from corvo.errors import WireError
from corvo.kept_link import KeptLink, Retry
from corvo.link import Link, LinkLost
from corvo.measures import empty
from corvo.mirror.config import MirrorConfig
from corvo.mirror.follow.position import Position, Step
from corvo.mirror.follow.progress import Page, Progress
from corvo.mirror.follow.writing import Stuck, Writing, scheduled
from corvo.protocol import wire
from corvo.protocol.questions import LAG_BOUNDS_MS
from corvo.telemetry import Log
from corvo.times import MS
from corvo.topology import Nearest, Topology

_RETRY_S: Final = 0.25
"""Time between two tries to write, while the disk is full."""
_RETRY: Final = Retry(first_s=0.05, max_s=0.25)
"""Of links to shards: the mirror leaves the processor to the shard that starts again."""
_PAGES_MAX: Final = 4
"""Pages in the writer's queue; each follower may hold one more."""
_GATHERED_MAX: Final = 8_000
"""Documents of one transaction, without those of its last page."""
_LOOK_S: Final = 2.0
"""Time between two checks that the file is still there."""
_SETTLE_S: Final = 1.0
"""Time between two flushes to the disk. With more of them, pages that change often are written
again and again; with fewer, a large flush delays the shards' syncs."""
_RESTS: Final = 16
"""The writer's pause after a write, as a multiple of the time that it waited for a processor.
Niceness is not enough: no scheduler sees what two threads of one core take from each other."""
_REST_S_MAX: Final = 1.0


class WriterTask:
    """The task that writes pages, many at a time, in the order in which they come."""

    def __init__(
        self, writing: Writing, progress: Progress, config: MirrorConfig, log: Log
    ) -> None:
        self.lag: Final = empty(LAG_BOUNDS_MS)  # by how many ms rows were late when written
        self.written: Final = writing.written
        self._writing = writing
        self._progress = progress
        self._config = config
        self._log = log
        self._limiter = trio.CapacityLimiter(1)
        self._put, self._taken = trio.open_memory_channel[Page](_PAGES_MAX)
        self._moved = trio.Event()  # something was written, or a link was made
        self.is_stuck = False
        self._wal_bytes_max = config.wal_bytes_max
        self._waiting = 0  # questions that wait for rows which are not written yet
        self._hurry = trio.Event()
        # Readers that overlap keep SQLite's log growing, so from time to time new ones wait until
        # there are no readers.
        self.readers = 0
        self._gate = trio.Event()
        self._gate.set()
        self._quiet = trio.Event()

    async def put(self, page: Page) -> None:
        """Queue a page to be written; waits while the queue is full."""
        await self._put.send(page)

    async def run(self) -> None:
        """Write until cancelled. Raises `Damaged`."""
        while True:
            pages = [await self._next()]
            count = len(pages[0].pairs)
            with suppress(trio.WouldBlock):
                while count < _GATHERED_MAX:
                    page = self._taken.receive_nowait()
                    count += len(page.pairs)
                    pages.append(page)
            rest_s = await self._write(pages)
            now_ns = clock.now_ns()
            for page in pages:
                self._progress.written(page)
                if page.is_news:
                    self.lag.observe(max(0, now_ns - page.cursor.now_ns) / MS)
            self.look_again()
            if self._writing.wal_bytes > self._wal_bytes_max:
                await self._shrink()
            await self._rest(rest_s)

    async def _rest(self, seconds: float) -> None:
        """Pause, unless a question waits for rows; changes coalesce in the meantime."""
        self._hurry = trio.Event()
        if not self._waiting:
            with trio.move_on_after(seconds):
                await self._hurry.wait()

    async def _next(self) -> Page:
        """The next page. While there is none, check that the file is still there."""
        while True:
            with trio.move_on_after(_LOOK_S):
                return await self._taken.receive()
            self._writing.check_place()

    async def _write(self, pages: list[Page]) -> float:
        """Write pages; returns how many seconds to pause after that."""
        while True:
            try:
                self._writing.check_place()
                self._writing.check_room(self._config.room_bytes_min)
                rest_s = await trio.to_thread.run_sync(
                    _write, self._writing, pages, limiter=self._limiter
                )
            except Stuck as error:
                if not self.is_stuck:
                    self._log.warning(
                        "mirror.stuck",
                        reason=str(error),
                        then="the mirror waits for free disk space, and answers with older data",
                    )
                self.is_stuck = True
                await trio.sleep(_RETRY_S)
            else:
                if self.is_stuck:
                    self._log.info("mirror.unstuck")
                self.is_stuck = False
                return rest_s

    async def settle(self) -> None:
        """Flush to the disk at intervals, until cancelled. Raises `Damaged`."""
        while True:
            await trio.sleep(_SETTLE_S)
            await trio.to_thread.run_sync(self._writing.settle)

    # Readers.

    async def enter(self) -> None:
        """Count a question as a reader; waits while SQLite's log is being emptied."""
        while not self._gate.is_set():
            await self._gate.wait()
        self.readers += 1

    def leave(self) -> None:
        """Count a reader off."""
        self.readers -= 1
        if not self.readers:
            self._quiet.set()

    async def _shrink(self) -> None:
        """Empty SQLite's log once no question reads: each has a limited time, so that is soon."""
        self._gate = trio.Event()
        try:
            while self.readers:
                self._quiet = trio.Event()
                await self._quiet.wait()
            is_empty = False
            with suppress(Stuck):
                is_empty = await trio.to_thread.run_sync(
                    self._writing.shrink, limiter=self._limiter
                )
            # Another process that reads the file prevents it: the next try is when the log has
            # grown, and not with each page.
            bound = self._config.wal_bytes_max
            self._wal_bytes_max = bound if is_empty else self._writing.wal_bytes + bound // 4
        finally:
            self._gate.set()

    # Questions that wait for a position.

    def look_again(self) -> None:
        """Wake questions that wait: something was written, or a link was made."""
        self._moved.set()
        self._moved = trio.Event()

    async def wait_for(
        self, least: Mapping[int, int], hurry: Callable[[], None], *, links: bool = False
    ) -> None:
        """Wait until everything up to these indexes, by shard, is written.

        `hurry` is called as long as it is not: a page may end before them. With `links`, the shards
        must have links as well: else nobody knows that the indexes are still those of their logs.
        """
        progress = self._progress
        self._waiting += 1
        self._hurry.set()
        try:
            while not (progress.has(least) and (not links or progress.are_linked(least))):
                hurry()
                await self._moved.wait()
        finally:
            self._waiting -= 1


def _write(writing: Writing, pages: list[Page]) -> float:
    before = scheduled()
    writing.write(pages)
    now = scheduled()
    return rest_behind(ran_ns=now.ran - before.ran, queued_ns=now.queued - before.queued)


def rest_behind(*, ran_ns: int, queued_ns: int) -> float:
    """How many seconds to pause, so that other processes have the processors.

    A quarter of the time that it ran is no reason to pause: rows must not be late for it.
    """
    return min(_RESTS * max(0, queued_ns - ran_ns // 4) / 1e9, _REST_S_MAX)


class Follower:
    """Follows one shard."""

    def __init__(
        self,
        number: int,
        config: MirrorConfig,
        topology: Topology,
        progress: Progress,
        writer: WriterTask,
        log: Log,
    ) -> None:
        self.number: Final = number
        self._config = config
        self._seen = progress.shards[number]
        self._writer = writer
        self._log = log
        self._position: Final = Position(
            self._seen.cursor, keys_max=config.keys_max, scan_keys_max=config.scan_keys_max
        )
        self._serving: trio.CancelScope | None = None  # while there is a link
        self._nearest: Final = Nearest(topology, number)
        self._link: Final = KeptLink(
            f"shard-{number}",
            self._nearest,
            wire.make_hello(config, wire.MIRROR, shard=number),
            self._serve,
            retry=_RETRY,
        )
        self._is_anew = False  # a pass was asked for
        self._hurry = trio.Event()

    def hurry(self) -> None:
        """End the pause: a question waits for changes."""
        self._hurry.set()

    def begin_pass(self) -> None:
        """Go through all documents, from the first on."""
        self._is_anew = self._seen.is_due = True
        if self._serving is not None:  # it may be waiting for changes
            self._serving.cancel()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._nearest.keep, self._link)
            await self._link.run(self._log)

    async def _serve(self, link: Link) -> None:
        """Follow over one link, until it is lost or a pass is asked for."""
        self._nearest.reached()
        self._seen.is_linked = self._seen.was_linked = True
        self._writer.look_again()
        self._position.linked()
        try:
            with trio.CancelScope() as self._serving:
                if self._is_anew:
                    self._is_anew = False
                    await self._move(self._position.begin_pass())
                while True:
                    await self._take_turn(link)
        finally:
            self._serving = None
            self._seen.is_linked = False

    async def _take_turn(self, link: Link) -> None:
        """One page, of changes or of a pass."""
        position = self._position
        was_whole, at = position.cursor.is_whole, position.cursor.index
        request = position.next_request()
        answer = await self._ask(link, request)
        step = position.after(request, answer)
        if isinstance(answer, wire.Reset):
            self._log.info(
                "mirror.reset", shard=self.number, at=at, to=answer.index, begin=answer.begin
            )
        await self._move(step)
        if not was_whole and position.cursor.is_whole:
            through = position.cursor.through
            self._log.info("mirror.pass_ended", shard=self.number, through=through)
        is_few = was_whole and len(step.page.pairs) * 2 < self._config.keys_max
        if is_few and not step.is_pass:
            # There are few changes: after a pause there are more to write together.
            with trio.move_on_after(self._config.pause_ms / 1_000):
                await self._hurry.wait()
            self._hurry = trio.Event()

    async def _move(self, step: Step) -> None:
        """Queue a page and move the position to its end; when cancelled, neither."""
        await self._writer.put(step.page)
        self._position.move(step)
        self._seen.passes += step.is_pass

    async def _ask(self, link: Link, request: wire.FollowerRequest) -> wire.FollowerAnswer:
        if not link.send(request):
            raise LinkLost("the shard left", was_sent=False)
        answers = await link.receive(wire.TO_FOLLOWER)
        if not answers:
            raise LinkLost(f"the shard left: {link.goodbye}")
        if len(answers) > 1 or answers[0].id != request.id:
            raise WireError("an answer to a question that was not asked")
        return answers[0]
