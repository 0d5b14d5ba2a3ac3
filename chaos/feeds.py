"""The listeners of a run: each node's events, from the first to the last, as the witness.

A listener is connected to one node, and resumes after every loss of its connection with its last
id. So its lines are what that node says the cluster did.
"""

from typing import Final
from urllib.parse import quote

import msgspec
import trio

from chaos.history import Event, Feed
from chaos.http import Connection, Lost, Site
from chaos.recording import Recorder, now_ns
from chaos.workloads.scene import QUEUES

_PAUSE_S: Final = 0.3
_SILENCE_S: Final = 20.0
"""A server sends a line at least each 15 seconds."""
_PATH: Final = "/api/v1/events"


class _Gone(msgspec.Struct):
    last_event_id: str
    shards: list[int] = []


class Listener:
    """The listener of one node."""

    def __init__(self, site: Site, recorder: Recorder) -> None:
        self.site: Final = site
        self.last_id = ""
        self.is_started: Final = trio.Event()
        """Whether it has its first id, from which on it misses nothing."""
        self.stop: Final = trio.CancelScope()
        self._recorder = recorder
        self._pending_id = ""

    async def run(self) -> None:
        """Listen until `stop`."""
        with self.stop:
            while True:
                try:
                    await self._listen()
                except Lost as error:
                    self._write("end", why=str(error)[:200])
                await trio.sleep(_PAUSE_S)

    async def _listen(self) -> None:
        # Events of queues come by their names; without names, queues of others would come, too.
        query = f"?queues={quote(','.join(QUEUES))}"
        if self.last_id:
            query += f"&last_event_id={quote(self.last_id)}"
        connection = Connection(self.site)
        try:
            with trio.move_on_after(_SILENCE_S) as silence:
                answer = await connection.listen(_PATH + query)
                if answer is not None and answer.status == 410:
                    self._gone(answer.body)
                    return
                if answer is not None:
                    raise Lost(f"status {answer.status}", was_sent=True)
                if self.last_id:
                    self._write("resume", self.last_id)
                await self._read(connection, silence)
            raise Lost("no line for a long time", was_sent=True)
        finally:
            connection.close()

    async def _read(self, stream: Connection, silence: trio.CancelScope) -> None:
        chunks = _Chunks()
        data: list[bytes] = []
        kind = b""
        while True:
            lines = chunks.add(await stream.more())
            silence.deadline = trio.current_time() + _SILENCE_S
            for line in lines:
                if line.startswith(b"data:"):
                    data.append(line[5:].strip())
                elif line.startswith(b"id:"):
                    self._pending_id = line[3:].strip().decode()
                elif line.startswith(b"event:"):
                    kind = line[6:].strip()
                elif not line:
                    self._take(kind, b"\n".join(data))
                    data, kind = [], b""

    def _take(self, kind: bytes, data: bytes) -> None:
        """A message is complete."""
        if kind == b"gone":
            self._gone(data)
            raise Lost("gone", was_sent=True)
        if not self._pending_id:
            return
        is_first = not self.last_id
        self.last_id = self._pending_id
        self._pending_id = ""
        if data:
            told = msgspec.json.decode(data, type=dict[str, object])
            # The `kind` of a record is not that of a job.
            told |= {"kind": "event", "node": self.site.name, "t": now_ns(), "id": self.last_id}
            self._recorder.event(msgspec.convert(told, Event))
        else:
            self._write("start" if is_first else "id", self.last_id)
        if is_first:
            self.is_started.set()

    def _gone(self, data: bytes) -> None:
        body = msgspec.json.decode(data, type=_Gone)
        self.last_id = body.last_event_id
        self._recorder.event(
            Feed(self.site.name, now_ns(), "gone", self.last_id, tuple(body.shards))
        )

    def _write(self, what: str, id_: str = "", why: str = "") -> None:
        record = {"node": self.site.name, "t": now_ns(), "what": what, "id": id_, "why": why}
        self._recorder.event(msgspec.convert(record, Feed))


class _Chunks:
    """The lines in the bytes of an answer in chunks.

    Sizes of chunks are lines of their own, and a chunk can end within a line; so chunks are undone
    before lines are looked for.
    """

    def __init__(self) -> None:
        self._raw = bytearray()
        self._left = 0
        self._text = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The lines that are complete with these bytes."""
        self._raw += data
        while self._raw:
            if self._left > 2:
                taken = self._raw[: self._left - 2]
                self._text += taken
                del self._raw[: len(taken)]
                self._left -= len(taken)
            elif self._left:
                dropped = min(self._left, len(self._raw))
                del self._raw[:dropped]
                self._left -= dropped
            else:
                end = self._raw.find(b"\r\n")
                if end < 0:
                    break
                # A chunk and the end of its line are counted together.
                self._left = int(self._raw[:end].split(b";")[0], 16) + 2
                del self._raw[: end + 2]
        *lines, rest = self._text.split(b"\n")
        self._text = bytearray(rest)
        return [bytes(line) for line in lines]
