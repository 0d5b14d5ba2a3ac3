"""Each alert, made real: a cause on real nodes, and the alert in a real Prometheus.

The rules are those of the chart. Their times and limits are shorter, by the same values that a
release sets. No alert of a scenario fires before its cause, and where the cause can be removed,
the alert ends.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec
import trio

from chaos.cluster import syncs
from corvo.router.cluster.bodies import ClusterView
from corvo.router.node.health import ClusterStatus
from tests.alerts.prometheus import Prometheus, prometheus_of
from tests.alerts.rules import defaults, with_values
from tests.cluster.damage import damage
from tests.cluster.nodes import Cluster, Member, as_initial, cluster_of, members_in
from tests.cluster.test_clocks import set_clock
from tests.node.crowd import queue_on
from tests.node.filling import SETTINGS, fill, small_disk
from tests.node.http import Answer, Lost
from tests.support.certificates import Authority
from tests.support.nodes import ROOT

_MIB: Final = 1 << 20
_SHARDS: Final = 2
_JOBS: Final = 60
_GROWTH: Final = 5
_LOOK_S: Final = 0.2
_NOT_FETCHING_S: Final = 300.0
"""A worker is known to fetch no more after 180 seconds."""
_SECRET: Final = "sixteen letters, or more"  # noqa: S105 -- of no cluster

SHORT: Final = {
    **{name: "0s" for name in defaults() if name.endswith(".for")},
    **{name: "15s" for name in defaults() if name.endswith(".window")},
    # On a busy machine, one scrape may come too late.
    "nodeDown.for": "6s",
    "quorumAtRisk.for": "4s",
    "nodeUnreachable.for": "4s",
    "shardNoLeader.for": "4s",
    "shardNotAnswering.for": "4s",
    "mirrorDown.for": "4s",
    "leaderChanges.changes": "2",
    "leaderChanges.window": "1m",
    "replicaBehind.entries": "20",
    "effectsStalled.seconds": "2",
    "processRestarts.restarts": "2",
    "processRestarts.window": "1m",
    "oldestJob.seconds": "2",
    "queueGrowing.jobs": "3",
    "failureRatio.failures": "0",
    "leasesExpire.leases": "0",
    "mirrorBehind.seconds": "2",
    "schedulesLate.seconds": "2",
    "diskNearlyFull.ratio": "0.5",
    "diskWillFill.ratio": "0.9",
    "diskWillFill.hours": "1",
}
"""Values with which a test does not wait for minutes."""


class Fired(msgspec.Struct, frozen=True):
    """An alert that was seen."""

    name: str
    labels: dict[str, str]
    after_s: float
    """From the moment at which its cause began, or from the alert before it."""
    summary: str
    has_ended: bool = False


class Claimed(msgspec.Struct):
    """The part of an answer to a fetch that a worker needs."""

    job_id: str
    lease_token: int


class Enqueued(msgspec.Struct):
    job_id: str


class Stage:
    """Nodes with a Prometheus beside them."""

    def __init__(self, cluster: Cluster, prometheus: Prometheus) -> None:
        self.cluster: Final = cluster
        self.prometheus: Final = prometheus
        self.seen: dict[str, Fired] = {}
        self._since = trio.current_time()

    def begin(self) -> None:
        """The cause begins now."""
        self._since = trio.current_time()

    async def fires(self, name: str, patience_s: float = 60.0, **labels: str) -> None:
        """Wait until an alert fires."""
        alert = await self.prometheus.firing(name, labels, patience_s)
        assert "error expanding" not in str(alert.annotations), alert
        shown = {key: alert.labels[key] for key in sorted(alert.labels) if key != "alertname"}
        after_s = round(trio.current_time() - self._since, 1)
        self.seen[name] = Fired(name, shown, after_s, alert.annotations["summary"])

    async def ends(self, *names: str) -> None:
        """Wait until alerts fire no more."""
        for name in names:
            await self.prometheus.calm(name)
            self.seen[name] = msgspec.structs.replace(self.seen[name], has_ended=True)

    # As a client.

    async def post(self, path: str, body: object, member: Member | None = None) -> Answer:
        """A request that succeeds, perhaps only later."""
        return await self.cluster.until(member or self.cluster[0], "POST", f"/api/v1/{path}", body)

    async def enqueue(self, queue: str, **fields: object) -> str:
        """A new job; its id."""
        answer = await self.post("enqueue", {"queue": queue, **fields})
        return answer.read(Enqueued).job_id

    async def fetch(self, queue: str, lease_ms: int = 60_000) -> Claimed:
        """A job of the queue, which has one."""
        body = {"queues": [queue], "worker_id": "w-1", "wait_ms": 500, "lease_ms": lease_ms}
        return (await self.post("fetch", body)).read(Claimed)

    async def keep_enqueuing(self, queue: str, member: Member) -> None:
        """Enqueue jobs until cancelled. Refused and lost requests are part of it."""
        while True:
            with trio.move_on_after(1.0):
                with suppress(Lost):  # its node is stopped just now
                    await self.cluster.ask(member, "POST", "/api/v1/enqueue", {"queue": queue})
            await trio.sleep(_LOOK_S / 4)


@asynccontextmanager
async def stage_of(
    directory: Path, members: Sequence[Member], names: Sequence[str]
) -> AsyncIterator[Stage]:
    """Nodes that run, from when none of the alerts fires."""
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        ports = [member.address[1] for member in members]
        rules = with_values(SHORT)
        async with prometheus_of(directory / "prometheus", ports, rules) as prometheus:
            await prometheus.until("min(count_over_time(up[1m])) > 2")
            # A leader that was just elected has not received a message of all voters yet.
            for name in names:
                await prometheus.calm(name)
            stage = Stage(cluster, prometheus)
            yield stage


async def server_in(directory: Path, **settings: str) -> Member:
    """One node that is a cluster of itself."""
    [member] = await members_in(directory, ["a"], **{"limits__fetch_wait_s_max": "1", **settings})
    member.settings["cluster.bootstrap"] = "on"
    return member


async def three_in(directory: Path, **settings: str) -> list[Member]:
    """The first three nodes of a cluster."""
    members = await members_in(directory, ["a", "b", "c"], **settings)
    as_initial(members)
    return members


def secure(directory: Path, members: Sequence[Member]) -> Authority:
    """Let nodes use TLS between them, all with one certificate; its authority."""
    authority = Authority(directory / "ca")
    security = authority.sign("node", days=30)
    for member in members:
        member.settings["cluster.tls_cert"] = security.tls_cert
        member.settings["cluster.tls_key"] = security.tls_key
        member.settings["cluster.tls_ca"] = security.tls_ca
        member.settings["cluster.secret"] = _SECRET
    return authority


# ---- Jobs and workers.


async def jobs(directory: Path, names: Sequence[str]) -> Stage:
    """Jobs that no worker fetches, that become more, that fail, and whose leases expire."""
    member = await server_in(directory, shard__grace_ms="500ms")
    async with stage_of(directory, [member], names) as stage:
        await stage.enqueue("letters")
        await stage.fires("CorvoOldestJob", queue="letters")
        await stage.fires("CorvoQueueNoWorkers", queue="letters")

        stage.begin()
        for _ in range(_GROWTH):
            await stage.enqueue("letters")
        await stage.fires("CorvoQueueGrowing", queue="letters")

        stage.begin()
        await stage.enqueue("mail", max_retries=1)
        await stage.prometheus.until('corvo_queue_jobs{queue="mail",state="pending"} == 1')
        claim = await stage.fetch("mail")
        body = {"lease_token": claim.lease_token, "error": "no such address"}
        await stage.post(f"fail/{claim.job_id}", body)
        await stage.fires("CorvoDeadJobs", queue="mail")
        await stage.fires("CorvoFailureRatio")

        stage.begin()
        await stage.enqueue("sms")
        await stage.fetch("sms", lease_ms=1_000)
        await stage.fires("CorvoLeasesExpire")

        for queue in ("sms", *["letters"] * (1 + _GROWTH)):
            claim = await stage.fetch(queue)
            await stage.post(f"ack/{claim.job_id}", {"lease_token": claim.lease_token})
        ended = ("CorvoOldestJob", "CorvoQueueGrowing", "CorvoQueueNoWorkers", "CorvoDeadJobs")
        await stage.ends(*ended)
    return stage


async def schedules(directory: Path, names: Sequence[str]) -> Stage:
    """A server that is stopped for seconds, while a schedule is due each second."""
    member = await server_in(directory)
    async with stage_of(directory, [member], names) as stage:
        body = {"name": "tick", "queue": "ticks", "cron": "@every 1s"}
        await stage.post("schedules", body)
        await stage.prometheus.until("sum(corvo_schedule_fired_total) > 1")
        stage.begin()
        member.signal(signal.SIGSTOP)
        await trio.sleep(6)
        member.signal(signal.SIGCONT)
        await stage.fires("CorvoSchedulesLate")
        await stage.ends("CorvoSchedulesLate")
    return stage


async def workers(directory: Path, names: Sequence[str]) -> Stage:
    """A worker that renews a lease and does not fetch: known after three minutes."""
    member = await server_in(directory)
    async with stage_of(directory, [member], names) as stage:
        for _ in range(2):
            await stage.enqueue("mail")
        claims = [await stage.fetch("mail") for _ in range(2)]
        # A worker has room if it was seen with more jobs than it has.
        await stage.prometheus.until(
            'min_over_time(corvo_queue_jobs{queue="mail",state="active"}[5s]) == 2'
        )
        done = claims.pop()
        await stage.post(f"ack/{done.job_id}", {"lease_token": done.lease_token})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_renewing, stage, claims[0])
            await stage.fires("CorvoWorkersNotFetching", _NOT_FETCHING_S)
            nursery.cancel_scope.cancel()
    return stage


async def keep_renewing(stage: Stage, claim: Claimed) -> None:
    """Send heartbeats until cancelled."""
    while True:
        body = {"jobs": {claim.job_id: {"lease_token": claim.lease_token}}, "worker_id": "w-1"}
        await stage.post("heartbeat", body)
        await trio.sleep(5)


# ---- Processes and nodes.


async def processes(directory: Path, names: Sequence[str]) -> Stage:
    """Processes of a server that crash, or do not answer; and then the server itself."""
    member = await server_in(directory)
    async with stage_of(directory, [member], names) as stage:
        for count in (1, 2):
            # As long as Prometheus has not seen a start, it is not counted.
            seen = await stage.prometheus.until(
                'corvo_process_start_time_seconds{process="shard-0"}'
            )
            (last,) = {one.number for one in seen}
            send(member, "shard-0", signal.SIGKILL)
            await member.node.hear("process.ready", count + 1, name="shard-0")
            await stage.prometheus.until(
                f'corvo_process_start_time_seconds{{process="shard-0"}} > {last}'
            )
        await stage.fires("CorvoProcessRestarts", process="shard-0")

        stage.begin()
        send(member, "mirror", signal.SIGSTOP)
        await stage.fires("CorvoMirrorDown")
        send(member, "mirror", signal.SIGCONT)
        await stage.ends("CorvoMirrorDown")

        there = queue_on(1, _SHARDS, "there")
        moved = await stage.enqueue(queue_on(0, _SHARDS, "here"))
        stage.begin()
        send(member, "shard-1", signal.SIGSTOP)
        await stage.fires("CorvoShardNotAnswering", shard="1")
        await stage.fires("CorvoShardNoLeader", shard="1")
        await stage.post(f"jobs/{moved}/move", {"queue": there})
        await stage.fires("CorvoEffectsStalled", shard="0", to="1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.keep_enqueuing, there, member)
            await stage.fires("CorvoRequestsRejected")
            nursery.cancel_scope.cancel()
        send(member, "shard-1", signal.SIGCONT)
        await stage.ends("CorvoShardNotAnswering", "CorvoShardNoLeader", "CorvoEffectsStalled")

        stage.begin()
        member.kill()
        await stage.fires("CorvoNodeDown")
        await stage.cluster.gone(member)
        await stage.cluster.start(member)
        await stage.ends("CorvoNodeDown")
    return stage


async def blocked(directory: Path, names: Sequence[str]) -> Stage:
    """A router whose event loop is blocked now and then."""
    member = await server_in(directory)
    member.environment = {"PYTHONPATH": str(ROOT / "tests" / "support" / "blocked_loop")}
    async with stage_of(directory, [member], names) as stage:
        stage.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_blocking, member)
            await stage.fires("CorvoEventLoopStalls", process="router")
            nursery.cancel_scope.cancel()
        await stage.ends("CorvoEventLoopStalls")
    return stage


async def keep_blocking(member: Member) -> None:
    """Block the router's event loop until cancelled."""
    while True:
        send(member, "router", signal.SIGUSR2)
        await trio.sleep(1.5)


