"""The registry of ops: which number in the log is which op. A number is never used again."""

from typing import Final

from corvo.shard.ops.base import Op
from corvo.shard.ops.enqueue import Enqueue
from corvo.shard.ops.work import Ack, Fetch

OPS: Final[dict[int, type[Op]]] = {
    1: Enqueue,
    3: Fetch,
    4: Ack,
}

NUMBERS: Final = {op: number for number, op in OPS.items()}
