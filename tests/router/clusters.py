"""A cluster of several nodes as a router sees it: its map, and what each replica says."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from corvo import clock
from corvo.protocol.cluster import ClusterMap, ClusterNode, first_map
from corvo.protocol.numbers import Counters, Numbers, PeerNumbers, QueueCountersPage
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.cluster import HOME, Announce
from corvo.protocol.queries import GetNumbers, GetQueueCounters, Query
from corvo.router.cluster.overview import ReplicaSeen, ShardSeen
from corvo.router.history import History, Observed
from corvo.router.http.messages import Response
from corvo.router.shards.links import Answer, ReplicaLink
from tests.router.nests import MachineShard, Nest

NODES: Final = tuple(
    ClusterNode(number=number, name=f"n{number}", address=f"host-{number}:9400", version="0.1.0")
    for number in (1, 2, 3)
)
MAP: Final = first_map(NODES, shards=2, replicas=3)
REFUSED: Final = "connection refused"


def replica(node: int, **changed: object) -> Numbers:
    """A replica of a healthy group of three that node 1 leads."""
    told = Numbers(
        replica=node,
        role="leader" if node == 1 else "follower",
        term=3,
        leader=1,
        commit=100,
        applied=100,
        first_index=1,
        last_index=100,
        voters=(1, 2, 3),
        learners=(),
        is_repairing=False,
        uncommitted_bytes=0,
        reads_waiting=0,
        waiting=0,
        peers=[
            PeerNumbers(replica=each, match=90, is_active=True, is_learner=False) for each in (2, 3)
        ]
        if node == 1
        else [],
        now_ns=1,
        digest=1,
        disk_is_full=False,
        counted=Counters(),
    )
    return replace(told, **changed)  # type: ignore[arg-type]


def up(told: Numbers | str, node: int = 0) -> ReplicaSeen:
    """A replica with a link; a text is the reason why it did not answer."""
    number = told.replica if isinstance(told, Numbers) else node
    return ReplicaSeen(ReplicaLink(number, is_up=True, contact_s=0.25), told)


def down(node: int) -> ReplicaSeen:
    """A replica without a link."""
    return ReplicaSeen(ReplicaLink(node, is_up=False, contact_s=40.0, error=REFUSED), "")


def shard(*replicas: ReplicaSeen, number: int = 0, leader: int | None = 1) -> ShardSeen:
    """A shard, as it was asked."""
    error = "" if leader is not None else "node 1: knows no leader"
    return ShardSeen(number, replicas, leader, 3, error)


def healthy(number: int = 0) -> ShardSeen:
    return shard(*(up(replica(node)) for node in (1, 2, 3)), number=number)


def with_node(known: ClusterMap, number: int, **changed: object) -> ClusterMap:
    """A map in which one node differs."""
    nodes = tuple(
        replace(node, **changed) if node.number == number else node  # type: ignore[arg-type]
        for node in known.nodes
    )
    return replace(known, nodes=nodes)


class ClusterShard(MachineShard):
    """The leader's machine, and what replicas on all nodes say."""

    known: ShardSeen
    silent: frozenset[int] = frozenset()
    """Nodes whose replica never answers."""
    lost_s = 0.0
    """How long the leader cannot be reached, while it cannot."""
    counters = QueueCountersPage([])
    """Of the replica on node 1."""
    is_older = False
    """Whether that replica is of a release that counts nothing by queue."""

    @property
    def leader(self) -> int | None:
        return self.known.linked_leader

    @property
    def is_up(self) -> bool:
        return super().is_up and self.known.linked_leader is not None

    @property
    def unled_s(self) -> float:
        return 0.0 if self.is_up else self.lost_s

    @property
    def term(self) -> int:
        return self.known.term

    @property
    def led_term(self) -> int:
        return self.known.term if self.known.linked_leader is not None else 0

    @property
    def last_error(self) -> str:
        return self.known.error

    def replicas(self) -> list[ReplicaLink]:
        return [each.link for each in self.known.replicas]

    async def ask_replica(self, node: int, query: Query) -> Answer | str:
        await trio.lowlevel.checkpoint()
        if isinstance(query, GetQueueCounters):
            return (
                "there is no query 35" if self.is_older else Answer(encode_json(self.counters), 1)
            )
        assert isinstance(query, GetNumbers)
        if node in self.silent:
            await trio.sleep_forever()
        seen = self.known.of(node)
        assert seen is not None, f"there is no link to node {node}"
        return seen.told if isinstance(seen.told, str) else Answer(encode_json(seen.told), 1)


class Cluster(Nest):
    """A door of node 1, in a cluster of three."""

    def __init__(self, known: ClusterMap = MAP) -> None:
        super().__init__(shards=len(known.places))
        config = replace(self.api.config, map=known)
        vars(self.api)["config"] = config
        vars(self.api)["history"] = History(Observed(known), clock.now_ns(), node=config.node)
        self.api.topology.map = known
        self.of: Final = [ClusterShard(number, config) for number in range(len(known.places))]
        self.shards[:] = self.of
        self.api.shards._all[:] = self.of
        for each in self.of:
            each.known = healthy(each.number)
        for node in known.nodes:
            self.of[HOME].machine.do(
                Announce(
                    name=node.name,
                    number=node.number,
                    instance=f"dir-{node.number}",
                    address=node.address,
                    version=node.version,
                    first=known,
                )
            )

    def see(self, change: Callable[[ShardSeen], ShardSeen]) -> None:
        """Have every shard look otherwise."""
        for each in self.of:
            each.known = change(each.known)

    @property
    def map(self) -> ClusterMap:
        """As shard 0 has it."""
        known = self.of[HOME].machine.tx.cluster_map
        assert known is not None
        return known

    async def told(
        self, path: str, body: object = b"", *, method: str = "POST", key: str = ""
    ) -> tuple[int, dict[str, object]]:
        """Status and body of an answer."""
        answer = await self.ask(method, f"/api/v1/cluster/{path}", body, idempotency_key=key)
        return answer.status, body_of(answer)


def body_of(answer: Response) -> dict[str, object]:
    return msgspec.json.decode(answer.body, type=dict[str, object])


def without(*nodes: int) -> Callable[[ShardSeen], ShardSeen]:
    """A shard whose replicas on these nodes cannot be reached."""

    def change(seen: ShardSeen) -> ShardSeen:
        return replace(seen, replicas=changed(seen.replicas, nodes))

    return change


def changed(replicas: Iterable[ReplicaSeen], away: Iterable[int]) -> tuple[ReplicaSeen, ...]:
    return tuple(down(each.link.node) if each.link.node in away else each for each in replicas)
