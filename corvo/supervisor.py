"""The processes of a node: started, watched, started again, and stopped in order.

Each is told what it is by one line of JSON on a stdin that stays open; it leaves when that closes,
and so nothing outlives the node, however it ends. Once it can be reached it says `ready`. What
follows when one ends unasked is decided in `corvo.restarts`.

To stop, the router is asked first and answers what it has begun, then the shards, then the mirror
that follows them; whoever takes too long is killed, which loses nothing. A second wish kills
everybody at once.
"""

import secrets
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final

import msgspec
import trio

from corvo.child import FAILED, LEAVE, OK
from corvo.notify import Notifier
from corvo.restarts import Hold, Leave, Restart, Restarts, meaning
from corvo.telemetry import Log

_ROUTER_GRACE_S: Final = 0.5
"""Beyond the time that requests under way are given to end."""
_SHARD_GRACE_S: Final = 1.5
_MIRROR_GRACE_S: Final = 1.0
_SAID_BYTES_MAX: Final = 4_096


class Stage(IntEnum):
    """When a process is asked to leave, once the node stops."""

    ROUTER = 0
    """First, so that nobody asks for anything any more."""
    SHARDS = 1
    MIRROR = 2
    """Last: it has nothing that anybody waits for."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A process that the node has."""

    name: str
    command: tuple[str, ...]
    config: bytes
    """What it is told, as a line."""
    descriptors: tuple[int, ...]
    """What it inherits, and in `environment`, too."""
    environment: dict[str, str]
    is_vital: bool
    """Whether the node is of no use without it."""
    stage: Stage = Stage.SHARDS


class Child:
    """One process of the node, over all its lives."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        self.restarts: Final = Restarts(is_vital=plan.is_vital)
        self.process: trio.Process | None = None
        self.is_told = False
        self.is_ready = False
        self.is_held = False
        self.is_leaving = False
        """It was asked to leave, and is not started again."""
        self.gone: Final = trio.Event()
        """It has ended for good."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.is_ready or self.is_held

    async def ask_to_leave(self) -> None:
        """Say so, and close its stdin, which it would take for the end of us otherwise."""
        self.is_leaving = True
        process = self.process
        if process is not None and process.stdin is not None:
            if self.is_told:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await process.stdin.send_all(LEAVE)
            await process.stdin.aclose()

    def kill(self) -> None:
        """End it without a word."""
        self.is_leaving = True
        if self.process is not None:
            self.process.kill()


class Wish:
    """What was asked of the node: to stop, and then to stop at once."""

    def __init__(self) -> None:
        self.stop: Final = trio.Event()
        self.hurry: Final = trio.Event()

    def utter(self) -> None:
        """Ask once more."""
        (self.hurry if self.stop.is_set() else self.stop).set()


def _nothing() -> None:
    """For whoever does not want to know."""


