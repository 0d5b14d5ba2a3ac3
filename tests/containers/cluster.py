"""Three containers of the chart form a cluster, lose one, and are replaced one by one, under load.

Each client knows all nodes, and repeats a failed request once at the next one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.cluster.rolling import Load
from tests.cluster.rolling import Seen as Loaded
from tests.containers.engine import Engine
from tests.containers.pods import Container
from tests.helm.charts import rendered, sets
from tests.helm.pods import Release
from tests.node.http import Lost
from tests.support.networks import network_of

PATIENCE_S: Final = 180.0
_LOOK_S: Final = 0.2
_CALM_S: Final = 10.0
"""As `minReadySeconds` of the chart."""


class Seen(msgspec.Struct):
    """What came of it."""

    loaded: Loaded = msgspec.field(default_factory=Loaded)
    codes: list[int] = []
    """Exit codes of the nodes that were stopped."""
    stops_s: list[float] = []
    """From the hook to the end of the container."""
    status: str = ""


async def run(engine: Engine, directory: Path, *, shards: int, tell: Callable[[str], None]) -> Seen:
    """All of it."""
    values = ("cluster.enabled=true", "replicaCount=3", f"shards={shards}")
    release = Release(rendered(*sets(values)), directory, {})
    seen = Seen()
    async with network_of(3) as network:
        places = list(network.places)
        pods = [Container(engine, release, number, places) for number in range(3)]
        try:
            await _run(pods, seen, tell)
        finally:
            with trio.CancelScope(shield=True):
                for pod in pods:
                    await pod.discard()
    return seen


async def _run(pods: list[Container], seen: Seen, tell: Callable[[str], None]) -> None:
    began = trio.current_time()
    for pod in pods:
        await pod.start()
    await ready(pods)
    tell(f"three containers are a cluster after {trio.current_time() - began:.1f} s")
    load = Load(pods)
    async with load.load():
        lost = pods[0]
        code = await lost.kill()
        await load.more()
        tell(f"one was killed (code {code}), and {load.seen.jobs} jobs are acknowledged")
        await lost.start()
        await ready(pods)
        tell("it is ready again")
        code = await pods[1].kill_while_it_drains()
        await load.more()
        tell(f"another was killed while it drained (code {code})")
        await pods[1].start()
        await ready(pods)
        for pod in reversed(pods):
            began = trio.current_time()
            seen.codes.append(await pod.stop())
            seen.stops_s.append(trio.current_time() - began)
            await pod.start()
            await ready(pods)
            await trio.sleep(_CALM_S)
            await load.more()
            tell(f"{pod.name} was replaced: stopped within {seen.stops_s[-1]:.1f} s")
    seen.loaded = load.seen
    status = await pods[0].execute(
        "sh", "-c", 'corvo cluster status --nodes 3 --wait 60s --api-key "$CORVO_ADMIN_KEY"'
    )
    seen.status = f"{status.out}{status.err}"


async def ready(pods: list[Container]) -> None:
    """Wait until the readiness probes of all succeed."""
    with trio.move_on_after(PATIENCE_S):
        for pod in pods:
            while True:
                try:
                    if await pod.is_ready():
                        break
                except Lost:
                    pass  # it does not listen yet
                await trio.sleep(_LOOK_S)
        return
    logs = [f"{pod.name}:\n{await pod.log()}" for pod in pods]
    raise AssertionError("not ready:\n" + "\n".join(logs))
