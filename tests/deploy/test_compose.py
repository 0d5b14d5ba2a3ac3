"""The compose files say what is true: their nodes run, find each other, and stop."""

import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Final

import pytest
import trio

from corvo import __version__
from corvo.command_table import COMMANDS
from corvo.config import addresses, given_by_environment, resolve
from corvo.times import parse_duration
from tests.deploy.balancing import balancer
from tests.deploy.composed import COMPOSE, FILES, SECRET, Project, processes, project
from tests.deploy.scripts import ROOT
from tests.helm.pods import PATIENCE_S, Process, address
from tests.support.links import on_sockets
from tests.support.nodes import Running

_LOOK_S: Final = 0.1
needs_haproxy: Final = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="needs haproxy to try its configuration"
)


# ---- What the files say.


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def composed(request: pytest.FixtureRequest) -> Project:
    """Each file."""
    path = request.param
    assert isinstance(path, Path)
    return project(path)


def test_every_image_has_a_version_and_that_of_a_node_is_this_one(composed: Project) -> None:
    for service in composed.services.values():
        assert re.search(r":[\d][\w.-]*$", service.image), service.image
        assert not service.is_node or service.image == f"corvo/corvo:{__version__}"


def test_every_setting_is_real(composed: Project) -> None:
    for service in composed.nodes.values():
        config = resolve(given_by_environment(service.variables)).config
        listened = addresses(config.bind)
        assert listened is not None
        published = [port.rpartition(":")[2] for port in service.ports]
        assert {*published, *service.expose} <= {str(listened[0].port), "9400"}
        assert (service.command or ["server"])[0] in COMMANDS


def test_every_volume_and_secret_is_declared_and_used(composed: Project) -> None:
    volumes = [
        volume.split(":")[0] for service in composed.nodes.values() for volume in service.volumes
    ]
    secrets = {secret for service in composed.services.values() for secret in service.secrets}
    named = {
        value
        for service in composed.nodes.values()
        for value in service.environment.values()
        if value.startswith("/run/secrets/")
    }

    assert sorted(volumes) == sorted(composed.volumes), "each node has one of its own"
    assert secrets == {*composed.secrets} == {name.removeprefix("/run/secrets/") for name in named}
    assert all(one.file == f"./secrets/{name}" for name, one in composed.secrets.items())


def test_every_service_is_confined(composed: Project) -> None:
    for service in composed.services.values():
        assert service.read_only
        assert service.cap_drop == ["ALL"]
        assert service.security_opt == ["no-new-privileges:true"]
        grace_ns = parse_duration(service.stop_grace_period)
        assert grace_ns is not None
        assert grace_ns >= 10 * 1_000_000_000
        # Docker opens a port to the whole network unless an address is named.
        assert all(port.startswith("127.0.0.1:") for port in service.ports)


def test_every_file_of_a_comment_or_mount_exists(composed: Project) -> None:
    mounted = [
        volume.split(":")[0]
        for service in composed.services.values()
        for volume in service.volumes
        if volume.startswith("./")
    ]

    for path in FILES:
        named = re.findall(r"-f ([\w-]+\.yaml)", path.read_text())
        assert {*named} == {path.name}
        assert all((ROOT / page).exists() for page in re.findall(r"docs/\S+\.md", path.read_text()))
    assert all((COMPOSE / place).exists() for place in mounted)


# ---- The nodes run.


async def healthy(process: Process, node: Running, check: list[str]) -> None:
    """Wait until the health check of a service succeeds."""
    assert check[0] == "CMD"
    with trio.fail_after(PATIENCE_S):
        while (await process.execute(check[1:])).code != 0:
            assert not node.silent.is_set(), node.story()
            await trio.sleep(_LOOK_S)


@on_sockets
async def test_one_node_runs_a_job_for_a_client_with_the_key(tmp_path: Path) -> None:
    composed = project(COMPOSE / "one-node.yaml")
    [(name, process)] = processes(composed, tmp_path).items()
    check = composed.services[name].healthcheck
    assert check is not None
    server = ("--server", f"http://{process.host}:8080")

    async with process.running() as node:
        await healthy(process, node, check.test)
        refused = await process.execute(["corvo", "queues", *server])
        made = await process.execute(
            ["corvo", "enqueue", "mail", "{}", *server, "--api-key", SECRET]
        )
        code = await node.end(signal.SIGTERM)

    assert refused.code == 4, "an API key is required"
    assert made.code == 0, made
    assert code == 0


