"""The health of the node, for probes, `/cluster/status` and `/info`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from corvo import __version__
from corvo.measures import Histogram, ProcessStats
from corvo.protocol.cluster import ClusterMap
from corvo.protocol.jobs import Time
from corvo.protocol.numbers import WAITING_OPS_MAX, Loss, Numbers
from corvo.protocol.questions import LAG_BOUNDS_MS, ShardStanding, Standing
from corvo.router.cluster.bodies import ClusterView
from corvo.router.config import RouterConfig
from corvo.router.http.sse import render_digest
from corvo.time_zones import tz_version
from corvo.times import format_time_or_none

API_VERSION: Final = "0.3.0"
"""The version of the original whose requests and answers these are."""
_STATES: Final = {
    "follower": "Follower",
    "pre_candidate": "Candidate",
    "candidate": "Candidate",
    "leader": "Leader",
}
_SHOWN: Final = (0.5, 0.9, 0.99)


# Probes.


class Alive(msgspec.Struct, frozen=True):
    """The process is there."""

    status: str = "ok"


UNLED_GRACE_S: Final = 10.0
"""How long a node is not ready because a shard has no leader, while other shards have one. A shard
that has no leader for longer has lost its majority: taking nodes out of service would not help it,
and would stop the other shards."""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that has to be there."""

    name: str
    ok: bool
    why: str = ""


