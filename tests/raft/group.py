"""A group of nodes in one place: every test of the core starts here.

Nothing happens by itself. Messages wait in `mail` until `settle` delivers them, in order, through
the links that are up. Disks are instant unless `slow_disks` holds their writes back for `store` to
do.
"""

from collections.abc import Callable, Iterable
from random import Random

from corvo.raft import (
    AnyMessage,
    Entry,
    HardState,
    Kind,
    Membership,
    MemoryStorage,
    Node,
    Read,
    Ready,
    Settings,
    Snapshot,
    Write,
)
from corvo.raft.state import Raft


def members(*voters: int, learners: Iterable[int] = ()) -> Membership:
    """A membership that is not joint."""
    return Membership(voters=voters, learners=tuple(learners))


def with_log(
    membership: Membership, terms: Iterable[int], *, term: int | None = None, commit: int = 0
) -> MemoryStorage:
    """A log whose entries have these terms; the hard state is at the last one, or at `term`."""
    storage = MemoryStorage(membership)
    entries = tuple(
        Entry(index, each, Kind.NORMAL, b"%d" % index) for index, each in enumerate(terms, 1)
    )
    last = entries[-1].term if entries else 0
    storage.put(
        Write(
            token=1,
            entries=entries,
            hard_state=HardState(term=last if term is None else term, commit=commit),
        )
    )
    return storage


def raft_of(node: Node) -> Raft:
    """The state inside, for tests of rules that no driver can see."""
    return node._raft


