"""The router process: HTTP on one port, links to shards and mirror, and the tasks beside them.

It holds nothing that is not held elsewhere, so it may be killed at any time. It says `ready` when
it takes requests, whether or not the shards are there: those that come before they are wait a
little, as they do when a shard is started again.
"""

import sys
import traceback
from typing import Final

import trio

from corvo import child, telemetry
from corvo.router.api import Api
from corvo.router.bulk import executor
from corvo.router.cluster import joining, watching
from corvo.router.config import BadRouterConfig, RouterConfig, read_config
from corvo.router.http.messages import Request
from corvo.router.server.app import App
from corvo.router.server.door import Door
from corvo.router.server.serving import serve
from corvo.router.shards.map_keeper import NodeRefused
from corvo.router.stream.stream import run_stream
from corvo.router.table import ROUTES
from corvo.router.tracing.tracer import ids_of
from corvo.telemetry import Log
from corvo.watchdog import watch

_SWITCH_S: Final = 50e-6
"""Other threads have little to do here, and should not wait long for it, nor we for them."""


async def run(config: RouterConfig, parent: child.Parent, log: Log) -> None:
    """Route until stdin closes, and end what is under way."""
    api = Api(config)

    def on_bug(request: Request, error: BaseException) -> None:
        log.bug(
            "request.failed",
            error,
            request=request.id,
            method=request.method,
            path=request.path,
            **ids_of(request),
        )

    door = Door(api, ROUTES, on_bug=on_bug)
    app = App(door, run_stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(api.shards.run, log)
        nursery.start_soon(api.mirror.run, log)
        nursery.start_soon(api.hub.run, log)
        nursery.start_soon(api.keeper.run, log)
        nursery.start_soon(api.map_keeper.run, log)
        nursery.start_soon(joining.serve, api)
        nursery.start_soon(api.peers.run, log)
        nursery.start_soon(api.rate_sharing.run)
        nursery.start_soon(api.backups.run)
        nursery.start_soon(watching.run, api, log)
        nursery.start_soon(executor.run, api, log)
        nursery.start_soon(watch, api.metrics.loop, log)
        nursery.start_soon(_stop_with_parent, api, parent)
        if api.tracer is not None:
            nursery.start_soon(api.tracer.exporter.run, log)
        await serve(door, app, config, log, stop=api.stopping, ready=child.say_ready)
        if api.tracer is not None:
            await api.tracer.exporter.stop()
        nursery.cancel_scope.cancel()


async def _stop_with_parent(api: Api, parent: child.Parent) -> None:
    def updated(update: child.Update) -> None:
        api.topology.update(update.map, update.sockets)

    def prepared() -> None:
        api.is_leaving = True

    if not await parent.wait(updated, prepared):
        # The shards have gone with it, who knows what is asked of them, and the next node waits for
        # us to be gone, too.
        child.exit_now()
    api.stop()


def main() -> int:
    """Read the config and route; returns the exit code."""
    parent = child.Parent()
    try:
        config = read_config(parent.read_line())
    except BadRouterConfig as error:
        return child.complain("router", child.MISCONFIGURED, "config", error)
    child.collect_seldom()
    sys.setswitchinterval(_SWITCH_S)
    with telemetry.open_log("router", form=config.log_format, level=config.log_level) as log:
        try:
            trio.run(run, config, parent, log)
        except Exception as error:  # noqa: BLE001 -- behind this there is only the exit code
            cause = child.first_of(error)
            if isinstance(cause, BadRouterConfig):  # what it names cannot be used
                return child.complain("router", child.MISCONFIGURED, "config", cause)
            if isinstance(cause, NodeRefused):
                return child.complain("router", child.MISCONFIGURED, "refused", cause)
            traceback.print_exception(cause, file=sys.stderr)
            return child.complain("router", child.FAILED, "failed", cause)
    return child.OK
