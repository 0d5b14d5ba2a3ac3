"""Homes of jobs and batches that were restored from a backup of more shards than there are now.

Their ids name shards that do not exist. Once this shard knows the number of shards of the backup,
another shard stands in for each of these. It learns the number from the log, so all replicas agree.
"""

from typing import Final

from corvo import ids
from corvo.kv.keys import META
from corvo.shard.state.tx import Tx

_SHARDS_KEY: Final = META.build("restored_shards")


def home_of(tx: Tx, identifier: str) -> int | None:
    """The home of a job or a batch, as `corvo.ids.home_of` has it, or the shard that stands in."""
    home = ids.home_of(identifier, tx.shards)
    if home is None or home < tx.shards or home >= tx.number(_SHARDS_KEY):
        return home
    return ids.stand_in(home, tx.shards)


def restore_from(tx: Tx, shards: int) -> None:
    """Things come from a backup of so many shards."""
    if shards > max(tx.shards, tx.number(_SHARDS_KEY)):
        tx.set_number(_SHARDS_KEY, shards)
