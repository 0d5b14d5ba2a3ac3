"""The mirror process: follows all shards of its node, and answers questions across them.

    <data_dir>/mirror.db    the rows                                corvo.mirror.follow.schema
    <data_dir>/running      in which boot of the machine they are being written

All its rows follow from documents of the shards: it may be killed at any time, and its file
removed. It is ready when its socket is open; a question that comes before the file is open waits.
One thread writes; a bounded number of other threads answers questions, each with a connection that
can only read.
"""

import os
import sqlite3
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from corvo import child, telemetry
from corvo.connections import accept_link, listen_unix
from corvo.errors import CorvoError, WireError
from corvo.link import Link, LinkLost
from corvo.measures import LoopTimes
from corvo.mirror.config import BadMirrorConfig, MirrorConfig, read_config
from corvo.mirror.follow import building
from corvo.mirror.follow.checking import CheckTask
from corvo.mirror.follow.following import Follower, WriterTask
from corvo.mirror.follow.progress import Progress
from corvo.mirror.follow.schema import VERSION
from corvo.mirror.follow.writing import (
    BOOT_ID,
    NAME,
    Damaged,
    Stuck,
    Writing,
    is_damage,
    open_writing,
)
from corvo.mirror.query.reading import Reading
from corvo.mirror.readers import Readers, pack
from corvo.process_stats import ProcessStatsReader
from corvo.protocol import wire
from corvo.protocol.questions import (
    QUESTIONS,
    Freshness,
    GetStanding,
    MirrorAnswer,
    Question,
    Rebuild,
    Rebuilding,
    Refused,
    Standing,
)
from corvo.telemetry import Log
from corvo.topology import Topology, topology_of
from corvo.watchdog import watch

_SWITCH_S: Final = 50e-6
"""How long the loop waits at most for a thread that decodes or counts."""
_RETRY_S: Final = 0.25
_ROOM_S: Final = 0.005
"""Time between two checks whether a link has room for an answer."""
_RETRY_AFTER_MS: Final = 100
_TRACE_LINES: Final = 40
_GROUP: Final = Path("/proc/self/autogroup")


