"""What a backup says of itself: its manifest, the first file of it."""

from typing import Annotated, Final, TypeAlias

import msgspec

FORMAT: Final = 1
"""Of the manifest and the files that it names. It rises when an older release would
misread them."""
MANIFEST: Final = "manifest.json"
FILE_NAME: Final = r"^(CURRENT|MANIFEST-[0-9]{6,}|[0-9]{6,}\.ldb)$"

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
FileName: TypeAlias = Annotated[str, msgspec.Meta(pattern=FILE_NAME, max_length=40)]
Crc: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class CopiedFile(msgspec.Struct, frozen=True):
    """A file of a copy. Tables never change, so one with equal name, size and sum is the same."""

    name: FileName
    size: Natural
    crc32: Crc


class ShardCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of one shard's state: the files of a LevelDB."""

    shard: Natural
    node: int  # the node that made the copy
    index: Natural
    """Position in the shard's log: the copy has all changes up to it, and none after it. 0 for a
    shard that never had a change."""
    files: list[CopiedFile] = []


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup: copies of all shards, consistent with each other."""

    format: int = FORMAT
    cluster: str
    release: str
    op_version: int  # of the cluster: no older release can read the documents
    began_at: str  # the backup has all that was confirmed before
    shards: list[ShardCopy]


class HeldFile(msgspec.Struct, frozen=True):
    """A file that an earlier backup has."""

    shard: Natural
    name: FileName
    size: Natural
    crc32: Crc


def folder_of(shard: int) -> str:
    """The folder of a shard's files in a backup."""
    return f"shard-{shard}"
