r"""The first line of a connection between nodes: which process of the node it is for.

    corvo-peer 1 shard-3\n      the end that connects
    ok\n                        the node: from here on the process answers
    no <why>\n                  the node, and the end of the connection

A node accepts connections at one port, and hands each over to the process that is named. The line
comes before TLS, so it is not secret, and nothing is decided by it: both ends prove afterwards who
they are.
"""

from typing import Final

from corvo.errors import WireError

TARGET_MAX: Final = 32
LINE_MAX: Final = 600
"""Bytes of a line, in either direction."""
_PREFIX: Final = b"corvo-peer 1 "
OK: Final = b"ok\n"


def request(target: str) -> bytes:
    """The line for a process."""
    return _PREFIX + target.encode() + b"\n"


def may_be_request(data: bytes) -> bool:
    """Whether bytes can be the beginning of such a line."""
    return data.startswith(_PREFIX[: len(data)])


def read_request(line: bytes) -> str:
    """The target in a line without its end. Raises `WireError` for what is no such line."""
    target = line.removeprefix(_PREFIX)
    is_ours = line.startswith(_PREFIX) and 0 < len(target) <= TARGET_MAX
    if not is_ours or not target.replace(b"-", b"").isalnum() or not target.isascii():
        raise WireError("this port is for other nodes of the cluster")
    return target.decode()


def refusal(why: str) -> bytes:
    """The line that refuses a connection."""
    return b"no " + why.encode()[: LINE_MAX - 4].replace(b"\n", b" ") + b"\n"


def read_answer(line: bytes) -> str:
    """Why a connection is refused, from a line without its end; empty when it is not."""
    if line + b"\n" == OK:
        return ""
    if line.startswith(b"no "):
        return line[3:].decode(errors="replace")
    raise WireError("the port that was dialled is not that of a node")
