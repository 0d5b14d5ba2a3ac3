"""A check that the log files of a LevelDB are complete: its write-ahead log and its MANIFEST.

LevelDB checks each record, but takes a record that seems to go beyond the end of the file for one
whose writer died, and says nothing. So one flipped bit in the length of the last record of a
MANIFEST drops a table with all its keys, while the log that is newer than the table is still read:
a hole. Whoever has a checkpoint to fall back on need not believe such a file.

A log is blocks of 32 KiB; a record is crc (4 bytes), length (2), type (1), data; what remains of a
block and is too small for a header is passed over. (LevelDB's doc/log_format.md.)
"""

from struct import Struct
from typing import Final

_BLOCK_BYTES: Final = 32 << 10
_HEADER: Final = Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def is_whole(data: bytes | bytearray) -> bool:
    """Whether the records fill the file to its end, and the last one is complete.

    Leaves the CRCs to LevelDB, which does check them.
    """
    at = 0
    within = False  # a record that began in one block and has not ended
    while at < len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _HEADER.size:
            at += left
            continue
        if at + _HEADER.size > len(data):
            return False
        _, length, kind = _HEADER.unpack_from(data, at)
        if _HEADER.size + length > left or at + _HEADER.size + length > len(data):
            return False
        if kind not in ((_MIDDLE, _LAST) if within else (_FULL, _FIRST)):
            return False
        within = kind in (_FIRST, _MIDDLE)
        at += _HEADER.size + length
    return not within
