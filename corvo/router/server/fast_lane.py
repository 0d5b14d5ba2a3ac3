"""The fast lane: one connection from its first byte to its last.

    read  ->  a whole request  ->  its route  ->  the door  ->  one send
                                                      |
                                                      streamed: a send for each piece

Every answer is sent from here: no task, no timer and no scope for a request. Only a connection that
changes to WebSocket or HTTP/2 goes to hypercorn. A request that is refused while it is read is
refused in the same words in both lanes.
"""

from typing import Final

import trio

from corvo.router.http.connections import Connections, Seat, Stage, no_room
from corvo.router.http.http2_guard import HTTP2_OFF
from corvo.router.http.lines import Hangups, Line, LineBroken
from corvo.router.http.messages import ClientGone, Problem, Request, Response
from corvo.router.http.parsing import Message, Reader, as_bytes
from corvo.router.http.rendering import CONTINUE, head_of
from corvo.router.routes import Found
from corvo.router.server.door import Door, read_query
from corvo.router.server.slow_lane import Ends, Exchange, SlowLane
from corvo.router.server.turns import Turns

_LAST_WORDS_S: Final = 1.0
"""How long a client that was too slow is told so."""
_SHORT_BYTES: Final = 256
_SHORTS_MAX: Final = 16
"""Reads so short of one request that cost nothing. Head and body may come in a few pieces; whoever
sends more of them is read less often, and then gets more read at a time."""
_PIECES_MAX: Final = 32
"""Of a body, in one portion: chunks that are as small have to share a turn with others."""
_LAST_CHUNK: Final = b"0\r\n\r\n"
_TOGETHER_BYTES_MAX: Final = 64 << 10
"""A body up to here goes out in one piece with what stands before it; a larger one is not copied
for that."""


class FastLane:
    """What all conversations share."""

    def __init__(
        self,
        door: Door,
        connections: Connections,
        hangups: Hangups,
        slow: SlowLane,
    ) -> None:
        self.door: Final = door
        self.connections: Final = connections
        self.hangups: Final = hangups
        self.slow: Final = slow
        self.has_http2: Final = door.api.config.has_http2
        self.is_open = True
        """Else every request goes through the slow lane, for tests: it must make no difference."""


