"""The node: `corvo server` opens the data directory and the sockets, and runs its processes.

The processes inherit the listening sockets, so that clients wait, and are not refused, while a
killed router restarts. They inherit the lock of the directory, so that no other node opens it
before the last process of this one has ended.
"""

import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec
import trio

from corvo import __version__
from corvo.child import DAMAGED, FAILED, MISCONFIGURED, OK, first_of
from corvo.cluster_settings import SECRET_MIN
from corvo.config import (
    NO_HEADER_VALUE,
    Address,
    Config,
    Resolved,
    addresses,
    is_header_value,
)
from corvo.datadir import (
    DataDir,
    DirectoryDamaged,
    DirectoryUnfit,
    open_directory,
    peer_socket,
    remove_sockets,
)
from corvo.errors import CorvoError
from corvo.forming import Formed, form
from corvo.listening import ListenFailed, check_certificate, host_of, listen, port_of, shown
from corvo.mirror.config import BadMirrorConfig
from corvo.node_map import NodeMap, release_of
from corvo.notify import Notifier
from corvo.peer_port import PeerPort
from corvo.plans import (
    OpenedNode,
    Programs,
    child_environment,
    plans_of,
    shards_here,
)
from corvo.protocol import wire
from corvo.restarts import signal_name
from corvo.router.config import BadRouterConfig
from corvo.shard.config import BadConfig
from corvo.supervisor import StopRequest, Supervisor
from corvo.telemetry import Log, open_log
from corvo.topology import NODE, shard_target

FILES_MIN: Final = 4_096
_FILES_BESIDE: Final = 256
"""Open files of a router that are no connections of clients."""
_LOCK_WAIT_S: Final = 10.0
_LOCK_RETRY_S: Final = 0.1


# The node.


class SecretUnread(CorvoError):
    """A file with a secret cannot be used."""


async def serve(
    resolved: Resolved, log: Log, environment: Mapping[str, str], programs: Programs
) -> int:
    """Run the node until a signal stops it; returns the exit code."""
    stop_request = StopRequest()
    with trio.open_signal_receiver(*stop_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, stop_request, log)
            code = await _open_and_run(resolved, log, environment, programs, stop_request)
            nursery.cancel_scope.cancel()
    return code


def stop_signals() -> list[signal.Signals]:
    """Signals that stop the node. Under `nohup`, a hang-up stays ignored."""
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


async def _watch_signals(signals: AsyncIterator[int], stop_request: StopRequest, log: Log) -> None:
    async for number in signals:
        name = signal_name(number)
        # On a terminal, a hang-up means that the terminal is gone. Elsewhere it asks a daemon to
        # read its config again, and a node's config is fixed while it runs.
        if number == signal.SIGHUP and not os.isatty(2):
            log.info("signal.ignored", signal=name)
            continue
        log.info("node.stopping", signal=name, at_once=stop_request.asked.is_set())
        stop_request.request()


async def _open_and_run(
    resolved: Resolved,
    log: Log,
    environment: Mapping[str, str],
    programs: Programs,
    stop_request: StopRequest,
) -> int:
    config = with_secrets(resolved.config)
    if config.tls_cert:
        check_certificate(config.tls_cert, config.tls_key)
    _raise_file_limit(log, config.limits.connections_max)
    directory = open_directory(config.data_dir)
    if directory.is_open_to_others:
        log.warning("data.open_to_others", data=str(directory.root), then="chmod o-w it")
    with ExitStack() as undo:
        lock = await _wait_for_lock(directory, log, stop_request)
        if lock is None:
            return OK
        undo.callback(os.close, lock)
        is_given = resolved.is_given("shards")
        try:
            formed = await _form(config, directory, log, stop_request, are_shards_given=is_given)
        except* DirectoryUnfit:
            directory.leave_unused()
            raise
        if formed is None:
            return OK
        identity = formed.identity
        # A server that runs alone uses all ops of its release at once.
        is_alone = not config.cluster.is_clustered
        directory.need_release(release_of(wire.OP_VERSION if is_alone else formed.map.op_version))
        directory.make_known()
        log.info("node.starting", version=__version__, data=str(directory.root), new=formed.is_new)
        wanted = addresses(config.bind)
        assert wanted is not None, "the config was checked"
        listening = await listen(wanted)
        close_all = partial(_close_all, listening)
        undo.callback(close_all)
        if config.must_be_loopback:
            _insist_on_loopback(listening)
        peers = await _listen_to_peers(config)
        undo.callback(partial(_close_all, peers))
        sockets = directory.sockets(identity.shards)
        undo.callback(remove_sockets, sockets)
        opened = OpenedNode(
            directory=directory,
            identity=identity,
            map=formed.map,
            there=frozenset(directory.shards_there()),
            lock=lock,
            sockets=sockets,
            listening=[each.fileno() for each in listening],
            environment=child_environment(environment),
            log_form="text" if log.style.is_text else "json",
            programs=programs,
        )
        code = await _run(
            config, opened, listening, peers, log, Notifier(environment), stop_request
        )
        log.info("node.stopped", code=code)
        return code


