"""Sockets that listen: which there are for a name, and why there are none."""

import socket
from pathlib import Path

import pytest

from corvo.config import Address
from corvo.listening import ListenFailed, check_certificate, host_of, listen, port_of
from tests.support.links import on_sockets


@on_sockets
async def test_without_a_host_it_listens_everywhere_at_one_port() -> None:
    listening = await listen([Address("", 0)])

    ports = {port_of(each) for each in listening}
    hosts = {host_of(each) for each in listening}
    for each in listening:
        each.close()

    assert len(ports) == 1
    assert "0.0.0.0" in hosts  # noqa: S104 -- it is what was asked for
    assert hosts <= {"0.0.0.0", "::"}  # noqa: S104 -- as above


@on_sockets
async def test_a_name_on_loopback_stays_on_loopback() -> None:
    listening = await listen([Address("localhost", 0), Address("127.0.0.1", 0)])

    hosts = {host_of(each) for each in listening}
    for each in listening:
        each.close()

    assert "127.0.0.1" in hosts
    assert hosts <= {"127.0.0.1", "::1"}


@on_sockets
async def test_a_port_whose_last_connections_linger_is_taken_at_once() -> None:
    [first] = await listen([Address("127.0.0.1", 0)])
    address = Address("127.0.0.1", port_of(first))
    client = socket.create_connection((address.host, address.port))
    served, _ = first.accept()
    served.close()  # whoever closes first keeps the port for a minute
    client.close()
    first.close()

    [second] = await listen([address])

    assert port_of(second) == address.port
    second.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (Address("192.0.2.1", 80), r"192\.0\.2\.1:80: this machine has no such address"),
        (Address("nowhere.invalid", 80), r"nowhere\.invalid:80: no such host"),
        (Address("2001:db8::1", 80), r"\[2001:db8::1\]:80: "),
    ],
)
def test_where_nothing_can_listen_is_told_with_the_reason(address: Address, why: str) -> None:
    @on_sockets
    async def refused() -> None:
        with pytest.raises(ListenFailed, match=why):
            await listen([address])

    refused()


@on_sockets
async def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    [taken] = await listen([Address("127.0.0.1", 0)])

    with pytest.raises(ListenFailed, match="something else listens there already"):
        await listen([Address("127.0.0.1", 0), Address("127.0.0.1", port_of(taken))])

    taken.close()


def test_a_certificate_that_cannot_be_read_is_refused_by_its_key(tmp_path: Path) -> None:
    there = tmp_path / "there.pem"
    there.write_text("-----BEGIN NOTHING-----\n")

    with pytest.raises(ListenFailed, match=r"tls_cert: .*none\.pem: No such file"):
        check_certificate(str(tmp_path / "none.pem"), str(there))
    with pytest.raises(ListenFailed, match=r"tls_key: .*none\.pem: No such file"):
        check_certificate(str(there), str(tmp_path / "none.pem"))
    with pytest.raises(ListenFailed, match="expected a certificate and its private key"):
        check_certificate(str(there), str(there))
