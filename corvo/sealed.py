"""Small files of JSON with a checksum: a damaged one is noticed even if it is still JSON.

    {"cluster": "7QWB", …, "crc32": "1c291ca3"}

The last field has the CRC-32 of everything before it. A file without that field is of an earlier
version, and is believed.
"""

import re
from typing import Final, TypeVar
from zlib import crc32

import msgspec

T = TypeVar("T")
_END: Final = re.compile(rb',\s*"crc32":\s*"([0-9a-f]{8})"\s*\}\s*\Z')


def seal(content: bytes) -> bytes:
    """A JSON object, with its checksum as the last field, and a newline."""
    fields = content.rstrip().removesuffix(b"}").rstrip()
    return b'%b,"crc32":"%08x"}\n' % (fields, crc32(fields))


def unseal(data: bytes, kind: type[T]) -> T:
    """The content of a sealed file. Raises `msgspec.DecodeError` and `UnicodeError` for damage."""
    if (found := _END.search(data)) is not None:
        fields = data[: found.start()]
        if crc32(fields) != int(found[1], 16):
            raise msgspec.DecodeError("the checksum is not that of the content")
        data = fields + b"}"
    return msgspec.json.decode(data, type=kind)