def with_secrets(config: Config) -> Config:
    """The config with the secrets out of their files. Raises `SecretUnread`."""
    if config.admin_key_file:
        key = _secret_in(config.admin_key_file, "admin_key_file")
        if not key or not is_header_value(key):
            wrong = NO_HEADER_VALUE if key else "is empty"
            raise SecretUnread(f"admin_key_file {config.admin_key_file} {wrong}")
        config = msgspec.structs.replace(config, admin_key=key, admin_key_file="")
    place = config.cluster.secret_file
    if not place:
        return config
    secret = _secret_in(place, "cluster.secret_file")
    if len(secret) < SECRET_MIN:
        raise SecretUnread(
            f"cluster.secret_file {place} has a secret of {len(secret)} characters: use at least"
            f" {SECRET_MIN}"
        )
    cluster = msgspec.structs.replace(config.cluster, secret=secret, secret_file="")
    return msgspec.structs.replace(config, cluster=cluster)


def _secret_in(place: str, setting: str) -> str:
    """The content of a file with a secret. Raises `SecretUnread`."""
    try:
        return Path(place).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnread(f"{setting} {place} cannot be read: {error}") from error


async def _form(
    config: Config,
    directory: DataDir,
    log: Log,
    stop_request: StopRequest,
    *,
    are_shards_given: bool,
) -> Formed | None:
    """The node's cluster; None if a stop was requested while others were asked."""
    formed: Formed | None = None
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await stop_request.asked.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        formed = await form(directory, config, log, are_shards_given=are_shards_given)
        nursery.cancel_scope.cancel()
    return formed


async def _listen_to_peers(config: Config) -> list[socket.socket]:
    """The sockets for other nodes. Raises `ListenFailed`."""
    if not config.cluster.is_clustered:
        return []
    wanted = addresses(config.cluster.bind)
    assert wanted is not None, "the config was checked"
    return await listen(wanted)


async def _run(
    config: Config,
    opened: OpenedNode,
    listening: Sequence[socket.socket],
    peers: Sequence[socket.socket],
    log: Log,
    notifier: Notifier,
    stop_request: StopRequest,
) -> int:
    """Run the processes until a stop is requested; returns the exit code."""
    known = NodeMap(config, opened, log)
    supervisor = Supervisor(
        plans_of(config, opened),
        stop_request,
        log,
        notifier,
        drain_s=config.drain_ms / 1_000,
        stop_delay_s=config.stop_delay_ms / 1_000,
        heard=known.hear,
    )
    welcome = partial(_welcome, log, config, opened, listening)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.run, supervisor)
        if peers:
            port = PeerPort(peers, partial(_peer_target, known), node=opened.identity.node)
            nursery.start_soon(port.run, log)
        # A client that connects during the stop is refused, and does not wait.
        code = await supervisor.run(ready=welcome, stopping=partial(_close_all, listening))
        nursery.cancel_scope.cancel()
    return code


def _peer_target(known: NodeMap, target: str) -> str | None:
    """The socket of a process that other nodes connect to."""
    opened = known.opened
    names = {NODE, *(shard_target(number) for number in shards_here(opened))}
    return peer_socket(opened.sockets, target) if target in names else None


def _close_all(listening: Iterable[socket.socket]) -> None:
    for each in listening:
        each.close()


