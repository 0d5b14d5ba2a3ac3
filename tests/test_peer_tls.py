"""TLS between nodes: who is let in, certificates that change, and links over it."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from corvo import connections as links
from corvo import peer_tls
from corvo.errors import WireError
from corvo.link import LinkLost, LinkRefused
from corvo.peer_security import PeerSecurity
from corvo.protocol.wire import (
    BETWEEN_REPLICAS,
    FROM_ROUTER,
    TO_ROUTER,
    Goodbye,
    Leading,
    Peer,
    Submit,
    encode,
)
from tests.support.certificates import Authority, needs_openssl
from tests.support.links import SETTINGS, THEM, Raw, jumping
from tests.support.peers import SECURITY, Lines, Pair, dials

pytestmark: Final = needs_openssl

PLAIN: Final = PeerSecurity()


class Nodes:
    """Certificates of two nodes, and of others; made once for all tests of this file."""

    def __init__(self, directory: Path) -> None:
        ours, foreign = Authority(directory / "ours"), Authority(directory / "foreign")
        self.one = ours.sign("one")
        self.two = ours.sign("two")
        self.expired = ours.sign("expired", days=-1)
        self.servers_only = ours.sign("servers", usage="serverAuth")
        self.foreign = foreign.sign("foreign")
        self.lost = msgspec.structs.replace(self.one, tls_ca=str(directory / "nothing.pem"))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own for each test."""
    monkeypatch.setattr(links, "_STRANGERS", links._Strangers())
    peer_tls._certificates.cache_clear()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(monkeypatch)


async def lost(security: PeerSecurity) -> LinkLost:
    with pytest.raises(LinkLost) as caught:
        async with dials(security):
            pytest.fail("the link was opened")
    assert not caught.value.was_sent
    return caught.value


@jumping
async def test_two_nodes_with_certificates_of_one_authority_talk(pair: Pair, nodes: Nodes) -> None:
    async with pair.answers(nodes.two) as received, dials(nodes.one) as link:
        assert isinstance(link._stream, trio.SSLStream)
        assert link._stream.version() == "TLSv1.3"
        assert link.peer == THEM
        assert await link.receive(TO_ROUTER) == [Leading(2, 9)]
        for number in range(20):
            assert link.send(Submit(number, 1, bytes(100_000)))

    assert [one.id for one in received] == list(range(20))
    assert pair.reason == ""


@jumping
async def test_certificates_do_not_replace_the_secret(pair: Pair, nodes: Nodes) -> None:
    ours = msgspec.structs.replace(nodes.one, secret="one")  # noqa: S106 -- of tests alone
    theirs = msgspec.structs.replace(nodes.two, secret="two")  # noqa: S106 -- see above

    async with pair.answers(theirs):
        error = await lost(ours)

    assert str(error).startswith("the cluster secret of node 1 is not that of node 2")
    assert pair.reason == str(error)


Choice: TypeAlias = Callable[[Nodes], PeerSecurity]
NOT_ACCEPTED: Final = (
    "TLS failed: the certificate of the other node is not accepted (certificate {}):"
    " check cluster.tls_cert there, and cluster.tls_ca here"
)
CHECK: Final = "check cluster.tls_cert and cluster.tls_ca on both nodes"
SEE_THERE: Final = "the log of the other node has the reason, if it has refused this one"
SET_ALL: Final = "set cluster.tls_cert on all nodes"

REFUSED: Final[dict[str, tuple[Choice, Choice, str, str]]] = {
    "without TLS to a node with it": (
        lambda _: PLAIN,
        lambda nodes: nodes.two,
        SEE_THERE,
        f"TLS failed: the other node does not use TLS: {SET_ALL}",
    ),
    "with TLS to a node without it": (
        lambda nodes: nodes.one,
        lambda _: PLAIN,
        CHECK,
        f"the other node uses TLS, and this one does not: {SET_ALL}",
    ),
    "a foreign certificate": (
        lambda nodes: msgspec.structs.replace(nodes.foreign, tls_ca=nodes.two.tls_ca),
        lambda nodes: nodes.two,
        SEE_THERE,
        NOT_ACCEPTED.format("signature failure"),
    ),
    "to a node with a foreign certificate": (
        lambda nodes: nodes.one,
        lambda nodes: nodes.foreign,
        NOT_ACCEPTED.format("signature failure"),
        CHECK,
    ),
    "an expired certificate": (
        lambda nodes: nodes.expired,
        lambda nodes: nodes.two,
        SEE_THERE,
        NOT_ACCEPTED.format("has expired"),
    ),
    "to a node with an expired certificate": (
        lambda nodes: nodes.one,
        lambda nodes: nodes.expired,
        NOT_ACCEPTED.format("has expired"),
        CHECK,
    ),
    "a certificate for servers alone": (
        lambda nodes: nodes.servers_only,
        lambda nodes: nodes.two,
        SEE_THERE,
        "(unsuitable certificate purpose)",
    ),
    "a file that is not there": (
        lambda nodes: nodes.lost,
        lambda nodes: nodes.two,
        "cluster.tls_ca: ",
        CHECK,
    ),
    "to a node with a file that is not there": (
        lambda nodes: nodes.one,
        lambda nodes: nodes.lost,
        CHECK,
        "cluster.tls_ca: ",
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "here", "there"), REFUSED.values(), ids=REFUSED)
@jumping
async def test_a_node_that_cannot_be_trusted_is_refused_with_the_setting_to_check(
    pair: Pair, nodes: Nodes, ours: Choice, theirs: Choice, here: str, there: str
) -> None:
    async with pair.answers(theirs(nodes)):
        error = await lost(ours(nodes))

    assert here in str(error)
    assert there in pair.reason
    assert trio.current_time() == 0
    refused = [line["reason"] for line in pair.log.lines if line["event"] == "peer.refused"]
    assert refused == ([] if there == CHECK else [pair.reason])


