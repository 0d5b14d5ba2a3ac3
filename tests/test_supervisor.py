"""Whole nodes: what becomes of the processes when one of them, or the node itself, ends."""

import math
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, ParamSpec

import msgspec
import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from corvo import node
from corvo.child import DAMAGED, FAILED, MISCONFIGURED, OK, Notice, Update
from corvo.config import Config, Given, resolve
from corvo.datadir import DirectoryUnfit, Identity, open_directory
from corvo.notify import Notifier
from corvo.plans import (
    OpenedNode,
    Programs,
    child_environment,
    mirror_config,
    plans_of,
    router_config,
    shard_config,
)
from corvo.protocol.cluster import alone
from corvo.supervisor import Plan, Stage, StopRequest, Supervisor
from corvo.telemetry import Level, Log, Style
from tests.support import standins
from tests.support.links import jumping, on_sockets
from tests.support.nodes import running, stand_ins
from tests.support.standins import Journal

P = ParamSpec("P")
REAL: Final = Programs()


def without_waiting(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test with real processes under a clock that jumps over every pause.

    It has no deadline, for the clock would jump to that one first.
    """

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        trio.run(lambda: test(*args, **kwargs), clock=MockClock(autojump_threshold=0))

    return run


async def ask(address: tuple[str, int]) -> int:
    """The process id of whoever answers there."""
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        said = b""
        while data := await stream.receive_some():
            said += data
    return int(said)


def seen_of(pid: int) -> bytes:
    """What `ps` shows of a process to whoever may see it."""
    place = Path(f"/proc/{pid}")
    return (place / "cmdline").read_bytes() + (place / "environ").read_bytes()


def names_in(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


def silent_log() -> Log:
    return Log(lambda _: None, "node", Style(is_text=False), Level.ERROR)


# ---- A life without trouble.


@on_sockets
async def test_a_node_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")

    settings = {"data_dir": str(tmp_path / "d"), "shards": "2"}
    async with running(settings, stand_ins(tmp_path / "journal")) as it:
        answered_by = await ask(await it.url())
        code = await it.end()

    assert answered_by == journal.last_pid("router")
    assert code == OK
    assert not it.find("process.killed")
    assert not it.find("process.ended")
    left = it.find("process.left")
    assert sorted(str(one["name"]) for one in left) == ["mirror", "router", "shard-0", "shard-1"]
    assert all(isinstance(one["took_ms"], int) for one in left)


@on_sockets
async def test_the_router_leaves_before_all_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    settings = {"data_dir": str(tmp_path / "d"), "shards": "3"}

    async with running(settings, stand_ins(tmp_path / "journal")) as it:
        await it.hear("node.ready")
        await it.end()

    left = [name for name, word, _ in journal.lines() if word == "left"]
    assert left[0] == "router"
    assert sorted(left[1:]) == ["mirror", "shard-0", "shard-1", "shard-2"]


@on_sockets
async def test_a_node_of_real_shards_lives_in_a_place_with_blanks_and_a_long_name(
    tmp_path: Path,
) -> None:
    data = tmp_path / "My Projects" / ("deep down " * 9) / ("rookery" * 9)
    programs = Programs(router=standins.command("router", tmp_path / "journal"))

    with TemporaryDirectory(prefix="c") as short:  # pytest's own are too long for a socket
        place = Path(short)
        async with running({"data_dir": str(data)}, programs, TMPDIR=short) as it:
            await it.hear("node.ready")
            sockets = names_in(place)
            first = await it.end()
        async with running({"data_dir": str(data)}, programs, TMPDIR=short) as it:
            await it.hear("node.ready")
            second = await it.end()
        left = names_in(place)

    assert len(str(data)) > 107
    assert (first, second) == (OK, OK)
    assert (data / "shard-1" / "log").is_dir()
    assert (len(sockets), left) == (1, [])
    assert it.texts == []


@on_sockets
async def test_a_process_has_a_session_of_its_own_the_lock_and_no_secret_in_sight(
    tmp_path: Path,
) -> None:
    settings = {"data_dir": str(tmp_path / "d"), "shards": "1", "admin_key": "rook-and-raven"}
    journal = Journal(tmp_path / "journal")

    async with running(settings, stand_ins(tmp_path / "journal")) as it:
        await it.hear("node.ready")
        pid = journal.last_pid("router")
        session = os.getsid(pid)
        holders = [int(one.split()[0]) for one in open_directory(settings["data_dir"]).holders()]
        seen = seen_of(pid)
        await it.end()

    others = {journal.last_pid("shard-0"), journal.last_pid("mirror"), it.process.pid}
    assert {pid, *others} == set(holders)
    assert session == pid  # so Ctrl-C at a terminal reaches the node alone
    assert b"rook-and-raven" not in seen
    assert "rook-and-raven" not in f"{it.events}{it.texts}"


def test_a_shard_is_told_of_all_others_and_not_of_itself(tmp_path: Path) -> None:
    opened = OpenedNode(
        directory=open_directory(str(tmp_path / "d")),
        identity=Identity(cluster="rookery", node=2, shards=3),
        map=alone(2, 3),
        there=frozenset({0, 1, 2}),
        lock=3,
        sockets=["/a", "/b", "/c"],
        listening=[4],
        environment={},
        log_form="json",
        programs=REAL,
    )
    config = resolve(
        [Given("durability", "relaxed", "x"), Given("shard.grace_ms", "9ms", "x")]
    ).config

    told = shard_config(config, opened, 1)
    plans = plans_of(config, opened)

    assert told.sockets == {0: "/a", 1: "/b", 2: "/c"}
    assert (told.cluster, told.node, told.shard, told.shards) == ("rookery", 2, 1, 3)
    assert (told.socket, told.data_dir) == ("/b", str(tmp_path / "d" / "shard-1"))
    assert told.relaxed
    assert told.grace_ms == 9
    assert [plan.name for plan in plans] == ["shard-0", "shard-1", "shard-2", "router", "mirror"]
    assert plans[1].config == msgspec.json.encode(told)


def test_a_node_without_a_mirror_starts_none_and_tells_the_router_so(tmp_path: Path) -> None:
    opened = OpenedNode(
        directory=open_directory(str(tmp_path / "d")),
        identity=Identity(cluster="rookery", node=2, shards=1),
        map=alone(2, 1),
        there=frozenset(),
        lock=3,
        sockets=["/run/a"],
        listening=[4],
        environment={},
        log_form="json",
        programs=REAL,
    )
    off = resolve([Given("mirror.enabled", "off", "x")]).config
    on = resolve([Given("mirror.pause_ms", "7ms", "x")]).config

    assert [plan.name for plan in plans_of(off, opened)] == ["shard-0", "router"]
    assert router_config(off, opened).mirror_socket == ""
    assert router_config(on, opened).mirror_socket == "/run/mirror.sock"
    assert mirror_config(on, opened).socket == "/run/mirror.sock"
    assert mirror_config(on, opened).pause_ms == 7


def test_processes_inherit_nothing_that_was_said_to_the_node() -> None:
    environment = {
        "PATH": "/bin",
        "CORVO_ADMIN_KEY": "k",
        "NOTIFY_SOCKET": "/run/n",
        "WATCHDOG_USEC": "1",
        "PYTHONPATH": "elsewhere",
    }

    inherited = child_environment(environment)

    assert inherited.keys() == {"PATH", "PYTHONPATH"}
    assert inherited["PYTHONPATH"].endswith(f"{os.pathsep}elsewhere")


# ---- A process that ends.


@on_sockets
async def test_a_shard_that_is_killed_is_started_again_at_once(tmp_path: Path) -> None:
    programs = Programs(router=standins.command("router", tmp_path / "journal"))

    async with running({"data_dir": str(tmp_path / "d"), "shards": "1"}, programs) as it:
        ready = await it.hear("process.ready", name="shard-0")
        os.kill(int(str(ready["pid"])), signal.SIGKILL)
        ended = await it.hear("process.ended", name="shard-0")
        again = await it.hear("process.ready", 2, name="shard-0")
        code = await it.end()

    assert ended["meaning"] == "killed by SIGKILL"
    assert ended["restart_ms"] == 0
    assert again["pid"] != ready["pid"]
    assert code == OK


@on_sockets
async def test_a_router_that_is_killed_is_a_pause_and_no_refusal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")

    async with running({"data_dir": str(tmp_path / "d")}, stand_ins(tmp_path / "journal")) as it:
        address = await it.url()
        first = await ask(address)
        os.kill(first, signal.SIGKILL)
        await it.hear("process.ended", name="router")
        second = await ask(address)
        await it.end()

    assert second != first
    assert second == journal.last_pid("router")


@on_sockets
async def test_a_damaged_shard_stays_down_and_the_node_serves_without_it(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    programs = stand_ins(journal, shard="die:71")

    async with running({"data_dir": str(tmp_path / "d"), "shards": "1"}, programs) as it:
        held = await it.hear("process.held", name="shard-0")
        answered_by = await ask(await it.url())
        code = await it.end()

    assert held["code"] == DAMAGED
    assert Journal(journal).words("shard-0") == ["started"]
    assert answered_by == Journal(journal).last_pid("router")
    assert code == OK


@on_sockets
async def test_a_process_with_a_config_that_cannot_work_ends_the_node(tmp_path: Path) -> None:
    programs = stand_ins(tmp_path / "journal", shard="die:72")

    async with running({"data_dir": str(tmp_path / "d")}, programs) as it:
        code = await it.gone()

    assert code == MISCONFIGURED
    assert it.find("process.ended", code=MISCONFIGURED)


def plan(journal: Path, name: str, deed: str, *, is_vital: bool) -> Plan:
    return Plan(
        name=name,
        command=standins.command(name, journal, deed),
        config=b"{}",
        descriptors=(),
        environment=child_environment(os.environ),
        is_vital=is_vital,
    )


@without_waiting
async def test_a_shard_that_keeps_dying_is_held_down_after_five_restarts(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    deed = "die:70,-9,70,70,70,70,70,70"
    plans = [
        plan(journal, "bad", deed, is_vital=False),
        plan(journal, "good", "serve", is_vital=True),
    ]
    stop_request, settled = StopRequest(), trio.Event()
    supervisor = Supervisor(plans, stop_request, silent_log(), Notifier({}), drain_s=1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervisor.run(ready=settled.set))
        await settled.wait()
        stop_request.request()

    assert Journal(journal).words("bad") == ["started"] * 6
    assert Journal(journal).words("good")[0] == "started"


def updated(plan: Plan, version: int) -> Plan:
    """The plan, with another cluster map."""
    known = msgspec.structs.replace(alone(1, 1), version=version)
    told = msgspec.json.encode(Update(map=known, sockets={}))
    return msgspec.structs.replace(plan, update=told)


class Told:
    """What a supervisor logs and hears."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.notices: list[Notice] = []
        self.log = Log(self._take, "node", Style(is_text=False), Level.INFO)
        self._news = trio.Event()

    def _take(self, line: bytes) -> None:
        self.lines.append(msgspec.json.decode(line))
        self._ring()

    def hear(self, notice: Notice) -> None:
        self.notices.append(notice)
        self._ring()

    def _ring(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def names(self, event: str) -> list[object]:
        return [line["name"] for line in self.lines if line["event"] == event]

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._news.wait()


@on_sockets
async def test_changed_plans_start_and_update_and_retire_processes(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    first, second, late = (
        plan(journal, name, "serve", is_vital=False) for name in ("first", "second", "late")
    )
    told, stop_request, settled = Told(), StopRequest(), trio.Event()
    supervisor = Supervisor(
        [first, second], stop_request, told.log, Notifier({}), drain_s=1, heard=told.hear
    )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervisor.run(ready=settled.set))
        await settled.wait()
        supervisor.follow([updated(first, 1), second, updated(late, 1)])
        await told.until(lambda: "late" in told.names("process.ready") and bool(told.notices))
        supervisor.follow([updated(first, 1), updated(late, 1)])
        await supervisor.retire("second")
        await supervisor.retire("nobody")
        stop_request.request()

    assert Journal(journal).words("first") == ["started", "updated", "left"]
    assert Journal(journal).words("second") == ["started", "left"]
    assert Journal(journal).words("late") == ["started", "left"]
    assert told.names("process.retired") == ["second"]


@on_sockets
async def test_a_notice_of_a_process_is_heard_and_an_unclear_line_is_logged(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    plans = [
        plan(journal, "plain", 'says:{"unneeded":3}', is_vital=False),
        plan(journal, "unclear", "says:hello", is_vital=False),
    ]
    told, stop_request, settled = Told(), StopRequest(), trio.Event()
    supervisor = Supervisor(plans, stop_request, told.log, Notifier({}), drain_s=1, heard=told.hear)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervisor.run(ready=settled.set))
        await settled.wait()
        stop_request.request()

    assert told.notices == [Notice(unneeded=3)]
    assert told.names("process.unclear") == ["unclear"]


@without_waiting
async def test_a_router_that_keeps_dying_ends_the_node(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    plans = [plan(journal, "router", "die:70,70,70,70,70,70,70", is_vital=True)]

    code = await Supervisor(plans, StopRequest(), silent_log(), Notifier({}), drain_s=1).run()

    assert code == FAILED
    assert Journal(journal).words("router") == ["started"] * 6


@without_waiting
async def test_a_program_that_is_not_there_is_a_failure_like_any_other() -> None:
    missing = Plan(
        name="router",
        command=("/nowhere/corvo",),
        config=b"{}",
        descriptors=(),
        environment={},
        is_vital=True,
    )

    code = await Supervisor([missing], StopRequest(), silent_log(), Notifier({}), drain_s=1).run()

    assert code == FAILED


@on_sockets
async def test_no_process_is_left_when_the_supervisor_has_a_bug(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    plans = [plan(journal, "router", "stay", is_vital=True)]

    def bug() -> None:
        raise LookupError

    with pytest.RaisesGroup(LookupError, flatten_subgroups=True):
        await Supervisor(plans, StopRequest(), silent_log(), Notifier({}), drain_s=1).run(ready=bug)

    with pytest.raises(ProcessLookupError):
        os.kill(Journal(journal).last_pid("router"), 0)


@on_sockets
async def test_who_comes_to_be_ready_while_the_node_stops_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The late one is not killed, however long it takes to be ready and to leave.
    monkeypatch.setattr("corvo.supervisor._OTHERS_GRACE_S", math.inf)
    journal, pipe = tmp_path / "journal", tmp_path / "pipe"
    os.mkfifo(pipe)
    plans = [
        plan(journal, "good", "serve", is_vital=True),
        plan(journal, "late", f"late:{pipe}", is_vital=False),
    ]
    stop_request, news = StopRequest(), list[bytes]()

    def put(line: bytes) -> None:
        if b"process.ready" in line:
            news.append(line)
            if b"good" in line:
                stop_request.request()

    def let_it_be_ready() -> None:
        pipe.write_bytes(b"now")

    def bug() -> None:
        raise LookupError

    log = Log(put, "node", Style(is_text=False), Level.INFO)
    supervisor = Supervisor(plans, stop_request, log, Notifier({}), drain_s=1)
    code = await supervisor.run(ready=bug, stopping=let_it_be_ready)

    assert code == OK
    assert len(news) == 2, "the late one has said that it is ready"


# ---- The node itself ends.


@on_sockets
async def test_nothing_outlives_a_node_that_is_killed(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path / "d")}
    programs = Programs(router=standins.command("router", tmp_path / "journal"))

    async with running(settings, programs) as it:
        await it.hear("node.ready")
        code = await it.end(signal.SIGKILL)
    async with running(settings, programs) as it:
        await it.hear("node.ready")
        again = await it.end()

    assert code == -signal.SIGKILL
    assert not it.find("data.in_use")  # the first was really gone
    assert again == OK


@on_sockets
async def test_a_node_waits_for_the_last_process_of_the_one_before(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path / "d"), "shards": "1"}
    stubborn = stand_ins(tmp_path / "journal", shard="stay")

    async with running(settings, stubborn) as first:
        await first.hear("node.ready")
        first.send(signal.SIGKILL)
        pid = Journal(tmp_path / "journal").last_pid("shard-0")
        async with running(settings, stand_ins(tmp_path / "journal")) as second:
            waiting = await second.hear("data.in_use")
            os.kill(pid, signal.SIGKILL)
            await second.hear("node.ready")
            code = await second.end()

    assert str(pid) in str(waiting["by"])
    assert code == OK


@jumping
async def test_a_second_node_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path / "d"))
    lock = directory.try_lock()
    assert lock is not None

    with pytest.raises(DirectoryUnfit, match="is in use by a process"):
        await node._wait_for_lock(directory, silent_log(), StopRequest())

    os.close(lock)
    taken = await node._wait_for_lock(directory, silent_log(), StopRequest())
    assert taken is not None
    os.close(taken)


