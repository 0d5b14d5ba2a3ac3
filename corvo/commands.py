"""The commands: `server`, `config`, `openapi` and the processes of a node, with their options.

The doors of the config are here: the file, the environment, the flags.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from corvo import node
from corvo.child import MISCONFIGURED, OK
from corvo.config import (
    DEFAULT,
    KEYS,
    ConfigRefused,
    Given,
    Resolved,
    Row,
    given_by_environment,
    given_by_file,
    resolve,
)
from corvo.old_flags import translate

FILE: Final = "corvo.toml"
"""Read from the working directory when it is there and no other is named."""
VARIABLE: Final = "CORVO_CONFIG"

_FLAGS: Final = {
    "--data-dir": ("data_dir", "DIR", "directory for all data (default: data)"),
    "--bind": ("bind", "HOST:PORT", "address and port to listen on (default: 127.0.0.1:8080)"),
    "--shards": (
        "shards",
        "N",
        "processes that share the queues, fixed at the first start (default: 4)",
    ),
    "--durability": (
        "durability",
        "sync|relaxed",
        "sync: on disk before confirmed (default: sync)",
    ),
    "--mirror": ("mirror.enabled", "on|off", "off: no search (default: on)"),
    "--retention": ("retention", "TIME", "time that finished jobs are kept (default: 7d)"),
    "--admin-key": (
        "admin_key",
        "KEY",
        "API key with full access; prefer the variable CORVO_ADMIN_KEY",
    ),
    "--auth": ("auth", "on|off", "off: every client has full access (default: on)"),
    "--tls-cert": ("tls_cert", "FILE", "TLS certificate and its chain, in PEM"),
    "--tls-key": ("tls_key", "FILE", "private key of the certificate, in PEM"),
    "--accept-loss": (
        "accept_loss",
        "SHARD:ENTRY",
        "start a shard that lost data, as the refused start named it",
    ),
    "--node-id": ("cluster.node_id", "NAME", "name of this node (default: the host name)"),
    "--peer-bind": (
        "cluster.peer_bind",
        "HOST:PORT",
        "where other nodes connect (default in a cluster: 127.0.0.1:9400)",
    ),
    "--advertise": ("cluster.advertise", "HOST:PORT", "how other nodes reach this one"),
    "--join": ("cluster.join", "HOST:PORT,…", "join the cluster of one of these nodes"),
    "--initial-nodes": (
        "cluster.initial_nodes",
        "NAME=HOST:PORT,…",
        "first nodes of a new cluster, equal on all of them",
    ),
    "--discover": ("cluster.discover", "dns", "join a node that a DNS name stands for"),
    "--discover-dns-name": ("cluster.discover_dns_name", "NAME", "that DNS name"),
    "--zone": ("cluster.zone", "ZONE", "zone of this node; replicas are spread over zones"),
    "--cluster-secret": (
        "cluster.secret",
        "SECRET",
        "secret of all nodes; prefer the variable CORVO_CLUSTER__SECRET",
    ),
    "--peer-tls-cert": ("cluster.tls_cert", "FILE", "certificate for links between nodes, in PEM"),
    "--peer-tls-key": ("cluster.tls_key", "FILE", "its private key, in PEM"),
    "--peer-tls-ca": ("cluster.tls_ca", "FILE", "who may sign other nodes' certificates, in PEM"),
    "--log-format": (
        "log_format",
        "auto|text|json",
        "auto: text on a terminal, JSON otherwise (default: auto)",
    ),
    "--log-level": ("log_level", "LEVEL", "debug, info, warning or error (default: info)"),
}
"""What is set often has a flag of its own: its key, what stands behind it, what it means."""


def server(arguments: Sequence[str]) -> int:
    """`corvo server`: run a node."""
    parser = _parser("server", "Start a server.")
    try:
        resolved = gather(parser.parse_args(translate(arguments)))
    except ConfigRefused as error:
        return refuse("server", error)
    return node.main(resolved)


def config(arguments: Sequence[str]) -> int:
    """`corvo config`: show what holds, and who set it."""
    parser = _parser(
        "config",
        "Show every setting, its value and its source, as `corvo server` with the same options"
        " would use it.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    try:
        read = parser.parse_args(translate(arguments))
        rows = gather(read).rows()
    except ConfigRefused as error:
        return refuse("config", error)
    sys.stdout.write(as_json(rows) if read.json else as_table(rows))
    return OK


def openapi(arguments: Sequence[str]) -> int:
    """`corvo openapi`: print the description of the HTTP API."""
    argparse.ArgumentParser("corvo openapi", description=openapi.__doc__).parse_args(arguments)
    from corvo.router.node.health import API_VERSION  # noqa: PLC0415 -- heavy, and only needed here
    from corvo.router.openapi.document import document  # noqa: PLC0415 -- as above
    from corvo.router.table import ROUTES  # noqa: PLC0415 -- as above

    sys.stdout.buffer.write(msgspec.json.format(document(ROUTES, API_VERSION)) + b"\n")
    return OK


# The config's doors.


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with every option that sets something."""
    parser = argparse.ArgumentParser(
        f"corvo {name}",
        description=description,
        epilog="Order: file, environment, flags; the last one wins. docs/config.md lists all"
        " settings.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", metavar="FILE", help=f"settings file (default: {FILE}, if it exists)"
    )
    for flag, (key, shown, meaning) in _FLAGS.items():
        parser.add_argument(flag, dest=key, metavar=shown, help=meaning.replace("%", "%%"))
    parser.add_argument(
        "--bootstrap", action="store_true", help="start a new cluster that other nodes can join"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change any setting, such as limits.connections_max=500",
    )
    return parser


