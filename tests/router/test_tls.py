"""TLS: which versions, both protocols, slow handshakes, and a certificate that is changed."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

from corvo.router.config import BadRouterConfig
from corvo.router.http.connections import Stage
from corvo.router.server.serving import load_context
from tests.router.lanes import Street, get, post
from tests.router.test_lanes import Http2Client, run

pytestmark: Final = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make a certificate"
)


class Certificate:
    """A certificate of its own authority, in files."""

    def __init__(self, directory: Path, name: str = "corvo.test") -> None:
        self.cert = directory / "cert.pem"
        self.key = directory / "key.pem"
        self.make(name)

    def make(self, name: str) -> None:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        files = ["-keyout", str(self.key), "-out", str(self.cert)]
        subprocess.run(
            ["openssl", "req", "-x509", "-days", "2", *curve, *subject, *files],
            check=True,
            capture_output=True,
        )

    def client(self, *alpn: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.cert))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    @property
    def paths(self) -> dict[str, object]:
        return {"tls_cert": str(self.cert), "tls_key": str(self.key)}


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_both_lanes_go_through_tls(certificate: Certificate, fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client(tls=certificate.client("http/1.1")) as client:
            for _ in range(2):
                assert (await client.ask(post("/hot", b"{}"))).status == 200
                assert (await client.ask(get("/nowhere"))).status == 404
            large = await client.ask(post("/large"))
            assert len(large.body) == 10 << 20
        assert street.endpoints.given_back == 0

    run(scene, fast=fast, told=certificate.paths)


def test_http2_is_not_agreed_on_where_it_is_off(certificate: Certificate) -> None:
    async def scene(street: Street) -> None:
        async with street.client(tls=certificate.client("h2", "http/1.1")) as client:
            assert isinstance(client.stream, trio.SSLStream)
            assert client.stream.selected_alpn_protocol() == "http/1.1"
            assert (await client.ask(post("/hot", b"{}"))).status == 200
        async with street.client(tls=certificate.client("h2")) as client:
            assert isinstance(client.stream, trio.SSLStream)
            assert client.stream.selected_alpn_protocol() is None

    run(scene, told={**certificate.paths, "has_http2": False})


def test_http2_is_agreed_on(certificate: Certificate) -> None:
    async def scene(street: Street) -> None:
        async with street.client(tls=certificate.client("h2", "http/1.1")) as client:
            assert isinstance(client.stream, trio.SSLStream)
            assert client.stream.selected_alpn_protocol() == "h2"
            http2 = Http2Client(client)
            stream = await http2.ask("/hot", b"{}")
            await http2.finish()
            assert http2.statuses[stream] == 200

    run(scene, told=certificate.paths)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_a_parked_request_ends_with_its_client(certificate: Certificate, fast: bool) -> None:
    async def scene(street: Street) -> None:
        endpoints = street.endpoints
        async with street.client(tls=certificate.client()) as client:
            await client.send(post("/parked"))
            await endpoints.until(lambda: endpoints.parked == 1)
        await endpoints.until(lambda: endpoints.were_cancelled == 1)

    run(scene, fast=fast, told=certificate.paths)


def test_old_versions_of_tls_are_refused(certificate: Certificate) -> None:
    async def scene(street: Street) -> None:
        context = certificate.client()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(trio.BrokenResourceError):
            async with street.client(tls=context):
                pass

    run(scene, told=certificate.paths)


@pytest.mark.parametrize("beginning", [b"", b"\x16\x03\x01", post("/hot")])
def test_whoever_does_not_speak_tls_is_sent_away(
    certificate: Certificate, beginning: bytes
) -> None:
    async def scene(street: Street) -> None:
        async with street.client() as client:
            await client.send(beginning)
            await trio.testing.wait_all_tasks_blocked(0.01)
            street.pass_time(11)
            try:
                while await client.stream.receive_some(100):
                    pass
            except trio.BrokenResourceError:
                pass
        assert street.endpoints.calls == 0

    run(scene, told=certificate.paths)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_a_client_that_does_not_read_is_cut_off(certificate: Certificate, fast: bool) -> None:
    async def scene(street: Street) -> None:
        async with street.client(tls=certificate.client(), receive_bytes=4_096) as client:
            await client.send(post("/large"))
            await street.until_stages(Stage.SENDING)
            await trio.testing.wait_all_tasks_blocked(0.01)
            street.pass_time(11)
            await street.endpoints.until(lambda: street.endpoints.given_back == 1)

    run(scene, fast=fast, told=certificate.paths)


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corvo.router.server.serving._CERTIFICATE_S", 0.01)

    async def scene(street: Street) -> None:
        certificate.key.write_text("nonsense")
        await street.until_said(b"certificate.refused")
        async with street.client(tls=certificate.client()) as client:
            assert (await client.ask(post("/hot"))).status == 200
        certificate.make("corvo.test")
        old = ssl.create_default_context()
        await street.until_said(b"certificate.loaded")
        async with street.client(tls=certificate.client()) as client:
            assert (await client.ask(post("/hot"))).status == 200
        with pytest.raises(trio.BrokenResourceError):
            async with street.client(tls=old):
                pass

    run(scene, told=certificate.paths)


def test_a_certificate_that_cannot_be_used_is_told_by_its_name(certificate: Certificate) -> None:
    certificate.key.write_text("nonsense")

    with pytest.raises(BadRouterConfig, match="tls_cert"):
        load_context(str(certificate.cert), str(certificate.key), has_http2=True)