class Mirror:
    """The mirror with its file open: followers, writer and readers."""

    def __init__(
        self,
        config: MirrorConfig,
        writing: Writing,
        log: Log,
        topology: Topology | None = None,
    ) -> None:
        self._config = config
        self._writing = writing
        self.topology: Final = topology or topology_of(config)
        self.progress: Final = Progress(writing.cursors(config.shards))
        self.writer: Final = WriterTask(writing, self.progress, config, log)
        self.readers: Final = Readers(writing.path, self.writer, config.readers)
        self._check: Final = CheckTask(writing, config.wal_bytes_max // 2, log)
        self._log = log
        self.followers: Final = [
            Follower(number, config, self.topology, self.progress, self.writer, log)
            for number in range(config.shards)
        ]
        self._stats_reader = ProcessStatsReader()
        self._open = 0  # questions that have a reader, or wait for one
        self._waiting = 0  # questions that wait for a position
        self._questions = 0
        self._rebuilds = 0

    async def run(self) -> None:
        """Follow, write and check until cancelled. Raises `Damaged`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self.writer.settle)
            nursery.start_soon(self.readers.interrupt_late)
            nursery.start_soon(self._check.run)
            for follower in self.followers:
                nursery.start_soon(follower.run)

    async def answer(self, ask: wire.Ask, readings: set[Reading]) -> wire.Reply | wire.Busy:
        """Answer a question. Raises `Damaged`."""
        self._questions += 1
        question = _read(ask)
        refusal = question if isinstance(question, Refused) else None
        if isinstance(question, Question) and not self.progress.has(question.min_seq):
            # They are counted apart: positions that are never reached must not keep others out.
            if self._waiting >= self._config.questions_max:
                return wire.Busy(ask.id, _RETRY_AFTER_MS)
            self._waiting += 1
            try:
                refusal = await self._catch_up(question)
            finally:
                self._waiting -= 1
        if refusal is not None:
            return wire.Reply(ask.id, refusal.code, msgspec.json.encode(refusal))
        assert isinstance(question, Question)
        if question.freshness is not None:
            question = replace(question, freshness=await self._freshen(question.freshness))
        if self._open >= self._config.questions_max:
            return wire.Busy(ask.id, _RETRY_AFTER_MS)
        self._open += 1
        try:
            found = await self._answer(question, readings)
        except trio.TooSlowError:
            return wire.Busy(ask.id, _RETRY_AFTER_MS)
        except Exception as error:
            # A bug in one answer is logged, and is the answer; it must not end the process that
            # answers all others.
            if isinstance(error, sqlite3.Error) and is_damage(error):
                raise Damaged(f"a question found damage: {error}") from error
            found = self._failed(ask, error)
        finally:
            self._open -= 1
        if isinstance(found, Refused):
            return wire.Reply(ask.id, found.code, msgspec.json.encode(found))
        return wire.Reply(ask.id, "", found)

    def too_large(self, ask: wire.Ask, error: WireError) -> wire.Reply:
        """The refusal for an answer that no message can hold."""
        self._log.error("question.too_large", question=ask.query, error=str(error))
        refused = Refused(code="too_large", error="the answer is too large for one message")
        return wire.Reply(ask.id, refused.code, msgspec.json.encode(refused))

    def _failed(self, ask: wire.Ask, error: Exception) -> Refused:
        """Log a question that raised, and refuse it."""
        lines = traceback.format_exception(error)
        self._log.error(
            "question.failed",
            question=ask.query,
            error=repr(error),
            trace="".join(lines[-_TRACE_LINES:]),
        )
        return Refused(code="failed", error="the mirror could not answer; the log has the reason")

    async def _answer(self, question: Question, readings: set[Reading]) -> bytes | Refused:
        match question:
            case GetStanding():
                return pack(MirrorAnswer(msgspec.json.encode(await self._standing())))
            case Rebuild():
                return pack(MirrorAnswer(msgspec.json.encode(self._rebuild())))
            case _:
                return await self.readers.look_up(question, readings)

    async def _catch_up(self, question: Question) -> Refused | None:
        """Wait for the position that a question needs; the refusal when that takes too long."""
        with trio.move_on_after(self._config.catch_up_ms / 1_000):
            await self._wait_for(question.min_seq)
            return None
        return Refused(
            code="not_caught_up",
            error="the mirror has not read this position yet",
            as_of=self.progress.as_of(),
        )

    async def _freshen(self, freshness: Freshness) -> Freshness:
        """Wait for the rows that a question would like; returns what its answer is held to.

        Rows that cannot come now are not waited for: of a shard whose link was lost, and all rows
        while the disk is full. A shard without a link may be back with another log, whose positions
        say nothing about our rows. A shard whose position is 0 has not told its first entry, and
        will at once: without it, it is not known that the shard has no rows.
        """
        progress = self.progress
        positions = {number: max(1, at) for number, at in freshness.positions.items()}
        coming = {number: at for number, at in positions.items() if progress.may_come(number)}
        is_there = progress.has(coming) and progress.are_linked(coming)
        if not is_there and not self.writer.is_stuck:
            with trio.move_on_after(freshness.wait_ms / 1_000):
                await self._wait_for(coming, links=True)
        away = [
            number
            for number in positions
            if number not in coming or not progress.are_linked([number])
        ]
        return replace(freshness, unknown=(*freshness.unknown, *away))

    async def _wait_for(self, least: Mapping[int, int], *, links: bool = False) -> None:
        """Wait until the rows are as of these positions, and have them come without pauses."""

        def hurry() -> None:
            for follower in self.followers:
                if not self.progress.has({follower.number: least.get(follower.number, 0)}):
                    follower.hurry()

        await self.writer.wait_for(least, hurry, links=links)

    async def _standing(self) -> Standing:
        stats = self._stats_reader.read()
        lag = self.writer.lag
        return Standing(
            shards=self.progress.standings(),
            file_bytes=self._writing.file_bytes,
            jobs=await self.readers.count_jobs(_RETRY_AFTER_MS),
            rebuilds=self._rebuilds,
            lag_seconds=list(lag.counts),
            lag_sum_ms=lag.total,
            questions=self._questions,
            interrupted=self.readers.interrupted,
            schema=VERSION,
            rss_bytes=stats.resident_bytes,
            cpu_seconds=stats.cpu_user_s + stats.cpu_system_s,
        )

    def _rebuild(self) -> Rebuilding:
        """Begin a full pass over every shard. The rows stay until they are written again."""
        self._rebuilds += 1
        for follower in self.followers:
            follower.begin_pass()
        return Rebuilding(shards=len(self.followers))

    def close(self) -> None:
        """Close the file, so that the next start can trust it."""
        self.readers.close()
        self._writing.close()
        self._stats_reader.close()


def _read(ask: wire.Ask) -> Question | Refused:
    """The question in a message."""
    kind = QUESTIONS.get(ask.query)
    if kind is None:
        return Refused(code="unknown_query", error=f"there is no question {ask.query}")
    try:
        return msgspec.json.decode(ask.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Refused(code="bad_filter", error=str(error))


# The process.


class QuestionServer:
    """The server of the mirror's socket: it answers the questions of routers."""

    def __init__(self, config: MirrorConfig) -> None:
        self.loop: Final = LoopTimes()
        self.topology: Final = topology_of(config)
        self._config = config
        self._mirror: Mirror | None = None
        self._opened = trio.Event()

    def update(self, update: child.Update) -> None:
        """Take over a change of the cluster."""
        self.topology.update(update.map, update.sockets)

    def open(self, mirror: Mirror) -> None:
        """Begin to answer: the file is open."""
        self._mirror = mirror
        self._opened.set()

    def close(self) -> None:
        """Close the mirror; no question is under way any more."""
        if self._mirror is not None:
            self._mirror.close()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer a router."""
        hello = wire.make_hello(self._config, wire.MIRROR, shard=wire.ALL_SHARDS)
        with suppress(LinkLost, WireError):
            async with accept_link(stream, hello) as link:
                await self._answer_all(link)

    async def _answer_all(self, link: Link) -> None:
        readings: set[Reading] = set()
        lost: LinkLost | WireError | None = None
        async with trio.open_nursery() as nursery:
            try:
                while messages := await link.receive(wire.FROM_ROUTER):
                    for message in messages:
                        if isinstance(message, wire.Ask):
                            nursery.start_soon(self._answer, link, message, readings)
                        else:
                            body = msgspec.json.encode(
                                Refused(code="unknown_query", error="nothing is changed here")
                            )
                            link.send(wire.Reply(message.id, "unknown_query", body))
            except (LinkLost, WireError) as error:
                lost = error
            finally:
                for reading in tuple(readings):
                    reading.abandon()
                nursery.cancel_scope.cancel()
        if lost is not None:
            raise lost

    async def _answer(self, link: Link, ask: wire.Ask, readings: set[Reading]) -> None:
        if self._mirror is None:
            with trio.move_on_after(self._config.catch_up_ms / 1_000):
                await self._opened.wait()
        if self._mirror is None:
            link.send(wire.Busy(ask.id, _RETRY_AFTER_MS))
            return
        reply = await self._mirror.answer(ask, readings)
        # The link takes a limited number of bytes at a time, and every answer has to be sent.
        while link.is_open:
            try:
                if link.send(reply):
                    return
            except WireError as error:
                reply = self._mirror.too_large(ask, error)
            else:
                await trio.sleep(_ROOM_S)


async def run(config: MirrorConfig, parent: child.Parent, log: Log) -> None:
    """Run the mirror until stdin closes. Raises `Damaged`."""
    listener = await listen_unix(config.socket)
    server = QuestionServer(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, server.loop, log)
        nursery.start_soon(partial(trio.serve_listeners, server.serve, [listener]))
        child.say_ready()
        nursery.start_soon(_follow, config, server, log)
        if not await parent.wait(server.update):
            child.exit_now()
        nursery.cancel_scope.cancel()
    server.close()


async def _follow(config: MirrorConfig, server: QuestionServer, log: Log) -> None:
    mirror = Mirror(config, await _open(config, log), log, server.topology)
    server.open(mirror)
    await mirror.run()


async def _open(config: MirrorConfig, log: Log) -> Writing:
    """Open the file, as soon as the disk has room for it."""
    directory = Path(config.data_dir)
    boot_id = BOOT_ID.read_text().strip()
    opening: Callable[[], tuple[Writing, str]] = partial(
        open_writing,
        directory,
        config.cluster,
        config.shards,
        boot_id=boot_id,
        checkpoint_pages=config.checkpoint_pages,
    )
    is_logged = False
    while True:
        try:
            writing, why = await trio.to_thread.run_sync(opening)
        except Stuck as error:
            if not is_logged:
                log.warning(
                    "mirror.stuck", reason=str(error), then="the mirror waits for free disk space"
                )
            is_logged = True
            await trio.sleep(_RETRY_S)
        else:
            if why:
                log.warning("mirror.made_anew", file=str(directory / NAME), reason=why)
            return writing


def lower_priority(niceness: int) -> None:
    """Lower this process's share of the processors.

    Where Linux groups processes by session, niceness counts only within a group, and this process
    is a group of its own: then the niceness of the group is set.
    """
    os.nice(niceness)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # it is not grouped so, or may not be
            _GROUP.write_text(str(niceness))


def main() -> int:
    """Read the config and follow; returns the exit code."""
    parent = child.Parent()
    try:
        config = read_config(parent.read_line())
    except BadMirrorConfig as error:
        return child.complain("mirror", child.MISCONFIGURED, "config", error)
    lower_priority(config.niceness)
    child.collect_seldom()
    sys.setswitchinterval(_SWITCH_S)
    with telemetry.open_log("mirror", form=config.log_format, level=config.log_level) as log:
        try:
            trio.run(run, config, parent, log)
        except Exception as error:  # noqa: BLE001 -- behind this there is only the exit code
            return end(config, child.first_of(error), log)
    return child.OK


def end(config: MirrorConfig, error: BaseException, log: Log) -> int:
    """Log why this process ends; returns the exit code."""
    match error:
        case Damaged():
            building.remove(Path(config.data_dir) / NAME)
            log.error("mirror.damaged", reason=str(error), then="the next start rebuilds the file")
        case CorvoError() | OSError():
            log.error("mirror.failed", reason=str(error))
        case _:
            traceback.print_exception(error, file=sys.stderr)
            log.error("mirror.bug", reason=repr(error))
    return child.FAILED