@on_sockets
async def test_three_nodes_are_one_cluster(tmp_path: Path) -> None:
    composed = project(COMPOSE / "three-nodes.yaml")
    three = processes(composed, tmp_path)
    for process in three.values():
        process.environment.update(CORVO_SHARDS="1", CORVO_MIRROR__ENABLED="off")
    check = composed.services["corvo-1"].healthcheck
    assert check is not None

    async with (
        three["corvo-1"].running() as first,
        three["corvo-2"].running() as second,
        three["corvo-3"].running() as third,
    ):
        for process, node in zip(three.values(), (first, second, third), strict=True):
            await healthy(process, node, check.test)
        server = ("--server", f"http://{three['corvo-2'].host}:8080", "--api-key", SECRET)
        status = await three["corvo-2"].execute(
            ["corvo", "cluster", "status", "--nodes", "3", "--wait", "60s", *server]
        )
        codes = [await node.end(signal.SIGTERM) for node in (first, second, third)]

    assert (status.code, status.err) == (0, "")
    assert all(f" {name} " in status.out for name in three)
    assert codes == [0, 0, 0]


# ---- The load balancer.


class StandIn(ThreadingHTTPServer):
    """A node for the load balancer: it says who it is, and may be not ready."""

    def __init__(self, host: str) -> None:
        super().__init__((host, 8080), Handler)
        self.is_ready = True
        self.probes = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        node = self.server
        assert isinstance(node, StandIn)
        is_probe = self.path == "/readyz"
        node.probes += is_probe
        self.send_response(503 if is_probe and not node.is_ready else 200)
        body = str(node.server_address[0]).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- of the library
        pass


@contextmanager
def serving(node: StandIn) -> Iterator[StandIn]:
    thread = threading.Thread(target=node.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield node
    finally:
        node.shutdown()
        thread.join()
        node.server_close()


def ask(host: str) -> str:
    """The node that answers through the load balancer; empty if none does."""
    connection = HTTPConnection(host, 8080, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    except (ConnectionRefusedError, RemoteDisconnected):
        return ""
    finally:
        connection.close()


def answers(host: str, wanted: set[str]) -> bool:
    """Whether requests reach just these nodes, in the end."""
    until = monotonic() + PATIENCE_S
    found: set[str] = set()
    while found != wanted and monotonic() < until:
        found = {ask(host) for _ in range(3 * len(wanted))}
    return found == wanted


@needs_haproxy
def test_the_load_balancer_asks_the_nodes_that_are_ready(tmp_path: Path) -> None:
    hosts = {f"corvo-{number}": address(number) for number in (1, 2, 3)}
    with ExitStack() as stack:
        nodes = [stack.enter_context(serving(StandIn(host))) for host in hosts.values()]
        host = stack.enter_context(balancer(tmp_path, hosts))

        assert answers(host, {*hosts.values()})
        nodes[0].is_ready = False
        assert answers(host, {hosts["corvo-2"], hosts["corvo-3"]})
        nodes[0].is_ready = True
        assert answers(host, {*hosts.values()})


@needs_haproxy
def test_a_request_to_a_node_that_is_gone_goes_to_another(tmp_path: Path) -> None:
    hosts = {f"corvo-{number}": address(number) for number in (1, 2, 3)}
    with ExitStack() as stack:
        for name in ("corvo-2", "corvo-3"):
            stack.enter_context(serving(StandIn(hosts[name])))
        gone = ExitStack()
        gone.enter_context(serving(StandIn(hosts["corvo-1"])))
        host = stack.enter_context(balancer(tmp_path, hosts))
        assert answers(host, {*hosts.values()})

        gone.close()
        found = [ask(host) for _ in range(12)]

        assert {*found} == {hosts["corvo-2"], hosts["corvo-3"]}, "none fails"
