"""The processes of a node: started, watched, restarted, and stopped in order.

Each process reads its config as one line of JSON from stdin, which stays open. A process exits when
its stdin closes, so no process outlives the node, however the node ends. A process writes `ready`
when it can be reached. `corvo.restarts` decides what follows when a process ends unasked.

At a stop, the router may first serve on for a while as a node that is not ready, so that load
balancers leave it out. Then the router is asked and answers the requests that it has begun; then
the shards and the mirror, at the same time. A process that takes too long is killed, which loses
nothing. A second stop request kills all processes at once.
"""

import secrets
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final

import msgspec
import trio

from corvo.child import FAILED, LEAVE, OK, PREPARE, READY, Notice
from corvo.notify import Notifier
from corvo.restarts import Hold, Leave, Restart, Restarts, meaning
from corvo.telemetry import Log

_ROUTER_GRACE_S: Final = 0.5
"""Beyond the time that requests under way are given to end."""
_OTHERS_GRACE_S: Final = 2.5
"""With the router's time and the default of `drain_ms`, a stop takes less than five seconds."""
_LEAVE_S: Final = 0.5
_SAID_BYTES_MAX: Final = 4 << 20
"""Of a line that a process writes: the largest is a cluster map."""
_READ_BYTES: Final = 64 << 10


class Stage(IntEnum):
    """The order in which processes are asked to stop."""

    ROUTER = 0  # first, so that no request comes any more
    OTHERS = 1  # the shards, and the mirror: it has a low priority, and needs the time most


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the node: how it is started, and when it is stopped."""

    name: str
    command: tuple[str, ...]
    config: bytes  # its config: one line of JSON
    descriptors: tuple[int, ...]  # descriptors that it inherits, as it does `environment`
    environment: dict[str, str]
    is_vital: bool  # whether the node stops when it cannot be kept running
    stage: Stage = Stage.OTHERS
    update: bytes = b""
    """What of its config can change while it runs: one line of JSON, `corvo.child.Update`."""


class Child:
    """One process of the node, over all its restarts."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.changed = trio.Event()  # the plan has another update
        self.speaking: Final = trio.Lock()  # whoever holds it may write to its stdin
        self.restarts: Final = Restarts(is_vital=plan.is_vital)
        self.process: trio.Process | None = None
        self.has_config = False
        self.is_ready = False
        self.is_held = False
        self.is_stopping = False  # it was asked to stop, and is not started again
        self.asked_s: float | None = None  # when it was asked to stop
        self.gone: Final = trio.Event()  # it has ended for good

    @property
    def is_settled(self) -> bool:
        """Whether it is ready, or will not be."""
        return self.is_ready or self.is_held

    async def ask_to_stop(self) -> None:
        """Write `LEAVE` to its stdin and close that; without `LEAVE`, the node has ended."""
        self.is_stopping = True
        self.asked_s = trio.current_time()
        await self.say(LEAVE)
        if self.process is not None and self.process.stdin is not None:
            await self.process.stdin.aclose()

    async def say(self, line: bytes) -> None:
        """Write a line to its stdin, if it runs and has its config."""
        process = self.process
        if process is not None and process.stdin is not None:
            # A process that stands still may have a full pipe: it is not waited for.
            with trio.move_on_after(_LEAVE_S):
                async with self.speaking:
                    if self.has_config:
                        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                            await process.stdin.send_all(line)

    def kill(self) -> None:
        """Kill it, and do not start it again."""
        self.is_stopping = True
        if self.process is not None:
            self.process.kill()


class StopRequest:
    """The request that the node stops, and the second one: that it stops at once."""

    def __init__(self) -> None:
        self.asked: Final = trio.Event()
        self.at_once: Final = trio.Event()

    def request(self) -> None:
        """Request the stop; at the second call, at once."""
        (self.at_once if self.asked.is_set() else self.asked).set()


_decode_notice: Final = msgspec.json.Decoder(Notice).decode


def _nothing() -> None:
    """The default of callbacks."""


