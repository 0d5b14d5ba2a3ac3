"""Where links are made: addresses, connections to them, and listening sockets.

    async with dial(UnixAddress(path), hello) as link:
        ...

A process of this node is reached over a Unix socket, and one of another node behind the port of
that node. Between nodes, both ends prove that they know the cluster secret (`corvo.hellos`), over
TLS where nodes have certificates (`corvo.peer_tls`).
"""

import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

import trio

from corvo import hellos, peer_preamble, peer_tls
from corvo.errors import WireError
from corvo.hellos import Greeting
from corvo.link import DEFAULT, Link, LinkAbsent, LinkLost, LinkRefused, LinkSettings
from corvo.peer_security import PeerSecurity
from corvo.protocol import wire
from corvo.telemetry import SILENT, Log


@dataclass(frozen=True)
class UnixAddress:
    """A socket in the file system of this node."""

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class TcpAddress:
    """A socket of this or another node."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class PeerAddress:
    """A process of another node, behind the port of that node."""

    host: str
    port: int
    target: str
    security: PeerSecurity
    instance: str = ""  # the number of the node's data directory; empty where it is not known
    op_version: int = field(default=0, compare=False)  # the cluster's

    def __str__(self) -> str:
        return f"{TcpAddress(self.host, self.port)} ({self.target})"


Address: TypeAlias = UnixAddress | TcpAddress | PeerAddress


@dataclass(frozen=True)
class Route:
    """An address, and the node that should answer there; 0 for any."""

    node: int
    address: Address


async def connect(address: Address, settings: LinkSettings = DEFAULT) -> trio.SocketStream:
    """A stream to the process that listens there. Raises `LinkLost` when none does.

    Trio's streams send at once (TCP_NODELAY); the link gathers.
    """
    try:
        with trio.fail_after(settings.connect_s):
            match address:
                case UnixAddress(path):
                    return await trio.open_unix_socket(path)
                case TcpAddress(host, port):
                    return await trio.open_tcp_stream(host, port)
                case PeerAddress(host, port, target):
                    stream = await trio.open_tcp_stream(host, port)
                    await _ask_for(stream, target)
                    return stream
                case _:
                    assert_never(address)
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
        reason = f"no answer at {address}: {_why(error, settings)}"
        if _is_absent(error):
            raise LinkAbsent(reason) from error
        raise LinkLost(reason, was_sent=False) from error


def _why(error: Exception, settings: LinkSettings) -> str:
    """Why there is no connection. Some exceptions have no text."""
    if _is_absent(error) and not isinstance(error, FileNotFoundError):
        return "connection refused"
    if isinstance(error, trio.TooSlowError):
        return f"none within {settings.connect_s:g} s"
    return str(error) or "the connection was lost"


def _is_absent(error: BaseException) -> bool:
    """Whether the machine itself says that no process listens, at any of the addresses tried."""
    if isinstance(error.__cause__, BaseExceptionGroup):
        return all(_is_absent(each) for each in error.__cause__.exceptions)
    return isinstance(error, ConnectionRefusedError | FileNotFoundError)


async def _ask_for(stream: trio.SocketStream, target: str) -> None:
    """Ask a node for one of its processes. Raises `LinkLost` and `WireError`.

    A node that refuses does not have the process.
    """
    async with _closed_on_error(stream):
        await stream.send_all(peer_preamble.request(target))
        line = bytearray()
        # Byte by byte: what follows is the process's, and may be TLS.
        while not line.endswith(b"\n"):
            data = await stream.receive_some(1)
            if not data or len(line) > peer_preamble.LINE_MAX:
                raise LinkLost("the node closed the connection without an answer", was_sent=False)
            line += data
        why = peer_preamble.read_answer(bytes(line[:-1]))
        if why:
            raise LinkAbsent(why)


@asynccontextmanager
async def _closed_on_error(stream: trio.abc.Stream) -> AsyncIterator[None]:
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def dial(
    address: Address,
    ours: wire.Hello,
    settings: LinkSettings = DEFAULT,
    *,
    node: int = 0,
    log: Log = SILENT,
) -> AsyncIterator[Link]:
    """A link to the process at an address. Raises what `connect` and `open_link` raise.

    Between nodes, both ends prove that they belong to the cluster. The log has the certificates
    that were loaded again, or cannot be used.
    """
    stream: trio.abc.Stream = await connect(address, settings)
    if isinstance(address, PeerAddress):
        stream = await _secured(stream, settings, address.security, log, answers=False)
        ours, nonce = wire.needing(ours, address.op_version), secrets.token_bytes(wire.NONCE_BYTES)
        secret = address.security.secret
        steps = hellos.dialling_node(ours, node=node, secret=secret, nonce=nonce)
    else:
        steps = hellos.dialling(ours, node=node)
    greeting = Greeting(steps, dials_node=isinstance(address, PeerAddress))
    async with Link(stream, settings).open(greeting) as link:
        if isinstance(address, PeerAddress):
            _check_instance(address, link.peer)
        yield link


def _check_instance(address: PeerAddress, peer: wire.Hello) -> None:
    """Raise `LinkRefused` when a node answers that has lost its data directory, or is a copy."""
    if address.instance and peer.instance and address.instance != peer.instance:
        raise LinkRefused(
            f"node {peer.node} at {address} has another data directory than the cluster knows:"
            " remove the node from the cluster, and let it join with an empty directory"
        )


def accept_link(
    stream: trio.abc.Stream,
    ours: wire.Hello,
    settings: LinkSettings = DEFAULT,
    *,
    security: PeerSecurity | None = None,
    log: Log = SILENT,
    judge: Callable[[wire.Hello], str] = lambda _: "",
) -> AbstractAsyncContextManager[Link]:
    """A link over a stream that was just accepted: the peer is refused before it may begin.

    With `security`, the stream is from another node: its process has to prove that it belongs to
    the cluster, and the log has a line when it does not. `judge` may have a reason of its own to
    refuse it. Without, the stream is from this node, over a socket that other users of the machine
    cannot open.
    """
    if security is None:
        return Link(stream, settings).open(Greeting(hellos.answering(ours)))
    return _accept_from_node(stream, ours, settings, security, log, judge)


STRANGERS_MAX: Final = 256
"""Connections of other nodes that have not proved yet that they are of the cluster. Each has time
for TLS and for its hello, and a process must not run out of file descriptors meanwhile."""


_REFUSALS_S: Final = 10.0
"""Between two log lines about refused connections: a stranger does not fill the log."""


class _Strangers:
    """The connections to this process that have not proved yet what they are."""

    def __init__(self) -> None:
        self._count = 0
        self._unlogged = 0
        self._logged_at: float | None = None

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one. Raises `LinkLost` when all are taken."""
        if self._count >= STRANGERS_MAX:
            raise LinkLost("too many connections that have not sent a hello yet", was_sent=False)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    def refused(self, log: Log, reason: str, address: str) -> None:
        """Log that one was refused, unless there was such a line just now."""
        now = trio.current_time()
        self._unlogged += 1
        if self._logged_at is None or not 0 <= now - self._logged_at < _REFUSALS_S:
            log.warning("peer.refused", address=address, reason=reason, refused=self._unlogged)
            self._logged_at, self._unlogged = now, 0