def send(member: Member, process: str, number: signal.Signals) -> None:
    """Send a signal to one process of a node."""
    os.kill(member.pids[process], number)


async def cluster(directory: Path, names: Sequence[str]) -> Stage:
    """A node that is lost, leaders that change, and a lost majority."""
    members = await three_in(directory)
    first, second, third = members
    async with stage_of(directory, members, names) as stage:
        stage.begin()
        third.signal(signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            for number in range(_SHARDS):
                queue = queue_on(number, _SHARDS, "mail")
                nursery.start_soon(stage.keep_enqueuing, queue, first)
            await stage.fires("CorvoNodeUnreachable", node="3")
            await stage.fires("CorvoNodeDown")
            await stage.fires("CorvoReplicaBehind", node="3")
            await stage.fires("CorvoQuorumAtRisk")
            nursery.cancel_scope.cancel()
        third.signal(signal.SIGCONT)
        lost = ("CorvoNodeUnreachable", "CorvoNodeDown", "CorvoReplicaBehind", "CorvoQuorumAtRisk")
        await stage.ends(*lost)

        stage.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_changing_leaders, stage)
            await stage.fires("CorvoLeaderChanges")
            nursery.cancel_scope.cancel()
        for member in members:
            member.signal(signal.SIGCONT)

        stage.begin()
        second.kill()
        third.kill()
        await stage.fires("CorvoShardNoLeader")
        await stage.fires("CorvoNodeNotReady")
        await stage.cluster.gone(second)
        await stage.cluster.start(second)
        await stage.ends("CorvoShardNoLeader", "CorvoNodeNotReady")
    return stage