class Supervisor:
    """The processes of one node."""

    def __init__(
        self,
        plans: Sequence[Plan],
        stop_request: StopRequest,
        log: Log,
        notifier: Notifier,
        *,
        drain_s: float,
        stop_delay_s: float = 0.0,
        heard: Callable[[Notice], None] = lambda _: None,
    ) -> None:
        """`heard` is called with each notice of a process."""
        self._children = [Child(plan) for plan in plans]
        self._heard = heard
        self._nursery: trio.Nursery | None = None
        self._stop_request = stop_request
        self._log = log
        self._notifier = notifier
        self._drain_s = drain_s
        self._stop_delay_s = stop_delay_s
        self._code = OK
        self._was_ready = False

    async def run(
        self, *, ready: Callable[[], None] = _nothing, stopping: Callable[[], None] = _nothing
    ) -> int:
        """Keep the processes running until a stop is requested; returns the exit code."""
        self._ready = ready
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for child in self._children:
                nursery.start_soon(self._keep_running, child)
            nursery.start_soon(self._notify_watchdog)
            nursery.start_soon(self._kill_when_asked)
            await self._stop_request.asked.wait()
            self._notifier.say("STOPPING=1")
            await self._serve_on()
            stopping()
            await self._stop()
            nursery.cancel_scope.cancel()
        return self._code

    def follow(self, plans: Sequence[Plan]) -> None:
        """Take over changed plans: update running processes, and start those that are new."""
        if self._nursery is None or self._stop_request.asked.is_set():
            return
        there = {child.plan.name: child for child in self._children}
        for plan in plans:
            child = there.get(plan.name)
            if child is None:
                child = Child(plan)
                self._children.append(child)
                self._nursery.start_soon(self._keep_running, child)
            elif plan != child.plan:
                child.plan = plan
                child.changed.set()

    async def retire(self, name: str) -> None:
        """Stop a process that is not needed any more, and forget it."""
        for child in self._children:
            if child.plan.name == name:
                await self._end([child], _OTHERS_GRACE_S)
                self._children.remove(child)
                self._log.info("process.retired", name=name)
                return

    # One process.

    async def _keep_running(self, child: Child) -> None:
        """Start a process, and restart it as `corvo.restarts` decides."""
        try:
            while not (self._stop_request.asked.is_set() or child.is_stopping):
                code = await self._run_once(child)
                if not await self._starts_again(child, code):
                    break
        finally:
            child.gone.set()

    async def _run_once(self, child: Child) -> int:
        """Run a process once, from its start to its exit code."""
        plan = child.plan
        started = trio.current_time()
        try:
            process = await trio.lowlevel.open_process(
                list(plan.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=plan.descriptors,
                env=plan.environment,
                start_new_session=True,  # a terminal's signals come to the node alone
            )
        except OSError as error:
            self._log.error("process.not_started", name=plan.name, reason=str(error))
            return FAILED
        child.process = process
        try:
            self._log.debug("process.started", name=plan.name, pid=process.pid)
            if child.is_stopping:
                process.kill()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._speak, child, process)
                nursery.start_soon(self._read_output, child, process, started)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            child.is_ready = child.has_config = False
            child.process = None
            await _reap(process)
        return code

    async def _speak(self, child: Child, process: trio.Process) -> None:
        """Write its config, and then each update."""
        assert process.stdin is not None
        # It may have ended, or been asked to stop, before it got its config.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            child.changed = trio.Event()
            told = child.plan.update
            async with child.speaking:
                await process.stdin.send_all(child.plan.config + b"\n")
            child.has_config = True
            while True:
                await child.changed.wait()
                child.changed = trio.Event()
                if child.plan.update != told:
                    told = child.plan.update
                    async with child.speaking:
                        await process.stdin.send_all(told + b"\n")

    async def _read_output(self, child: Child, process: trio.Process, started: float) -> None:
        """Read its notices, and that it is ready."""
        assert process.stdout is not None
        name = child.plan.name
        held = b""
        while data := await process.stdout.receive_some(_READ_BYTES):
            *lines, held = (held + data).split(b"\n")
            held = held[-_SAID_BYTES_MAX:]
            for line in lines:
                if line != READY:
                    self._hear(name, line)
                elif not child.is_ready:
                    child.is_ready = True
                    took_ms = round((trio.current_time() - started) * 1_000)
                    self._log.info("process.ready", name=name, pid=process.pid, took_ms=took_ms)
                    self._report_status()

    def _hear(self, name: str, line: bytes) -> None:
        try:
            notice = _decode_notice(line)
        except msgspec.MsgspecError as error:
            self._log.warning("process.unclear", name=name, reason=str(error))
        else:
            self._heard(notice)

    async def _starts_again(self, child: Child, code: int) -> bool:
        """Whether an ended process is started again; waits until it is time for that."""
        if self._stop_request.asked.is_set() or child.is_stopping:
            asked_s = trio.current_time() if child.asked_s is None else child.asked_s
            took_ms = round((trio.current_time() - asked_s) * 1_000)
            self._log.info("process.left", name=child.plan.name, code=code, took_ms=took_ms)
            return False
        now_ns = int(trio.current_time() * 1e9)
        verdict = child.restarts.ended(code, now_ns=now_ns, dice=secrets.randbits(16))
        told = {"name": child.plan.name, "meaning": meaning(code)}
        match verdict:
            case Restart(delay_ms):
                self._log.warning("process.ended", **told, code=code, restart_ms=delay_ms)
                self._report_status()
                with trio.move_on_after(delay_ms / 1_000):
                    await self._stop_request.asked.wait()
                return True
            case Hold(reason):
                child.is_held = True
                what = "this process stays down; the other processes continue"
                self._log.error("process.held", **told, code=code, why=reason, then=what)
                self._report_status()
            case Leave(exit_code, reason):
                what = "the node stops"
                self._log.error("process.ended", **told, code=code, why=reason, then=what)
                self._code = exit_code
                self._stop_request.asked.set()
        return False

    # All of them.

    def _report_status(self) -> None:
        """Report how many processes are ready to the service manager."""
        ready = [child for child in self._children if child.is_ready]
        held = [child.plan.name for child in self._children if child.is_held]
        status = f"STATUS={len(ready)} of {len(self._children)} processes are ready"
        if held:
            status += f"; held down: {', '.join(held)}"
        lines = [status]
        # A shard that stays down does not keep the node from being ready, or end that. A process
        # that becomes ready while the node stops is not reported.
        is_settled = all(child.is_settled for child in self._children)
        if is_settled and not self._was_ready and not self._stop_request.asked.is_set():
            self._was_ready = True
            lines.append("READY=1")
            self._ready()
        self._notifier.say(*lines)

    async def _notify_watchdog(self) -> None:
        if self._notifier.watchdog_s is not None:
            while True:
                self._notifier.say("WATCHDOG=1")
                await trio.sleep(self._notifier.watchdog_s)

    async def _kill_when_asked(self) -> None:
        await self._stop_request.at_once.wait()
        for child in self._children:
            child.kill()

    async def _serve_on(self) -> None:
        """Let a node that was ready serve for a while as one that is not ready."""
        if self._stop_delay_s == 0 or not self._was_ready or self._code != OK:
            return
        for child in self._children:
            if child.plan.stage is Stage.ROUTER:
                await child.say(PREPARE)
        with trio.move_on_after(self._stop_delay_s):
            await self._stop_request.at_once.wait()

    async def _stop(self) -> None:
        """Stage by stage."""
        grace_s = {
            Stage.ROUTER: self._drain_s + _ROUTER_GRACE_S,
            Stage.OTHERS: _OTHERS_GRACE_S,
        }
        for stage in Stage:
            children = [child for child in self._children if child.plan.stage is stage]
            await self._end(children, grace_s[stage])

    async def _end(self, children: Iterable[Child], grace_s: float) -> None:
        """Ask processes to stop, and kill those that do not in time."""
        for child in children:
            await child.ask_to_stop()
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


async def _reap(process: trio.Process) -> None:
    """Kill a process if it runs, wait for its end and close its pipes, even when cancelled."""
    with trio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
            await process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            await stream.aclose()