_STRANGERS: Final = _Strangers()
"""One for the process, as its descriptors are."""


def _address_of(stream: trio.abc.Stream) -> str:
    """Where a connection comes from; empty when that is not known."""
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError, ValueError):
            host, port = stream.socket.getpeername()[:2]
            return str(TcpAddress(host, port))
    return ""


@asynccontextmanager
async def _accept_from_node(
    stream: trio.abc.Stream,
    ours: wire.Hello,
    settings: LinkSettings,
    security: PeerSecurity,
    log: Log,
    judge: Callable[[wire.Hello], str],
) -> AsyncIterator[Link]:
    secret = security.secret
    steps = hellos.answering_node(
        ours, secret=secret, nonce=secrets.token_bytes(wire.NONCE_BYTES), judge=judge
    )
    address = _address_of(stream)
    is_open = False
    try:
        async with AsyncExitStack() as opened:
            async with _closed_on_error(stream):
                with _STRANGERS.place():
                    stream = await _secured(stream, settings, security, log, answers=True)
                    link = await opened.enter_async_context(
                        Link(stream, settings).open(Greeting(steps))
                    )
            is_open = True
            yield link
    except (LinkRefused, WireError) as error:
        if not is_open:
            _STRANGERS.refused(log, str(error), address)
        raise


async def _secured(
    stream: trio.abc.Stream,
    settings: LinkSettings,
    security: PeerSecurity,
    log: Log,
    *,
    answers: bool,
) -> trio.abc.Stream:
    """The same stream, with TLS where nodes have certificates. Raises `LinkLost`; closes it then.

    A link ends with a goodbye, so TLS need not tell a cut stream from one that was closed.
    """
    if not security.tls_cert:
        return stream
    async with _closed_on_error(stream):
        try:
            contexts = peer_tls.certificates(security).contexts(log)
        except peer_tls.BadCertificates as error:
            raise LinkRefused(str(error)) from error
        context = contexts.accepts if answers else contexts.dials
        secured = trio.SSLStream(stream, context, server_side=answers, https_compatible=True)
        try:
            with trio.fail_after(settings.connect_s):
                await secured.do_handshake()
        except trio.TooSlowError as error:
            reason = f"no TLS handshake within {settings.connect_s} s"
            raise LinkLost(reason, was_sent=False) from error
        except trio.BrokenResourceError as error:
            reason = peer_tls.why(error.__cause__)
            if peer_tls.is_final(error.__cause__):
                raise LinkRefused(reason) from error
            raise LinkLost(reason, was_sent=False) from error
        return secured


LISTEN_BACKLOG: Final = 1024
"""Connections that wait to be accepted: all processes of a cluster that reconnect at once."""


async def listen_unix(path: str) -> trio.SocketListener:
    """A listener at `path`, for this user alone. Raises `OSError` when that is not possible.

    The socket file of a process that has ended is removed. Anything else at `path` stays there.
    Another process could begin to listen between the check and the removal, so the caller holds a
    lock against its like, such as its data directory's.
    """
    place = trio.Path(path)
    await _remove_stale(place)
    opened = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    with ExitStack() as undo:
        undo.callback(opened.close)
        await opened.bind(str(place))
        await place.chmod(0o600)  # no process can connect before the next line
        opened.listen(LISTEN_BACKLOG)
        undo.pop_all()
    return trio.SocketListener(opened)


async def _remove_stale(place: trio.Path) -> None:
    """Remove the socket at `place` when no process listens on it."""
    try:
        found = await place.lstat()
        if not stat.S_ISSOCK(found.st_mode):
            raise FileExistsError(f"{place} exists and is not a socket")
        stream = await trio.open_unix_socket(str(place))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        await place.unlink(missing_ok=True)
        return
    await stream.aclose()
    raise FileExistsError(f"another process listens at {place}")
