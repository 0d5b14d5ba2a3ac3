"""The endpoints of backups."""

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Annotated, Final

import msgspec

from corvo import __version__, clock
from corvo.kv.sums import NAME as SUMS
from corvo.link import LinkLost
from corvo.protocol.backups import (
    MANIFEST,
    CopiedFile,
    HeldFile,
    Manifest,
    ShardCopy,
    folder_of,
)
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import EVERYTHING
from corvo.router.backups import archive
from corvo.router.backups.placing import RestoreBody
from corvo.router.backups.restoring import RestoreResult, send
from corvo.router.http.bodies import Body, body_of
from corvo.router.http.messages import ClientGone, Request, Response, Sink, json_response
from corvo.router.http.request_keys import request_key
from corvo.router.routes import Route
from corvo.router.shards.copies import Copies, Copy
from corvo.times import format_ms

TAR: Final = "application/x-tar"
_HELD_MAX: Final = 100_000


class BackupBody(msgspec.Struct, frozen=True):
    """What a backup may leave out."""

    have: Annotated[list[HeldFile], msgspec.Meta(max_length=_HELD_MAX)] = []


_body: Final = Body(BackupBody)
_documents: Final = Body(RestoreBody)


async def backup(api: Api, request: Request) -> Response:
    """Copy all shards, and send the copies as one archive."""
    body = body_of(request, _body)
    began_ns = clock.now_ns()
    copies = await api.backups.begin()
    known = {(each.shard, each.name, each.size, each.crc32) for each in body.have}
    manifest = Manifest(
        cluster=api.config.cluster,
        release=__version__,
        op_version=api.topology.map.op_version,
        began_at=format_ms(began_ns),
        shards=[_described(shard, made) for shard, made in enumerate(copies.made)],
    )

    async def close() -> None:
        copies.close()

    return Response(
        content_type=TAR,
        headers=[("content-disposition", 'attachment; filename="corvo-backup.tar"')],
        stream=partial(_send, copies, manifest, known, began_ns),
        undelivered=close,
    )


async def restore(api: Api, request: Request) -> Response:
    """Bring documents of a backup back."""
    body = body_of(request, _documents)
    key = request_key(request)
    result, reached = await send(api, body, key, by=request.caller.signature)
    return json_response(result, reached=reached)


def _described(shard: int, made: Copy) -> ShardCopy:
    files = [CopiedFile(name, it.size, it.crc) for name, it in sorted(made.files.items())]
    return ShardCopy(shard=shard, node=made.node, index=made.index, files=files)


async def _send(
    copies: Copies,
    manifest: Manifest,
    known: AbstractSet[tuple[int, str, int, int]],
    began_ns: int,
    sink: Sink,
) -> None:
    try:
        copies.begin_reading()
        at_s = began_ns // 1_000_000_000
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
        await _send_file(sink, MANIFEST, text, at_s)
        for shard, made in enumerate(copies.made):
            folder = folder_of(shard)
            if made.sums:
                await _send_file(sink, f"{folder}/{SUMS}", made.sums, at_s)
            for name, it in sorted(made.files.items()):
                if (shard, name, it.size, it.crc) in known:
                    continue
                await sink.send(archive.header(f"{folder}/{name}", it.size, at_s=at_s))
                await _send_copy(copies, sink, shard, name, it.size)
                await sink.send(archive.padding(it.size))
        await sink.send(archive.END)
    except LinkLost as error:
        # Without its end, an archive is not taken for whole.
        raise ClientGone(str(error)) from error
    finally:
        copies.close()


async def _send_file(sink: Sink, path: str, data: bytes, at_s: int) -> None:
    await sink.send(archive.header(path, len(data), at_s=at_s) + data + archive.padding(len(data)))


async def _send_copy(copies: Copies, sink: Sink, shard: int, name: str, size: int) -> None:
    """Send a file of a copy. Raises `LinkLost`, also for a file that is shorter than it was."""
    offset = 0
    while offset < size:
        data = await copies.read(shard, name, offset)
        if not data or offset + len(data) > size:
            raise LinkLost(f"{name} of shard {shard} has not {size} bytes")
        await sink.send(data)
        offset += len(data)


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/admin/backup",
        endpoint=backup,
        tag="Node",
        action=Action.ADMIN,
        rights=EVERYTHING,
        summary="Make a backup",
        description=(
            "Copies all shards while they work, and sends the copies as one tar archive. Its first"
            " file, `manifest.json`, has the position of each copy. The copies are consistent with"
            " each other: no job is missing or there twice. An archive without its end"
            " was cut short: make another one. `corvo backup` calls this, verifies what it has"
            " received, and leaves out what an earlier backup has."
        ),
        takes=BackupBody,
        takes_example={"have": []},
        content_type=TAR,
        problems=(503,),
        is_streamed=True,
        is_parked=True,
    ),
    Route(
        method="POST",
        path="/api/v1/admin/restore",
        endpoint=restore,
        tag="Node",
        action=Action.ADMIN,
        rights=EVERYTHING,
        summary="Bring documents of a backup back",
        description=(
            "Inserts documents of a backup as they were, each in the shard that it belongs to now."
            " What exists is not changed, so a request can be repeated. `corvo restore` calls this:"
            " it verifies a backup, and sends its documents in the order that they need."
        ),
        takes=RestoreBody,
        takes_example={
            "shards": 4,
            "queues": [{"name": "mail", "created_ns": 1_771_588_800_000_000_000}],
        },
        gives={200: RestoreResult},
    ),
)
