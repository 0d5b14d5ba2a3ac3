"""Links over the sockets of a real kernel, and who may listen where."""

import socket
import stat
import struct
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from corvo.connections import (
    Address,
    PeerAddress,
    TcpAddress,
    UnixAddress,
    connect,
    dial,
    listen_unix,
)
from corvo.link import Link, LinkAbsent, LinkLost, LinkSettings, open_client, open_link
from corvo.peer_security import PeerSecurity
from corvo.protocol.wire import (
    FROM_ROUTER,
    TO_ROUTER,
    Answer,
    Ask,
    Leading,
    Push,
    Reply,
    Submit,
    encode,
)
from tests.support.links import (
    THEM,
    US,
    echo,
    jumping,
    on_sockets,
)


@on_sockets
async def test_calls_are_answered_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    body = bytes(1 << 20)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, echo, [await listen_unix(str(path))])
        async with dial(UnixAddress(str(path)), US) as link, open_client(link) as client:
            answers = [await client.submit(1, body), await client.ask(1, b"small")]
        nursery.cancel_scope.cancel()

    assert answers == [Reply(1, "", body, 1), Reply(2, "", b"small", 2)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@on_sockets
async def test_calls_are_answered_over_tcp_which_sends_at_once() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    no_delay = (trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY)
    accepted: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        accepted.append(stream.socket.getsockopt(*no_delay))
        await echo(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        stream = await connect(TcpAddress("127.0.0.1", port))
        connected = stream.socket.getsockopt(*no_delay)
        async with open_link(stream, US) as link, open_client(link) as client:
            answer = await client.submit(1, b"{}")
        nursery.cancel_scope.cancel()

    assert answer == Reply(1, "", b"{}", 1)
    assert connected
    assert all(accepted)


@on_sockets
async def test_what_was_sent_before_a_goodbye_arrives_though_its_sender_never_read(
    tmp_path: Path,
) -> None:
    heard: list[Submit | Ask] = []

    async def replica(stream: trio.SocketStream) -> None:
        async with open_link(stream, THEM) as link:
            link.send_many(Leading(2, term) for term in range(1000))
            while requests := await link.receive(FROM_ROUTER):
                heard.extend(requests)
        served.set()

    served = trio.Event()
    async with trio.open_nursery() as nursery:
        path = tmp_path / "s"
        nursery.start_soon(trio.serve_listeners, replica, [await listen_unix(str(path))])
        async with open_link(await connect(UnixAddress(str(path))), US) as link:
            assert link.send_many(Ask(id_, 1, bytes(1000)) for id_ in range(1000))
        await served.wait()
        nursery.cancel_scope.cancel()

    assert [request.id for request in heard] == list(range(1000))


@on_sockets
async def test_nothing_is_read_from_a_socket_that_took_the_number_of_a_lost_one() -> None:
    hasty = LinkSettings(beat_s=0.01, pings_max=1, goodbye_s=0.01)
    near, far = socket.socketpair()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(near))
    far.sendall(encode(THEM))
    number = near.fileno()

    async with open_link(stream, US, hasty) as link:
        with pytest.raises(LinkLost, match="silent"):
            await link.receive(TO_ROUTER)
        ours, theirs = socket.socketpair()
        theirs.sendall(encode(Leading(2, 1)))
        with pytest.raises(LinkLost):
            await link.receive(TO_ROUTER)

    assert number in {ours.fileno(), theirs.fileno()}
    assert ours.recv(1 << 10, socket.MSG_DONTWAIT)
    for each in (far, ours, theirs):
        each.close()


@on_sockets
async def test_a_socket_that_a_dead_process_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    await (await listen_unix(str(path))).aclose()
    assert path.is_socket()
    with pytest.raises(LinkLost) as caught:
        await connect(UnixAddress(str(path)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, echo, [await listen_unix(str(path))])
        async with dial(UnixAddress(str(path)), US) as link, open_client(link) as client:
            answer = await client.ask(1, b"")
        nursery.cancel_scope.cancel()

    assert not caught.value.was_sent
    assert answer == Reply(1, "", b"", 1)


@on_sockets
async def test_a_socket_on_which_somebody_answers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            trio.serve_listeners, trio.aclose_forcefully, [await listen_unix(str(path))]
        )
        with pytest.raises(FileExistsError, match="another process listens"):
            await listen_unix(str(path))
        await (await connect(UnixAddress(str(path)))).aclose()
        nursery.cancel_scope.cancel()


@on_sockets
async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")

    with pytest.raises(FileExistsError, match="not a socket"):
        await listen_unix(str(path))

    assert path.read_text() == "precious"


@on_sockets
async def test_a_name_for_a_socket_elsewhere_is_left_alone(tmp_path: Path) -> None:
    elsewhere, name = tmp_path / "elsewhere", tmp_path / "s"
    await (await listen_unix(str(elsewhere))).aclose()
    name.symlink_to(elsewhere)

    with pytest.raises(FileExistsError, match="not a socket"):
        await listen_unix(str(name))

    assert name.is_symlink()
    assert elsewhere.is_socket()


@on_sockets
async def test_a_path_that_no_socket_can_have_is_an_error_and_leaves_none_open(
    tmp_path: Path,
) -> None:
    with pytest.raises(OSError, match="too long"):
        await listen_unix(str(tmp_path / ("s" * 120)))


@jumping
async def test_a_connection_that_does_not_come_about_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(host: str, port: int) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(trio, "open_tcp_stream", hang)

    with pytest.raises(LinkLost, match="no answer"):
        await connect(TcpAddress("far.example", 9400))

    assert trio.current_time() == LinkSettings().connect_s


@on_sockets
async def test_where_nobody_listens_connecting_says_so(tmp_path: Path) -> None:
    (closed,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = closed.socket.getsockname()[1]
    await closed.aclose()

    for address in (UnixAddress(str(tmp_path / "nothing")), TcpAddress("127.0.0.1", port)):
        with pytest.raises(LinkLost, match="no answer") as caught:
            await connect(address)
        assert not caught.value.was_sent


@on_sockets
async def test_a_link_that_was_given_up_never_reads_another_connections_bytes() -> None:
    ours, theirs = socket.socketpair()
    settings = LinkSettings(beat_s=0.005, pings_max=1)
    theirs.sendall(encode(THEM))

    async with open_link(stream_of(ours), US, settings) as link:
        with pytest.raises(LinkLost, match="silent"):
            await link.receive(TO_ROUTER)
        again, other = socket.socketpair()
        other.sendall(encode(Leading(2, 9)))
        with pytest.raises(LinkLost, match="silent"):
            await link.receive(TO_ROUTER)
        taken = link.send(Ask(1, 1, b""))

    assert not taken
    assert again.recv(100) == encode(Leading(2, 9))
    for each in (theirs, again, other):
        each.close()


async def receive_all(link: Link, into: list[Answer | Push]) -> None:
    while True:
        into += await link.receive(TO_ROUTER)


def test_a_link_that_is_given_up_as_its_peer_sends_again_is_lost() -> None:
    """A process that stood still finds both at once, and either of its two tasks comes first."""
    clock = MockClock()
    settings = LinkSettings(pings_max=0)

    async def give_up() -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(encode(THEM))
        async with open_link(stream_of(ours), US, settings) as link, trio.open_nursery() as nursery:

            async def receive() -> None:
                received: list[Answer | Push] = []
                with pytest.raises(LinkLost, match="silent"):
                    await receive_all(link, received)
                assert received in ([], [Leading(2, 9)])

            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(settings.beat_s)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(settings.beat_s)
            theirs.sendall(encode(Leading(2, 9)))
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(2 * settings.beat_s)
        theirs.close()

    for _ in range(30):
        trio.run(give_up, clock=clock)


@on_sockets
async def test_a_connection_that_is_reset_is_a_lost_link() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def reset() -> None:
        stream = await listener.accept()
        await stream.send_all(encode(THEM))
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()

    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(reset)
        stream = await connect(TcpAddress("127.0.0.1", listener.socket.getsockname()[1]))
        with pytest.raises(LinkLost):
            async with open_link(stream, US) as link:
                await link.receive(TO_ROUTER)


def stream_of(connected: socket.socket) -> trio.SocketStream:
    connected.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(connected))


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (UnixAddress("/run/corvo/shard-0.sock"), "/run/corvo/shard-0.sock"),
        (TcpAddress("node-2.corvo", 9400), "node-2.corvo:9400"),
        (TcpAddress("fd00::2", 9400), "[fd00::2]:9400"),
    ],
)
def test_an_address_is_shown_as_an_operator_writes_it(address: Address, text: str) -> None:
    assert str(address) == text


