"""The mirror of this node as a router sees it: one link, and questions that change nothing.

A caller's scope and position become part of each question here, so that no endpoint can forget
them. A question whose answer was lost with the link is asked again, for twice is as once.

Nothing but views needs the mirror. While it is away, only what needs it says so.
"""

from contextlib import suppress
from typing import Final

import msgspec
import trio

from corvo.connections import UnixAddress
from corvo.errors import WireError
from corvo.kept_link import KeptLink
from corvo.link import Link, LinkClient, LinkLost, open_client
from corvo.protocol import wire
from corvo.protocol.questions import (
    NUMBERS,
    Freshness,
    MirrorAnswer,
    Question,
    Refused,
    positions_of,
)
from corvo.router.caller import Caller
from corvo.router.config import RouterConfig
from corvo.router.http import positions
from corvo.router.http.messages import NOT_APPLIED, Problem, encode_json, overloaded
from corvo.telemetry import SILENT, Log

_CATCH_UP_S: Final = 2.0
"""How long the mirror waits until it has come to where the client has been."""
_GRACE_S: Final = 2.0
"""For a mirror that is busy, beside the time that it has for an answer."""
_SILENT_S: Final = 2.0
"""How long a mirror that did not answer in time is left alone by those who can do without it."""
_LOST_MAX: Final = 2
"""How often a question may be lost with its link: perhaps it is the question that ends mirrors."""
_STILL_WORKS: Final = "jobs by id, queues, workers and all changes still work"

_PROBLEMS: Final[dict[str, tuple[int, str, int]]] = {
    "bad_filter": (400, "VALIDATION_ERROR", 0),
    "bad_cursor": (400, "VALIDATION_ERROR", 0),
    "not_caught_up": (503, "NOT_CAUGHT_UP", 1_000),
    "over_budget": (503, "OVER_BUDGET", 1_000),
    "busy": (429, "OVERLOADED", 200),
    "unknown_query": (501, "UNSUPPORTED", 0),
    "too_large": (413, "ANSWER_TOO_LARGE", 0),
}
"""By the code of a refusal: status, code, and when to try again."""


class Mirror:
    """The mirror, if this node has one."""

    def __init__(self, config: RouterConfig) -> None:
        self._config: Final = config
        self._client: LinkClient | None = None
        self._came_up = trio.Event()
        self._link: Final = KeptLink(
            "mirror",
            UnixAddress(config.mirror_socket),
            wire.make_hello(config, wire.ROUTER, shard=wire.ALL_SHARDS),
            self._serve,
        )
        self._silent_until = 0.0
        """Until when it is taken to be stuck, because it did not answer in time."""

    @property
    def is_there(self) -> bool:
        """Whether this node has one; it may be away for a moment."""
        return bool(self._config.mirror_socket)

    @property
    def is_up(self) -> bool:
        """Whether it can be asked."""
        return self._client is not None

    @property
    def last_error(self) -> str:
        """Why there is no link, while there is none."""
        return self._link.last_error

    async def run(self, log: Log = SILENT) -> None:
        """Keep a link to it; returns at once where there is none."""
        if self.is_there:
            await self._link.run(log)

    async def _serve(self, link: Link) -> None:
        async with open_client(link) as client:
            self._client = client
            self._came_up.set()
            self._came_up = trio.Event()
            try:
                await trio.sleep_forever()
            finally:
                self._client = None

    async def ask(
        self,
        question: Question,
        caller: Caller,
        *,
        freshness: Freshness | None = None,
        budget_ms: int | None = None,
        patience_s: float | None = None,
    ) -> MirrorAnswer:
        """The answer to a question. Raises `Problem`.

        `budget_ms` is how long the mirror may look, `limits.search_ms_max` unless given, and
        `patience_s` how long it may take altogether, a mirror that is away included. The wait of
        `freshness` comes on top of both.
        """
        if not self.is_there:
            raise unavailable("this node runs without a mirror (mirror.enabled)")
        asked = msgspec.structs.replace(
            question,
            scope=caller.scope,
            min_seq=caller.min_seq,
            freshness=freshness,
            budget_ms=budget_ms or self._config.limits.search_ms_max,
        )
        if patience_s is None:
            patience_s = asked.budget_ms / 1_000 + _GRACE_S
            patience_s += _CATCH_UP_S if asked.min_seq else 0.0
        if freshness is not None:
            patience_s += freshness.wait_ms / 1_000
        number, body = NUMBERS[type(question)], encode_json(asked)
        with trio.move_on_after(patience_s):
            answer = await self._ask(number, body)
            self._silent_until = 0.0
            return answer
        if not self.is_up:
            raise unavailable(self.last_error)
        if not asked.min_seq:
            # One that waits for a position says nothing about how it does: anybody may ask for one
            # that will never be reached, and the others are not to go without it for that.
            self._silent_until = trio.current_time() + _SILENT_S
        raise unavailable("it did not answer in time")

    async def ask_now(
        self,
        question: Question,
        caller: Caller,
        *,
        freshness: Freshness | None = None,
        patience_s: float = 0.5,
    ) -> MirrorAnswer | None:
        """The same for what is only good to have: None when it cannot be had at once.

        While the mirror is known to be stuck, nobody waits for it in vain. Whoever must see a
        position waits for that no longer either, and has what can be had without the mirror.
        """
        if self.is_up and trio.current_time() >= self._silent_until:
            with suppress(Problem):
                return await self.ask(question, caller, freshness=freshness, patience_s=patience_s)
        return None

    async def _ask(self, number: int, body: bytes) -> MirrorAnswer:
        until = trio.current_time() + self._config.limits.leader_wait_ms / 1_000
        lost = 0
        while True:
            came_up = self._came_up
            if self._client is not None:
                try:
                    return _read(await self._client.ask(number, body))
                except LinkLost as error:
                    lost += error.was_sent
                    if lost >= _LOST_MAX:
                        raise unavailable("the mirror disconnected during the search") from error
            with trio.move_on_at(until):
                await came_up.wait()
            if trio.current_time() >= until:
                raise unavailable(self.last_error)


def _read(answer: wire.Answer) -> MirrorAnswer:
    match answer:
        case wire.Reply(code=""):
            return _unpack(answer.body)
        case wire.Reply():
            raise problem_of(_decode_refused(answer.body))
        case wire.Busy():
            raise overloaded(
                "too many searches wait for the mirror (mirror.questions_max): try again",
                retry_after_ms=answer.retry_after_ms,
            )
        case wire.NotLeader():
            raise WireError("a mirror leads nothing, and said that another does")


def problem_of(refused: Refused) -> Problem:
    """A refusal of the mirror as a problem."""
    status, code, retry_after_ms = _PROBLEMS.get(refused.code, (500, "INTERNAL_ERROR", 0))
    error = refused.error
    if refused.as_of:
        error = f"{error} (the mirror stands at {positions.render(positions_of(refused.as_of))})"
    return Problem(
        status,
        code,
        error,
        outcome=NOT_APPLIED,
        reason=refused.code,
        field=refused.field,
        retry_after_ms=retry_after_ms,
    )


def unavailable(why: str) -> Problem:
    """Nobody answers what needs the mirror."""
    return Problem(
        503,
        "MIRROR_UNAVAILABLE",
        f"the mirror, which answers searches and counts, is unavailable: {why}; {_STILL_WORKS}",
        retry_after_ms=1_000,
    )


_unpack: Final = msgspec.msgpack.Decoder(MirrorAnswer).decode
_decode_refused: Final = msgspec.json.Decoder(Refused).decode