class ShardReach(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this node reaches the leader of a shard."""

    shard: int
    is_reached: bool
    missing_s: float
    """How long it has not."""
    why: str

    @property
    def check(self) -> Check:
        """The same as a check."""
        return Check(f"shard-{self.shard}", self.is_reached, "" if self.is_reached else self.why)


def excused(shards: Sequence[ShardReach], *, is_alone: bool) -> list[str]:
    """The checks of shards that do not make the node unready: other nodes could do no more.

    A server that runs alone has all replicas itself, so each of them is required.
    """
    if is_alone or not any(each.is_reached for each in shards):
        return []
    return [
        each.check.name
        for each in shards
        if not each.is_reached and each.missing_s >= UNLED_GRACE_S
    ]


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether requests should be sent here."""

    status: str
    code: str = ""
    error: str = ""
    missing: list[str] = []
    warnings: list[str] = []
    checks: list[Check] = []

    @property
    def is_ready(self) -> bool:
        """Whether they should."""
        return not self.code


def readiness(
    checks: Sequence[Check],
    *,
    is_verbose: bool,
    warnings: Sequence[str] = (),
    excused: Collection[str] = (),
) -> Ready:
    """What checks come to together. Warnings are shown, and change nothing.

    A failed check that is `excused` is a warning, too.
    """
    missing = [check for check in checks if not check.ok]
    shown = list(checks) if is_verbose else []
    if all(check.name in excused for check in missing):
        return Ready(
            status="degraded" if missing else "ok",
            missing=[check.name for check in missing],
            warnings=[*(f"{check.name}: {check.why}" for check in missing), *warnings],
            checks=shown,
        )
    return Ready(
        status="unavailable",
        code="NOT_READY",
        error="; ".join(f"{check.name}: {check.why}" for check in missing),
        missing=[check.name for check in missing],
        warnings=list(warnings),
        checks=shown,
    )


def why_not_member(known: ClusterMap, own: int, *, is_announced: bool) -> str:
    """Why this node is not a member of its cluster; empty for one that is."""
    node = known.node(own)
    if node is None:
        removed = known.removal_of(own)
        if removed is None:
            return f"node {own} is not in the cluster map: it was removed from the cluster"
        name = f"node {own} ({removed.name})"
        return f"{name} was removed from the cluster by an operator: {removed.reason}"
    if is_announced and node.instance:
        return ""
    return "the cluster has not accepted the node yet"


def draining_warnings(known: ClusterMap, own: int) -> list[str]:
    """Whether this node is to have no replicas."""
    node = known.node(own)
    if node is None or not node.is_draining:
        return []
    return ["the node is draining: its replicas are moved to other nodes"]


def warnings_of(found: Mapping[int, Numbers]) -> list[str]:
    """What an operator should look at, though requests can be sent here."""
    return [
        f"shard-{shard}: {warning}"
        for shard, numbers in sorted(found.items())
        for warning in (*_clock_warnings(numbers), *_effect_warnings(numbers))
    ]


def _clock_warnings(numbers: Numbers) -> list[str]:
    """How the wall clock differs from the clock of a shard."""
    seen = numbers.clock
    if seen is None or seen.course == "in_step":
        return []
    side = "ahead of" if seen.ahead_ns > 0 else "behind"
    apart = f"the wall clock is {abs(seen.ahead_ns) / 1e9:.1f} s {side} the shard's clock"
    if seen.course == "ignored":
        return [f"{apart} and is ignored; see clock.ignored in the log"]
    return [f"{apart}, which runs {seen.course} until both agree; see clock.off in the log"]


def _effect_warnings(numbers: Numbers) -> list[str]:
    """The other shards that take no effects."""
    return [
        f"{each.waiting} effects wait for shard-{each.shard}, which has taken none for"
        f" {each.stalled_s:.0f} s: {each.error or 'it cannot be reached'}"
        for each in numbers.counted.effects
        if each.is_stalled
    ]


class Health(msgspec.Struct, frozen=True):
    """The original's one probe."""

    status: str
    raft_state: str
    leader: bool


def health(roles: Sequence[str]) -> Health:
    """By the roles of the replicas that answered; there is at least one."""
    states = [_STATES[role] for role in roles]
    best = next(state for state in ("Leader", "Follower", "Candidate") if state in states)
    return Health("ok", best, best == "Leader")


# What this is.


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What runs here."""

    server_version: str
    tz_version: str
    api_version: str
    name: str
    node: int
    shards: int
    durability: str
    auth: str
    """`keys`; `open` while anybody may do anything because only this machine can; `off`."""


def info(config: RouterConfig, *, is_open: bool, is_known: bool) -> Info:
    """Told by the config, and by whether anybody may do anything now.

    Versions, which say which faults a server has, are only for callers that are known.
    """
    auth = "keys"
    if is_open:
        auth = "off" if config.is_auth_off else "open"
    return Info(
        server_version=__version__ if is_known else "",
        tz_version=tz_version() if is_known else "",
        api_version=API_VERSION,
        name="corvo",
        node=config.node,
        shards=config.shards,
        durability=config.durability,
        auth=auth,
    )


# The cluster.


class Bucket(msgspec.Struct, frozen=True):
    """Measures of at most so much, those of the buckets before left out."""

    le: float
    count: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram, for people. Seconds."""

    count: int
    avg: float
    p50: float
    p90: float
    p99: float
    buckets: list[Bucket]


def measured(histogram: Histogram) -> Measured:
    """A histogram, for people."""
    count = histogram.count
    p50, p90, p99 = (histogram.quantile(share) for share in _SHOWN)
    pairs = zip(histogram.bounds, histogram.counts, strict=False)
    return Measured(
        count=count,
        avg=histogram.total / count if count else 0.0,
        p50=p50,
        p90=p90,
        p99=p99,
        buckets=[Bucket(bound, seen) for bound, seen in pairs],
    )


# The mirror.


class MirrorShard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the mirror follows one shard."""

    shard: int
    index: int
    at: Time | None = None
    lag_entries: int | None = None
    """Entries that the shard has applied behind that; not known while the shard does not answer."""
    lag_ms: int | None = None
    is_linked: bool
    is_whole: bool
    passes: int
    changes: int


class MirrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the mirror is. What it counts begins with its process."""

    status: str
    why: str = ""
    shards: list[MirrorShard] = []
    file_bytes: int = 0
    jobs: int = 0
    rebuilds: int = 0
    questions: int = 0
    interrupted: int = 0
    write_lag: Measured | None = None
    schema: int = 0
    resident_bytes: int = 0
    cpu_seconds: float = 0.0


class MirrorGlance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mirror at a glance."""

    status: str
    lag: int | None = None
    lag_ms: int | None = None


def lag_entries(standing: ShardStanding, numbers: Numbers) -> int:
    """How many entries of a shard the mirror has not seen."""
    return max(0, numbers.applied - standing.index)


def lag_s(standing: ShardStanding, numbers: Numbers) -> float:
    """How old what the mirror has of a shard is, by the shard's own time."""
    if lag_entries(standing, numbers) == 0:
        return 0.0
    return max(0, numbers.now_ns - standing.now_ns) / 1e9


def write_lag(standing: Standing) -> Histogram:
    """How late rows were when they were written, in seconds."""
    bounds = tuple(bound / 1_000 for bound in LAG_BOUNDS_MS)
    return Histogram(bounds, list(standing.lag_seconds), standing.lag_sum_ms / 1_000)


def mirror_body(told: Standing | str | None, numbers: Mapping[int, Numbers]) -> MirrorBody:
    """By what the mirror says, or why it says nothing; None where there is none."""
    if told is None:
        return MirrorBody(status="none")
    if isinstance(told, str):
        return MirrorBody(status="away", why=told)
    return MirrorBody(
        status=_mirror_status(told),
        shards=[_mirror_shard(shard, numbers.get(shard.shard)) for shard in told.shards],
        file_bytes=told.file_bytes,
        jobs=told.jobs,
        rebuilds=told.rebuilds,
        questions=told.questions,
        interrupted=told.interrupted,
        write_lag=measured(write_lag(told)),
        schema=told.schema,
        resident_bytes=told.rss_bytes,
        cpu_seconds=told.cpu_seconds,
    )


def _mirror_status(told: Standing) -> str:
    if not all(shard.is_linked for shard in told.shards):
        return "cut off"
    return "following" if all(shard.is_whole for shard in told.shards) else "catching up"


def _mirror_shard(standing: ShardStanding, numbers: Numbers | None) -> MirrorShard:
    return MirrorShard(
        shard=standing.shard,
        index=standing.index,
        at=format_time_or_none(standing.now_ns),
        lag_entries=None if numbers is None else lag_entries(standing, numbers),
        lag_ms=None if numbers is None else round(lag_s(standing, numbers) * 1_000),
        is_linked=standing.is_linked,
        is_whole=standing.is_whole,
        passes=standing.passes,
        changes=standing.changes,
    )


def mirror_glance(body: MirrorBody) -> MirrorGlance:
    """The same in three numbers."""
    entries = [shard.lag_entries for shard in body.shards if shard.lag_entries is not None]
    late_ms = [shard.lag_ms for shard in body.shards if shard.lag_ms is not None]
    return MirrorGlance(
        status=body.status, lag=max(entries, default=None), lag_ms=max(late_ms, default=None)
    )


# Its shards.


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A replica of a shard."""

    id: str
    voter: bool
    role: str = ""
    self: bool = False
    active: bool | None = None
    """Whether its leader has heard of it lately; known of the others by the leader only."""
    match_index: str = ""


class Checkpoint(msgspec.Struct, frozen=True):
    """The newest checkpoint, and how many were made since the start."""

    latest_index: int
    count: int


class ShardClock(msgspec.Struct, frozen=True):
    """The clock of a shard that this node leads."""

    course: str
    wall_ahead_ms: int


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shard, as its replica on this node sees it. Indexes are strings, as in the original."""

    shard: int | msgspec.UnsetType = msgspec.UNSET
    status: str
    error: str = ""
    state: str = ""
    leader_id: str = ""
    node_id: str
    term: str = ""
    applied_index: str = ""
    digest: str = ""
    commit_index: str = ""
    last_index: str = ""
    first_index: str = ""
    durability: str
    raft_nosync: bool | msgspec.UnsetType = msgspec.UNSET
    raft_store: str | msgspec.UnsetType = msgspec.UNSET
    apply_pending_now: int | msgspec.UnsetType = msgspec.UNSET
    apply_max_pending: int | msgspec.UnsetType = msgspec.UNSET
    overload_total: int | msgspec.UnsetType = msgspec.UNSET
    applied_total: int | msgspec.UnsetType = msgspec.UNSET
    disk_free_bytes: int | msgspec.UnsetType = msgspec.UNSET
    commit_time_hist: Measured | msgspec.UnsetType = msgspec.UNSET
    fsync_time_hist: Measured | msgspec.UnsetType = msgspec.UNSET
    snapshot: Checkpoint | msgspec.UnsetType = msgspec.UNSET
    clock: ShardClock | msgspec.UnsetType = msgspec.UNSET
    losses: list[Loss] = []
    nodes: list[Member] = []


class ClusterStatus(Group, frozen=True, kw_only=True, omit_defaults=True):
    """The only shard of a cluster that has one; or of several, what they have in common."""

    mode: str
    shards: int | msgspec.UnsetType = msgspec.UNSET
    groups: list[Group] = []
    """Each of several. One that is not healthy makes the whole `degraded`."""
    sqlite_mirror: MirrorGlance | msgspec.UnsetType = msgspec.UNSET
    cluster: ClusterView | msgspec.UnsetType = msgspec.UNSET
    """Unset for a server that runs alone."""


def cluster_status(
    config: RouterConfig,
    seen: Sequence[Numbers | str],
    mirror: MirrorGlance,
    cluster: ClusterView | None = None,
) -> ClusterStatus:
    """By what the replicas of this node say, in the order of shards, or why one says nothing.

    In a cluster the status is that of the whole.
    """
    groups = [_group(config, numbers) for numbers in seen]
    view = msgspec.UNSET if cluster is None else cluster
    if len(groups) == 1:
        alone = msgspec.structs.asdict(groups[0])
        if cluster is not None:
            alone["status"] = cluster.status
        return ClusterStatus(mode="cluster", sqlite_mirror=mirror, cluster=view, **alone)
    status = "healthy" if all(group.status == "healthy" for group in groups) else "degraded"
    return ClusterStatus(
        mode="multi-raft",
        status=status if cluster is None else cluster.status,
        cluster=view,
        node_id=str(config.node),
        durability=config.durability,
        shards=len(groups),
        sqlite_mirror=mirror,
        groups=[
            msgspec.structs.replace(group, shard=number) for number, group in enumerate(groups)
        ],
    )


def _group(config: RouterConfig, numbers: Numbers | str) -> Group:
    node_id = str(config.node)
    if isinstance(numbers, str):
        return Group(
            status="unreachable", error=numbers, node_id=node_id, durability=config.durability
        )
    return Group(
        status=_status(numbers),
        state=_STATES[numbers.role],
        leader_id=str(numbers.leader) if numbers.leader is not None else "",
        node_id=node_id,
        term=str(numbers.term),
        applied_index=str(numbers.applied),
        digest=render_digest(numbers.digest),
        commit_index=str(numbers.commit),
        last_index=str(numbers.last_index),
        first_index=str(numbers.first_index),
        durability=config.durability,
        raft_nosync=config.durability == "relaxed",
        raft_store="segments",
        apply_pending_now=numbers.waiting,
        apply_max_pending=WAITING_OPS_MAX,
        overload_total=numbers.counted.busy,
        applied_total=numbers.counted.entries,
        disk_free_bytes=numbers.counted.disk.room_bytes,
        commit_time_hist=measured(numbers.counted.commit),
        fsync_time_hist=measured(numbers.counted.disk.fsync),
        snapshot=Checkpoint(numbers.counted.disk.checkpointed, numbers.counted.disk.checkpoints),
        clock=(
            ShardClock(numbers.clock.course, round(numbers.clock.ahead_ns / 1e6))
            if numbers.clock is not None
            else msgspec.UNSET
        ),
        losses=list(numbers.counted.disk.losses),
        nodes=_members(numbers, config.node),
    )


def _status(numbers: Numbers) -> str:
    if numbers.leader is None:
        return "no leader"
    if numbers.is_repairing:
        return "repairing"
    return "disk full" if numbers.disk_is_full else "healthy"


def _members(numbers: Numbers, own: int) -> list[Member]:
    peers = {peer.replica: peer for peer in numbers.peers}
    members = []
    for replica in sorted({*numbers.voters, *numbers.learners, numbers.replica}):
        peer = peers.get(replica)
        members.append(
            Member(
                id=str(replica),
                voter=replica in numbers.voters,
                role=numbers.role if replica == numbers.replica else "",
                self=replica == own,
                active=peer.is_active if peer is not None else None,
                match_index=str(peer.match) if peer is not None else "",
            )
        )
    return members


# This process.


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The router's process, in the original's words, and all processes in ours."""

    goroutines: int
    gomaxprocs: int
    """Processes that the node has for its work."""
    heap_inuse_bytes: int
    gc_pause_p99_ns: int
    cpu_user_ns: int
    cpu_sys_ns: int
    loop_lag_p99_ns: int
    loop_stalls: int
    processes: dict[str, ProcessStats]
