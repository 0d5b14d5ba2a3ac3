"""The mirror's tasks: one that follows each shard, and one that writes what they bring.

A follower asks for changes behind its cursor and hands them to the scribe, which writes what came
from all shards in one transaction. When a shard cannot tell what changed from there (`Reset`), the
follower takes the shard's present place for its cursor and begins a full pass, page by page, with
changes in between. Whatever comes later is newer, so it is written in the order in which it came.
"""

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec
import trio

from corvo import clock
from corvo.errors import WireError
from corvo.kept_link import KeptLink, Retry
from corvo.link import Link, LinkLost, UnixAddress
from corvo.mirror.config import MirrorConfig
from corvo.mirror.follow.places import Cursor, Page, Places
from corvo.mirror.follow.writing import Stuck, Writing, scheduled
from corvo.protocol import wire
from corvo.protocol.questions import LAG_BOUNDS_MS
from corvo.telemetry import Log
from corvo.times import MS

_RETRY_S: Final = 0.25
"""Between two tries to write, while the disk has no room."""
_RETRY: Final = Retry(first_s=0.05, max_s=0.25)
"""Of links to shards: the mirror leaves the processor to the shard that starts again."""
_PAGES_MAX: Final = 4
"""Pages that wait to be written, beside the one that each shard may hold."""
_GATHERED_MAX: Final = 8_000
"""Documents of one transaction, but for those of its last page."""
_LOOK_S: Final = 2.0
"""Between two looks whether the file is still there."""
_SETTLE_S: Final = 1.0
"""Between two times that the disk is made to take what it has of ours. More often, pages that
change all the time are written again and again; more seldom, they hold up the shards' syncs."""
_RESTS: Final = 16
"""Whoever had to queue long for a processor rests so many times as long, for others want it.
Niceness alone does not do: what two threads of one core take from each other no scheduler sees."""
_REST_S_MAX: Final = 1.0


