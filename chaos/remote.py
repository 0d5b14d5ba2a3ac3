"""A cluster that another program runs: clients and checker use it, faults are commands."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from chaos.cluster.network import PlainNetwork
from chaos.cluster.node import Node
from chaos.cluster.running import Cluster, NotReady
from chaos.faults.fault import Case, Fault, Ground, Harm, on_one
from chaos.http import Site
from chaos.workloads.scene import QUEUES

_LACKS: Final = "the cluster is not run by this program"
_PROOF_CHARACTERS: Final = 200


class RemoteNode(Node):
    """A node that this program neither starts nor ends."""

    @property
    def is_running(self) -> bool:
        """Whether it is to be asked: always."""
        return True


def site_of(url: str, api_key: str) -> Site:
    """The site of an address such as `https://corvo-0.example:8080`. Raises `ValueError`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r}: expected an address such as http://10.0.0.1:8080")
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    headers = {"x-api-key": api_key} if api_key else {}
    name = parts.hostname if parts.port is None else f"{parts.hostname}:{port}"
    return Site(name, parts.hostname, port, headers=headers, is_tls=is_tls)


async def open_remote(urls: Sequence[str], api_key: str) -> Cluster:
    """The cluster at these addresses, without jobs of earlier runs. Raises `NotReady`."""
    nodes = []
    for url in urls:
        node = RemoteNode(
            site_of(url, api_key).name, folder=Path("remote"), site=site_of(url, api_key), peer=""
        )
        node.is_member = True
        nodes.append(node)
    cluster = Cluster(nodes, PlainNetwork(), 1, dict.fromkeys(("network", "disk"), _LACKS))
    for node in nodes:
        await cluster.ready(node)
    view = await cluster.view()
    cluster.shards = len(view.shards) if view is not None else 1
    for queue in QUEUES:
        answer = await cluster.ask(nodes[0], "DELETE", f"/api/v1/queues/{queue}")
        if answer is None or answer.status not in (200, 404):
            said = b"no answer" if answer is None else answer.body[:200]
            raise NotReady(f"the queue {queue} of an earlier run is not removed: {said.decode()}")
    return cluster


def command_faults(commands: Sequence[str]) -> Mapping[str, Fault]:
    """Faults of commands such as `kill=kubectl delete pod {node}`. Raises `ValueError`."""
    made = {}
    for text in commands:
        name, equals, command = text.partition("=")
        if not (name and equals and command):
            raise ValueError(f"{text!r}: expected NAME=COMMAND, such as kill='kill -9 {{node}}'")
        made[name] = _command_fault(name, command)
    return made


def _command_fault(name: str, command: str) -> Fault:
    async def apply(ground: Ground, case: Case) -> None:
        del ground
        host = case.nodes[0].partition(":")[0]
        words = [word.replace("{node}", host) for word in shlex.split(command)]
        done = await trio.run_process(words, check=False, capture_stdout=True, capture_stderr=True)
        case.args["command"] = shlex.join(words)
        case.seen["code"] = done.returncode
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        case.proof.append(said[:_PROOF_CHARACTERS])

    async def verify(ground: Ground, case: Case) -> str:
        del ground
        return "" if case.seen["code"] else f"{case.args['command']}: exit code 0"

    async def heal(ground: Ground, case: Case) -> None:
        await ground.cluster.ready(ground.node(case.nodes[0]))

    return Fault(
        name=name,
        what=f"the command {command}",
        seconds=(1.0, 5.0),
        harm=Harm.NODE,
        choose=on_one,
        apply=apply,
        verify=verify,
        heal=heal,
    )
