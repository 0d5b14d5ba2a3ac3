"""CRC-32C over a chain of bytes: the one door to google_crc32c."""

import google_crc32c


def chain(crc: int, data: bytes) -> int:
    """The CRC-32C of everything that led to `crc`, followed by `data`; 0 begins a chain.

    For one and the same `data`, two different `crc`s never give the same result. So bytes that are
    intact but stand behind other bytes than those they were written behind do not pass.
    """
    extended: int = google_crc32c.extend(crc, data)
    return extended
