"""`corvo cluster`: shows the nodes and shards of a cluster, and drains and removes nodes."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from corvo.client import cluster as api
from corvo.client.calls import read
from corvo.client.connections import Answer
from corvo.client.errors import RequestFailed
from corvo.client_commands.cluster_view import (
    events_text,
    node_text,
    nodes_text,
    status_text,
)
from corvo.client_commands.failures import OK, UNHEALTHY
from corvo.client_commands.options import (
    Verb,
    add_nothing,
    add_yes,
    dispatch,
    natural,
    own,
    positive,
    seconds,
)
from corvo.client_commands.session import Session
from corvo.client_commands.tables import counted
from corvo.nearest import nearest

SUMMARY: Final = "Show the nodes and shards of a cluster, and drain and remove nodes."
_EVENTS: Final = 1_000
"""Events of one request."""


def main(arguments: Sequence[str]) -> int:
    """`corvo cluster`."""
    return dispatch("cluster", SUMMARY, VERBS, arguments)


class Options(argparse.Namespace):
    """What the parsers of these commands have read, each its own part."""

    node: str
    reason: str
    force: bool
    replicas: int
    wait: float | None
    nodes: int
    limit: int
    after_seq: int


# Reading.


def status(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster status`."""
    got = own(Options, options)
    if got.wait is None:
        answer = api.get_status(session.client)
    else:
        answer = _wait_healthy(session, got.wait, got.nodes)
    state = read(answer, api.Status)
    session.show(answer, status_text(state))
    why = _why_waiting(state, got.nodes)
    if why and state.status == "healthy":
        session.say(why)
    return UNHEALTHY if why else OK


def _wait_healthy(session: Session, wait_s: float, count: int) -> Answer:
    """The status once the cluster is healthy. Raises `CommandFailed`."""
    answer: Answer | None = None
    why = ""

    def is_done() -> bool:
        nonlocal answer, why
        answer = api.get_status(session.client)
        why = _why_waiting(read(answer, api.Status), count)
        return not why

    def still() -> str:
        assert answer is not None, "it is not healthy"
        session.show(answer, status_text(read(answer, api.Status)))
        return why

    session.wait(is_done, wait_s, still, may_start=True)
    assert answer is not None, "the last one was healthy"
    return answer


def _why_waiting(state: api.Status, count: int) -> str:
    """Why a cluster that is to have a number of nodes is not healthy; empty if it is."""
    cluster = state.cluster
    found = len(cluster.nodes) if isinstance(cluster, api.ClusterState) else 1
    if found < count:
        return f"the cluster has {counted(found, 'node')}, and not {count}"
    if state.status != "healthy":
        return f"the cluster is {state.status}"
    if isinstance(cluster, api.ClusterState) and not cluster.is_placed:
        return "new places of replicas are not computed yet"
    return ""


def nodes(session: Session, _: argparse.Namespace) -> int:
    """`corvo cluster nodes`."""
    answer = api.get_nodes(session.client)
    session.show(answer, nodes_text(read(answer, api.Nodes)))
    return OK


