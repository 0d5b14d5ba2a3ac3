"""Certificates of nodes, signed by an authority of the cluster, as `openssl` makes them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from corvo.peer_security import PeerSecurity

needs_openssl: Final = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make a certificate"
)

_CURVE: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """An authority in files, and the certificates that it has signed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.ca = directory / "ca.pem"
        self._key = directory / "ca.key"
        _openssl(
            ["req", "-x509", "-days", "2", *_CURVE, "-subj", "/CN=authority"],
            ["-keyout", str(self._key), "-out", str(self.ca)],
        )

    def sign(self, name: str, *, days: int = 2, usage: str = "", secret: str = "") -> PeerSecurity:
        """A new certificate for a node, in place of the one of before."""
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        request = self._directory / f"{name}.csr"
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"extendedKeyUsage = {usage}\n" if usage else "")
        _openssl(
            ["req", "-new", *_CURVE, "-subj", f"/CN={name}"],
            ["-keyout", str(key), "-out", str(request)],
        )
        _openssl(
            ["x509", "-req", "-in", str(request), "-days", str(days), "-CAcreateserial"],
            ["-CA", str(self.ca), "-CAkey", str(self._key), "-extfile", str(extensions)],
            ["-out", str(cert)],
        )
        return PeerSecurity(
            secret=secret, tls_cert=str(cert), tls_key=str(key), tls_ca=str(self.ca)
        )


def _openssl(*arguments: list[str]) -> None:
    words = [word for group in arguments for word in group]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