async def keep_changing_leaders(stage: Stage) -> None:
    """Stop the node that leads a shard until another one leads, again and again."""
    while True:
        leader = await leader_of(stage, 0)
        leader.signal(signal.SIGSTOP)
        own = f"127.0.0.1:{leader.address[1]}"
        await stage.prometheus.until(f'corvo_raft_is_leader{{shard="0",instance!="{own}"}} == 1')
        leader.signal(signal.SIGCONT)
        await stage.prometheus.until(
            f'corvo_raft_has_leader{{shard="0",instance="{own}"}} == 1'
            ' and on() count(corvo_raft_is_leader{shard="0"} == 1) == 1'
        )


async def leader_of(stage: Stage, shard: int) -> Member:
    """The node that leads a shard, as Prometheus knows it."""
    found = await stage.prometheus.until(f'corvo_raft_is_leader{{shard="{shard}"}} == 1')
    instance = found[0].metric["instance"]
    [member] = [one for one in stage.cluster.members if instance == f"127.0.0.1:{one.address[1]}"]
    return member


async def lasting_leader_of(stage: Stage, shard: int) -> Member:
    """The node that the map names first for a shard, once it leads it.

    Any other leader hands leadership over to that node ten seconds after its election.
    """
    answer = await stage.cluster.until(stage.cluster[0], "GET", "/api/v1/cluster/status")
    view = answer.read(ClusterStatus).cluster
    assert isinstance(view, ClusterView)
    member = stage.cluster[view.shards[shard].placed_on[0] - 1]
    own = f"127.0.0.1:{member.address[1]}"
    await stage.prometheus.until(f'corvo_raft_is_leader{{shard="{shard}",instance="{own}"}} == 1')
    return member


