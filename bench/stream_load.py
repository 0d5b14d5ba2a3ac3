"""One stream of a worker, as busy as it can be: each frame enqueues, acknowledges and fetches."""

from time import perf_counter
from typing import Final, NamedTuple

import msgspec

from bench.server import Server, Used
from tests.router.stream_client import Client, connected

BATCH: Final = 100
DEPTH: Final = 4
MEASURED_S: Final = 5.0
WARMING_S: Final = 1.0
_PAYLOAD: Final = b'{"to":"ada@example.com","n":1}'


class Streamed(NamedTuple):
    """What a stream came to."""

    cycles: int
    """Jobs that were fetched, and acknowledged by the next frame but three or so."""
    frames: list[float]
    """Seconds of each frame, from sending it to its answer."""
    seconds: float
    used: Used


class _Taken(msgspec.Struct):
    job_id: str
    lease_token: int


class _Reply(msgspec.Struct):
    id: int
    jobs: list[_Taken] = []
    error: msgspec.Raw | None = None
    fetch_error: msgspec.Raw | None = None


class _Frame(msgspec.Struct):
    id: int
    acks: list[_Taken]
    enqueues: list[dict[str, object]]
    fetch: dict[str, object]


class Load:
    """Keeps some frames under way, as JSON or packed."""

    def __init__(self, client: Client, *, is_packed: bool) -> None:
        self._client = client
        self._is_packed = is_packed
        payload = _PAYLOAD if is_packed else msgspec.Raw(_PAYLOAD)
        self._new: list[dict[str, object]] = [{"queue": "stream", "payload": payload}] * BATCH
        self._take: dict[str, object] = {"queues": ["stream"], "count": BATCH, "worker_id": "bench"}
        self._sent: dict[int, float] = {}
        self._last = 0

    async def run(self, seconds: float, server: Server) -> Streamed:
        """Be busy for so long."""
        cycles, frames = 0, []
        before, begun = server.used(), perf_counter()
        for _ in range(DEPTH):
            await self._send([])
        while self._sent:
            message = await self._client.receive_message()
            now = perf_counter()
            reply = self._decode(message)
            assert reply.error is None, reply
            assert reply.fetch_error is None, reply
            frames.append(now - self._sent.pop(reply.id))
            cycles += len(reply.jobs)
            if now - begun < seconds:
                await self._send(reply.jobs)
        return Streamed(cycles, frames, perf_counter() - begun, server.used().since(before))

    async def _send(self, acks: list[_Taken]) -> None:
        self._last += 1
        frame = _Frame(self._last, acks, self._new, self._take)
        message = _pack(frame) if self._is_packed else _as_json(frame).decode()
        self._sent[self._last] = perf_counter()
        await self._client.send_message(message)

    def _decode(self, message: bytes | str) -> _Reply:
        return _read_json(message) if isinstance(message, str) else _unpack(message)


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Reply).decode
_as_json: Final = msgspec.json.Encoder().encode
_read_json: Final = msgspec.json.Decoder(_Reply).decode


async def stream(server: Server, *, is_packed: bool) -> Streamed:
    """Measure one stream."""
    async with connected(server.port) as client:
        load = Load(client, is_packed=is_packed)
        await load.run(WARMING_S, server)
        return await load.run(MEASURED_S, server)