@jumping
async def test_a_client_without_a_certificate_is_refused(pair: Pair, nodes: Nodes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(nodes.one.tls_ca)
    stream = trio.SSLStream(pair.near, context, https_compatible=True)

    async with pair.answers(nodes.two):
        heard = await stream.receive_some()

    assert heard == b"", "nothing is said to a stranger"
    assert "did not return a certificate" in pair.reason


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
@jumping
async def test_a_silent_stranger_is_sent_away_in_time(
    pair: Pair, nodes: Nodes, said: bytes
) -> None:
    await pair.near.send_all(said)

    async with pair.answers(nodes.two):
        assert await pair.near.receive_some() == b""

    assert pair.reason == "no TLS handshake within 5.0 s"
    assert trio.current_time() == SETTINGS.connect_s


# Certificates that change.


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "changing")


def test_files_that_have_not_changed_are_not_loaded_again(authority: Authority) -> None:
    lines = Lines()
    found = peer_tls.certificates(authority.sign("one"))

    assert found.contexts(lines.log) is found.contexts(lines.log)
    assert lines.lines == []


def replace_all(*nodes: PeerSecurity, by: Authority) -> None:
    """Replace all files of nodes by those of another authority."""
    for node in nodes:
        made = by.sign(Path(node.tls_cert).stem)
        Path(made.tls_cert).replace(node.tls_cert)
        Path(made.tls_key).replace(node.tls_key)
        Path(node.tls_ca).write_bytes(by.ca.read_bytes())


@jumping
async def test_a_new_certificate_needs_no_restart(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = authority.sign("one"), authority.sign("two")
    before = Pair(monkeypatch)
    async with before.answers(two), dials(one) as old:
        replace_all(one, two, by=Authority(tmp_path / "other"))
        after = Pair(monkeypatch)
        async with after.answers(two), dials(one) as new_link:
            assert new_link.peer == THEM
        assert old.send(Submit(1, 1, b"still open"))

    events = [line["event"] for line in after.log.lines]
    assert events == ["certificate.loaded"], "once, for both ends of one process"
    assert (before.reason, after.reason) == ("", "")


def test_files_that_cannot_be_used_are_logged_once_and_those_of_before_stay(
    authority: Authority,
) -> None:
    lines = Lines()
    one = authority.sign("one")
    certificates = peer_tls.certificates(one)
    first = certificates.contexts(lines.log)
    key = Path(one.tls_key)
    good = key.read_bytes()

    key.write_text("nonsense")
    kept = [certificates.contexts(lines.log) for _ in range(3)]
    key.unlink()
    kept.append(certificates.contexts(lines.log))
    key.write_bytes(good)
    mended = certificates.contexts(lines.log)

    assert kept == [first] * 4
    assert mended is not first
    assert [line["event"] for line in lines.lines] == [
        "certificate.refused",
        "certificate.refused",
        "certificate.loaded",
    ]
    assert "cluster.tls_cert, cluster.tls_key: expected a certificate" in str(lines.lines[0])
    assert "cluster.tls_key: " in str(lines.lines[1])


@pytest.mark.parametrize("name", ["tls_cert", "tls_key", "tls_ca"])
def test_files_that_never_could_be_used_are_named(authority: Authority, name: str) -> None:
    lines = Lines()
    one = authority.sign("one")
    Path(str(getattr(one, name))).write_text("nonsense")
    certificates = peer_tls.certificates(one)

    for _ in range(2):
        with pytest.raises(peer_tls.BadCertificates, match=f"cluster.{name}"):
            certificates.contexts(lines.log)

    assert len(lines.lines) == 1


def test_a_key_with_a_password_is_an_error_and_no_question(
    authority: Authority,
) -> None:
    one = authority.sign("one")
    key = Path(one.tls_key)
    key.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )

    with pytest.raises(peer_tls.BadCertificates, match="without a password"):
        peer_tls.certificates(one).contexts(Lines().log)


