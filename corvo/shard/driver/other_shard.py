"""The links to another shard: effects go to its leader, and answers come back.

They are opened when there is an effect for the other shard for the first time, and then kept. While
no leader can be reached, effects wait.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from corvo.link import Call, LinkClient, LinkLost
from corvo.protocol import wire
from corvo.protocol.ops.base import encode_json
from corvo.protocol.queries import NUMBERS, EffectsTaken, GetTaken
from corvo.shard.config import ShardConfig
from corvo.shard.ops import NUMBERS as OPS
from corvo.shard.ops.transfer import Skip
from corvo.shard.relaying import Batch, Relaying
from corvo.shard_links import ShardLinks
from corvo.telemetry import Log
from corvo.topology import Topology

_decode_taken: Final = msgspec.json.Decoder(EffectsTaken).decode
_MANY: Final = 2
"""The op version from which on a shard takes many effects in one op."""


class OtherShard:
    """Another shard; `run` keeps links to its replicas."""

    def __init__(
        self,
        config: ShardConfig,
        shard: int,
        topology: Topology,
        relaying: Relaying,
        react: Callable[[], None],
        compare: Callable[[int, EffectsTaken], Skip | None],
    ) -> None:
        """`react` is called when something has come that the replica may have to act on.

        `compare` is called with the effects that the other shard has taken, when that is in doubt;
        it returns an op for the other shard.
        """
        self._own: Final = config.shard
        self._shard: Final = shard
        self._compare = compare
        self._relaying = relaying
        self._react = react
        hello = wire.make_hello(config, wire.SHARD, shard=shard)
        self._links: Final = ShardLinks(shard, topology, hello, changed=self._changed)
        self._nursery: trio.Nursery | None = None

    async def run(self, log: Log) -> None:
        """Keep the links open until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._changed()
            await self._links.run(log)

    def note_error(self) -> None:
        """Keep the reason up to date why no leader can be reached."""
        destination = self._relaying.destination(self._shard)
        if not destination.is_open:
            destination.error = self._links.last_error

    def _changed(self) -> None:
        """Another replica leads, or none, or one in another term: all is to be sent there."""
        client = self._links.leader
        if client is None:
            self._relaying.closed(self._shard, self._links.last_error)
            return
        is_single = client.peer.op_version < _MANY
        self._relaying.opened(self._shard, is_single=is_single)
        self._react()

    def send(self, batch: Batch) -> None:
        """Send effects at once."""
        client, nursery = self._links.leader, self._nursery
        if client is None or nursery is None:
            return  # `closed` has been called, or is about to be
        try:
            call = client.begin(batch.op, batch.body)
        except LinkLost:
            return
        nursery.start_soon(self._finish, client, self._links.led_term, batch, call)

    async def _finish(
        self, client: LinkClient, term: int, batch: Batch, call: Call | wire.Busy
    ) -> None:
        try:
            answer = call if isinstance(call, wire.Busy) else await client.finish(call)
            if isinstance(answer, wire.NotLeader):
                self._links.not_leader(client, term)
            pause_ms = self._relaying.answered(batch, answer)
            destination = self._relaying.destination(self._shard)
            if destination.is_in_doubt:
                destination.is_in_doubt = False
                await self._ask(client)
        except LinkLost:
            return
        if pause_ms:
            self._react()
            await trio.sleep(pause_ms / 1_000)
            self._relaying.try_again(batch)
        self._react()

    async def _ask(self, client: LinkClient) -> None:
        """Compare the effects that both shards know, and continue where that leads."""
        body = encode_json(GetTaken(source=self._own))
        answer = await client.ask(NUMBERS[GetTaken], body)
        if isinstance(answer, wire.Reply) and not answer.code:
            op = self._compare(self._shard, _decode_taken(answer.body))
            if op is not None:
                await client.submit(OPS[Skip], encode_json(op))