async def repair(directory: Path, names: Sequence[str]) -> Stage:
    """A replica whose log was damaged while its node was stopped, without replicas to copy from."""
    members = await three_in(directory)
    *others, third = members
    async with stage_of(directory, members, names) as stage:
        for _ in range(_JOBS):
            await stage.enqueue(queue_on(1, _SHARDS, "mail"))
        third.kill()
        await stage.cluster.gone(third)
        for path in sorted((third.data / "shard-1" / "log").glob("*.seg")):
            await trio.to_thread.run_sync(damage, path, "bits", Random(1))
        for member in others:
            send(member, "shard-1", signal.SIGSTOP)
        stage.begin()
        await stage.cluster.start(third)
        await stage.fires("CorvoReplicaRepairing", shard="1")
        for member in others:
            send(member, "shard-1", signal.SIGCONT)
        await stage.ends("CorvoReplicaRepairing")
    return stage


async def clocks(directory: Path, names: Sequence[str]) -> Stage:
    """A node whose clock is set while it leads a shard."""
    members = await three_in(directory)
    for member in members:
        set_clock(member, 0)
    async with stage_of(directory, members, names) as stage:
        leader = await lasting_leader_of(stage, 0)
        stage.begin()
        set_clock(leader, 60)
        number = members.index(leader) + 1
        await stage.fires("CorvoClockOff", node=f"{number}")
        await stage.fires("CorvoShardClockOff", shard="0")
        set_clock(leader, 0)
        await stage.ends("CorvoClockOff")
    return stage


async def certificate(directory: Path, names: Sequence[str]) -> Stage:
    """A certificate for two days, which is replaced while the node runs."""
    member = await server_in(directory)
    authority = secure(directory, [member])
    async with stage_of(directory, [member], names) as stage:
        stage.begin()
        authority.sign("node", days=2)
        await stage.fires("CorvoCertificateEnds", use="peer")
        authority.sign("node", days=30)
        await stage.ends("CorvoCertificateEnds")
    return stage


# ---- Disks.