class _Read(argparse.Namespace):
    """What a parser has read, as far as its type is known."""

    config: str | None
    set: list[str]


def gather(read: argparse.Namespace) -> Resolved:
    """The config out of all its sources. Raises `ConfigRefused`."""
    options = _Read(**vars(read))
    named = options.config or os.environ.get(VARIABLE, "")
    file = given_by_place(named or FILE, is_named=bool(named))
    return resolve([*file, *given_by_environment(os.environ), *given_by_flags(options)])


def given_by_place(place: str, *, is_named: bool) -> list[Given]:
    """What a file gives. One that nobody named need not be there."""
    try:
        text = Path(place).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if is_named:
            raise ConfigRefused([f"{place}: no such file (--config, {VARIABLE})"]) from error
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigRefused([f"{place} cannot be read: {error}"]) from error
    return given_by_file(text, place)


def given_by_flags(options: _Read) -> list[Given]:
    """What the flags give; `--set` goes before the flag that says the same."""
    given = []
    for assigned in options.set:
        name, equals, text = assigned.partition("=")
        if not equals:
            raise ConfigRefused([f"--set {assigned}: expected --set KEY=VALUE"])
        given.append(Given(name.strip(), text, f"--set {name.strip()}"))
    values: dict[str, str | None] = vars(options)
    for flag, (key, _, _) in _FLAGS.items():
        value = values[key]
        if value is not None:
            given.append(Given(key, value, flag))
    return given


def refuse(name: str, error: ConfigRefused) -> int:
    """Say what is wrong with the config; returns the exit code."""
    for problem in error.problems:
        sys.stderr.write(f"corvo {name}: refused: {problem}\n")
    return MISCONFIGURED


def as_table(rows: Sequence[Row]) -> str:
    """The keys for people: what was set stands out."""
    keys = max(len(row.key) for row in rows)
    values = max(len(row.shown) for row in rows)
    lines = []
    for row in rows:
        mark = " " if row.source == DEFAULT else "*"
        lines.append(f"{mark} {row.key:<{keys}}  {row.shown:<{values}}  {row.source}")
    return "\n".join(lines) + "\n"


def as_json(rows: Sequence[Row]) -> str:
    """The same for programs."""
    told = {
        row.key: {"value": row.value, "shown": row.shown, "source": row.source, "about": row.about}
        for row in rows
    }
    return msgspec.json.format(msgspec.json.encode(told)).decode() + "\n"


assert all(key in KEYS for key, _, _ in _FLAGS.values()), "a flag sets an unknown setting"