class Group:
    """Nodes, their storages and state machines, and the links between them."""

    def __init__(
        self,
        membership: Membership | int = 3,
        *,
        storages: dict[int, MemoryStorage] | None = None,
        seed: int = 1,
        **settings: int,
    ) -> None:
        if isinstance(membership, int):
            membership = members(*range(1, membership + 1))
        self.membership = membership
        self.settings = settings
        self.seed = seed
        self.storages = storages or {}
        self.nodes: dict[int, Node] = {}
        self.applied: dict[int, list[Entry]] = {}
        self.reads: dict[int, list[Read]] = {}
        self.reads_lost: dict[int, list[int]] = {}
        self.wanted: dict[int, list[int]] = {}
        self.mail: list[AnyMessage] = []
        self.delivered: list[AnyMessage] = []
        self.passes: Callable[[AnyMessage], bool] = lambda _: True
        self.cut_links: set[tuple[int, int]] = set()
        self.slow_disks: set[int] = set()
        self.writes: dict[int, list[Write]] = {}
        self.starts: dict[int, int] = {}
        self.auto_apply = True
        self.auto_snapshot = True
        for replica in (*membership.voters, *membership.learners):
            self.storages.setdefault(replica, MemoryStorage(membership))
            self.start(replica)

    # Nodes.

    def start(
        self,
        replica: int,
        *,
        applied: int | None = None,
        repair: bool = False,
        returned: bool = False,
    ) -> Node:
        """Start, or restart, a node on its storage; what it had applied is kept unless told."""
        storage = self.storages.setdefault(replica, MemoryStorage())
        done = self.applied.get(replica, [])
        if applied is None:
            applied = max(done[-1].index if done else 0, storage.base.index)
        self.applied[replica] = [entry for entry in done if entry.index <= applied]
        self.reads[replica], self.reads_lost[replica], self.wanted[replica] = [], [], []
        self.writes[replica] = []
        self.starts[replica] = self.starts.get(replica, -1) + 1
        node = Node(
            Settings(**{"replica": replica, **self.settings}),
            storage,
            Random(self.seed * 1000 + replica + 1_000_000 * self.starts[replica]),
            applied=applied,
            repair=repair,
            returned=returned,
        )
        self.nodes[replica] = node
        return node

    def __getitem__(self, replica: int) -> Node:
        return self.nodes[replica]

    def raft(self, replica: int) -> Raft:
        """The state inside a node."""
        return raft_of(self.nodes[replica])

    @property
    def leaders(self) -> list[int]:
        """Who leads, in any term."""
        return [replica for replica, node in self.nodes.items() if node.is_leader]

    # Links.

    def cut(self, one: int, other: int) -> None:
        """Nothing passes between these two."""
        self.cut_links |= {(one, other), (other, one)}

    def isolate(self, replica: int) -> None:
        """Nothing passes to or from this one."""
        for other in self.nodes:
            if other != replica:
                self.cut(replica, other)

    def heal(self) -> None:
        """Every link is up, and no filter stands."""
        self.cut_links.clear()
        self.passes = lambda _: True

    # Time and work.

    def ready(self, replica: int) -> Ready:
        """One round of the driver's duty for one node; its messages go to `mail`."""
        node = self.nodes[replica]
        ready = node.ready()
        self.mail += ready.messages
        if ready.write is not None:
            self.writes[replica].append(ready.write)
            if replica not in self.slow_disks:
                self.store(replica)
        self.applied[replica] += ready.committed
        if ready.committed and self.auto_apply:
            node.advance(ready.committed[-1].index)
        self.reads[replica] += ready.reads
        self.reads_lost[replica] += ready.reads_lost
        if ready.snapshot_wanted is not None:
            self.wanted[replica].append(ready.snapshot_wanted)
            if self.auto_snapshot and node.statistics().applied >= ready.snapshot_wanted:
                self.snapshot(replica)
        return ready

    def snapshot(self, replica: int) -> Snapshot:
        """Make a snapshot of what this node has applied; its size follows the number of entries."""
        state = self.nodes[replica].describe_state()
        assert state is not None, "nothing is snapshotted while a snapshot is installed"
        data = b"".join(b"%8d" % entry.index for entry in self.applied[replica])
        return self.storages[replica].make_snapshot(
            index=state.index, membership=state.membership, data=data
        )

    def store(self, replica: int, count: int | None = None) -> None:
        """Carry out writes that a slow disk held back, oldest first."""
        held = self.writes[replica]
        for _ in range(len(held) if count is None else count):
            write = held.pop(0)
            intact = self.storages[replica].put(write)
            self.mail += write.messages
            self.nodes[replica].stored(write.token, intact=intact)

    def work(self, *replicas: int) -> None:
        """Let these nodes, or all, do everything they have to, delivering nothing."""
        for replica in replicas or tuple(self.nodes):
            while self.ready(replica):
                pass

    def deliver(self) -> None:
        """Hand over what is in the mail; what the links do not pass is lost."""
        mail, self.mail = self.mail, []
        for message in mail:
            up = (message.source, message.target) not in self.cut_links
            if up and self.passes(message) and message.target in self.nodes:
                self.delivered.append(message)
                self.nodes[message.target].step(message)

    def settle(self) -> None:
        """Work and deliver until nothing happens any more."""
        for _ in range(1000):
            self.work()
            if not self.mail:
                return
            self.deliver()
        raise AssertionError("the group does not come to rest")

    def tick(self, *replicas: int, times: int = 1) -> None:
        """Ticks for these nodes, or all, settling after each."""
        for _ in range(times):
            for replica in replicas or tuple(self.nodes):
                self.nodes[replica].tick()
            self.settle()

    def elect(self, replica: int) -> Node:
        """Make this node campaign now, whatever the others heard lately, and lead."""
        for other in self.nodes:
            if other != replica:
                self.nodes[other].forget_leader()
        self.nodes[replica].campaign()
        self.settle()
        assert self.nodes[replica].is_leader, f"replica {replica} was not elected"
        return self.nodes[replica]

    def propose(self, replica: int, *data: bytes) -> list[int]:
        """Propose and settle."""
        indexes = [self.nodes[replica].propose(each) for each in data]
        self.settle()
        return indexes

    def normal(self, replica: int) -> list[bytes]:
        """What a state machine has been given, without no-ops and membership changes."""
        return [entry.data for entry in self.applied[replica] if entry.kind is Kind.NORMAL]
