"""The port for other nodes: connections get to the process they name, and leave nothing behind."""

import gc
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from corvo import connections as links
from corvo import peer_port
from corvo.connections import PeerAddress, accept_link, connect, dial, listen_unix
from corvo.handover import hand_over, serve_handed
from corvo.link import LinkLost, LinkRefused, LinkSettings, open_client
from corvo.peer_port import CONNECTIONS_MAX, PeerPort
from corvo.peer_preamble import LINE_MAX, OK, refusal, request
from corvo.peer_security import PeerSecurity
from corvo.protocol.wire import (
    FROM_ROUTER,
    REPLICA,
    ROUTER,
    Reply,
    make_hello,
)
from tests.support.certificates import Authority, needs_openssl
from tests.support.links import Member, on_sockets
from tests.support.peers import OTHER, SECURITY, Lines

Handler = Callable[[trio.SocketStream], Awaitable[None]]

HASTY: Final = LinkSettings(connect_s=0.2)
STRANGER: Final = refusal("this port is for other nodes of the cluster")


def descriptors() -> list[str]:
    """The open descriptors of this process, each with what it is."""
    gc.collect()  # those of an earlier test are not to be closed during this one
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:  # that of the listing itself
            continue
    return sorted(found)


class Node:
    """Node 2: its port, and processes that are played here."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self._directory = directory
        self._nursery = nursery
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.log = Lines()
        self.known = {"shard-0", "shard-3", "node"}

    def path(self, target: str) -> str:
        return str(self._directory / f"{target}.sock")

    def find(self, target: str) -> str | None:
        return self.path(target) if target in self.known else None

    async def start(self, target: str, handler: Handler) -> None:
        """Start a process."""
        await self._nursery.start(partial(serve_handed, self.path(target), handler))

    async def replica(self, shard: int, security: PeerSecurity = SECURITY) -> None:
        """Start a replica that answers each request with its shard."""
        hello = make_hello(Member(node=2, shards=4), REPLICA, shard=shard)

        async def serve(stream: trio.SocketStream) -> None:
            try:
                async with accept_link(stream, hello, security=security) as link:
                    while requests := await link.receive(FROM_ROUTER):
                        link.send_many([Reply(one.id, "", b"%d" % shard) for one in requests])
            except LinkLost:
                pass

        await self.start(f"shard-{shard}", serve)

    async def ask(self, shard: int, security: PeerSecurity = SECURITY) -> bytes:
        """Ask a replica, as a router of node 1."""
        address = PeerAddress("127.0.0.1", self.port, f"shard-{shard}", security)
        hello = make_hello(Member(node=1, shards=4), ROUTER, shard=shard)
        async with dial(address, hello, node=2) as link, open_client(link) as client:
            answer = await client.ask(1, b"")
        assert isinstance(answer, Reply)
        return answer.body

    async def tries(self, target: str, settings: LinkSettings = HASTY) -> str:
        """Try to reach a process, and return why that fails."""
        with pytest.raises(LinkLost) as caught:
            await connect(PeerAddress("127.0.0.1", self.port, target, SECURITY), settings)
        assert not caught.value.was_sent
        return str(caught.value)

    async def open(self) -> trio.SocketStream:
        """A connection to the port, of something that is no node."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def says(self, data: bytes) -> bytes:
        """What the port answers to these bytes, until it closes the connection."""
        stream = await self.open()
        async with stream:
            await stream.send_all(data)
            return await rest_of(stream)


async def rest_of(stream: trio.SocketStream) -> bytes:
    heard = b""
    try:
        while data := await stream.receive_some():
            heard += data
    except trio.BrokenResourceError:
        pass
    return heard


