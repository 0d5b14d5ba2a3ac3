"""TLS between nodes: both ends have a certificate, and accept those that `tls_ca` has signed.

    contexts = certificates(security).contexts(log)

The files are looked at for each new connection and loaded again when they have changed, so a new
certificate needs no restart. Files that cannot be used are logged once, and the certificate of
before stays in use.

No host name is compared with the certificate: nodes change their addresses, and one certificate may
serve them all. A node is known by three other things: an authority that signs for this cluster
alone, the cluster secret, and the hello with the number of the node that was dialled. So `tls_ca`
must not be an authority that signs for others as well.
"""

import ssl
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from corvo.errors import CorvoError
from corvo.peer_security import PeerSecurity
from corvo.telemetry import Log

_OTHER_PROTOCOL: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
"""Reasons of OpenSSL for bytes that are not TLS."""

Stamp: TypeAlias = tuple[int, int, int] | None
"""Which file a path names: time of change, size, inode. None without a file."""


class BadCertificates(CorvoError):
    """The files of TLS cannot be used, and none could before."""


class Contexts(msgspec.Struct, frozen=True):
    """What the two ends of a connection need."""

    dials: ssl.SSLContext
    accepts: ssl.SSLContext


class Certificates:
    """The three files; made by `certificates`."""

    def __init__(self, cert: str, key: str, ca: str) -> None:
        self._paths: Final = (cert, key, ca)
        self._seen: tuple[Stamp, ...] = ()
        self._contexts: Contexts | None = None
        self._error = ""  # why the files as they are now cannot be used

    def contexts(self, log: Log) -> Contexts:
        """The contexts of the files as they are now. Raises `BadCertificates`.

        Reads the disk without leaving the loop: three `stat`, and more only after a change.
        """
        found = tuple(map(_stamp, self._paths))
        if found != self._seen:
            self._seen = found  # before they are read, so that no change is missed
            self._load(log)
        if self._contexts is None:
            raise BadCertificates(self._error)
        return self._contexts

    def _load(self, log: Log) -> None:
        loaded, self._error = _load(*self._paths)
        if loaded is None:
            log.error("certificate.refused", error=self._error)
            return
        if self._contexts is not None:
            log.info("certificate.loaded", path=self._paths[0])
        self._contexts = loaded


@lru_cache(maxsize=8)
def _certificates(cert: str, key: str, ca: str) -> Certificates:
    return Certificates(cert, key, ca)


def certificates(security: PeerSecurity) -> Certificates:
    """The same object for the same three paths: one for all links of a process."""
    return _certificates(security.tls_cert, security.tls_key, security.tls_ca)


def _stamp(path: str) -> Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _load(cert: str, key: str, ca: str) -> tuple[Contexts | None, str]:
    """The contexts of these files, or why there are none."""
    try:
        dials = _context(ssl.PROTOCOL_TLS_CLIENT, cert, key, ca)
        return Contexts(dials, _context(ssl.PROTOCOL_TLS_SERVER, cert, key, ca)), ""
    except BadCertificates as error:
        return None, str(error)


def _context(protocol: int, cert: str, key: str, ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # A connection that resumes another one would not be checked against the certificates of now.
    context.options |= ssl.OP_NO_TICKET
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    for name, path in (("cert", cert), ("key", key), ("ca", ca)):
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            raise BadCertificates(f"cluster.tls_{name}: {path}: {error.strerror}") from error
    try:
        # Without a password at hand, OpenSSL would ask for it at the terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        raise BadCertificates(
            "cluster.tls_cert, cluster.tls_key: expected a certificate and its private key, in PEM"
            f" and without a password, in {cert} and {key}: {error}"
        ) from error
    try:
        context.load_verify_locations(ca)
    except OSError as error:
        raise BadCertificates(
            f"cluster.tls_ca: expected certificates in PEM in {ca}: {error}"
        ) from error
    return context


def why(error: BaseException | None) -> str:
    """What an operator can do about a failed handshake, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "TLS failed: the certificate of the other node is not accepted"
            f" ({error.verify_message}): check cluster.tls_cert there, and cluster.tls_ca here"
        )
    reason = str(error.reason) if isinstance(error, ssl.SSLError) else ""
    if reason in _OTHER_PROTOCOL:
        return "TLS failed: the other node does not use TLS: set cluster.tls_cert on all nodes"
    if "ALERT" in reason or "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return (
            f"TLS failed: the nodes do not accept each other ({reason.lower().replace('_', ' ')}):"
            " check cluster.tls_cert and cluster.tls_ca on both"
        )
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        reason = str(error.strerror)
    detail = f" ({reason.lower().replace('_', ' ')})" if reason else ""
    return f"TLS failed{detail}: check cluster.tls_cert and cluster.tls_ca on both nodes"


def is_final(error: BaseException | None) -> bool:
    """Whether a handshake failed for a reason that only an operator can remove."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
