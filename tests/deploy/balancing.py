"""HAProxy with the configuration of the compose file, before nodes on loopback addresses.

`run` restarts all nodes of the compose file, one after the other, under clients that know the load
balancer only.
"""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import trio

from tests.cluster.rolling import Load
from tests.cluster.rolling import Seen as Loaded
from tests.deploy.composed import COMPOSE, SECRET, processes, project
from tests.helm.pods import PATIENCE_S, Process, address
from tests.node.http import Client, Lost
from tests.support.nodes import Running

_LOOK_S = 0.1


@contextmanager
def balancer(directory: Path, hosts: dict[str, str]) -> Iterator[str]:
    """HAProxy with the configuration of the compose file, on addresses of this test."""
    own = address(9)
    text = (COMPOSE / "haproxy.cfg").read_text().replace("bind :8080", f"bind {own}:8080")
    # The machine's limit of open files may be low.
    text = text.replace("maxconn 10000", "maxconn 100")
    for name, host in hosts.items():
        assert f"server {name} {name}:8080\n" in text
        text = text.replace(f" {name}:8080\n", f" {host}:8080\n")
    # Addresses are not looked up, and no name server is asked.
    text = text.replace("127.0.0.11:53", f"{own}:53")
    config = directory / "haproxy.cfg"
    config.write_text(text)
    process = subprocess.Popen(["haproxy", "-db", "-q", "-f", str(config)])
    try:
        yield own
    finally:
        process.terminate()
        process.wait()


class Seen(msgspec.Struct):
    """What came of it."""

    loaded: Loaded = msgspec.field(default_factory=Loaded)
    stops_s: list[float] = []
    codes: list[int] = []


class Balanced:
    """The load balancer, as clients see it."""

    def __init__(self, host: str) -> None:
        self._host = host

    def client(self) -> Client:
        """A client with the key."""
        return Client((self._host, 8080), SECRET)


async def run(directory: Path, *, stop_delay: str) -> Seen:
    """Restart each node once."""
    composed = project(COMPOSE / "three-nodes.yaml")
    nodes = processes(composed, directory)
    for node in nodes.values():
        node.environment.update(CORVO_SHARDS="2", CORVO_STOP_DELAY_MS=stop_delay)
    seen = Seen()
    async with trio.open_nursery() as lives:
        running = {name: await lives.start(live, node) for name, node in nodes.items()}
        for name, node in nodes.items():
            await ready(node, running[name])
        with balancer(directory, {name: node.host for name, node in nodes.items()}) as host:
            await answered(host)
            load = Load([Balanced(host)])
            async with load.load():
                for name, node in nodes.items():
                    began = trio.current_time()
                    seen.codes.append(await running[name].end(signal.SIGTERM))
                    seen.stops_s.append(trio.current_time() - began)
                    running[name] = await lives.start(live, node)
                    await ready(node, running[name])
                    await load.more()
            seen.loaded = load.seen
        lives.cancel_scope.cancel()
    return seen


async def live(
    process: Process, task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED
) -> None:
    """One life of a node."""
    async with process.running() as node:
        task_status.started(node)
        await node.silent.wait()


async def ready(process: Process, node: Running) -> None:
    """Wait until a node is ready."""
    with trio.fail_after(PATIENCE_S):
        while True:
            words = ["python3", "/opt/corvo/healthy.py", "/readyz"]
            if (await process.execute(words)).code == 0:
                return
            assert not node.silent.is_set(), node.story()
            await trio.sleep(_LOOK_S)


async def answered(host: str) -> None:
    """Wait until the load balancer has a node that is ready."""
    with trio.fail_after(PATIENCE_S):
        while True:
            client = Balanced(host).client()
            try:
                if (await client.ask("GET", "/readyz")).status == 200:
                    return
            except Lost:
                pass  # it does not listen yet
            finally:
                client.close()
            await trio.sleep(_LOOK_S)