@on_sockets
async def test_a_process_that_does_not_answer_is_named_by_its_address(tmp_path: Path) -> None:
    with pytest.raises(LinkLost, match=f"no answer at {tmp_path / 's'}: "):
        await connect(UnixAddress(str(tmp_path / "s")))


@on_sockets
async def test_a_process_that_takes_too_long_to_answer_is_said_to(tmp_path: Path) -> None:
    listener = await listen_unix(str(tmp_path / "s"))
    address = UnixAddress(str(tmp_path / "s"))

    with pytest.raises(LinkLost, match=r"no answer at .*/s: none within 0 s"):
        await connect(address, LinkSettings(connect_s=0))

    await listener.aclose()


@on_sockets
async def test_where_nothing_listens_the_process_is_known_to_have_ended(tmp_path: Path) -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    stale = await listen_unix(str(tmp_path / "stale"))
    await stale.aclose()
    security = PeerSecurity()
    addresses: list[Address] = [
        UnixAddress(str(tmp_path / "s")),
        UnixAddress(str(tmp_path / "stale")),
        TcpAddress("127.0.0.1", port),
        TcpAddress("localhost", port),
        PeerAddress("127.0.0.1", port, "shard-3", security),
    ]

    for address in addresses:
        with pytest.raises(LinkAbsent):
            await connect(address)


@on_sockets
async def test_a_process_that_does_not_answer_may_still_be_there() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    address = PeerAddress("127.0.0.1", port, "shard-3", PeerSecurity())

    async with listener:
        with pytest.raises(LinkLost) as caught:
            await connect(address, LinkSettings(connect_s=0.01))

    assert not isinstance(caught.value, LinkAbsent)
