"""Links that are dialled again after they are lost, with growing pauses.

    link = KeptLink("shard-3", UnixAddress(path), hello, serve)
    await link.run(log)

`serve` works with the link while it is open. It may return to have the link opened again at once.
When the link is lost the next try follows after a pause, and when it is refused after a long one:
only an operator can change that. The log has one line when a link goes down, one when it is up
again and one when it is refused, however many tries there are.
"""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import msgspec
import trio

from corvo.connections import Address, Route, dial
from corvo.errors import WireError
from corvo.link import Link, LinkLost, LinkRefused
from corvo.protocol.wire import Hello
from corvo.telemetry import SILENT, Log


class Retry(msgspec.Struct, frozen=True):
    """The pauses between tries: each is twice the one before. Half of each is left to chance."""

    first_s: float
    max_s: float
    refused_s: float = 5.0

    def next(self, pause_s: float) -> float:
        """The pause after another failure; the one before it was `pause_s`, 0 for the first."""
        return min(max(self.first_s, 2 * pause_s), self.max_s)


WITHIN_NODE: Final = Retry(first_s=0.05, max_s=0.1)
"""A try costs next to nothing, and requests wait for a shard that is being started again."""
BETWEEN_NODES: Final = Retry(first_s=0.1, max_s=1.0)
"""A follower that is back must get the log before it stands for election."""

_STARTING_S: Final = 5.0
"""A link that was never open is logged as down after so long: processes start in any order."""


class KeptLink:
    """A link to one process; `run` keeps it open."""

    def __init__(
        self,
        name: str,
        where: Address | Callable[[], Route],
        hello: Hello,
        serve: Callable[[Link], Awaitable[None]],
        *,
        node: int = 0,
        retry: Retry = WITHIN_NODE,
        chance: Callable[[], float] = random.random,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        """`name` is the peer's in the log; `node` is its node, 0 for any.

        `where` is asked before each try when it is a function. It may raise `LinkLost`. `failed` is
        called when a link is lost, or a try fails.
        """
        self.name: Final = name
        self._find = where if callable(where) else partial(Route, node, where)
        self.hello: Final = hello
        self.is_up = False
        self.last_error = "not connected yet"  # why the link is not open, or was not before
        self._open_scope: trio.CancelScope | None = None
        self._serve = serve
        self._retry = retry
        self._chance = chance
        self._failed = failed

    def reopen(self) -> None:
        """Leave the present link, if there is one, and open it again at once."""
        if self._open_scope is not None:
            self._open_scope.cancel()

    def find(self) -> Route:
        """The way to the process. Raises `LinkLost` when none is known."""
        return self._find()

    async def run(self, log: Log = SILENT) -> NoReturn:
        """Keep the link open until cancelled. Raises what `serve` raises, but for a lost link."""
        history = _History(self.name, log)
        pause_s = 0.0
        while True:
            began = trio.current_time()
            try:
                await self._open(history)
            except LinkRefused as error:
                self.last_error = str(error)
                pause_s = self._retry.refused_s
                history.refused(self.last_error, pause_s)
                self._failed(error)
            except (LinkLost, WireError) as error:
                self.last_error = str(error)
                history.down(self.last_error)
                if trio.current_time() - began > self._retry.max_s:
                    pause_s = 0.0
                pause_s = self._retry.next(pause_s)
                self._failed(error)
            else:
                continue
            await trio.sleep(pause_s * (1 + self._chance()) / 2)

    async def _open(self, history: "_History") -> None:
        route = self._find()
        with trio.CancelScope() as self._open_scope:
            async with dial(route.address, self.hello, node=route.node, log=history.log) as link:
                self.is_up = True
                history.up()
                try:
                    await self._serve(link)
                finally:
                    self.is_up = False
                if link.goodbye is not None:
                    raise LinkLost(f"the peer left: {link.goodbye}")


class _History:
    """The log lines of one link: each change once."""

    def __init__(self, name: str, log: Log) -> None:
        self._name = name
        self.log: Final = log
        self._began = trio.current_time()
        self._was_up = False
        self._logged = ""  # the last line's reason, unless the link has been up since

    def up(self) -> None:
        """Note that the link is open."""
        if self._logged:
            self.log.info("link.up", to=self._name)
        self._logged = ""
        self._was_up = True

    def down(self, reason: str) -> None:
        """Note that it was lost, or could not be opened."""
        is_late = trio.current_time() - self._began >= _STARTING_S
        if not self._logged and (self._was_up or is_late):
            self.log.info("link.down", to=self._name, reason=reason)
            self._logged = reason

    def refused(self, reason: str, pause_s: float) -> None:
        """Note that one end refused the other."""
        if self._logged != reason:
            then = f"trying again every {pause_s:.0f} s"
            self.log.error("link.refused", to=self._name, reason=reason, then=then)
        self._logged = reason
