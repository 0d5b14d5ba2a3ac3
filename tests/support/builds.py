"""Other builds of Corvo: two releases, of which the older one knows one op less, and two more.

    python -m tests.support.builds old shard
    python -m tests.support.builds new node TOLD

The op that pauses a queue is the new one: it needs the op version of the build `new`, and the build
`old` has no such op. A router of the build `told` reads API keys only when a shard tells it to. A
node of the build `patient` waits for the answers of others before it starts, however late they are.
All else is as it is. The build takes effect before the product is imported.
"""

import sys
from importlib import import_module
from typing import Final

import corvo

RELEASES: Final = {"old": "1.4", "new": "1.5"}
_LONG_S: Final = 1e6
"""Longer than any test."""


def become(build: str) -> None:
    """Be a build from now on."""
    assert not any(name.startswith("corvo.shard.") for name in sys.modules), "too late"
    if build == "told":
        vars(import_module("corvo.router.auth.keeper"))["CONFIRM_S"] = _LONG_S
        vars(import_module("corvo.router.auth.keyring"))["UNCONFIRMED_S_MAX"] = _LONG_S
        return
    if build == "patient":
        vars(import_module("corvo.forming"))["_ASK_S"] = _LONG_S
        return
    setattr(corvo, "__version__", RELEASES[build])  # noqa: B010 -- a constant
    ops, wire = import_module("corvo.protocol.ops"), import_module("corvo.protocol.wire")
    pause = import_module("corvo.protocol.ops.queues").Pause
    if build == "new":
        pause.SINCE = vars(wire)["OP_VERSION"] = vars(wire)["OP_VERSION"] + 1
    else:
        del ops.OPS[pause.NUMBER], ops.NAMES[pause.NUMBER], ops.NUMBERS[pause]


def main() -> int:
    build, what = sys.argv[1:3]
    become(build)
    # What a program finds in place of its own name and arguments.
    sys.argv = [what, *sys.argv[3:]] if what == "node" else ["corvo", what]
    program = import_module("tests.support.nodes" if what == "node" else "corvo.cli")
    code: int = program.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