@asynccontextmanager
async def node_in(directory: Path) -> AsyncIterator[Node]:
    """A node; no descriptor may be left when all is over."""
    before = descriptors()
    async with trio.open_nursery() as nursery:
        node = Node(directory, nursery)
        with node.listener:
            port = PeerPort([node.listener], node.find, node=2)
            nursery.start_soon(port.run, node.log.log)
            yield node
            with trio.fail_after(10):
                while port._open:
                    await wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
    assert descriptors() == before


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own for each test."""
    monkeypatch.setattr(links, "_STRANGERS", links._Strangers())


# The way to a process.


@on_sockets
async def test_two_shards_are_reached_through_one_port(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        await node.replica(0)
        await node.replica(3)

        answers = [await node.ask(shard) for shard in (0, 3, 0)]

        assert answers == [b"0", b"3", b"0"]


@needs_openssl
@on_sockets
async def test_two_shards_are_reached_through_one_port_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    one = authority.sign("one", secret=SECURITY.secret)
    two = authority.sign("two", secret=SECURITY.secret)

    async with node_in(tmp_path) as node:
        await node.replica(0, two)
        await node.replica(3, two)
        answers: list[bytes] = []

        async def ask(shard: int) -> None:
            answers.append(await node.ask(shard, one))

        async with trio.open_nursery() as nursery:
            for shard in (0, 3, 0, 3):
                nursery.start_soon(ask, shard)

        assert sorted(answers) == [b"0", b"0", b"3", b"3"]


@on_sockets
async def test_a_wrong_secret_is_refused_by_the_process_itself(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        await node.replica(3)

        with pytest.raises(LinkRefused, match="the cluster secret of node 1 is not that of node 2"):
            await node.ask(3, OTHER)

        assert await node.ask(3) == b"3"


@on_sockets
async def test_what_follows_the_line_is_the_processes(tmp_path: Path) -> None:
    heard: list[bytes] = []
    done = trio.Event()

    async def handler(stream: trio.SocketStream) -> None:
        heard.append(await rest_of(stream))
        done.set()

    async with node_in(tmp_path) as node:
        await node.start("node", handler)
        address = PeerAddress("127.0.0.1", node.port, "node", SECURITY)
        async with await connect(address) as stream:
            for number in range(256):
                await stream.send_all(bytes([number]))
        await done.wait()

    assert heard == [bytes(range(256))]


@on_sockets
async def test_the_process_that_has_the_connection_is_the_one_that_says_so(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node, await listen_unix(node.path("shard-3")):
        why = await node.tries("shard-3")

    assert why.startswith(f"no answer at 127.0.0.1:{node.port} (shard-3)")


# What cannot be reached.


@on_sockets
async def test_a_replica_that_is_not_here_is_named(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        (await listen_unix(node.path("shard-0"))).socket.close()

        reasons = {
            target: await node.tries(target)
            for target in ("shard-7", "mirror", "shard-3", "shard-0", "node")
        }

    assert reasons == {
        "shard-7": "node 2 has no replica of shard 7",
        "mirror": "node 2 has no process named mirror",
        "shard-3": "shard-3 of node 2 is not running",
        "shard-0": "shard-0 of node 2 is not running",
        "node": "the router of node 2 is not running",
    }


@on_sockets
async def test_a_process_with_too_many_connections_that_wait_is_named(tmp_path: Path) -> None:
    waiting: list[socket.socket] = []
    async with node_in(tmp_path) as node:
        with trio.socket.socket(trio.socket.AF_UNIX) as crowded:
            await crowded.bind(node.path("shard-3"))
            crowded.listen(0)
            with pytest.raises(BlockingIOError):
                fill(node.path("shard-3"), waiting)

            why = await node.tries("shard-3")
        for one in waiting:
            one.close()

    assert why.startswith("shard-3 of node 2 does not take connections: ")


def fill(path: str, waiting: list[socket.socket]) -> None:
    while True:
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        waiting[-1].connect(path)


RECEIVER: Final = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
os.close(1)
local, _ = listener.accept()
_, [handed], _, _ = socket.recv_fds(local, 1, 1)
socket.socket(fileno=handed).sendall(b"ok\\n")
time.sleep(1_000)
"""


