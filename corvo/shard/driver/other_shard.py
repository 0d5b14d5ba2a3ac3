"""The link to another shard: effects go over it, and answers come back.

The link is opened when there is an effect for the other shard for the first time, and then kept.
It leads to the replica on this node. While that replica does not lead, effects wait.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from corvo.kept_link import KeptLink
from corvo.link import Call, Link, LinkClient, LinkLost, UnixAddress, open_client
from corvo.protocol import wire
from corvo.protocol.ops.base import encode_json
from corvo.protocol.queries import NUMBERS, EffectsTaken, GetTaken
from corvo.shard.config import ShardConfig
from corvo.shard.ops import NUMBERS as OPS
from corvo.shard.ops.transfer import Skip
from corvo.shard.relaying import Batch, Relaying

_decode_taken: Final = msgspec.json.Decoder(EffectsTaken).decode
_MANY: Final = 2
"""The op version from which on a shard takes many effects in one op."""


class OtherShard:
    """Another shard; `run` keeps a link to it."""

    def __init__(
        self,
        config: ShardConfig,
        shard: int,
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
        self._link: Final = KeptLink(
            f"shard-{shard}",
            UnixAddress(config.others[shard]),
            wire.make_hello(config, wire.SHARD, shard=shard),
            self._serve,
        )
        self._client: LinkClient | None = None
        self._nursery: trio.Nursery | None = None
        self._leader: int | None = None  # the node of the shard's leader, as far as is known

    async def run(self) -> None:
        """Keep the link open until cancelled."""
        await self._link.run()

    async def _serve(self, link: Link) -> None:
        async with open_client(link, self._on_push) as client, trio.open_nursery() as nursery:
            self._client, self._nursery = client, nursery
            self._note_leader()
            try:
                await trio.sleep_forever()
            finally:
                self._client = self._nursery = self._leader = None
                self._relaying.closed(self._shard, "the link to it is lost")

    def _on_push(self, push: wire.Push) -> None:
        if isinstance(push, wire.Leading):
            self._leader = push.leader
            self._note_leader()

    def _note_leader(self) -> None:
        client = self._client
        if client is None:
            return
        is_open = self._relaying.destination(self._shard).is_open
        if self._leader != client.peer.node:
            self._relaying.closed(self._shard, "its replica on this node does not lead")
        elif not is_open:
            is_single = client.peer.op_version < _MANY
            self._relaying.opened(self._shard, is_single=is_single)
            self._react()

    def send(self, batch: Batch) -> None:
        """Send effects at once."""
        client, nursery = self._client, self._nursery
        if client is None or nursery is None:
            return  # `closed` has been called, or is about to be
        try:
            call = client.begin(batch.op, batch.body)
        except LinkLost:
            return
        nursery.start_soon(self._finish, client, batch, call)

    async def _finish(self, client: LinkClient, batch: Batch, call: Call | wire.Busy) -> None:
        try:
            answer = call if isinstance(call, wire.Busy) else await client.finish(call)
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