class Supervisor:
    """The processes of one node."""

    def __init__(
        self, plans: Sequence[Plan], wish: Wish, log: Log, notifier: Notifier, *, drain_s: float
    ) -> None:
        self._children = [Child(plan) for plan in plans]
        self._wish = wish
        self._log = log
        self._notifier = notifier
        self._drain_s = drain_s
        self._code = OK
        self._was_ready = False

    async def run(
        self, *, ready: Callable[[], None] = _nothing, stopping: Callable[[], None] = _nothing
    ) -> int:
        """Keep everything running until somebody wishes it to stop; returns the exit code."""
        self._ready = ready
        async with trio.open_nursery() as nursery:
            for child in self._children:
                nursery.start_soon(self._keep, child)
            nursery.start_soon(self._give_signs_of_life)
            nursery.start_soon(self._hurry)
            await self._wish.stop.wait()
            self._notifier.say("STOPPING=1")
            stopping()
            await self._stop()
            nursery.cancel_scope.cancel()
        return self._code

    # One process.

    async def _keep(self, child: Child) -> None:
        """Start a process, and again, for as long as that makes sense."""
        try:
            while not self._wish.stop.is_set():
                code = await self._live(child)
                if not await self._is_worth_another(child, code):
                    break
        finally:
            child.gone.set()

    async def _live(self, child: Child) -> int:
        """One life of a process, from its start to its exit code."""
        plan = child.plan
        started = trio.current_time()
        try:
            process = await trio.lowlevel.open_process(
                list(plan.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=plan.descriptors,
                env=plan.environment,
                start_new_session=True,  # what a terminal sends is for us, and we pass it on
            )
        except OSError as error:
            self._log.error("process.not_started", name=plan.name, reason=str(error))
            return FAILED
        child.process = process
        try:
            self._log.debug("process.started", name=plan.name, pid=process.pid)
            if child.is_leaving:
                process.kill()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell, child, process)
                nursery.start_soon(self._listen_to, child, process, started)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            child.is_ready = child.is_told = False
            child.process = None
            await _bury(process)
        return code

    async def _tell(self, child: Child, process: trio.Process) -> None:
        assert process.stdin is not None
        # It may have ended, or been asked to leave, before it was told anything.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await process.stdin.send_all(child.plan.config + b"\n")
            child.is_told = True

    async def _listen_to(self, child: Child, process: trio.Process, started: float) -> None:
        """Hear when it is ready; whatever else it says is not for us."""
        assert process.stdout is not None
        said = b""
        while data := await process.stdout.receive_some(_SAID_BYTES_MAX):
            said = (said + data)[-_SAID_BYTES_MAX:]
            if not child.is_ready and b"ready\n" in said:
                child.is_ready = True
                took_ms = round((trio.current_time() - started) * 1_000)
                name = child.plan.name
                self._log.info("process.ready", name=name, pid=process.pid, took_ms=took_ms)
                self._look_at_all()

    async def _is_worth_another(self, child: Child, code: int) -> bool:
        """Decide what follows an end; when it is worth another start, wait until it is time."""
        if self._wish.stop.is_set():
            self._log.debug("process.left", name=child.plan.name, code=code)
            return False
        now_ns = int(trio.current_time() * 1e9)
        verdict = child.restarts.ended(code, now_ns=now_ns, dice=secrets.randbits(16))
        told = {"name": child.plan.name, "meaning": meaning(code)}
        match verdict:
            case Restart(delay_ms):
                self._log.warning("process.ended", **told, code=code, restart_ms=delay_ms)
                self._look_at_all()
                with trio.move_on_after(delay_ms / 1_000):
                    await self._wish.stop.wait()
                return True
            case Hold(reason):
                child.is_held = True
                what = "this process stays down; the other processes continue"
                self._log.error("process.held", **told, code=code, why=reason, then=what)
                self._look_at_all()
            case Leave(exit_code, reason):
                what = "the node stops"
                self._log.error("process.ended", **told, code=code, why=reason, then=what)
                self._code = exit_code
                self._wish.stop.set()
        return False

    # All of them.

    def _look_at_all(self) -> None:
        """Tell whoever started us how things stand."""
        ready = [child for child in self._children if child.is_ready]
        held = [child.plan.name for child in self._children if child.is_held]
        status = f"STATUS={len(ready)} of {len(self._children)} processes are ready"
        if held:
            status += f"; held down: {', '.join(held)}"
        lines = [status]
        # A shard that stays down is no reason to hold back, or take away, all the others.
        # And once the node stops, what comes to be ready all the same is no news.
        is_settled = all(child.is_settled for child in self._children)
        if is_settled and not self._was_ready and not self._wish.stop.is_set():
            self._was_ready = True
            lines.append("READY=1")
            self._ready()
        self._notifier.say(*lines)

    async def _give_signs_of_life(self) -> None:
        if self._notifier.watchdog_s is not None:
            while True:
                self._notifier.say("WATCHDOG=1")
                await trio.sleep(self._notifier.watchdog_s)

    async def _hurry(self) -> None:
        await self._wish.hurry.wait()
        for child in self._children:
            child.kill()

    async def _stop(self) -> None:
        """Stage by stage."""
        grace_s = {
            Stage.ROUTER: self._drain_s + _ROUTER_GRACE_S,
            Stage.SHARDS: _SHARD_GRACE_S,
            Stage.MIRROR: _MIRROR_GRACE_S,
        }
        for stage in Stage:
            children = [child for child in self._children if child.plan.stage is stage]
            await self._end(children, grace_s[stage])

    async def _end(self, children: Iterable[Child], grace_s: float) -> None:
        """Ask processes to leave, and kill those that do not."""
        for child in children:
            await child.ask_to_leave()
        with trio.move_on_after(grace_s):
            for child in children:
                await child.gone.wait()
        for child in children:
            if not child.gone.is_set():
                self._log.warning(
                    "process.killed", name=child.plan.name, why="the process did not stop in time"
                )
                child.kill()
                await child.gone.wait()


async def _bury(process: trio.Process) -> None:
    """Leave nothing of a process, even when we are on our way out ourselves."""
    with trio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
            await process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            await stream.aclose()