# A link over TLS is a link.


@jumping
async def test_both_ends_can_send_much_at_the_same_time(pair: Pair, nodes: Nodes) -> None:
    body = bytes(3_000_000)
    received: list[Peer] = []

    async def serve() -> None:
        async with links.accept_link(pair.far, THEM, SETTINGS, security=nodes.two) as link:
            assert link.send_many([Peer(body)] * 3, at_once=True)
            [submit] = await link.receive(FROM_ROUTER)
            assert isinstance(submit, Submit)
            assert submit.body == body

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with dials(nodes.one) as link:
            assert link.send_many([Submit(1, 1, body)], at_once=True)
            while messages := await link.receive(BETWEEN_REPLICAS):
                received += messages

    assert [len(one.data) for one in received] == [len(body)] * 3


@jumping
async def test_a_silent_peer_is_asked_and_the_link_closed_under_the_reader(
    pair: Pair, nodes: Nodes
) -> None:
    async with trio.open_nursery() as nursery:
        stop = trio.Event()

        async def stall() -> None:
            async with links.accept_link(pair.far, THEM, SETTINGS, security=nodes.two):
                await stop.wait()

        nursery.start_soon(stall)
        async with dials(nodes.one) as link:
            with pytest.raises(LinkLost, match="silent, and answered no ping"):
                await link.receive(TO_ROUTER)
            assert not link.is_open
        stop.set()

    assert trio.current_time() <= SETTINGS.beat_s * (SETTINGS.pings_max + 2) + SETTINGS.goodbye_s


@jumping
async def test_a_cancelled_receive_loses_nothing(pair: Pair, nodes: Nodes) -> None:
    async with trio.open_nursery() as nursery:
        turn = trio.Event()

        async def serve() -> None:
            async with links.accept_link(pair.far, THEM, SETTINGS, security=nodes.two) as link:
                await turn.wait()
                link.send(Leading(2, 9))

        nursery.start_soon(serve)
        async with dials(nodes.one) as link:
            with trio.move_on_after(0.5) as scope:
                await link.receive(TO_ROUTER)
            turn.set()
            assert await link.receive(TO_ROUTER) == [Leading(2, 9)]

    assert scope.cancelled_caught


@jumping
async def test_a_cut_connection_is_a_lost_link_and_no_goodbye(pair: Pair, nodes: Nodes) -> None:
    async with pair.answers(nodes.two), dials(nodes.one) as link:
        assert await link.receive(TO_ROUTER) == [Leading(2, 9)]
        await pair.far.aclose()
        with pytest.raises(LinkLost, match="the peer went without a goodbye"):
            await link.receive(TO_ROUTER)


@jumping
async def test_bytes_that_are_changed_on_the_way_end_the_link(pair: Pair, nodes: Nodes) -> None:
    async with pair.answers(nodes.two), dials(nodes.one) as link:
        assert await link.receive(TO_ROUTER) == [Leading(2, 9)]
        await pair.far.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(LinkLost, match="the stream broke"):
            await link.receive(TO_ROUTER)


@jumping
async def test_leaving_says_goodbye_and_does_not_wait_for_a_peer_that_stalls(
    pair: Pair, nodes: Nodes
) -> None:
    async with pair.answers(nodes.two) as received, dials(nodes.one) as link:
        link.send(Submit(1, 1, b""))
        await wait_all_tasks_blocked()

    assert [one.id for one in received] == [1]
    assert pair.reason == ""
    assert trio.current_time() == 0


@jumping
async def test_an_exception_in_the_block_closes_at_once(pair: Pair, nodes: Nodes) -> None:
    async with pair.answers(nodes.two):
        with pytest.raises(KeyError):
            async with dials(nodes.one):
                raise KeyError

    assert pair.reason == "the peer went without a goodbye"
    assert trio.current_time() == 0


@jumping
async def test_a_peer_without_tls_that_answers_plainly_is_refused(pair: Pair, nodes: Nodes) -> None:
    await Raw(pair.far).say(Goodbye("go away"))

    with pytest.raises(LinkRefused, match="does not use TLS"):
        async with dials(nodes.one):
            pytest.fail("the link was opened")


@jumping
async def test_the_beginning_of_tls_is_named_where_there_is_none(pair: Pair) -> None:
    await pair.near.send_all(b"\x16\x03\x01\x02\x00\x01")

    with pytest.raises(WireError, match="uses TLS"):
        async with links.accept_link(pair.far, THEM, security=SECURITY):
            pytest.fail("a stranger was let in")

    assert not encode(THEM).startswith(b"\x16\x03")