async def disk(directory: Path, names: Sequence[str]) -> Stage:
    """A disk that fills: first the mirror stops, then the shard. Raises `NoMount`."""
    with small_disk(directory / "disk") as place:
        settings = {**SETTINGS, "mirror__room_bytes_min": "64MiB"}
        member = await server_in(place, **settings)
        async with stage_of(directory, [member], names) as stage:
            stage.begin()
            for left in range(100, 84, -2):
                await trio.to_thread.run_sync(fill, place, left * _MIB)
                await trio.sleep(1)
            await stage.fires("CorvoDiskWillFill")

            stage.begin()
            await trio.to_thread.run_sync(fill, place, 40 * _MIB)
            await stage.fires("CorvoDiskNearlyFull")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.keep_enqueuing, "mail", member)
                await stage.fires("CorvoMirrorBehind")
                stage.begin()
                filler = await trio.to_thread.run_sync(fill, place, 8 * _MIB)
                await stage.fires("CorvoDiskFull")
                await stage.fires("CorvoRequestsRejected")
                nursery.cancel_scope.cancel()
            await trio.Path(filler).unlink()
            await stage.ends("CorvoDiskFull", "CorvoDiskNearlyFull", "CorvoMirrorBehind")
        return stage


async def slow_disk(directory: Path, names: Sequence[str]) -> Stage:
    """A disk whose syncs take 0.7 s. Raises `CalledProcessError` without a C compiler."""
    member = await server_in(directory)
    file = directory / "syncs"
    syncs.create(file)
    library = await trio.to_thread.run_sync(syncs.build, directory)
    member.environment = {"LD_PRELOAD": str(library), "CHAOS_SYNCS": str(file)}
    async with stage_of(directory, [member], names) as stage, trio.open_nursery() as nursery:
        nursery.start_soon(stage.keep_enqueuing, "mail", member)
        stage.begin()
        syncs.order(file, delay_ms=700)
        await stage.fires("CorvoSlowSync")
        await stage.fires("CorvoSlowCommit")
        syncs.order(file)
        await stage.ends("CorvoSlowSync", "CorvoSlowCommit")
        nursery.cancel_scope.cancel()
    return stage


class Scenario(NamedTuple):
    """A cause, or several one after the other, and the alerts that follow."""

    run: Callable[[Path, Sequence[str]], Awaitable[Stage]]
    alerts: tuple[str, ...]
    in_suite: bool = False
    """Whether the test suite runs it, too: a few that take half a minute."""


SCENARIOS: Final = {
    "jobs": Scenario(
        jobs,
        (
            *("CorvoOldestJob", "CorvoQueueGrowing", "CorvoQueueNoWorkers", "CorvoDeadJobs"),
            *("CorvoFailureRatio", "CorvoLeasesExpire"),
        ),
        in_suite=True,
    ),
    "schedules": Scenario(schedules, ("CorvoSchedulesLate",)),
    "workers": Scenario(workers, ("CorvoWorkersNotFetching",)),
    "processes": Scenario(
        processes,
        (
            *("CorvoProcessRestarts", "CorvoMirrorDown", "CorvoShardNotAnswering"),
            *("CorvoShardNoLeader", "CorvoEffectsStalled", "CorvoRequestsRejected"),
            "CorvoNodeDown",
        ),
    ),
    "cluster": Scenario(
        cluster,
        (
            *("CorvoNodeUnreachable", "CorvoNodeDown", "CorvoReplicaBehind", "CorvoQuorumAtRisk"),
            *("CorvoLeaderChanges", "CorvoShardNoLeader", "CorvoNodeNotReady"),
        ),
    ),
    "blocked": Scenario(blocked, ("CorvoEventLoopStalls",)),
    "repair": Scenario(repair, ("CorvoReplicaRepairing",)),
    "clocks": Scenario(clocks, ("CorvoClockOff", "CorvoShardClockOff"), in_suite=True),
    "certificate": Scenario(certificate, ("CorvoCertificateEnds",), in_suite=True),
    "disk": Scenario(
        disk,
        (
            *("CorvoDiskWillFill", "CorvoDiskNearlyFull", "CorvoMirrorBehind", "CorvoDiskFull"),
            "CorvoRequestsRejected",
        ),
    ),
    "slow-disk": Scenario(slow_disk, ("CorvoSlowSync", "CorvoSlowCommit")),
}


async def run(name: str, directory: Path) -> list[Fired]:
    """Run a scenario; the alerts in the order in which they fired."""
    scenario = SCENARIOS[name]
    await trio.Path(directory).mkdir(parents=True, exist_ok=True)
    stage = await scenario.run(directory, scenario.alerts)
    return list(stage.seen.values())
