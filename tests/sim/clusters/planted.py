"""Bugs of clusters: name, module, the text that is replaced, what replaces it, a seed."""

from typing import Final

from tests.sim.bugs import Bug
from tests.sim.planted import Row

NODES: Final[tuple[Row, ...]] = (
    (
        "number-of-a-removed-node-given-again",
        "shard.ops.cluster",
        "        number = known.last_number + 1\n",
        "        number = max(node.number for node in known.nodes) + 1\n",
        13,
    ),
    (
        "joined-twice",
        "shard.ops.cluster",
        "    found = known.owner(op.instance)\n",
        "    found = None\n",
        3,
    ),
    (
        "joined-node-gets-no-replicas",
        "shard.ops.cluster",
        "last_number=number, is_placed=False)",
        "last_number=number, is_placed=known.is_placed)",
        4,
    ),
    (
        "drained-node-keeps-its-replicas",
        "shard.ops.cluster",
        "    return replace(known, nodes=nodes, is_placed=False)\n",
        "    return replace(known, nodes=nodes)\n",
        7,
    ),
)

PLACES: Final[tuple[Row, ...]] = (
    (
        "places-computed-for-one-replica-less",
        "shard.upkeep",
        "replicas=known.replicas)",
        "replicas=max(1, known.replicas - 1))",
        1,
    ),
    (
        "places-not-evened-out",
        "replica_placement",
        "    _level(plan.loads, plan.hops, plan.take)\n",
        "",
        3,
    ),
    (
        "late-places-end-the-leader",
        "shard.replica",
        "is_late = result.code == MAP_CHANGED",
        "is_late = False",
        5,
    ),
    (
        "data-removed-in-a-joint-group",
        "shard.driver.removal",
        "not in {*seen.voters, *seen.outgoing, *seen.learners}",
        "not in {*seen.voters}",
        9,
    ),
    (
        "report-of-a-replica-forgotten",
        "shards_held",
        "            self._unneeded.add(shard)\n",
        "            pass\n",
        3,
    ),
    (
        "returned-replica-not-listened-to",
        "raft.core",
        "    if not pinned and _may_be_replaced(raft, message.source):\n",
        "    if False:\n",
        0x7A491,
    ),
)

LINKS: Final[tuple[Row, ...]] = (
    (
        "lost-link-still-leads",
        "leader_reports",
        "        self.is_open, self.leader = False, None\n",
        "        self.is_open = True\n",
        23,
    ),
    (
        "effects-not-sent-to-a-new-leader",
        "shard.relaying",
        "        self.has_failed = False\n        self.sent = self.taken\n",
        "        self.has_failed = False\n",
        3,
    ),
)

MIRRORS: Final[tuple[Row, ...]] = (
    (
        "reset-without-a-pass",
        "mirror.follow.position",
        '            through=reset.index,\n            pass_key=b"",\n',
        "            through=reset.index,\n            pass_key=None,\n",
        2,
    ),
    (
        "page-counts-for-all",
        "mirror.follow.position",
        "            index=answer.index,\n            digest=answer.digest,\n",
        "            index=answer.through,\n            digest=answer.through_digest,\n",
        26,
    ),
    (
        "page-of-a-pass-without-its-range",
        "mirror.follow.position",
        "page = Page(cursor, answer.pairs, scanned=(after, answer.last))",
        "page = Page(cursor, answer.pairs)",
        8,
    ),
)

BUGS: Final = (*NODES, *PLACES, *LINKS, *MIRRORS)

BY_NAME: Final = {row[0]: Bug(*row, package="corvo") for row in BUGS}
