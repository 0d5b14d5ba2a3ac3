"""A relay between hosts that are all on loopback: a process that carries the bytes of connections.

    python -m chaos.cluster.relay SEED SOURCE>TARGET=LISTEN=ADDRESS:PORT …

It is for users who may not make network namespaces. Each source has an address of its own for each
target, so the relay knows which host connects. It holds bytes back while their direction is cut, as
TCP does without an answer, and delivers them later. It cannot lose or reorder packets, because a
process sees only the bytes of a connection. Commands and answers are those of `wire`.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import msgspec
import trio

from chaos.cluster.rules import CLEAR, Counts, Rule
from chaos.cluster.wire import Answer, Command, Count

_CHUNK_BYTES: Final = 16 << 10
_CHUNKS_MAX: Final = 64
"""Chunks of one connection that wait; then its sender has to wait."""
_LOOK_S: Final = 0.02
Pair = tuple[str, str]


class Way:
    """One direction between two hosts."""

    def __init__(self, random: Random) -> None:
        self.rule: Rule = CLEAR
        self.counts: Final = Counts()
        self._random = random
        self._free_at = -math.inf

    def due(self, now: float, size: int) -> float:
        """The time at which a chunk arrives, if its direction is not cut."""
        rule = self.rule
        self.counts.passed += 1
        at = now
        if rule.bytes_per_second:
            self._free_at = max(now, self._free_at) + size / rule.bytes_per_second
            at = self._free_at
        at += (rule.delay_ms + self._random.random() * rule.jitter_ms) / 1e3
        if at > now:
            self.counts.delayed += 1
        return at

    async def open(self) -> None:
        """Wait while the direction is cut. A chunk that waits counts as dropped."""
        if self.rule.is_cut:
            self.counts.dropped += 1
            while self.rule.is_cut:  # noqa: ASYNC110 -- a rule has no event
                await trio.sleep(_LOOK_S)


class Relay:
    """All directions, and the connections through them."""

    def __init__(self, targets: Mapping[Pair, tuple[str, int]], seed: str) -> None:
        self._targets = targets
        pairs = {pair for one, other in targets for pair in ((one, other), (other, one))}
        self.ways: Final = {pair: Way(Random(f"{seed} {pair}")) for pair in sorted(pairs)}

    async def serve(self, pair: Pair, listener: trio.SocketListener) -> None:
        """Accept the connections of a source to a target."""
        source, target = pair
        there, back = self.ways[source, target], self.ways[target, source]

        async def handle(near: trio.SocketStream) -> None:
            host, port = self._targets[pair]
            try:
                far = await trio.open_tcp_stream(host, port)
            except OSError:
                return  # the host is down: its end of the connection is closed
            async with far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, near, far, there)
                nursery.start_soon(self._pump, far, near, back)

        await trio.serve_listeners(handle, [listener])

    async def _pump(self, source: trio.SocketStream, target: trio.SocketStream, way: Way) -> None:
        """Carry bytes in one direction until the connection ends."""
        outgoing, incoming = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_MAX)

        async def deliver() -> None:
            async for at, data in incoming:
                await trio.sleep_until(at)
                await way.open()
                await target.send_all(data)
            await target.send_eof()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(deliver)
                async with outgoing:
                    while data := await source.receive_some(_CHUNK_BYTES):
                        await outgoing.send((way.due(trio.current_time(), len(data)), data))
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            # The end of a connection is the end of its other half as well.
            source.socket.close()
            target.socket.close()

    def obey(self, command: Command) -> Answer:
        """Change rules, and tell the counts."""
        for change in command.changes:
            self.ways[change.source, change.target].rule = change.rule
        return Answer([Count(*pair, way.counts) for pair, way in self.ways.items()])


async def _obey(relay: Relay) -> None:
    """Commands from stdin, until it closes."""
    rest = b""
    stream = trio.lowlevel.FdStream(0)
    out = trio.lowlevel.FdStream(1)
    while data := await stream.receive_some():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            answer = relay.obey(msgspec.json.decode(line, type=Command))
            await out.send_all(msgspec.json.encode(answer) + b"\n")


async def serve(
    seed: str, targets: Mapping[Pair, tuple[str, int]], places: Mapping[Pair, str]
) -> None:
    """Carry connections until stdin closes. `places` has the listening address of each pair."""
    relay = Relay(targets, seed)
    async with trio.open_nursery() as nursery:
        for pair, (_, port) in targets.items():
            for listener in await trio.open_tcp_listeners(port, host=places[pair]):
                nursery.start_soon(relay.serve, pair, listener)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await _obey(relay)
        nursery.cancel_scope.cancel()


def main(arguments: Sequence[str]) -> int:
    """Carry connections between these hosts: the exit code."""
    seed, *words = arguments
    targets, places = {}, {}
    for word in words:
        names, place, target = word.split("=")
        source, _, name = names.partition(">")
        host, _, port = target.rpartition(":")
        targets[source, name] = (host, int(port))
        places[source, name] = place
    trio.run(serve, seed, targets, places)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