class Lag:
    """How late rows were when they were written."""

    def __init__(self) -> None:
        self.counts: Final = [0] * (len(LAG_BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def note(self, late_ns: int) -> None:
        """Rows of a page were so late."""
        late_ms = max(0, late_ns) / MS
        self.counts[bisect_left(LAG_BOUNDS_MS, late_ms)] += 1
        self.sum_ms += late_ms


class Scribe:
    """Writes pages in the order in which they come, many at a time."""

    def __init__(self, writing: Writing, places: Places, config: MirrorConfig, log: Log) -> None:
        self.lag: Final = Lag()
        self._writing = writing
        self._places = places
        self._config = config
        self._log = log
        self._limiter = trio.CapacityLimiter(1)
        self._put, self._taken = trio.open_memory_channel[Page](_PAGES_MAX)
        self._moved = trio.Event()  # something was written
        self._is_stuck = False
        self._wal_bytes_max = config.wal_bytes_max
        self._wanted = 0  # how many wait for what is not written yet
        self._hurry = trio.Event()
        # A reader that begins while another still reads keeps SQLite's log growing, so from time
        # to time new ones wait until there is none.
        self.readers = 0
        self._gate = trio.Event()
        self._gate.set()
        self._quiet = trio.Event()

    async def put(self, page: Page) -> None:
        """Have a page written; waits while too many do."""
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
                self._places.written(page)
                if page.is_news:
                    self.lag.note(now_ns - page.cursor.now_ns)
            self._moved.set()
            self._moved = trio.Event()
            if self._writing.wal_bytes > self._wal_bytes_max:
                await self._shrink()
            await self._rest(rest_s)

    async def _rest(self, seconds: float) -> None:
        """Leave the processor to others, unless somebody waits for us; news coalesces meanwhile."""
        self._hurry = trio.Event()
        if not self._wanted:
            with trio.move_on_after(seconds):
                await self._hurry.wait()

    async def _next(self) -> Page:
        """The next page. While there is none, look whether the file is still there."""
        while True:
            with trio.move_on_after(_LOOK_S):
                return await self._taken.receive()
            self._writing.check_place()

    async def _write(self, pages: list[Page]) -> float:
        """Write pages; returns for how many seconds to rest behind that."""
        while True:
            try:
                self._writing.check_place()
                self._writing.check_room(self._config.room_bytes_min)
                rest_s = await trio.to_thread.run_sync(
                    _write, self._writing, pages, limiter=self._limiter
                )
            except Stuck as error:
                if not self._is_stuck:
                    self._log.warning(
                        "mirror.stuck",
                        reason=str(error),
                        then="the mirror waits for free disk space, and answers with older data",
                    )
                self._is_stuck = True
                await trio.sleep(_RETRY_S)
            else:
                if self._is_stuck:
                    self._log.info("mirror.unstuck")
                self._is_stuck = False
                return rest_s

    async def settle(self) -> None:
        """Have the disk take a little at a time, until cancelled. Raises `Damaged`."""
        while True:
            await trio.sleep(_SETTLE_S)
            await trio.to_thread.run_sync(self._writing.settle)

    # Readers.

    async def enter(self) -> None:
        """A question begins to read; waits while SQLite's log is being emptied."""
        while not self._gate.is_set():
            await self._gate.wait()
        self.readers += 1

    def leave(self) -> None:
        """It has read."""
        self.readers -= 1
        if not self.readers:
            self._quiet.set()

    async def _shrink(self) -> None:
        """Empty SQLite's log when nobody reads: a question has its time, so that is soon."""
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
            # Whoever reads the file from outside keeps it as it is: it is tried again when there is
            # more, and not with each page.
            bound = self._config.wal_bytes_max
            self._wal_bytes_max = bound if is_empty else self._writing.wal_bytes + bound // 4
        finally:
            self._gate.set()

    # Whoever waits for us to come somewhere.

    async def wait_for(self, least: Mapping[int, int]) -> None:
        """Wait until everything up to these places, by shard, is written."""
        self._wanted += 1
        self._hurry.set()
        try:
            while not self._places.has(least):
                await self._moved.wait()
        finally:
            self._wanted -= 1


def _write(writing: Writing, pages: list[Page]) -> float:
    before = scheduled()
    writing.write(pages)
    now = scheduled()
    return rest_behind(ran_ns=now.ran - before.ran, queued_ns=now.queued - before.queued)


def rest_behind(*, ran_ns: int, queued_ns: int) -> float:
    """For how many seconds to leave the processors to others.

    Some queueing is everybody's lot, and news must not be late for it.
    """
    return min(_RESTS * max(0, queued_ns - ran_ns // 4) / 1e9, _REST_S_MAX)


class Follower:
    """Follows one shard."""

    def __init__(
        self, number: int, config: MirrorConfig, places: Places, scribe: Scribe, log: Log
    ) -> None:
        self._number = number
        self._config = config
        self._seen = places.seen[number]
        self._scribe = scribe
        self._log = log
        # Ahead of what is written: pages that wait to be are behind it.
        self._cursor: Cursor = self._seen.cursor
        self._more = b""
        """The last key told of an entry whose documents are too large for one answer."""
        self._last_id = 0
        self._serving: trio.CancelScope | None = None  # while there is a link
        self._link: Final = KeptLink(
            f"shard-{number}",
            UnixAddress(config.sockets[number]),
            wire.make_hello(config, wire.MIRROR, shard=number),
            self._serve,
            retry=_RETRY,
        )
        self._is_anew = False  # a pass was asked for
        self._hurry = trio.Event()

    def hurry(self) -> None:
        """Somebody waits for what is new."""
        self._hurry.set()

    def begin_pass(self) -> None:
        """Go through all documents, from the first on."""
        self._is_anew = self._seen.is_due = True
        if self._serving is not None:  # which may be waiting for news
            self._serving.cancel()

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._link.run(self._log)

    async def _serve(self, link: Link) -> None:
        """Follow over one link, until it is lost or a pass is asked for."""
        self._seen.is_linked = True
        self._more = b""
        try:
            with trio.CancelScope() as self._serving:
                if self._is_anew:
                    self._is_anew = False
                    await self._move(
                        msgspec.structs.replace(self._cursor, pass_key=b""), is_pass=True
                    )
                while True:
                    await self._take_turn(link)
        finally:
            self._serving = None
            self._seen.is_linked = False

    async def _take_turn(self, link: Link) -> None:
        """One page of changes; while a pass is under way, one of the pass before it."""
        if self._cursor.pass_key is not None:
            through = await self._scan(link, self._cursor.pass_key)
            # Without news an answer would wait for some, and the pass with it.
            if through > self._cursor.index:
                await self._follow(link)
        elif await self._follow(link) * 2 < self._config.keys_max:
            # There is little news, so what changes now had better be taken together.
            with trio.move_on_after(self._config.pause_ms / 1_000):
                await self._hurry.wait()
            self._hurry = trio.Event()

    async def _scan(self, link: Link, after: bytes) -> int:
        """Take a page of the pass; the place that it is as of."""
        self._last_id += 1
        request = wire.Scan(self._last_id, after, self._config.scan_keys_max)
        answer = await self._ask(link, request)
        if not isinstance(answer, wire.Scanned):
            raise WireError(f"a scan was answered with {type(answer).__name__}")
        reached = self._cursor.reached(answer.through, answer.through_digest)
        await self._move(
            msgspec.structs.replace(reached, pass_key=answer.last or None),
            pairs=answer.pairs,
            scanned=(after, answer.last),
        )
        if self._cursor.is_whole:
            self._log.info("mirror.pass_ended", shard=self._number, through=self._cursor.through)
        return answer.through

    async def _follow(self, link: Link) -> int:
        """Take a page of changes; how many documents there were."""
        self._last_id += 1
        cursor = self._cursor
        request = wire.Follow(
            self._last_id,
            cursor.index,
            cursor.digest,
            keys_max=self._config.keys_max,
            after_key=self._more,
            through=cursor.through if cursor.through > cursor.index else 0,
            through_digest=cursor.through_digest,
        )
        answer = await self._ask(link, request)
        match answer:
            case wire.Changes():
                moved = msgspec.structs.replace(
                    cursor.reached(answer.through, answer.through_digest),
                    index=answer.index,
                    digest=answer.digest,
                    # A part of an entry brings us no further, and is no news of a later time.
                    now_ns=answer.now_ns if answer.index > cursor.index else cursor.now_ns,
                )
                await self._move(moved, pairs=answer.pairs, is_news=True)
                self._more = answer.more
                return len(answer.pairs)
            case wire.Reset():
                await self._begin_anew(answer)
            case wire.Scanned():
                raise WireError("changes were answered with a page of a pass")
        return self._config.keys_max

    async def _begin_anew(self, reset: wire.Reset) -> None:
        """What we have may be of another log: everything is to be looked at."""
        self._log.info(
            "mirror.reset",
            shard=self._number,
            at=self._cursor.index,
            to=reset.index,
            begin=reset.begin,
        )
        cursor = Cursor(
            self._number,
            index=reset.index,
            digest=reset.digest,
            now_ns=reset.now_ns,
            through=reset.index,
            pass_key=b"",
            through_digest=reset.digest,
        )
        await self._move(cursor, is_pass=True)
        self._more = b""

    async def _move(
        self,
        cursor: Cursor,
        *,
        pairs: tuple[wire.Pair, ...] = (),
        scanned: tuple[bytes, bytes] | None = None,
        is_news: bool = False,
        is_pass: bool = False,
    ) -> None:
        """Have a page written and be where it ends; when cancelled, neither."""
        await self._scribe.put(Page(cursor, pairs, scanned, is_news))
        self._cursor = cursor
        self._seen.passes += is_pass

    async def _ask(self, link: Link, request: wire.FollowerRequest) -> wire.FollowerAnswer:
        if not link.send(request):
            raise LinkLost("the shard left", was_sent=False)
        answers = await link.receive(wire.TO_FOLLOWER)
        if not answers:
            raise LinkLost(f"the shard left: {link.goodbye}")
        if len(answers) > 1 or answers[0].id != request.id:
            raise WireError("an answer to a question that was not asked")
        return answers[0]
