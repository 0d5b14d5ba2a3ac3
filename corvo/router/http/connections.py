"""Open connections: what each of them does, and which exceed a time limit.

No connection has a timer of its own: that would cost each request more than its parsing. It writes
down what it does, and since when by the registry's own clock, which goes on with each sweep; a
sweep looks at all of them. So a limit is kept to within the time between two sweeps, and never cut
short by it.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from corvo.router.config import Limits
from corvo.router.http.messages import Problem

HEAD_S: Final = 1.0
"""How long headers may take when somebody else waits to come in."""
LINGER_S: Final = 2.0
"""How long we hear out a client that has been refused. A socket that is closed on unread bytes
takes back what was sent on it, and the client would never read why."""
CUTS_MAX: Final = 100
"""In one sweep: each costs a tenth of a millisecond, and thousands may come to be due at once."""
_SWEEP_S: Final = 0.5


class Stage(Enum):
    """What a connection does."""

    IDLE = auto()
    """Nothing: it is between two requests."""
    HEAD = auto()
    """A request has begun to come in, or TLS has."""
    BODY = auto()
    """Its head is here."""
    ANSWERING = auto()
    """It is being answered, for as long as that takes."""
    SENDING = auto()
    """An answer waits for a client that does not read."""
    LINGERING = auto()
    """It was refused, and is heard out."""


class Seat:
    """One connection."""

    __slots__ = (
        "_connections",
        "_cut",
        "_cut_deeper",
        "body_bytes",
        "is_cut",
        "refusal",
        "since",
        "stage",
    )

    def __init__(self, connections: "Connections", cut: Callable[[], None]) -> None:
        self.stage = Stage.HEAD
        self.since = connections.now_s
        """When it came to be at this stage, or last moved on within it."""
        self.body_bytes = 0
        """Of the body that is coming in: they count, together with everybody's."""
        self.is_cut = False
        """Whether it has to end."""
        self.refusal: Problem | None = None
        """What the client is told when it is cut."""
        self._connections = connections
        self._cut = cut
        self._cut_deeper: Callable[[], None] | None = None

    def move(self, stage: Stage) -> None:
        """Another stage begins, or the same one anew."""
        connections = self._connections
        if self.stage is Stage.IDLE:
            connections.idle.pop(self, None)
        elif self.stage is Stage.HEAD:
            connections.heads.pop(self, None)
        self.stage = stage
        self.since = connections.now_s
        if self.is_cut:
            return
        if stage is Stage.IDLE:
            connections.idle[self] = None
        elif stage is Stage.HEAD:
            connections.heads[self] = None

    def hold(self, body_bytes: int) -> bool:
        """So much of a body has come in and is kept. False when there is no room for it."""
        connections = self._connections
        connections.body_bytes += body_bytes - self.body_bytes
        self.body_bytes = body_bytes
        return connections.body_bytes <= connections.limits.bodies_bytes_max

    def on_cut(self, also: Callable[[], None] | None) -> None:
        """What is to be called besides, from now on, for what stands in the way of an end."""
        self._cut_deeper = also

    def cut(self, refusal: Problem | None = None) -> None:
        """Have it end, wherever it is."""
        if not self.is_cut:
            self._connections.idle.pop(self, None)
            self._connections.heads.pop(self, None)
            self.is_cut = True
            self.refusal = refusal
            if self._cut_deeper is not None:
                self._cut_deeper()
            self._cut()


class Connections:
    """All connections of this router."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        shortest_ms = min(limits.idle_ms, limits.header_ms, limits.body_grace_ms, limits.send_ms)
        self.sweep_s: Final = min(_SWEEP_S, shortest_ms / 1_000 / 4)
        self.now_s = 0.0
        """When the last sweep was."""
        self.seats: dict[Seat, None] = {}
        self.idle: dict[Seat, None] = {}
        """Those between two requests; who is for the longest is the first."""
        self.heads: dict[Seat, None] = {}
        """Those in the middle of a request's headers, likewise."""
        self.date = ""
        """The line of every answer that says when, as of the last sweep."""
        self.body_bytes = 0
        self.pauses = 0
        """Of connections that sent too much at once: see `corvo.router.server.turns`."""
        self.is_stopping = False
        """Whether each answer is the last one of its connection."""

    @property
    def is_full(self) -> bool:
        """Whether there is room for no more."""
        return len(self.seats) >= self.limits.connections_max

    def enter(self, cut: Callable[[], None]) -> Seat:
        """Somebody has come in. `cut` is called at most once, and ends the connection."""
        seat = Seat(self, cut)
        self.seats[seat] = None
        return seat

    def leave(self, seat: Seat) -> None:
        """It has ended."""
        seat.hold(0)
        self.idle.pop(seat, None)
        self.heads.pop(seat, None)
        del self.seats[seat]

    def make_room(self) -> bool:
        """Cut somebody for a newcomer's sake. False when nobody is to be had.

        Headers come in one piece: who has been at them for a second means no good, or is on a line
        that is of no good. Then comes who has been idle for the longest.
        """
        slowest = next(iter(self.heads), None)
        if slowest is not None and self.now_s - slowest.since >= HEAD_S:
            slowest.cut()
            return True
        idlest = next(iter(self.idle), None)
        if idlest is None:
            return False
        idlest.cut()
        return True

    def stop(self) -> None:
        """Cut those that nobody waits for; the others end with their next answer."""
        self.is_stopping = True
        for seat in list(self.seats):
            if seat.stage is Stage.IDLE or seat.stage is Stage.LINGERING:
                seat.cut()

    def cut_all(self) -> None:
        """Nobody is waited for any more."""
        for seat in list(self.seats):
            seat.cut()

    def sweep(self, now_s: float, date: str) -> bool:
        """Cut those that take too long. Returns whether there may be more of them."""
        self.now_s = now_s
        self.date = date
        cuts = 0
        for seat in list(self.seats):
            if seat.stage is not Stage.ANSWERING and not seat.is_cut:
                self._judge(seat, now_s - seat.since - self.sweep_s)
                cuts += seat.is_cut
                if cuts == CUTS_MAX:
                    return True
        return False

    def _judge(self, seat: Seat, took_s: float) -> None:
        """`took_s` is the least that it can have been."""
        limits, took_ms = self.limits, took_s * 1_000
        match seat.stage:
            case Stage.IDLE:
                if took_ms > limits.idle_ms:
                    seat.cut()
            case Stage.HEAD:
                if took_ms > limits.header_ms:
                    seat.cut(_too_slow(f"the headers took more than {limits.header_ms} ms"))
            case Stage.BODY:
                due = (took_ms - limits.body_grace_ms) / 1_000 * limits.body_rate_min
                if took_ms > limits.body_grace_ms and seat.body_bytes < due:
                    seat.cut(too_slow_body(limits))
            case Stage.SENDING:
                if took_ms > limits.send_ms:
                    seat.cut()
            case Stage.LINGERING:
                if took_s > LINGER_S:
                    seat.cut()
            case Stage.ANSWERING:
                pass


def too_slow_body(limits: Limits) -> Problem:
    """What a client is told whose body drips."""
    return _too_slow(
        f"a body that takes more than {limits.body_grace_ms} ms has to bring "
        f"{limits.body_rate_min} bytes in each second"
    )


def _too_slow(why: str) -> Problem:
    return Problem(408, "REQUEST_TIMEOUT", why)


def no_room() -> Problem:
    """What whoever comes in beyond a bound is told."""
    return Problem(
        503,
        "OVERLOADED",
        "too many clients are connected, or send bodies (limits.connections_max)",
        retry_after_ms=1_000,
    )