@on_sockets
async def test_a_process_that_is_killed_takes_its_connections_with_it(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", RECEIVER, node.path("shard-3")], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        async with process.stdout:
            assert await process.stdout.receive_some() == b"", "closed once it listens"
        stream = await connect(PeerAddress("127.0.0.1", node.port, "shard-3", SECURITY))
        process.send_signal(signal.SIGKILL)
        await process.wait()

        async with stream:
            heard = await rest_of(stream)
        why = await node.tries("shard-3")

    assert heard == b""
    assert why == "shard-3 of node 2 is not running"


@on_sockets
async def test_a_process_that_ends_before_it_looks_closes_what_was_handed_over(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path) as node:
        listener = await listen_unix(node.path("shard-3"))
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                async with listener, await listener.accept() as local:
                    await trio.lowlevel.wait_readable(local.socket)

            nursery.start_soon(end)
            why = await node.tries("shard-3")

    assert why == "the node closed the connection without an answer"


# Strangers.


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: node-2:9400\r\n\r\n",
        b"POST /api HTTP/1.1\r\n\r\n" + bytes(10_000),
        b"corvo-peer 2 node\n",
        b"corvo-peer 1 ../../etc/passwd\n",
        b"corvo-peer 1 " + b"a" * (LINE_MAX + 1),
        b"corvo-peer 1 " + b"a" * 100 + b"\n",
        b"\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
    ids=["GET", "POST", "version", "path", "endless", "long", "empty", "TLS"],
)
@on_sockets
async def test_another_protocol_gets_one_line(tmp_path: Path, said: bytes) -> None:
    async with node_in(tmp_path) as node:
        stream = await node.open()
        async with stream:
            await stream.send_all(said)
            heard = await stream.receive_some()
            await stream.send_eof()
            assert await rest_of(stream) == b""

    assert heard == STRANGER


@on_sockets
async def test_bytes_before_the_answer_are_refused_and_not_lost_in_silence(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        await node.replica(3)
        stream = await node.open()
        async with stream:
            await stream.send_all(request("shard-3") + b"early")
            heard = await stream.receive_some()

    assert heard == refusal("bytes came after the first line, before it was answered")


@on_sockets
async def test_a_line_may_come_byte_by_byte(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:

        async def handler(stream: trio.SocketStream) -> None:
            await stream.send_all(b"here")

        await node.start("node", handler)
        stream = await node.open()
        async with stream:
            for byte in request("node"):
                await stream.send_all(bytes([byte]))
            heard = await rest_of(stream)

    assert heard == OK + b"here"


@pytest.mark.parametrize("said", [b"", b"corvo-peer 1 nod", b"corvo-peer 1 "])
@on_sockets
async def test_a_connection_that_ends_within_its_line_is_closed(
    tmp_path: Path, said: bytes
) -> None:
    async with node_in(tmp_path) as node:
        stream = await node.open()
        async with stream:
            await stream.send_all(said)
            await stream.send_eof()
            heard = await rest_of(stream)

    assert heard == refusal("the connection ended within its first line")


@on_sockets
async def test_a_slow_stranger_has_no_more_time_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_port, "HAND_OVER_S", 0.2)

    async def trickle(stream: trio.SocketStream) -> None:
        while True:
            await stream.send_all(b"0")
            await trio.sleep(0.01)

    async def trickle_until_closed(stream: trio.SocketStream) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await trickle(stream)

    async with node_in(tmp_path) as node:
        began = trio.current_time()
        silent, slow = await node.open(), await node.open()
        await slow.send_all(b"corvo-peer 1 shard-")
        async with silent, slow, trio.open_nursery() as nursery:
            nursery.start_soon(trickle_until_closed, slow)
            assert await rest_of(silent) == b""
            assert trio.current_time() - began >= 0.1


@on_sockets
async def test_a_refused_stranger_that_does_not_read_is_closed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_port, "HAND_OVER_S", 0.2)

    async with node_in(tmp_path) as node:
        stream = await node.open()
        await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        async with stream:
            assert await rest_of(stream) == STRANGER


@on_sockets
async def test_of_300_connections_at_once_some_are_closed_and_the_node_is_reached_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_port, "HAND_OVER_S", 5.0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 1_000, "this test needs descriptors"
    ended: list[bytes] = []

    async with node_in(tmp_path) as node:
        await node.replica(3)
        streams = [await node.open() for _ in range(300)]
        await until_closed(streams[CONNECTIONS_MAX:])
        full = [line["event"] for line in node.log.lines]

        async with trio.open_nursery() as nursery:

            async def wait(stream: trio.SocketStream) -> None:
                ended.append(await rest_of(stream))
                await stream.aclose()

            for stream in streams:
                nursery.start_soon(wait, stream)
        answer = await node.ask(3)

    assert full == ["peer_port.full"]
    assert ended == [b""] * 300
    assert answer == b"3"


