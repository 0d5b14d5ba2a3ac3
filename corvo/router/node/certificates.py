"""When a TLS certificate ends, out of its file.

The standard library tells this only of certificates that were verified. So the few bytes of a
certificate before its end are read here (RFC 5280, section 4.1):

    certificate { certified { [version] serial algorithm issuer validity { begin end } ... } ... }
"""

import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from corvo.times import S, parse_time

_FOOTER: Final = "-----END CERTIFICATE-----"
_HEADER: Final = "-----BEGIN CERTIFICATE-----"
_VERSION_TAG: Final = 0xA0
_SHORT_TIME_TAG: Final = 0x17
"""Of a time whose year has two digits."""
_BEFORE_VALIDITY: Final = 3
"""Serial number, algorithm and issuer."""


class CertificateFile:
    """A file in PEM that may be replaced at any time."""

    def __init__(self, path: str) -> None:
        self._path: Final = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._end_s: float | None = None

    def end_s(self) -> float | None:
        """When the first of its certificates ends, as Unix time; None for a file without any.

        Reads the disk without leaving the loop: one `stat`, and more only after a change. A file
        that cannot be used changes nothing, because the certificate of before stays in use.
        """
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._seen:
                self._seen = stamp
                self._end_s = first_end_s(self._path.read_text())
        except (OSError, ValueError, IndexError):
            pass  # the log has `certificate.refused`, with the reason
        return self._end_s


@cache
def certificate_file(path: str) -> CertificateFile:
    """The same object for the same path."""
    return CertificateFile(path)


def first_end_s(pem: str) -> float:
    """When the first certificate of a chain ends. Raises `ValueError` for a text without any."""
    return min(map(_end_s, _certificates(pem)))


def _certificates(pem: str) -> Iterator[bytes]:
    """The certificates of a file. Other texts between them are ignored, as OpenSSL does."""
    for part in pem.split(_FOOTER)[:-1]:
        _, _, inner = part.rpartition(_HEADER)
        yield ssl.PEM_cert_to_DER_cert(f"{_HEADER}{inner}{_FOOTER}")


def _end_s(der: bytes) -> float:
    """When a certificate ends."""
    _, certificate, _ = _element(der, 0)
    _, at, _ = _element(der, certificate)
    tag, _, end = _element(der, at)
    if tag == _VERSION_TAG:
        at = end
    for _ in range(_BEFORE_VALIDITY):
        _, _, at = _element(der, at)
    _, begin, _ = _element(der, at)
    _, _, at = _element(der, begin)
    tag, start, end = _element(der, at)
    digits = der[start:end].decode()
    if tag == _SHORT_TIME_TAG:
        digits = f"{'19' if digits[:2] >= '50' else '20'}{digits}"
    at_ns = parse_time(
        f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}T{digits[8:10]}:{digits[10:12]}:{digits[12:]}"
    )
    if at_ns is None:
        raise ValueError(f"{digits} is no time")
    return at_ns / S


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The element at a place: its tag, and where its content begins and ends."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length >= 0x80:  # then its lower bits are the number of bytes of the length
        start += length - 0x80
        length = int.from_bytes(der[at + 2 : start])
    return tag, start, start + length
