"""A stream: one WebSocket over which a client works, frame by frame. See `docs/stream.md`.

A frame is begun, and while it waits for its answers the next one is read and begun. So frames are
begun in the order they come in, each is answered when all of it is done, and none holds up another.
There is a bound on how many may be under way and on how much may wait to be sent: beyond it nothing
is read, so that a client which sends faster than we answer is held up by the kernel's buffers, and
one that does not read its answers is not read either.

What was claimed for a client that is gone is given back.
"""

from typing import Final, Protocol

import trio
from msgspec.structs import replace

from corvo.errors import CorvoError
from corvo.router.api import Api
from corvo.router.http.messages import Problem, Request
from corvo.router.stream.frame_run import FrameRun
from corvo.router.stream.frames import Incoming, Reply, Unreadable, decode, encode, refuse

UNSENT_BYTES_MAX: Final = 4 << 20
"""Of answers that wait to be sent, before no further frame is begun. Those under way by then may
bring more: each what one fetch gives."""
_CLOSE_S: Final = 1.0
"""For telling a client why it is sent away: it may not be reading."""
_REASON_MAX: Final = 120
"""Characters of ASCII that a close frame has room for."""

GOING_AWAY: Final = 1001
UNREADABLE: Final = 1007
POLICY: Final = 1008
TOO_LARGE: Final = 1009
TRY_AGAIN: Final = 1013


class ChannelClosed(CorvoError):
    """The client has gone, or its connection has."""


class Channel(Protocol):
    """A WebSocket that was accepted: whole messages in both directions.

    That the client is gone shows as `ChannelClosed`, or by whoever runs the stream cancelling it.
    """

    async def receive(self) -> bytes | str:
        """The next message. Raises `ChannelClosed`."""

    async def send(self, message: bytes | str) -> None:
        """Send a message, waiting until there is room for it. Raises `ChannelClosed`."""

    async def close(self, code: int, reason: str) -> None:
        """Say why it ends. Raises `ChannelClosed`."""


async def run_stream(api: Api, request: Request, channel: Channel) -> None:
    """Serve a stream until it ends, and close it. `request` is its handshake.

    Who asks is looked up again for every frame: a key that was revoked ends the stream.
    """
    if api.streams >= api.limits.streams_max:
        await _close(channel, TRY_AGAIN, f"{api.streams} streams are open, and there is no room")
        return
    api.streams += 1
    try:
        await _Session(api, request, channel).run()
    finally:
        api.streams -= 1


async def _close(channel: Channel, code: int, reason: str) -> None:
    text = reason.encode("ascii", "replace").decode("ascii")[:_REASON_MAX]
    with trio.move_on_after(_CLOSE_S):
        try:
            await channel.close(code, text)
        except ChannelClosed:
            return


class _Session:
    """One stream."""

    def __init__(self, api: Api, request: Request, channel: Channel) -> None:
        self._api = api
        self._request = request
        self._channel = channel
        self._is_strict = api.config.api.strict == "on"
        self._send_s = api.limits.send_ms / 1_000
        self._all = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._farewell: tuple[int, str] | None = None
        self._under_way = 0
        self._unsent_bytes = 0
        self._moved = trio.Event()  # set when a frame has ended, or part of what is unsent was sent
        self._sending = trio.Lock()

    async def run(self) -> None:
        """Serve it."""
        with self._all:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_with_server)
                with self._reading:
                    await self._read(nursery)
                # Whoever waits for work was told that the server stops, so this takes no time.
                while self._under_way:
                    await self._move()
                self._leave(GOING_AWAY, "the server stops; frames without an answer were not begun")
        if self._farewell is not None:
            await _close(self._channel, *self._farewell)

    async def _stop_with_server(self) -> None:
        await self._api.stopping.wait()
        self._reading.cancel()

    def _leave(self, code: int, reason: str) -> None:
        """End the stream at once; the first reason is what the client is told."""
        if self._farewell is None:
            self._farewell = code, reason
        self._all.cancel()

    async def _move(self) -> None:
        self._moved = trio.Event()
        await self._moved.wait()

    # Reading.

    async def _read(self, nursery: trio.Nursery) -> None:
        frames_max = self._api.limits.stream_frames_max
        bytes_max = self._api.limits.body_bytes_max
        while True:
            while self._under_way >= frames_max or self._unsent_bytes > UNSENT_BYTES_MAX:
                await self._move()
            try:
                message = await self._channel.receive()
            except ChannelClosed:
                self._all.cancel()
                return
            if len(message) > bytes_max:
                self._leave(TOO_LARGE, f"a frame has at most {bytes_max} bytes")
                return
            try:
                incoming = decode(message, is_strict=self._is_strict)
            except Unreadable as error:
                self._leave(UNREADABLE, str(error))
                return
            if incoming.ignored:
                self._api.metrics.ignore(self._request.path, incoming.ignored)
            begun = trio.Event()
            self._under_way += 1
            nursery.start_soon(self._answer, message, incoming, begun)
            # The next one is begun behind it, and not before.
            await begun.wait()

    # Answering.

    async def _answer(self, message: bytes | str, incoming: Incoming, begun: trio.Event) -> None:
        frame = incoming.frame
        run: FrameRun | None = None
        is_sent = False
        try:
            if isinstance(frame, Reply):
                reply = frame  # a refusal
            else:
                try:
                    caller = await self._api.who(self._request)
                    run = FrameRun(self._api, caller, frame, _size(message))
                    reply = await run.run(begun.set)
                except Problem as problem:
                    if problem.status == 401:
                        self._leave(POLICY, problem.error)
                    reply = refuse(frame.id, problem)
            if incoming.warnings:
                reply = replace(reply, warnings=incoming.warnings)
            is_sent = await self._send(encode(reply, is_text=isinstance(message, str)))
        finally:
            begun.set()
            self._under_way -= 1
            self._moved.set()
            if run is not None and not is_sent:
                await self._api.fetching.give_back(run.claims)

    async def _send(self, message: bytes | str) -> bool:
        """Send an answer. False when the client cannot have got it."""
        self._unsent_bytes += len(message)
        try:
            async with self._sending:
                with trio.move_on_after(self._send_s):
                    await self._channel.send(message)
                    return True
                # Before the next in turn: what is sent behind half an answer can be read by nobody.
                self._leave(POLICY, f"an answer could not be sent in {self._send_s:g} s")
        except ChannelClosed:
            self._all.cancel()
        finally:
            self._unsent_bytes -= len(message)
            self._moved.set()
        return False


def _size(message: bytes | str) -> int:
    """How large the ops of a frame may be.

    Text in msgpack is shorter than in JSON where it is full of control characters.
    """
    return len(message) if isinstance(message, str) else 6 * len(message)