async def until_closed(streams: list[trio.SocketStream]) -> None:
    for stream in streams:
        assert await rest_of(stream) == b""


@on_sockets
async def test_a_process_without_free_descriptors_accepts_again_when_it_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_in(tmp_path) as node:
        await node.replica(3)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        stream = trio.socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (stream.fileno() + 1, hard))
        try:
            await stream.connect(("127.0.0.1", node.port))
            with trio.fail_after(10):
                while not node.log.lines:
                    await trio.lowlevel.checkpoint()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        stream.close()
        answer = await node.ask(3)

    assert answer == b"3"
    assert [line["event"] for line in node.log.lines] == ["peer_port.full"]


# The process that gets connections.


@asynccontextmanager
async def receiver(tmp_path: Path) -> AsyncIterator[tuple[str, list[trio.SocketStream]]]:
    path, handed = str(tmp_path / "r.sock"), []
    before = descriptors()

    async def handler(stream: trio.SocketStream) -> None:
        handed.append(stream)
        await stream.receive_some(1)

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_handed, path, handler))
        yield path, handed
        nursery.cancel_scope.cancel()
    assert descriptors() == before


@on_sockets
async def test_only_this_user_can_hand_connections_over(tmp_path: Path) -> None:
    async with receiver(tmp_path) as (path, _):
        assert (await trio.Path(path).stat()).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["nothing", "two", "file", "datagrams", "no descriptor"])
@on_sockets
async def test_what_is_no_connection_is_closed_and_the_next_one_served(
    tmp_path: Path, kind: str
) -> None:
    async with receiver(tmp_path) as (path, handed):
        give(path, kind)
        ours, theirs = trio.socket.socketpair()
        async with trio.SocketStream(ours) as near:
            async with trio.SocketStream(theirs) as far:
                await hand_over(path, far)
            assert await near.receive_some() == OK
            await near.send_all(b"x")
            assert await near.receive_some() == b""
        assert len(handed) == 1


def give(path: str, kind: str) -> None:
    """Hand over what is no connection, and wait until it was refused."""
    with socket.socket(socket.AF_UNIX) as local:
        local.connect(path)
        one, two = socket.socketpair()
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with one, two, datagrams, Path(path).parent.joinpath("file").open("wb") as file:
            match kind:
                case "two":
                    socket.send_fds(local, [b"\0"], [one.fileno(), two.fileno()])
                case "file":
                    socket.send_fds(local, [b"\0"], [file.fileno()])
                case "datagrams":
                    socket.send_fds(local, [b"\0"], [datagrams.fileno()])
                case "no descriptor":
                    local.sendall(b"\0")
                case _:
                    pass


@on_sockets
async def test_a_connection_that_has_ended_already_is_no_matter(tmp_path: Path) -> None:
    async with receiver(tmp_path) as (path, handed):
        ours, theirs = trio.socket.socketpair()
        async with trio.SocketStream(ours) as far:
            theirs.close()
            await hand_over(path, far)
        ours, theirs = trio.socket.socketpair()
        async with trio.SocketStream(theirs) as near, trio.SocketStream(ours) as far:
            await hand_over(path, far)
            assert await near.receive_some() == OK

    assert len(handed) <= 1


@on_sockets
async def test_handing_over_to_nothing_leaves_the_connection_as_it_was(tmp_path: Path) -> None:
    before = descriptors()
    ours, theirs = trio.socket.socketpair()

    async with trio.SocketStream(ours) as far, trio.SocketStream(theirs) as near:
        with pytest.raises(FileNotFoundError):
            await hand_over(str(tmp_path / "nothing"), far)
        await far.send_all(b"still here")
        assert await near.receive_some() == b"still here"

    assert descriptors() == before