async def _wait_for_lock(directory: DataDir, log: Log, stop_request: StopRequest) -> int | None:
    """The directory's lock; None if a stop was requested meanwhile. Raises `DirectoryUnfit`."""
    lock = directory.try_lock()
    if lock is not None:
        return lock
    log.warning(
        "data.in_use",
        data=str(directory.root),
        by=directory.holders(),
        then=f"waiting up to {_LOCK_WAIT_S:.0f} s",
    )
    deadline = trio.current_time() + _LOCK_WAIT_S
    while trio.current_time() < deadline:
        with trio.move_on_after(_LOCK_RETRY_S):
            await stop_request.asked.wait()
            return None
        lock = directory.try_lock()
        if lock is not None:
            return lock
    holders = ", ".join(directory.holders()) or "a process of another user"
    raise DirectoryUnfit(
        f"{directory.root} is in use by {holders}: stop it, or use another --data-dir"
    )


def _insist_on_loopback(listening: Iterable[socket.socket]) -> None:
    """Refuse a name that stands for addresses beyond this machine. Raises `ListenFailed`."""
    for each in listening:
        if not ip_address(host_of(each)).is_loopback:
            raise ListenFailed(
                f"{host_of(each)} is reachable from outside, and no admin key is set: set"
                " CORVO_ADMIN_KEY (or --admin-key), or give every client full access with --auth"
                " off"
            )


def _raise_file_limit(log: Log, connections_max: int) -> None:
    """Raise the limit of open files to the hard limit: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = max(FILES_MIN, connections_max + _FILES_BESIDE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        log.warning(
            "files.few",
            files=hard,
            needed=needed,
            then="raise the limit (ulimit -n, LimitNOFILE=), or lower limits.connections_max",
        )


def _welcome(
    log: Log, config: Config, opened: OpenedNode, listening: Sequence[socket.socket]
) -> None:
    """Log that the node is ready, and print for a person what to do next."""
    scheme = "https" if config.tls_cert else "http"
    urls = [f"{scheme}://{shown(Address(host_of(one), port_of(one)))}" for one in listening]
    log.info(
        "node.ready",
        listening=urls,
        data=str(opened.directory.root),
        cluster=opened.identity.cluster,
        node=opened.identity.node,
        shards=opened.identity.shards,
        durability=config.durability,
        access="open" if config.is_open else "key",
    )
    log.say(welcome(config, urls, opened.directory, opened.identity.shards))


def welcome(config: Config, urls: Sequence[str], directory: DataDir, shards: int) -> str:
    """A few lines for the person at the terminal."""
    access = "API key required"
    if config.must_be_loopback:
        access = "open to every user of this machine; set CORVO_ADMIN_KEY to require a key"
    elif config.is_open:
        access = "OPEN: every client has full access (auth is off)"
    durability = {
        "sync": "sync: a job is on disk before it is confirmed",
        "relaxed": "RELAXED: a loss of power can lose the last half second",
    }[config.durability]
    url = urls[0].replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
    header = "" if config.is_open else ' -H "X-API-Key: $CORVO_ADMIN_KEY"'
    insecure = " -k" if config.tls_cert else ""
    job = '{"queue":"hello","payload":{"to":"world"}}'
    return f"""
  Corvo {__version__} is ready.

    listening   {", ".join(urls)}
    data        {directory.root}
    durability  {durability}
    shards      {shards}
    access      {access}
    try         curl{insecure}{header} {url}/api/v1/enqueue --json '{job}'
"""


def main(resolved: Resolved, programs: Programs | None = None) -> int:
    """Run a node; returns the exit code."""
    config = resolved.config
    with open_log("node", form=config.log_format, level=config.log_level) as log:
        try:
            return trio.run(serve, resolved, log, dict(os.environ), programs or Programs())
        except Exception as error:  # noqa: BLE001 -- behind this there is only the exit code
            return end(log, first_of(error))


def end(log: Log, error: BaseException) -> int:
    """Log why the node ends; returns the exit code."""
    match error:
        case (
            DirectoryUnfit()
            | ListenFailed()
            | SecretUnread()
            | BadConfig()
            | BadRouterConfig()
            | BadMirrorConfig()
        ):
            code, what = MISCONFIGURED, "node.refused"
        case DirectoryDamaged():
            code, what = DAMAGED, "node.damaged"
        case CorvoError() | OSError():
            code, what = FAILED, "node.failed"
        case _:
            code, what = FAILED, "node.bug"
            traceback.print_exception(error, file=sys.stderr)
    log.error(what, reason=str(error) or repr(error), code=code)
    return code
