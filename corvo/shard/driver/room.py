"""Room on the disk without which a shard does not start, and does not write."""

import sys
from pathlib import Path
from typing import Final

import trio

from corvo.child import Parent
from corvo.kv import directories
from corvo.shard.config import ShardConfig

_RETRY_S: Final = 0.25
"""Between two looks: room on the disk may come back."""


def room_needed(config: ShardConfig) -> int:
    """The room without which nothing is written, not even what was taken before.

    What is applied goes into a buffer of the state that becomes a table some time, and a state that
    cannot be written any more ends the process.
    """
    return config.room_bytes_min // 4


async def wait_for_room(config: ShardConfig, parent: Parent) -> bool:
    """Wait until there is room to start in; False when we were to leave meanwhile.

    To open and catch up writes a little. A process that ended for want of room would be started
    again and again, and then no more.
    """
    root = Path(config.data_dir)
    found = next(path for path in (root, *root.parents) if path.exists())
    needed = room_needed(config)
    if directories.room(found) >= needed:
        return True
    sys.stderr.write(f"corvo shard: {root} has less than {needed} bytes of room: waiting for it\n")
    is_leaving = False
    async with trio.open_nursery() as nursery:

        async def wait_to_leave() -> None:
            nonlocal is_leaving
            await parent.wait()
            is_leaving = True
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_to_leave)
        while directories.room(found) < needed:  # noqa: ASYNC110 -- a disk has no event for it
            await trio.sleep(_RETRY_S)
        nursery.cancel_scope.cancel()
    return not is_leaving
