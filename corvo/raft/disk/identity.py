"""The identity of a log directory: written once, checked at every start."""

from typing import Final

import msgspec

from corvo.raft.disk.damage import REPLACE, damaged
from corvo.raft.disk.envelope import seal, unseal
from corvo.raft.disk.filesystem import DirectoryRefused, Files, replace
from corvo.raft.errors import LogDamaged

IDENTITY: Final = "identity"
_MAGIC: Final = b"corvo-id"


class OtherIdentity(DirectoryRefused):
    """The directory belongs to another replica."""

    def __init__(self, found: "Identity", wanted: "Identity") -> None:
        super().__init__(
            f"this directory belongs to replica {found.replica} of cluster {found.cluster!r}, "
            f"not to replica {wanted.replica} of cluster {wanted.cluster!r}"
        )
        self.found: Final = found


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The one replica of the one cluster that a data directory belongs to."""

    cluster: str
    replica: int
    instance: int
    """Random, made once with the directory: one that was wiped comes back with another."""


def create_identity(files: Files, identity: Identity) -> None:
    """Write it. This is the last step of making a directory: before it there is none."""
    replace(files, IDENTITY, seal(_MAGIC, identity))


def read_identity(files: Files) -> Identity:
    """What was written. Damage to it cannot be mended: nobody knows whose vote this is."""
    try:
        return unseal(files, IDENTITY, _MAGIC, Identity, alone=True).content
    except LogDamaged as error:
        raise damaged(IDENTITY, error.offset, 0, error.problem, action=REPLACE) from error


def check_identity(found: Identity, wanted: Identity) -> None:
    """Refuse the directory of another cluster or replica. The instance is the directory's own."""
    if (found.cluster, found.replica) != (wanted.cluster, wanted.replica):
        raise OtherIdentity(found, wanted)
