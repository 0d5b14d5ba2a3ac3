"""Damage: one bit of one file of a stopped node is another."""

from pathlib import Path
from random import Random
from typing import Final

from chaos.cluster.node import Node
from chaos.faults.copies import of_a_copy
from chaos.faults.fault import Case, Fault, Ground

_FOUND: Final = (
    b"stays down",
    b"log.set_aside",
    b"replica.set_aside",
    b"mirror.damaged",
    b"made_anew",
    b"node.damaged",
)
"""What a node says when it has found damage."""


def _files(node: Node, patterns: tuple[str, ...]) -> list[Path]:
    found = sorted(path for pattern in patterns for path in node.data.glob(pattern))
    return [path for path in found if path.is_file() and path.stat().st_size]


def flip(path: Path, random: Random) -> int:
    """Flip one bit of a file; which one."""
    data = bytearray(path.read_bytes())
    bit = random.randrange(8 * len(data))
    data[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(data)
    return bit


def _fault(name: str, what: str, *patterns: str) -> Fault:
    async def apply(ground: Ground, case: Case) -> None:
        node = ground.node(case.nodes[0])
        case.seen["log"] = node.log_bytes()
        await node.stop()
        files = _files(node, patterns)
        if files:
            chosen = ground.random.choice(files)
            case.args["file"] = str(chosen.relative_to(node.data))
            case.seen["bit"] = flip(chosen, ground.random)

    async def verify(ground: Ground, case: Case) -> str:
        del ground
        return f"flipped bit {case.seen['bit']} of {case.args['file']}" if case.args else ""

    return of_a_copy(name, what, weight=0.4, apply=apply, verify=verify, says=_FOUND)


FAULTS: Final = (
    _fault("flip-log", "one bit of a log of a stopped node is flipped", "shard-*/log/*.seg"),
    _fault(
        "flip-log-heads",
        "one bit of the small files of a log is flipped: vote, identity, list of segments",
        "shard-*/log/hard-state",
        "shard-*/log/identity",
        "shard-*/log/manifest",
    ),
    _fault("flip-state", "one bit of a LevelDB table or log is flipped", "shard-*/state/live/*"),
    _fault("flip-checkpoint", "one bit of a checkpoint is flipped", "shard-*/state/checkpoint-*/*"),
    _fault(
        "flip-mirror", "one bit of a mirror is flipped", "mirror/mirror.db", "mirror/mirror.db-wal"
    ),
    _fault(
        "flip-node",
        "one bit of the files of a node is flipped: identity, map, notes about its shards",
        "*.json",
        "instance",
        "known/*.json",
    ),
)
