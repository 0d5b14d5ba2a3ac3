"""Lost directories: those of a node, a shard or a mirror are gone, or older than they were."""

import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from chaos.cluster.node import Node
from chaos.faults.copies import of_a_copy
from chaos.faults.fault import Case, Fault, Ground

_PROGRESS_S: Final = 4.0
_SAYS: Final = (b"replica.repairing", b"replica.repaired", b"stays down")
"""What a node says of directories that lack what it has confirmed."""


def _parts(node: Node, pattern: str) -> list[Path]:
    return [node.data] if not pattern else sorted(node.data.glob(pattern))


async def _proof(ground: Ground, case: Case) -> str:
    del ground
    return case.args.get("done", "")


def _gone(name: str, what: str, pattern: str) -> Fault:
    async def apply(ground: Ground, case: Case) -> None:
        node = ground.node(case.nodes[0])
        case.seen["log"] = node.log_bytes()
        await node.stop()
        parts = _parts(node, pattern)
        if parts:
            chosen = ground.random.choice(parts)
            shutil.rmtree(chosen)
            _sync_names(chosen.parent)
            case.args["done"] = f"removed {chosen.relative_to(node.data.parent)}"

    return _fault(name, what, apply)


def _older(name: str, what: str, pattern: str) -> Fault:
    async def apply(ground: Ground, case: Case) -> None:
        node = ground.node(case.nodes[0])
        copy = node.data.with_name("copy")
        await node.stop(signal.SIGTERM)
        chosen = ground.random.choice(_parts(node, pattern))
        shutil.copytree(chosen, copy, symlinks=True, ignore=_is_socket)
        await ground.cluster.start(node)
        await ground.cluster.whole(_PROGRESS_S)
        await trio.sleep(_PROGRESS_S)
        case.seen["log"] = node.log_bytes()
        await node.stop()
        shutil.rmtree(chosen)
        copy.rename(chosen)
        _sync(chosen)
        _sync_names(chosen.parent)
        case.args["done"] = f"{chosen.relative_to(node.data.parent)} is as it was before"

    return _fault(name, what, apply)


def _sync(path: Path) -> None:
    """Make a file, or a folder with all that is in it, durable, as it was before."""
    if path.is_symlink():
        return
    if path.is_dir():
        for inside in path.iterdir():
            _sync(inside)
    if path.is_dir() or path.is_file():
        _sync_names(path)


def _sync_names(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_socket(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_socket()}


def _fault(name: str, what: str, apply: Callable[[Ground, Case], Awaitable[None]]) -> Fault:
    return of_a_copy(name, what, weight=0.3, apply=apply, verify=_proof, says=_SAYS)


FAULTS: Final = (
    _gone("gone-node", "the data directory of a node is gone", ""),
    _gone("gone-shard", "the directory of a shard is gone", "shard-*"),
    _gone("gone-mirror", "the directory of a mirror is gone", "mirror"),
    _older("older-node", "a node has an older copy of its data directory", ""),
    _older("older-shard", "a shard has an older copy of its directory", "shard-*"),
    _older("older-mirror", "a mirror has an older copy of its directory", "mirror"),
)