def node(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster node NAME`."""
    name = own(Options, options).node
    with _hinted(session, name):
        answer = api.get_node(session.client, name)
    session.show(answer, node_text(read(answer, api.Node)))
    return OK


def events(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster events`: the latest ones."""
    got = own(Options, options)
    found: list[msgspec.Raw] = []
    after_seq = got.after_seq
    while True:
        answer = api.get_events(session.client, after_seq=after_seq, limit=_EVENTS)
        page = read(answer, _Page)
        found += page.events
        if len(page.events) < _EVENTS:
            break
        after_seq = msgspec.json.decode(page.events[-1], type=api.Event).seq
    latest = replace(page, events=found[-got.limit :])
    whole = msgspec.json.encode(latest)
    session.show(whole, events_text(msgspec.json.decode(whole, type=api.Events)))
    return OK


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """Events as the server wrote them."""

    events: list[msgspec.Raw]
    node: int
    since: str
    partial: bool = False
    missing_nodes: list[int] = []


# Changing.


def drain(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster drain NAME`."""
    got = own(Options, options)
    found = _find(session, got.node)
    command = f"corvo cluster drain {shlex.quote(got.node)}"
    if found.state != "draining":
        session.confirm(
            lambda: _draining(found, read(api.get_nodes(session.client), api.Nodes)),
            f"Drain {found.title}?",
            command,
        )
    with _hinted(session, got.node):
        answer = api.drain_node(session.client, got.node)
    if got.wait is not None:
        found = _wait_drained(session, found, got.wait)
    session.show(answer, _drained(found, got.node, is_waited=got.wait is not None))
    return OK


def _draining(found: api.Node, known: api.Nodes) -> str:
    """What the draining of a node means."""
    others = sum(node.state != "draining" for node in known.nodes if node.number != found.number)
    few = ""
    if others < known.replicas:
        few = (
            f". Only {counted(others, 'other node')} can have replicas, and each shard is to have"
            f" {known.replicas}"
        )
    return (
        f"{found.title} has {counted(len(found.replicas), 'replica')}, and leads"
        f" {counted(len(found.leads), 'shard')}. They move to other nodes, while all shards"
        f" continue{few}"
    )


def _wait_drained(session: Session, found: api.Node, wait_s: float) -> api.Node:
    left = len(found.replicas)

    def is_done() -> bool:
        nonlocal found, left
        found = api.read_node(session.client, str(found.number))
        if 0 < len(found.replicas) < left:
            session.say(f"{found.title}: {counted(len(found.replicas), 'replica')} left")
        left = len(found.replicas)
        return not found.replicas

    session.wait(is_done, wait_s, lambda: f"{found.title} has {counted(left, 'replica')}")
    return found


def _drained(found: api.Node, name: str, *, is_waited: bool) -> str:
    count, quoted = len(found.replicas), shlex.quote(name)
    if not count:
        then = f"stop it, or remove it: corvo cluster remove {quoted} --reason TEXT"
        return f"{found.title} is drained: it has no replicas\n{then}\n"
    assert not is_waited, "it waited for this"
    return (
        f"{found.title} is draining: {counted(count, 'replica')} to move\n"
        f"see how many are left: corvo cluster node {quoted}\n"
    )


def undrain(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster undrain NAME`."""
    name = own(Options, options).node
    found = _find(session, name)
    with _hinted(session, name):
        answer = api.undrain_node(session.client, name)
    session.show(answer, f"{found.title} is active: it can have replicas again\n")
    return OK


def remove(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster remove NAME`."""
    got = own(Options, options)
    found = _find(session, got.node)
    force = " --force" if got.force else ""
    session.confirm(
        lambda: _meaning(found),
        f"Remove {found.title} for good?",
        f"corvo cluster remove {shlex.quote(got.node)} --reason {shlex.quote(got.reason)}{force}",
    )
    with _hinted(session, got.node):
        answer = api.remove_node(session.client, got.node, reason=got.reason, is_forced=got.force)
    replicas = counted(len(found.replicas), "replica is", "replicas are")
    moved = f"; its {replicas} replaced on other nodes" if found.replicas else ""
    session.show(answer, f"{found.title} was removed{moved}\n")
    return OK


def _meaning(found: api.Node) -> str:
    """What the removal of a node means."""
    refused = "the other nodes refuse it for good, and it can join again only with an empty data"
    what = f"{found.title} has {counted(len(found.replicas), 'replica')}"
    if found.is_reachable is False:
        what += " and cannot be reached; it may still be alive"
    return f"{what}. After its removal, {refused} directory"


def replicas(session: Session, options: argparse.Namespace) -> int:
    """`corvo cluster replicas N`."""
    wanted = own(Options, options).replicas
    known = read(api.get_nodes(session.client), api.Nodes)
    if wanted < known.replicas:
        session.confirm(
            lambda: (
                f"each shard is to have {counted(known.replicas, 'replica')} now, and the others"
                f" are deleted. With {wanted}, it continues after the loss of"
                f" {counted((wanted - 1) // 2, 'node')}"
            ),
            f"Set {counted(wanted, 'replica')}?",
            f"corvo cluster replicas {wanted}",
        )
    answer = api.set_replicas(session.client, wanted)
    able = sum(each.state != "draining" for each in known.nodes)
    few = f"; nodes that can have one: {able}" if able < wanted else ""
    session.show(answer, f"each shard is to have {counted(wanted, 'replica')}{few}\n")
    return OK


# Errors.


def _find(session: Session, name: str) -> api.Node:
    with _hinted(session, name):
        return api.read_node(session.client, name)


@contextmanager
def _hinted(session: Session, name: str) -> Iterator[None]:
    """An error about a node, with what to do."""
    try:
        yield
    except RequestFailed as error:
        error.hints = (*error.hints, *_hints(session, error, name))
        raise


def _hints(session: Session, error: RequestFailed, name: str) -> list[str]:
    quoted = shlex.quote(name)
    if error.reason == "node_not_found":
        known = read(api.get_nodes(session.client), api.Nodes).nodes
        near = nearest(name, tuple(each.name for each in known))
        hint = [f"did you mean:   {near}"] if near else []
        return [*hint, "list them:   corvo cluster nodes"]
    if error.code == "NODE_NOT_DRAINED":
        return [f"drain it:   corvo cluster drain {quoted} --wait 10m"]
    if error.code in {"NO_MAJORITY", "VOTERS_UNKNOWN", "LAST_REPLICA"}:
        return ["see each shard and replica:   corvo cluster status"]
    return []


# Options.


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="name or number of the node")


def _add_wait(parser: argparse.ArgumentParser, until: str) -> None:
    parser.add_argument(
        "--wait", type=seconds, metavar="TIME", help=f"wait at most this long until {until}"
    )


def _add_status(parser: argparse.ArgumentParser) -> None:
    _add_wait(parser, "the cluster is healthy")
    parser.add_argument(
        "--nodes",
        type=positive,
        default=1,
        metavar="N",
        help="a cluster with fewer nodes is not healthy (default: 1)",
    )


def _add_drain(parser: argparse.ArgumentParser) -> None:
    _add_node(parser)
    _add_wait(parser, "the node has no replicas")
    add_yes(parser)


def _add_remove(parser: argparse.ArgumentParser) -> None:
    _add_node(parser)
    parser.add_argument(
        "--reason", required=True, metavar="TEXT", help="shown to operators and to the node"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="remove a node that can be reached and still has replicas",
    )
    add_yes(parser)


def _add_replicas(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("replicas", type=int, metavar="N", help="replicas of each shard, 1 to 7")
    add_yes(parser)


def _add_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=positive, default=50, metavar="N", help="the latest N (default: 50)"
    )
    parser.add_argument(
        "--after-seq",
        type=natural,
        default=0,
        metavar="SEQ",
        help="only events after this one (default: all)",
    )


VERBS: Final = {
    "status": Verb("show nodes, shards and replicas, and all faults", status, _add_status),
    "nodes": Verb("list the nodes, also those that were removed", nodes, add_nothing),
    "node": Verb("show one node", node, _add_node),
    "drain": Verb("move all replicas of a node to other nodes", drain, _add_drain),
    "undrain": Verb("let a drained node have replicas again", undrain, _add_node),
    "remove": Verb("remove a node from the cluster for good", remove, _add_remove),
    "replicas": Verb("set the number of replicas of each shard", replicas, _add_replicas),
    "events": Verb("list the latest changes of the cluster", events, _add_events),
}
