"""Links: frames over a trio stream, and requests with their answers.

    async with dial(UnixAddress(path), hello) as link:
        while messages := await link.receive(BETWEEN_REPLICAS):
            ...

`send` puts a frame into a buffer and never waits. One task writes: the frames that gathered while
the socket was busy leave in one call, which makes a busy link cheap. Only the task in `receive`
reads, so a peer that sends too much is held up by the kernel's buffers.

The end that dialled says hello first. The other end answers, and its answer holds the reason when
it refuses, so that both ends know at once whether the link may be used.

A link ends in order, with a `Goodbye`, or it is lost: by a broken stream, by silence, or because
the block around it was left by an exception. `LinkClient` puts requests and answers on top;
`corvo.kept_link` opens a lost link again.
"""

import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

import trio

from corvo import hellos
from corvo.errors import CorvoError, WireError
from corvo.hellos import Greeting
from corvo.protocol import wire

Message = TypeVar("Message")


class LinkLost(CorvoError):
    """The peer is gone, or was never there.

    The outcome of a request is known only when `was_sent` is false: then it had no effect.
    """

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class LinkAbsent(LinkLost):
    """Nothing listens there: the process or its node has ended. A silent peer raises `LinkLost`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, was_sent=False)


class LinkRefused(LinkLost):
    """The two ends must not talk, until an operator changes a release or a config."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, was_sent=False)


@dataclass(frozen=True)
class LinkSettings:
    """The times and bounds of one link."""

    connect_s: float = 5.0
    """The time limit of a connection, and again of the hello. A healthy peer needs milliseconds, a
    node that is recovering a second or two."""

    beat_s: float = 2.0  # after so long without a byte from the peer, a ping is sent

    pings_max: int = 3
    """So many pings in a row may go unanswered. They are counted and no time is measured: a process
    that was stopped for a minute has missed one beat, and has its peers' bytes still to read."""

    goodbye_s: float = 1.0
    """The time limit of sending what is left at the end: a stop never waits for a stalled peer."""

    buffer_bytes_max: int = 2 * wire.FRAME_BYTES_MAX
    """Bytes that wait to be sent, after which no message is taken. One message may exceed it."""

    read_bytes_max: int = 64 << 10
    """Of one read: some hundred small messages, and less than the kernel's buffer."""

    frame_bytes_max: int = wire.FRAME_BYTES_MAX

    calls_max: int = 16_384  # calls of one `LinkClient` that wait for an answer

    retry_after_ms: int = 50
    """Of the `Busy` for a call beyond a bound: by then a healthy link has emptied its buffer."""


DEFAULT: Final = LinkSettings()

_EAGER: Final = 8
"""So many gathered frames are sent at once, in a system call of their own."""


_CONTROL: Final = (wire.Ping, wire.Pong, wire.Goodbye)


def _socket_of(stream: trio.abc.Stream) -> socket.socket | None:
    """The socket below a stream, which owns it: its own calls cost less than the stream's."""
    if not isinstance(stream, trio.SocketStream):
        return None
    return socket.socket(fileno=stream.socket.fileno())


