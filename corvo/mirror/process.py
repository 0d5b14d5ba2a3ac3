"""The mirror process: follows all shards of its node, and answers what needs a view across them.

    <data_dir>/mirror.db    the rows                                corvo.mirror.follow.schema
    <data_dir>/running      in which boot of the machine they are being written

It holds nothing that the shards do not hold, so it may be killed at any time, and its file removed.
It says `ready` when it can be asked; who asks before the file is open waits. One thread writes;
questions are looked up in threads of their own, so many at a time, each with a connection that can
do nothing but read.
"""

import os
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo import child, telemetry
from corvo.errors import CorvoError, WireError
from corvo.link import Link, LinkLost, accept_link, listen_unix
from corvo.measures import LoopTimes
from corvo.mirror.config import BadMirrorConfig, MirrorConfig, read_config
from corvo.mirror.follow.following import Follower, Scribe
from corvo.mirror.follow.places import Places
from corvo.mirror.follow.schema import VERSION
from corvo.mirror.follow.writing import (
    BOOT_ID,
    NAME,
    Damaged,
    Stuck,
    Writing,
    discard,
    is_damage,
    open_writing,
)
from corvo.mirror.query.reading import Reading
from corvo.mirror.readers import Readers, pack
from corvo.process_stats import ProcessStatsReader
from corvo.protocol import wire
from corvo.protocol.questions import (
    QUESTIONS,
    GetStanding,
    MirrorAnswer,
    Question,
    Rebuild,
    Rebuilding,
    Refused,
    Standing,
)
from corvo.telemetry import Log
from corvo.watchdog import watch

_SWITCH_S: Final = 50e-6
"""The loop has little to do, and should not wait long for a thread that decodes or counts."""
_RETRY_S: Final = 0.25
_ROOM_S: Final = 0.005
"""Between two looks whether a link has room for an answer."""
_RETRY_AFTER_MS: Final = 100
_TRACE_LINES: Final = 40
_GROUP: Final = Path("/proc/self/autogroup")


class Mirror:
    """The mirror at work, with its file open."""

    def __init__(self, config: MirrorConfig, writing: Writing, log: Log) -> None:
        self._config = config
        self._writing = writing
        self.places: Final = Places(writing.cursors(config.shards))
        self.scribe: Final = Scribe(writing, self.places, config, log)
        self.readers: Final = Readers(writing.path, self.scribe, config.readers)
        self._log = log
        self.followers: Final = [
            Follower(number, config, self.places, self.scribe, log)
            for number in range(config.shards)
        ]
        self._stats_reader = ProcessStatsReader()
        self._open = 0  # questions that are being looked up, or wait for their turn
        self._waiting = 0  # questions for which this mirror has not come far enough
        self._questions = 0
        self._rebuilds = 0

    async def run(self) -> None:
        """Follow and write until cancelled. Raises `Damaged`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.scribe.run)
            nursery.start_soon(self.scribe.settle)
            nursery.start_soon(self.readers.mind)
            for follower in self.followers:
                nursery.start_soon(follower.run)

    async def answer(self, ask: wire.Ask, readings: set[Reading]) -> wire.Reply | wire.Busy:
        """Answer a question. Raises `Damaged`."""
        self._questions += 1
        question = _read(ask)
        refusal = question if isinstance(question, Refused) else None
        if isinstance(question, Question) and not self.places.has(question.min_seq):
            # They are counted apart: whoever asks for what will never be must not keep others out.
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
        if self._open >= self._config.questions_max:
            return wire.Busy(ask.id, _RETRY_AFTER_MS)
        self._open += 1
        try:
            told = await self._answer(question, readings)
        except trio.TooSlowError:
            return wire.Busy(ask.id, _RETRY_AFTER_MS)
        except Exception as error:
            # Behind a question is only its answer: a bug in one is logged, and told to whoever
            # asked, and must not end what answers all others.
            if isinstance(error, sqlite3.Error) and is_damage(error):
                raise Damaged(f"a question found damage: {error}") from error
            told = self._failed(ask, error)
        finally:
            self._open -= 1
        if isinstance(told, Refused):
            return wire.Reply(ask.id, told.code, msgspec.json.encode(told))
        return wire.Reply(ask.id, "", told)

    def too_large(self, ask: wire.Ask, error: WireError) -> wire.Reply:
        """For an answer that no message can hold."""
        self._log.error("question.too_large", question=ask.query, error=str(error))
        told = Refused(code="too_large", error="the answer is too large for one message")
        return wire.Reply(ask.id, told.code, msgspec.json.encode(told))

    def _failed(self, ask: wire.Ask, error: Exception) -> Refused:
        """One question must not cost everybody the mirror, whether it is our bug or its own."""
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
        """Wait until what is asked for is written; why it is not, after some time."""
        with trio.move_on_after(self._config.catch_up_ms / 1_000):
            for number in question.min_seq:
                if 0 <= number < len(self.followers):
                    self.followers[number].hurry()
            await self.scribe.wait_for(question.min_seq)
            return None
        return Refused(
            code="not_caught_up",
            error="the mirror has not read this position yet",
            as_of=self.places.as_of(),
        )

    async def _standing(self) -> Standing:
        stats = self._stats_reader.read()
        lag = self.scribe.lag
        return Standing(
            shards=self.places.standings(),
            file_bytes=self._writing.file_bytes,
            jobs=await self.readers.count_jobs(_RETRY_AFTER_MS),
            rebuilds=self._rebuilds,
            lag_seconds=list(lag.counts),
            lag_sum_ms=lag.sum_ms,
            questions=self._questions,
            interrupted=self.readers.interrupted,
            schema=VERSION,
            rss_bytes=stats.resident_bytes,
            cpu_seconds=stats.cpu_user_s + stats.cpu_system_s,
        )

    def _rebuild(self) -> Rebuilding:
        """Look at every document again. Until then rows are what they are."""
        self._rebuilds += 1
        for follower in self.followers:
            follower.begin_pass()
        return Rebuilding(shards=len(self.followers))

    def close(self) -> None:
        """Leave the file as the next start may believe it."""
        self.readers.close()
        self._writing.close()
        self._stats_reader.close()


def _read(ask: wire.Ask) -> Question | Refused:
    """The question that somebody asks."""
    kind = QUESTIONS.get(ask.query)
    if kind is None:
        return Refused(code="unknown_query", error=f"there is no question {ask.query}")
    try:
        return msgspec.json.decode(ask.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Refused(code="bad_filter", error=str(error))


# The process.


class Desk:
    """Where questions come in."""

    def __init__(self, config: MirrorConfig) -> None:
        self.loop: Final = LoopTimes()
        self._config = config
        self._mirror: Mirror | None = None
        self._opened = trio.Event()

    def open(self, mirror: Mirror) -> None:
        """The file is open: questions can be answered."""
        self._mirror = mirror
        self._opened.set()

    def close(self) -> None:
        """Nothing is under way any more."""
        if self._mirror is not None:
            self._mirror.close()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer a router."""
        hello = wire.make_hello(self._config, wire.MIRROR, shard=wire.ALL_SHARDS)
        with suppress(LinkLost, WireError):
            async with accept_link(stream, hello) as link:
                await self._hear(link)

    async def _hear(self, link: Link) -> None:
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
        told = await self._mirror.answer(ask, readings)
        # Pages of some MiB each may be more than the link takes at a time. An answer that is left
        # out would be waited for in vain.
        while link.is_open:
            try:
                if link.send(told):
                    return
            except WireError as error:
                told = self._mirror.too_large(ask, error)
            else:
                await trio.sleep(_ROOM_S)


