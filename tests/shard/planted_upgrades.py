"""Planted bugs of upgrades, and the command that lives with one of them.

    python -m tests.shard.planted_upgrades --lives 100
    python -m tests.shard.planted_upgrades --bug NAME --lives 40
    python -m tests.shard.planted_upgrades --bugs

A bug is planted before the product is imported, so this module must not import it.
"""

import argparse
import subprocess
import sys
from importlib import import_module
from typing import Final

from tests.sim.bugs import Bug, plant

BUGS: Final = (
    Bug(
        "raised-before-all-have-it",
        "ops.cluster",
        "        if node.op_version < op.op_version:",
        "        if False:",
        1,
        "corvo.shard",
    ),
    Bug(
        "raised-when-the-first-node-has-it",
        "upkeep",
        "for node in known.nodes))",
        "for node in known.nodes[:1]))",
        1,
        "corvo.shard",
    ),
    Bug(
        "raised-to-more-than-the-leader-knows",
        "upkeep",
        "min(own, *(node",
        "min(99, *(node",
        15,
        "corvo.shard",
    ),
    Bug(
        "lowered",
        "ops.cluster",
        "    if op.op_version <= known.op_version:\n        return known\n",
        "",
        1,
        "corvo.shard",
    ),
    Bug(
        "never-raised-again",
        "upkeep",
        "if self._raise_to[0] != known.version:",
        "if not self._raise_to[0]:",
        1,
        "corvo.shard",
    ),
    Bug(
        "older-node-announced",
        "ops.cluster",
        "    if OP_VERSION_FIRST < known.op_version > op.op_version:\n",
        "    if False:\n",
        15,
        "corvo.shard",
    ),
    Bug(
        "leader-proposes-everything",
        "replica",
        "held = held_back(op, self.map) if self.map is not None else None",
        "held = None",
        1,
        "corvo.shard",
    ),
    Bug(
        "version-of-the-newest-node",
        "versions",
        "    has = known.op_version\n",
        "    has = max(known.op_version, *(node.op_version for node in known.nodes))\n",
        1,
        "corvo.protocol",
    ),
    Bug(
        "later-field-forgotten",
        "versions",
        "            yield later[field.name]",
        "            pass",
        1,
        "corvo.protocol",
    ),
    Bug(
        "older-peers-are-linked",
        "wire",
        "op_oldest=max(ours.op_oldest, op_version)",
        "op_oldest=ours.op_oldest",
        35,
        "corvo.protocol",
    ),
)
"""Each must be found."""
LIVES_TO_FIND: Final = 20
"""From the recorded life of a bug on."""
BY_NAME: Final = {bug.name: bug for bug in BUGS}


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.shard.planted_upgrades")
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--bug", choices=list(BY_NAME))
    parser.add_argument("--bugs", action="store_true", help="say which life finds each bug")
    given = parser.parse_args()
    if given.bugs:
        for name in BY_NAME:
            print(f"{name:40} {hunt(BY_NAME[name], lives=given.lives)}", flush=True)
        return 0
    if given.bug:
        plant(BY_NAME[given.bug])
    code: int = import_module("tests.shard.upgrades").run(given.first, given.lives)
    return code


def hunt(bug: Bug, *, lives: int = LIVES_TO_FIND) -> str:
    """What a fresh process says that lives with a bug."""
    module, first = "tests.shard.planted_upgrades", str(bug.seed)
    given = ["--bug", bug.name, "--first", first, "--lives", str(lives)]
    command = [sys.executable, "-m", module, *given]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or ended.stderr.strip()


if __name__ == "__main__":
    sys.exit(main())