class Link:
    """One end of an open link; made by `open_link`."""

    def __init__(self, stream: trio.abc.Stream, settings: LinkSettings) -> None:
        self._stream = stream
        self.settings: Final = settings
        self._peer: wire.Hello | None = None
        # Writing.
        self._gathered: list[bytes] = []
        self._unsent_bytes = 0  # gathered, or handed to the stream and not yet taken
        self._wake = trio.Event()  # set while there is something for the writer to look at
        self._is_writing = False  # the writer waits until the stream has taken something
        self._socket = _socket_of(stream)
        self._takes = True  # nothing follows a goodbye, or goes into a broken stream
        self._written = trio.Event()  # the writer has ended
        # Reading, which is also how we know that the peer lives.
        self._frames = wire.FrameReader(frame_bytes_max=settings.frame_bytes_max)
        self._after_hello: bytes | None = None  # came in one read with the hello
        self._is_receiving = False
        self._has_received = False  # since the last beat
        self.heard_at = trio.current_time()
        """When the peer last sent something."""
        self._goodbye: str | None = None
        self._loss: str | None = None

    @property
    def peer(self) -> wire.Hello:
        """The hello of the other end."""
        assert self._peer is not None, "a link is handed out after its hello"
        return self._peer

    @property
    def goodbye(self) -> str | None:
        """The peer's reason for leaving; None until its goodbye."""
        return self._goodbye

    @property
    def is_open(self) -> bool:
        """Whether messages are taken, and the peer still reads them."""
        return self._takes and self._goodbye is None

    def send(self, message: wire.AnyMessage) -> bool:
        """Take a message to be sent in its turn; False when it was not taken.

        Then the buffer is full, or the link is no longer open. Raises `WireError` for a message
        that is larger than a frame may be.
        """
        if not self._has_room:
            return False
        self._put(wire.encode(message))
        return True

    def send_many(self, messages: Iterable[wire.AnyMessage], *, at_once: bool = False) -> bool:
        """The same with all of them, or none.

        They are sent after the tasks that are ready now, or with `at_once` before them.
        """
        if not self._has_room:
            return False
        self._put(wire.encode_many(messages), at_once=at_once)
        return True

    @property
    def _has_room(self) -> bool:
        return self._takes and self._unsent_bytes < self.settings.buffer_bytes_max

    def _put(self, data: bytes, *, at_once: bool = False) -> None:
        self._gathered.append(data)
        self._unsent_bytes += len(data)
        # The writer's turn comes after all tasks that are ready now; the peer could begin earlier.
        if (at_once or len(self._gathered) >= _EAGER) and not self._is_writing:
            self._send_now()
        if self._gathered:
            self._wake.set()

    def _send_now(self) -> None:
        """Send as much of what gathered as the kernel takes without waiting."""
        if self._socket is None:
            return
        data = b"".join(self._gathered)
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
        except OSError:  # no room; or broken, which the writer will find out
            return
        self._unsent_bytes -= sent
        self._gathered = [data[sent:]] if sent < len(data) else []

    def close(self, reason: str) -> None:
        """Take no more messages, and send a goodbye after those that were taken.

        The peer's messages can be received until the block is left.
        """
        if self._takes:
            self._put(wire.encode(wire.Goodbye(reason)))
            self._takes = False
            self._wake.set()

    async def receive(self, group: wire.Group[Message]) -> list[Message]:
        """The messages of one read, at least one; none once the peer has said goodbye.

        Raises `LinkLost`, and `WireError` for bytes that are not a message of the group. One task
        receives, and calls again soon: pings are answered here.
        """
        assert not self._is_receiving, "two tasks would tear the frames apart"
        while self._goodbye is None:
            data: bytes | bytearray | None = self._after_hello
            if data is None:
                data = await self._read()
            else:
                self._after_hello = None
            received = self._without_control(self._frames.receive(data, group))
            if received:
                return received
        return []

    async def _read(self) -> bytes | bytearray:
        self._is_receiving = True
        try:
            data = await self._next_bytes()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkLost(self._loss or f"the stream broke: {error}") from error
        finally:
            self._is_receiving = False
        if not data:
            where = "" if self._frames.is_between else ", in the middle of a frame"
            raise LinkLost(f"the peer went without a goodbye{where}")
        self._has_received = True
        self.heard_at = trio.current_time()
        return data

    async def _next_bytes(self) -> bytes | bytearray:
        # A read takes all that there is, so the next one would find nothing: wait first.
        while (ours := self._socket) is not None:
            await trio.lowlevel.wait_readable(ours)
            if self._socket is not ours:
                break  # the peer sent something just as it was given up
            try:
                return ours.recv(self.settings.read_bytes_max, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
        return await self._stream.receive_some(self.settings.read_bytes_max)

    def _without_control(self, messages: list[Message | wire.Control]) -> list[Message]:
        """The user's messages. Control messages are acted on; a goodbye is the last message."""
        received: list[Message] = []
        for message in messages:
            if not isinstance(message, _CONTROL):
                received.append(message)
            elif isinstance(message, wire.Ping):
                # Without room there is no pong: the bytes in the buffer will do as a sign of life.
                self.send(wire.Pong(message.id))
            elif isinstance(message, wire.Goodbye):
                self._goodbye = message.reason
                break
        return received

    @asynccontextmanager
    async def open(self, greeting: Greeting) -> AsyncIterator["Link"]:
        """The life of the link: hello, the user's block, goodbye."""
        try:
            with _alone():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    await self._shake_hands(greeting)
                    nursery.start_soon(self._watch, bool(greeting.opening))
                    yield self
                    await self._leave()
                    nursery.cancel_scope.cancel()
        finally:
            await self._close_stream()

    async def _close_stream(self) -> None:
        self._takes = False
        if self._socket is not None:
            self._socket.detach()  # its number may soon be another socket's
            self._socket = None
        await trio.aclose_forcefully(self._stream)

    async def _shake_hands(self, greeting: Greeting) -> None:
        """Exchange hellos. Raises `LinkLost`, `WireError`, and `LinkRefused` by either end."""
        self._put_bytes(greeting.opening)
        with trio.move_on_after(self.settings.connect_s), _explained(greeting):
            while greeting.outcome is None:
                self._put_bytes(greeting.receive(await self._read()))
        outcome = greeting.outcome
        if outcome is None:
            raise LinkLost(f"no hello within {self.settings.connect_s} s", was_sent=False)
        if outcome.refusal:
            self.close(outcome.refusal)
            await self._leave()
            raise LinkRefused(outcome.refusal)
        self._peer, self._after_hello = outcome.peer, greeting.rest

    def _put_bytes(self, data: bytes) -> None:
        if data:
            self._put(data)

    async def _write(self) -> None:
        try:
            while self._gathered or self._takes:
                if not self._gathered:
                    self._wake = trio.Event()
                    await self._wake.wait()
                    continue
                self._send_now()
                if not self._gathered:
                    continue
                data = b"".join(self._gathered)
                self._gathered.clear()
                self._is_writing = True
                await self._stream.send_all(data)
                self._is_writing = False
                self._unsent_bytes -= len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The task in `receive` finds the end, after the peer's last messages.
            self._takes = False
            self._gathered.clear()
            self._unsent_bytes = 0
        self._written.set()

    async def _watch(self, has_dialled: bool) -> None:
        """Send pings to a silent peer, and give it up when none is answered.

        The end that has dialled sends all of them, and the other one the last: one in two beats.
        """
        silent, beat_s = 0, self.settings.beat_s
        while True:
            # The same moments for all links of a process, which is woken once for all of them.
            await trio.sleep_until(((trio.current_time() + beat_s / 2) // beat_s + 1) * beat_s)
            # While no task receives, the peer may have sent something.
            has_signs = self._has_received or not self._is_receiving
            self._has_received = False
            silent = 0 if has_signs else silent + 1
            if silent > self.settings.pings_max:
                break
            if silent and (has_dialled or silent == self.settings.pings_max):
                self.send(wire.Ping(silent))
        self._loss = "the peer was silent, and answered no ping"
        await self._close_stream()

    async def _leave(self) -> None:
        """Say goodbye, and wait for the peer's end of the link.

        A socket that is closed on unread bytes discards what it has not delivered.
        """
        self.close("done")
        with trio.move_on_after(self.settings.goodbye_s), suppress(LinkLost, WireError):
            # Reading comes first, or two that leave at once would each wait for the other's reader.
            while await self.receive(wire.EVERYTHING):
                pass
            await self._written.wait()


def open_link(
    stream: trio.abc.Stream, ours: wire.Hello, settings: LinkSettings = DEFAULT, *, node: int = 0
) -> AbstractAsyncContextManager[Link]:
    """A link over a stream that was just connected, to that node or any. Closes the stream.

    Leaving the block says goodbye; leaving it by an exception closes at once. Raises `LinkLost` and
    `WireError` when no hello comes, and `LinkRefused` when either end refuses the other.
    """
    return Link(stream, settings).open(Greeting(hellos.dialling(ours, node=node)))


class Call:
    """One request that waits; made by `LinkClient.begin`."""

    __slots__ = ("answer", "id", "task")

    def __init__(self, request_id: int) -> None:
        self.id: Final = request_id
        self.answer: wire.Answer | None = None
        """None until the answer is here, and for good when the link was lost."""
        self.task: trio.lowlevel.Task | None = None
        """The task that waits in `LinkClient.finish`: it costs half of what an `Event` does."""

    def wake(self) -> None:
        """Let the task that waits go on."""
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)


class LinkClient:
    """Requests to one replica and their answers; made by `open_client`.

    A call that is cancelled leaves the others alone. Its request may have had its effect.
    """

    def __init__(self, link: Link, on_push: Callable[[wire.Push], None]) -> None:
        self._link = link
        self._on_push = on_push
        self._settings = link.settings
        self._waiting: dict[int, Call] = {}
        self._last_id = 0
        self._is_over = False  # answers are no longer received
        self._end: LinkLost | WireError | None = None  # unless this end left

    @property
    def peer(self) -> wire.Hello:
        """The replica's hello."""
        return self._link.peer

    @property
    def calls_in_flight(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    async def submit(self, op: int, body: bytes) -> wire.Answer:
        """Have an op carried out. `Busy` may come from us: too much waits on this link already.

        Raises `LinkLost`.
        """
        call = self.begin(op, body)
        return call if isinstance(call, wire.Busy) else await self.finish(call)

    async def ask(self, query: int, body: bytes) -> wire.Answer:
        """Have a query answered, with the same outcomes."""
        call = self.begin_query(query, body)
        return call if isinstance(call, wire.Busy) else await self.finish(call)

    def begin(self, op: int, body: bytes) -> Call | wire.Busy:
        """Send an op at once, and wait for it later with `finish`. Raises `LinkLost`.

        What is begun without waiting in between goes out together, in this order.
        """
        self._last_id += 1
        return self._begin(wire.Submit(self._last_id, op, body))

    def begin_query(self, query: int, body: bytes) -> Call | wire.Busy:
        """The same with a query."""
        self._last_id += 1
        return self._begin(wire.Ask(self._last_id, query, body))

    async def finish(self, call: Call, *, shield: bool = False) -> wire.Answer:
        """The answer to a call that was begun. Raises `LinkLost`.

        With `shield`, the answer is waited for even if the caller is cancelled meanwhile.
        """

        def leave(_: object) -> trio.lowlevel.Abort:
            if shield:
                return trio.lowlevel.Abort.FAILED
            del self._waiting[call.id]
            return trio.lowlevel.Abort.SUCCEEDED

        if call.id in self._waiting:  # else there is no reason to let other tasks go first
            call.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(leave)
        if call.answer is None:
            raise LinkLost(self._why_over)
        return call.answer

    def _begin(self, request: wire.Submit | wire.Ask) -> Call | wire.Busy:
        if self._is_over or not self._link.is_open:
            raise LinkLost(self._why_over, was_sent=False)
        if len(self._waiting) >= self._settings.calls_max or not self._link.send(request):
            return wire.Busy(request.id, self._settings.retry_after_ms)
        call = self._waiting[request.id] = Call(request.id)
        return call

    @property
    def _why_over(self) -> str:
        return "the link was left" if self._end is None else str(self._end)

    @asynccontextmanager
    async def open(self) -> AsyncIterator["LinkClient"]:
        """The life of the client: the user's block beside the task that receives answers."""
        with _alone():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, nursery.cancel_scope)
                yield self
                nursery.cancel_scope.cancel()
        # Raised here and not by the task, where it would meet the same loss on its way out of a
        # call in the block, and two exceptions cannot be one.
        if self._end is not None:
            raise self._end

    async def _receive(self, block: trio.CancelScope) -> None:
        try:
            while messages := await self._link.receive(wire.TO_ROUTER):
                for message in messages:
                    self._handle(message)
            self._end = LinkLost(f"the replica left: {self._link.goodbye}")
        except (LinkLost, WireError) as error:
            self._end = error
        finally:
            self._is_over = True
            for call in self._waiting.values():
                call.wake()
            self._waiting.clear()
        block.cancel()

    def _handle(self, message: wire.Answer | wire.Push) -> None:
        match message:
            case wire.Reply() | wire.NotLeader() | wire.Busy():
                if message.id > self._last_id:
                    raise WireError(f"an answer to request {message.id}, which was never made")
                call = self._waiting.pop(message.id, None)
                if call is not None:  # else the call was cancelled
                    call.answer = message
                    call.wake()
            case wire.WorkAvailable() | wire.Leading() | wire.KeysChanged() | wire.MapChanged():
                self._on_push(message)
            case _:
                assert_never(message)


def open_client(
    link: Link, on_push: Callable[[wire.Push], None] = lambda _: None
) -> AbstractAsyncContextManager[LinkClient]:
    """A `LinkClient` on an open link.

    `on_push` takes the messages that answer no request. It runs between two reads and must not grow
    without bound. The block is cancelled, and `LinkLost` raised, as soon as the link has ended.
    """
    return LinkClient(link, on_push).open()


@contextmanager
def _alone() -> Iterator[None]:
    """Take one exception out of the group in which a nursery wraps it.

    Users write `except LinkLost`, which does not match a group of one.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        alone = group.exceptions[0]
    else:
        return
    raise alone


@contextmanager
def _explained(greeting: Greeting) -> Iterator[None]:
    """Say where to look when a node that was dialled ends a link that has not begun.

    TLS 1.3 ends with the proof of the end that dials: it hears nothing when that is refused.
    """
    try:
        yield
    except LinkLost as error:
        if not greeting.dials_node:
            raise
        reason = f"{error}: the log of the other node has the reason, if it has refused this one"
        raise LinkLost(reason, was_sent=False) from error