class Conversation:
    """One connection."""

    def __init__(self, lane: FastLane, line: Line, seat: Seat, ends: Ends) -> None:
        self._lane = lane
        self._line = line
        self._seat = seat
        self._ends = ends
        self._reader = Reader(lane.connections.limits, ends.client[0])
        self._turns = Turns(lane.connections)
        self._unread = b""  # of what was received, and not parsed yet
        self._shorts = 0  # reads of a few bytes, of one request

    async def run(self, alpn: str = "http/1.1") -> None:
        """Talk until one of us leaves. Raises `LineBroken`."""
        self._seat.move(Stage.IDLE)
        if alpn == "h2":
            await self._exchange().hand_over(b"", b"", alpn)
            return
        reader = self._reader
        while True:
            while not reader.ready:
                if reader.rest is not None and not self._lane.has_http2:
                    await self._line.send(HTTP2_OFF)
                    await self._hear_out()
                    return
                if reader.rest is not None:
                    await self._exchange().hand_over(b"", self._rest(), "h2")
                    return
                if reader.refusal is not None:
                    await self.refuse(reader.refusal)
                    return
                if not await self._read():
                    return
            message = reader.ready.popleft()
            if message.is_websocket:
                await self._exchange().hand_over(as_bytes(message), self._rest())
                return
            if not await self._answer(message):
                return
            if reader.ready or self._unread:
                await self._turns.spend()
            elif reader.is_idle:
                self._seat.move(Stage.IDLE)
            else:
                await self._note_progress()

    async def _read(self) -> bool:
        """Read a portion of what has come. False when nothing more will come."""
        reader = self._reader
        if not self._unread:
            self._unread = await self._line.receive()
            if not self._unread:
                return False
            self._shorts += len(self._unread) < _SHORT_BYTES
        unread, portion_bytes = self._unread, reader.portion_bytes
        self._unread = unread[portion_bytes:]
        reader.feed(unread[:portion_bytes])
        if reader.ready:
            self._shorts = 0
            return True
        if not self._unread:
            await self._note_progress()
        if self._shorts > _SHORTS_MAX or reader.pieces > _PIECES_MAX:
            await self._turns.spend()
        return True

    def _rest(self) -> bytes:
        """What stands behind a request that changes the protocol."""
        return (self._reader.rest or b"") + self._unread

    async def _note_progress(self) -> None:
        """Say where we are when no request is there as a whole."""
        reader, seat = self._reader, self._seat
        if reader.is_idle:
            seat.move(Stage.IDLE)
        elif not reader.is_in_body:
            if seat.stage is not Stage.HEAD:
                seat.move(Stage.HEAD)
        else:
            if seat.stage is not Stage.BODY:
                seat.move(Stage.BODY)
            if not seat.hold(reader.body_bytes):
                reader.refuse(no_room())
            elif reader.wants_continue:
                reader.wants_continue = False
                await self._line.send(CONTINUE)

    # Answers.

    async def _answer(self, message: Message) -> bool:
        """Answer one request. Returns whether the connection can serve another one."""
        seat, lane = self._seat, self._lane
        seat.move(Stage.ANSWERING)
        if seat.body_bytes:
            seat.hold(0)
        request = message.request
        found = lane.door.find(request.method, request.path)
        is_parked = found is not None and found.route.is_parked
        if not lane.is_open:
            exchange = self._exchange()
            goes_on = await exchange.answer(as_bytes(message), is_parked=is_parked)
            seat.on_cut(None)  # what hypercorn needed for this request need not stay
            return goes_on
        if message.query:
            try:
                request.query = read_query(message.query)
            except Problem as problem:
                return await self._send(lane.door.turn_away(problem, request), message)
        if is_parked:
            response = await self._answer_or_hang_up(found, request)
            if response is None:
                return False
        else:
            response = await lane.door.answer_at(found, request)
        return await self._send(response, message)

    async def _answer_or_hang_up(self, found: Found | None, request: Request) -> Response | None:
        """The answer to what may wait for long; none when the client has gone meanwhile.

        A client that goes ends its connection as a cut does, so no request needs its own scope.
        """
        hangups, fd, seat = self._lane.hangups, self._line.fd, self._seat
        hangups.watch(fd, seat.cut)
        try:
            response = await self._lane.door.answer_at(found, request)
        finally:
            hangups.forget(fd)
        if not seat.is_cut:
            return response
        await _take_back(response)
        return None

    async def _send(self, response: Response, message: Message) -> bool:
        keeps = message.keeps and not self._lane.connections.is_stopping
        if response.undelivered is None and response.stream is None:
            await self._deliver(response, message.request, keeps=keeps)
            return keeps
        is_delivered = False
        try:
            is_delivered = await self._send_all(response, message, keeps=keeps)
        finally:
            if not is_delivered:
                await _take_back(response)
        return is_delivered and keeps

    async def _send_all(self, response: Response, message: Message, *, keeps: bool) -> bool:
        """Send an answer. Returns whether it left as a whole. Raises `LineBroken`."""
        if response.stream is None:
            await self._deliver(response, message.request, keeps=keeps)
            return True
        is_chunked, hangups, fd = message.version != "1.0", self._lane.hangups, self._line.fd
        date = self._lane.connections.date
        head = head_of(response, date, keeps=keeps, is_chunked=is_chunked)
        if message.request.method == "HEAD":
            await self._line.send(head)
            return True
        hangups.watch(fd, self._seat.cut)
        try:
            await self._line.send(head)
            sink = _Sink(self._line, self._seat, self._lane.slow.send_s, is_chunked=is_chunked)
            await response.stream(sink)
            await sink.finish()
        except ClientGone:
            return False  # without an end, so that no client takes a part for the whole
        finally:
            hangups.forget(fd)
        return True

    async def _deliver(self, response: Response, request: Request, *, keeps: bool) -> None:
        data, body = head_of(response, self._lane.connections.date, keeps=keeps), response.body
        if request.method != "HEAD":
            if len(body) <= _TOGETHER_BYTES_MAX:
                data += body
            else:
                await self._line.send(data)
                data = body
        rest = self._line.offer(data)
        if rest:
            await self._line.send(rest)

    def _exchange(self) -> Exchange:
        exchange = Exchange(self._lane.slow, self._line, self._seat, self._ends, self._turns)
        self._seat.on_cut(exchange.cut)
        return exchange

    # The end.

    async def refuse(self, problem: Problem) -> None:
        """Tell the client why nothing more is read, and wait until it has heard it."""
        self._seat.hold(0)
        request = self._reader.unfinished
        response = self._lane.door.turn_away(problem, request)
        await self._deliver(response, request, keeps=False)
        await self._hear_out()

    async def _hear_out(self) -> None:
        """Say no more, and wait until the client has read all and gone."""
        await self._line.finish()
        self._seat.move(Stage.LINGERING)
        while not self._lane.connections.is_stopping and await self._line.receive():
            await self._turns.spend()

    async def last_words(self) -> None:
        """Tell a client that was too slow, unless it does not listen either."""
        assert self._seat.refusal is not None
        with trio.move_on_after(_LAST_WORDS_S):
            await self.refuse(self._seat.refusal)

    def close(self) -> None:
        """Let go of everything."""
        self._reader.close()


class _Sink:
    """The way of a stream to its client: pieces as chunks, or bare to a client of HTTP/1.0."""

    def __init__(self, line: Line, seat: Seat, send_s: float, *, is_chunked: bool) -> None:
        self._line = line
        self._seat = seat
        self._send_s = send_s
        self._is_chunked = is_chunked
        self._is_slow = False

    @property
    def is_slow(self) -> bool:
        """See `Sink`."""
        return self._is_slow or self._line.has_timed_out

    async def send(self, data: bytes) -> None:
        """See `Sink`."""
        if data:  # else it would be the end
            await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    async def finish(self) -> None:
        """End the answer. Raises `ClientGone`."""
        if self._is_chunked:
            await self._send(_LAST_CHUNK)

    async def _send(self, data: bytes) -> None:
        try:
            rest = self._line.offer(data)
            if rest:
                await self._send_rest(rest)
        except LineBroken as error:
            self._is_slow = isinstance(error.__cause__, TimeoutError)
            raise ClientGone(str(error)) from error

    async def _send_rest(self, rest: bytes | memoryview) -> None:
        with trio.CancelScope(deadline=trio.current_time() + self._send_s) as scope:
            await self._line.send(rest)
        if scope.cancelled_caught:
            self._is_slow = True
            raise ClientGone(f"a piece took more than {self._send_s:g} s")
        if self._seat.stage is Stage.SENDING:
            self._seat.move(Stage.ANSWERING)


async def _take_back(response: Response) -> None:
    """The client cannot have got this."""
    if response.undelivered is not None:
        with trio.CancelScope(shield=True):
            await response.undelivered()