@on_sockets
async def test_a_node_that_waits_for_the_directory_can_be_stopped(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path / "d"))
    lock = directory.try_lock()
    assert lock is not None

    async with running({"data_dir": str(tmp_path / "d")}, REAL) as it:
        await it.hear("data.in_use")
        code = await it.end()
    os.close(lock)

    assert code == OK
    assert not it.find("node.starting")


# ---- Stopping.


@pytest.mark.parametrize("moment", range(12))
def test_it_can_be_stopped_at_any_moment_of_its_start(tmp_path: Path, moment: int) -> None:
    @on_sockets
    async def stopped() -> None:
        programs = Programs(router=standins.command("router", tmp_path / "journal"))
        async with running({"data_dir": str(tmp_path / "d")}, programs) as it:
            await trio.sleep(moment * 0.06)
            code = await it.end()
        async with running({"data_dir": str(tmp_path / "d")}, programs) as it:
            await it.hear("node.ready")
            again = await it.end()

        # Before it has said what it does with signals, the system does it: nothing is there yet.
        assert code in {OK, -signal.SIGTERM}
        assert again == OK

    stopped()


@on_sockets
async def test_a_process_that_does_not_leave_is_killed(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = {"data_dir": str(tmp_path / "d"), "shards": "1", "drain_ms": "1ms"}

    programs = stand_ins(journal, router="stay", shard="stay", mirror="stay")
    async with running(settings, programs) as it:
        await it.hear("node.ready")
        code = await it.end(signal.SIGINT)

    assert code == OK
    assert [one["name"] for one in it.find("process.killed")] == ["router", "shard-0", "mirror"]


def test_no_process_waits_for_a_slow_one_of_its_stage(tmp_path: Path) -> None:
    told, stop_request = Told(), StopRequest()
    clock = MockClock()  # which stands still
    deeds = {"router": "serve", "shard": "stay", "mirror": "serve"}
    plans = [
        replace(
            plan(tmp_path / "journal", name, deeds[name], is_vital=False),
            stage=Stage.ROUTER if name == "router" else Stage.OTHERS,
        )
        for name in deeds
    ]

    async def main() -> None:
        settled = trio.Event()
        supervisor = Supervisor(plans, stop_request, told.log, Notifier({}), drain_s=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: supervisor.run(ready=settled.set))
            await settled.wait()
            stop_request.request()
            # No time passes until those that leave have left, however slow the machine is.
            await told.until(lambda: "mirror" in told.names("process.left"))
            clock.jump(10)

    trio.run(main, clock=clock)

    ends = [line for line in told.lines if line["event"] in {"process.left", "process.killed"}]
    assert [(line["event"], line["name"]) for line in ends] == [
        ("process.left", "router"),
        ("process.left", "mirror"),
        ("process.killed", "shard"),
        ("process.left", "shard"),
    ]


@without_waiting
async def test_a_stop_takes_less_than_five_seconds_though_no_process_leaves(tmp_path: Path) -> None:
    stages = {"router": Stage.ROUTER, "shard": Stage.OTHERS, "mirror": Stage.OTHERS}
    plans = [
        replace(plan(tmp_path / "journal", name, "stay", is_vital=False), stage=stage)
        for name, stage in stages.items()
    ]
    stop_request, settled = StopRequest(), trio.Event()
    drain_s = Config().drain_ms / 1_000
    supervisor = Supervisor(plans, stop_request, silent_log(), Notifier({}), drain_s=drain_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervisor.run(ready=settled.set))
        await settled.wait()
        began = trio.current_time()
        stop_request.request()

    assert trio.current_time() - began < 5


@without_waiting
async def test_a_node_serves_on_before_it_stops_if_it_is_told_to(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    plans = [
        replace(plan(journal, name, "serve", is_vital=False), stage=stage)
        for name, stage in (("router", Stage.ROUTER), ("shard", Stage.OTHERS))
    ]
    stop_request, settled, closed = StopRequest(), trio.Event(), list[float]()
    # No deadline follows the delay: the clock would jump to it before the router writes.
    supervisor = Supervisor(
        plans, stop_request, silent_log(), Notifier({}), drain_s=math.inf, stop_delay_s=100
    )

    def note() -> None:
        closed.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: supervisor.run(ready=settled.set, stopping=note))
        await settled.wait()
        began = trio.current_time()
        stop_request.request()

    [at] = closed
    assert at - began >= 100, "until then its sockets are open"
    assert Journal(journal).words("router")[:2] == ["started", "prepared"]
    assert "prepared" not in Journal(journal).words("shard")


@on_sockets
async def test_a_second_signal_ends_the_time_in_which_it_serves_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = {"data_dir": str(tmp_path / "d"), "stop_delay_ms": "10m"}

    async with running(settings, stand_ins(journal)) as it:
        address = await it.url()
        it.send(signal.SIGTERM)
        await it.hear("node.stopping")
        answered_by = await ask(address)
        code = await it.end()

    assert answered_by > 0
    assert code == OK


@on_sockets
async def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = {"data_dir": str(tmp_path / "d"), "drain_ms": "10m"}

    async with running(settings, stand_ins(journal, router="stay", shard="stay")) as it:
        await it.hear("node.ready")
        it.send(signal.SIGTERM)
        await it.hear("node.stopping")
        code = await it.end()

    assert code == OK
    assert it.find("node.stopping", at_once=True)


@on_sockets
async def test_who_comes_while_it_stops_is_refused_and_not_left_waiting(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    settings = {"data_dir": str(tmp_path / "d"), "shards": "1", "drain_ms": "10m"}

    async with running(settings, stand_ins(journal, shard="stay")) as it:
        address = await it.url()
        it.send(signal.SIGTERM)
        await it.hear("process.left", name="router")
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(*address)
        await it.end()


@on_sockets
async def test_a_hang_up_without_a_terminal_changes_nothing(tmp_path: Path) -> None:
    async with running({"data_dir": str(tmp_path / "d")}, stand_ins(tmp_path / "journal")) as it:
        address = await it.url()
        it.send(signal.SIGHUP)
        await it.hear("signal.ignored")
        answered_by = await ask(address)
        code = await it.end()

    assert answered_by > 0
    assert code == OK


# ---- What it refuses, and what it tells.


@on_sockets
async def test_another_number_of_shards_is_refused_unless_it_is_only_the_default(
    tmp_path: Path,
) -> None:
    settings = {"data_dir": str(tmp_path / "d")}
    programs = stand_ins(tmp_path / "journal")

    async with running({**settings, "shards": "3"}, programs) as it:
        await it.hear("node.ready")
        await it.end()
    async with running({**settings, "shards": "4"}, programs) as it:
        refused = await it.gone()
    async with running(settings, programs) as other:
        ready = await other.hear("node.ready")
        await other.end()

    assert refused == MISCONFIGURED
    [said] = it.find("node.refused")
    assert "has 3 shards, and the setting shards is 4" in str(said["reason"])
    assert ready["shards"] == 3


@on_sockets
async def test_an_address_that_is_taken_is_refused_by_its_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        async with running({"data_dir": str(tmp_path / "d"), "bind": bind}, REAL) as it:
            code = await it.gone()

    assert code == MISCONFIGURED
    [said] = it.find("node.refused")
    assert str(said["reason"]).startswith(f"{bind}: something else listens there already")


@on_sockets
async def test_systemd_is_told_that_it_is_ready_lives_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "n"
    heard = ""

    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as listening:
        await listening.bind(str(path))
        async with running(
            {"data_dir": str(tmp_path / "d")},
            stand_ins(tmp_path / "journal"),
            NOTIFY_SOCKET=str(path),
            WATCHDOG_USEC="400000",  # a socket holds ten datagrams, and the rest are lost
        ) as it:
            while not ("READY=1" in heard and heard.count("WATCHDOG=1") > 2):
                heard += (await listening.recv(4096)).decode() + "\n"
            it.send(signal.SIGTERM)
            while "STOPPING=1" not in heard:
                heard += (await listening.recv(4096)).decode() + "\n"
            await it.gone()

    assert "STATUS=6 of 6 processes are ready\nREADY=1\n" in heard
