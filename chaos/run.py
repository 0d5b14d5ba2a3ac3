"""A run: a cluster starts, clients work, faults are made and healed, all is drained and read."""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

import corvo
from chaos import drain, history
from chaos.bugs import Bug
from chaos.calls import Client
from chaos.cluster import cleaning
from chaos.cluster.running import SETTINGS, START_S, Cluster, NotReady, open_cluster, remove
from chaos.drain import NoAnswer, Reader
from chaos.faults.fault import Fault
from chaos.feeds import Listener
from chaos.http import Site
from chaos.nemesis import Nemesis, Planned
from chaos.recording import Recorder, now_ns
from chaos.remote import open_remote
from chaos.report import LEADERS
from chaos.workloads.scene import Scene, Workload

_STOP_S: Final = 15.0
_LOOK_S: Final = 0.5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is."""

    directory: Path
    seed: int
    nodes: int = 3
    shards: int = 2
    seconds: float = 120.0
    rate: float = 40.0
    faults: Mapping[str, Fault] = {}
    workloads: Mapping[str, Workload] = {}
    plan: Sequence[Planned] = ()
    warm_s: float = 4.0
    """Time of work before the first fault and after the last one."""
    settings: Mapping[str, str] = {}
    """Settings of every node, beside those of all runs."""
    lacks: Mapping[str, str] = {}
    """The abilities that the machine lacks, with the reasons."""
    targets: Sequence[str] = ()
    """Addresses of a cluster of others, which is used instead of a new one."""
    api_key: str = ""
    bug: Bug | None = None
    """A bug that is planted in all processes of all nodes."""


class Stage:
    """A run while it goes on, for the view."""

    def __init__(
        self, options: Options, recorder: Recorder, cluster: Cluster, nemesis: Nemesis
    ) -> None:
        self.options: Final = options
        self.recorder: Final = recorder
        self.cluster: Final = cluster
        self.nemesis: Final = nemesis
        self.started_s: Final = trio.current_time()


class Failed(Exception):
    """The run does not count."""


async def run(options: Options, show: Callable[[Stage], Awaitable[None]]) -> None:
    """A run, whose history is in its directory. Raises `Failed`."""
    recorder = Recorder(options.directory)
    try:
        async with _cluster(options) as cluster:
            recorder.write(_head(options, cluster))
            try:
                await _stages(options, recorder, cluster, show)
            finally:
                _keep_logs(cluster, options.directory)
    except* (NotReady, NoAnswer) as group:
        raise Failed("; ".join(str(each) for each in leaves(group))) from group
    finally:
        recorder.close()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, which may be of groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


@asynccontextmanager
async def _cluster(options: Options) -> AsyncIterator[Cluster]:
    """The cluster of a run: one of its own, or that of others."""
    if options.targets:
        yield await open_remote(options.targets, options.api_key)
        return
    folder = cleaning.scratch(os.getpid())
    folder.mkdir(mode=0o700)
    try:
        async with open_cluster(
            folder,
            options.nodes,
            options.shards,
            str(options.seed),
            options.lacks,
            options.settings,
            options.bug,
        ) as cluster:
            yield cluster
    finally:
        remove(folder)


def _head(options: Options, cluster: Cluster) -> history.Run:
    nodes = [
        history.Node(node.name, f"http://{node.site.host}:{node.site.port}")
        for node in cluster.nodes.values()
        if node.is_member
    ]
    return history.Run(
        seed=options.seed,
        version=corvo.__version__,
        format=history.FORMAT,
        nodes=tuple(nodes),
        shards=cluster.shards,
        t=now_ns(),
        wall_ns=time.time_ns(),
        id=options.directory.name,
        # Of a cluster of others the default is assumed.
        grace_ms=5_000 if options.targets else 2_000,
        minima={"ok": max(1, int(options.seconds)), "faults": 1 if options.plan else 0},
        settings={**SETTINGS, **options.settings},
    )


async def _stages(
    options: Options,
    recorder: Recorder,
    cluster: Cluster,
    show: Callable[[Stage], Awaitable[None]],
) -> None:
    sites: list[Site] = []
    listeners: list[Listener] = []
    nemesis = Nemesis(cluster, recorder, options.faults, str(options.seed))
    scene = Scene(sites, recorder, str(options.seed), options.rate)
    stage = Stage(options, recorder, cluster, nemesis)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(show, stage)
        nursery.start_soon(nemesis.watch)
        follow = Following(cluster, recorder, nursery, sites, listeners)
        follow.look()
        nursery.start_soon(follow.run)
        for listener in listeners:
            await listener.is_started.wait()
        async with trio.open_nursery() as clients:
            _start_clients(options, scene, clients)
            recorder.begin("load")
            await trio.sleep(options.warm_s)
            recorder.begin("faults")
            await nemesis.follow(options.plan, options.seconds)
            recorder.begin("heal")
            await trio.sleep(options.warm_s)
            scene.stopping.set()
            clients.cancel_scope.deadline = trio.current_time() + _STOP_S
        if nemesis.broken:
            raise Failed(nemesis.broken)
        for node in cluster.members:
            await cluster.ready(node)
        if not await cluster.whole(START_S):
            raise Failed("the replicas were not complete after all faults had ended")
        follow.look()
        recorder.begin("drain")
        drained = await drain.drain(scene)
        await drain.settle(listeners)
        recorder.begin("quiet")
        await Reader(sites, recorder).read(drained=drained)
        leads = msgspec.json.encode(nemesis.leads)
        (options.directory / LEADERS).write_bytes(msgspec.json.format(leads))
        nursery.cancel_scope.cancel()


class Following:
    """It keeps the nodes that are called and listened to equal to the members of the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        nursery: trio.Nursery,
        sites: list[Site],
        listeners: list[Listener],
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._nursery = nursery
        self._sites = sites
        self._listeners = listeners

    async def run(self) -> None:
        """Follow the members until cancelled."""
        while True:
            self.look()
            await trio.sleep(_LOOK_S)

    def look(self) -> None:
        """Take in the members of this moment."""
        sites = [node.site for node in self._cluster.members]
        self._sites[:] = sites
        for listener in [each for each in self._listeners if each.site not in sites]:
            listener.stop.cancel()
            self._listeners.remove(listener)
        known = [listener.site for listener in self._listeners]
        for site in sites:
            if site not in known:
                listener = Listener(site, self._recorder)
                self._listeners.append(listener)
                self._nursery.start_soon(listener.run)


def _start_clients(options: Options, scene: Scene, nursery: trio.Nursery) -> None:
    for workload in options.workloads.values():
        for number in range(workload.clients):
            client = scene.client(f"{workload.name}-{number}")
            nursery.start_soon(_work, workload, scene, client)


async def _work(workload: Workload, scene: Scene, client: Client) -> None:
    try:
        await workload.run(scene, client)
    finally:
        client.close()


def _keep_logs(cluster: Cluster, directory: Path) -> None:
    for node in cluster.nodes.values():
        if node.log.exists():
            (directory / f"node-{node.name}.log").write_bytes(node.log.read_bytes())