async def run(config: MirrorConfig, log: Log) -> None:
    """Be the mirror until stdin closes. Raises `Damaged`."""
    listener = await listen_unix(config.socket)
    desk = Desk(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, desk, log)
        nursery.start_soon(partial(trio.serve_listeners, desk.serve, [listener]))
        child.say_ready()
        nursery.start_soon(_follow, config, desk, log)
        if not await child.wait_for_parent():
            child.exit_now()
        nursery.cancel_scope.cancel()
    desk.close()


async def _follow(config: MirrorConfig, desk: Desk, log: Log) -> None:
    mirror = Mirror(config, await _open(config, log), log)
    desk.open(mirror)
    await mirror.run()


async def _open(config: MirrorConfig, log: Log) -> Writing:
    """Open the file, as soon as there is room for it."""
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
    is_told = False
    while True:
        try:
            writing, why = await trio.to_thread.run_sync(opening)
        except Stuck as error:
            if not is_told:
                log.warning(
                    "mirror.stuck", reason=str(error), then="the mirror waits for free disk space"
                )
            is_told = True
            await trio.sleep(_RETRY_S)
        else:
            if why:
                log.warning("mirror.made_anew", file=str(directory / NAME), reason=why)
            return writing


def stand_back(niceness: int) -> None:
    """Let others have the processor first.

    Where Linux groups processes by session, niceness counts only within a group, and ours is one of
    its own: then the group has to be nice.
    """
    os.nice(niceness)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # it is not grouped so, or may not be
            _GROUP.write_text(str(niceness))


def main() -> int:
    """Read the config and follow; returns the exit code."""
    try:
        config = read_config(sys.stdin.buffer.readline())
    except BadMirrorConfig as error:
        return child.complain("mirror", child.MISCONFIGURED, "config", error)
    stand_back(config.niceness)
    child.collect_seldom()
    sys.setswitchinterval(_SWITCH_S)
    with telemetry.open_log("mirror", form=config.log_format, level=config.log_level) as log:
        try:
            trio.run(run, config, log)
        except Exception as error:  # noqa: BLE001 -- behind this there is only the exit code
            return end(config, child.first_of(error), log)
    return child.OK


def end(config: MirrorConfig, error: BaseException, log: Log) -> int:
    """Say why this process ends; returns the exit code."""
    match error:
        case Damaged():
            discard(Path(config.data_dir))
            log.error("mirror.damaged", reason=str(error), then="the next start rebuilds the file")
        case CorvoError() | OSError():
            log.error("mirror.failed", reason=str(error))
        case _:
            traceback.print_exception(error, file=sys.stderr)
            log.error("mirror.bug", reason=repr(error))
    return child.FAILED
