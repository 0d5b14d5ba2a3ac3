"""Reading of the API keys from their shard, at the start and after each change.

A shard tells its routers when a key changed, on the link that the answers come over; so a revoked
key is of no use a few milliseconds later. Beside that the list is read every now and then, which
shows that nothing was missed and that the shard is still there.
"""

from typing import Final

import msgspec
import trio

from corvo.model import ApiKey
from corvo.protocol.ops.keys import HOME
from corvo.protocol.queries import ApiKeys, ListKeys
from corvo.router.auth.keyring import HEADERS, Keyring
from corvo.router.http.messages import Problem
from corvo.router.shards.links import Shards
from corvo.telemetry import Log

CONFIRM_S: Final = 10.0
"""Between two readings when nothing happens; a third of what a list is believed for."""
_RETRY_S: Final = 1.0
"""After a reading that failed. Whoever waits for the shard to come back rings the bell, too."""


class Keeper:
    """Reads the keys of one router."""

    def __init__(self, keyring: Keyring, shards: Shards) -> None:
        self._keyring = keyring
        self._shard = shards[HOME]
        self._bell = trio.Event()
        self._known = trio.Event()
        self._reading = trio.Lock()
        self._log: Log | None = None

    def ring(self) -> None:
        """The keys may have changed: the shard said so, or there is a new link to it."""
        self._bell.set()

    async def run(self, log: Log) -> None:
        """Keep on reading; and log requests without a key after the server was closed."""
        self._log = log
        stepped_s = trio.current_time()
        while True:
            self._bell = trio.Event()
            pause_s = CONFIRM_S
            try:
                await self.read()
            except Problem:
                pause_s = _RETRY_S
            with trio.move_on_after(pause_s):
                await self._bell.wait()
            if trio.current_time() - stepped_s >= CONFIRM_S:
                stepped_s = trio.current_time()
                refused = self._keyring.unkeyed.step()
                if refused:
                    log.warning("api_keys.missing", requests=refused, header=HEADERS)

    async def read(self) -> None:
        """Read the list as it is now. Raises `Problem`, and leaves the keyring as it was then.

        A key that changes between two pages is announced behind the first, and read again.
        """
        async with self._reading:  # of two at once, the one that began first could end last
            asked_s = trio.current_time()
            found: list[ApiKey] = []
            after = ""
            while True:
                answer = await self._shard.ask(ListKeys(after=after))
                page = _decode(answer.body)
                found += page.keys
                after = page.after
                if not after:
                    break
            was_open = self._keyring.is_open
            self._keyring.replace(found, now_s=asked_s)
            if was_open and not self._keyring.is_open and self._log is not None:
                recent = self._keyring.unkeyed.recent
                self._log.warning("api_keys.required", requests=recent, header=HEADERS)
            self._known.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the first list, but only so long: whoever has just started knows of no key."""
        with trio.move_on_after(seconds):
            await self._known.wait()


_decode: Final = msgspec.json.Decoder(ApiKeys).decode
