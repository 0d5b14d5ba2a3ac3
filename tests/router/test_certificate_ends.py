"""When certificates end, compared with `openssl`."""

import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from corvo.router.node.certificates import CertificateFile, first_end_s
from tests.support.certificates import Authority, needs_openssl

pytestmark = needs_openssl


def end_by_openssl(path: str) -> float:
    """The end of the first certificate of a file."""
    done = subprocess.run(
        ["openssl", "x509", "-enddate", "-noout", "-in", path],
        check=True,
        capture_output=True,
        text=True,
    )
    text = done.stdout.strip().removeprefix("notAfter=")
    return datetime.strptime(f"{text}+0000", "%b %d %H:%M:%S %Y GMT%z").timestamp()


@pytest.mark.parametrize("days", [1, 400, 20_000])
def test_the_end_is_that_of_openssl(tmp_path: Path, days: int) -> None:
    cert = Authority(tmp_path).sign("rook", days=days).tls_cert

    assert CertificateFile(cert).end_s() == end_by_openssl(cert)


def test_of_a_chain_the_first_end_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)  # for two days
    long = Path(authority.sign("long", days=30).tls_cert)

    chain = f"rook's certificate\n{long.read_text()}\n{authority.ca.read_text()}"

    assert first_end_s(chain) == end_by_openssl(str(authority.ca))


def test_a_new_certificate_is_seen_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert = Path(authority.sign("rook", days=3).tls_cert)
    file = CertificateFile(str(cert))
    first = file.end_s()

    cert.write_text("not a certificate")
    broken = file.end_s()
    authority.sign("rook", days=9)
    renewed = file.end_s()
    expected = end_by_openssl(str(cert))
    cert.unlink()

    assert broken == first
    assert renewed == expected
    assert file.end_s() == renewed
    assert first is not None
    assert renewed is not None
    assert renewed - first == pytest.approx(6 * 86_400, abs=60)


def test_a_file_without_a_certificate_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")

    assert CertificateFile(str(path)).end_s() is None
    assert CertificateFile(str(tmp_path / "none.pem")).end_s() is None
