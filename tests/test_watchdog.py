"""The watchdog: how late a loop is, and what happens when it is stuck."""

import gc
import threading
from itertools import pairwise
from typing import Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from corvo import watchdog
from corvo.measures import LoopTimes
from corvo.telemetry import Level, Log, Style
from corvo.watchdog import (
    END_BEATS,
    QUIET_BEATS,
    SAMPLE_S,
    STALL_BEATS,
    STUCK_CODE,
    Judge,
    Watchdog,
    stack_of,
    watch,
)

BEAT_S: Final = 0.001
PATIENCE_S: Final = 60
"""Beyond it, what was waited for does not come."""


def no_stall(_: str) -> None:
    raise AssertionError("the loop was not stuck")


def no_end(_: int) -> None:
    raise AssertionError("the loop was not stuck for good")


def get_stuck_until(event: threading.Event) -> None:
    """Hold the loop."""
    assert event.wait(PATIENCE_S)


# ---- Lag.


def test_a_loop_that_is_in_time_has_no_lag() -> None:
    loop = LoopTimes()

    async def main() -> None:
        with trio.move_on_after(20.5 * SAMPLE_S):
            await Watchdog(loop, no_stall, end=no_end, beat_s=PATIENCE_S).run()

    trio.run(main, clock=MockClock(autojump_threshold=0))

    assert loop.lag.counts[0] == loop.lag.count == 20
    assert loop.stalls == 0


def test_how_much_too_late_it_woke_is_the_lag() -> None:
    loop = LoopTimes()
    clock = MockClock()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            dog = Watchdog(loop, no_stall, end=no_end, beat_s=PATIENCE_S)
            nursery.start_soon(dog.run)
            await wait_all_tasks_blocked()
            clock.jump(SAMPLE_S + 0.2)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)

    assert loop.lag.count == 1
    assert loop.lag.total == pytest.approx(0.2)


def test_collections_of_garbage_are_measured_while_it_watches() -> None:
    loop = LoopTimes()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watchdog(loop, no_stall, end=no_end, beat_s=PATIENCE_S).run)
            await wait_all_tasks_blocked()
            before = loop.collections.count
            gc.collect()
            assert loop.collections.count == before + 1
            nursery.cancel_scope.cancel()

    trio.run(main)
    seen = loop.collections.count
    gc.collect()

    assert loop.collections.count == seen
    assert loop.collections.total > 0


# ---- What is decided.


def test_a_loop_that_gives_signs_is_let_be() -> None:
    judge = Judge()

    verdicts = [judge.beat(signs // STALL_BEATS) for signs in range(1_000)]

    assert not any(each.is_stall or each.is_told or each.is_end for each in verdicts)


def test_a_stuck_loop_is_counted_once_and_told_again_only_after_a_while() -> None:
    judge = Judge()

    verdicts = [judge.beat(7) for _ in range(END_BEATS)]

    assert [beat for beat, each in enumerate(verdicts) if each.is_stall] == [STALL_BEATS]
    assert [beat for beat, each in enumerate(verdicts) if each.is_told] == [STALL_BEATS]
    assert not any(each.is_end for each in verdicts)
    assert judge.beat(7).is_end


def test_a_loop_that_stalls_again_and_again_is_counted_each_time_and_told_seldom() -> None:
    judge = Judge()

    verdicts = [judge.beat(beat // 10) for beat in range(10 * QUIET_BEATS)]

    told = [beat for beat, each in enumerate(verdicts) if each.is_told]
    assert sum(each.is_stall for each in verdicts) == QUIET_BEATS
    assert min(after - before for before, after in pairwise(told)) >= QUIET_BEATS
    assert len(told) >= 9
    assert not any(each.is_end for each in verdicts)


# ---- A loop that is stuck.


def test_a_stuck_loop_is_told_with_the_place_where_it_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "QUIET_BEATS", 1)
    loop = LoopTimes()
    stacks: list[str] = []
    told = threading.Event()

    def on_stall(stack: str) -> None:
        if "in get_stuck_until" in stack:  # a busy machine may hold a loop up before
            stacks.append(stack)
            told.set()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                Watchdog(loop, on_stall, end=no_end, beat_s=BEAT_S, sample_s=BEAT_S).run
            )
            await wait_all_tasks_blocked()
            get_stuck_until(told)
            nursery.cancel_scope.cancel()

    trio.run(main)

    assert stacks
    assert loop.stalls >= 1


def test_a_loop_that_is_stuck_for_good_ends_the_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    loop = LoopTimes()
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                Watchdog(loop, lambda _: None, end=end, beat_s=BEAT_S, sample_s=BEAT_S).run
            )
            await wait_all_tasks_blocked()
            get_stuck_until(ended)
            nursery.cancel_scope.cancel()

    trio.run(main)

    said = capfd.readouterr().err
    assert codes == [STUCK_CODE]
    assert "the event loop was stuck" in said
    assert "in get_stuck_until" in said


def test_a_process_ends_though_nobody_reads_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, read = threading.Event(), threading.Event()
    monkeypatch.setattr(watchdog, "_say", lambda _: read.wait(PATIENCE_S))
    monkeypatch.setattr(watchdog, "_PATIENCE_S", 0.01)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            dog = Watchdog(LoopTimes(), lambda _: None, end=lambda _: ended.set(), beat_s=BEAT_S)
            nursery.start_soon(dog.run)
            await wait_all_tasks_blocked()
            get_stuck_until(ended)
            nursery.cancel_scope.cancel()

    trio.run(main)
    read.set()

    assert ended.is_set()


def test_the_log_has_the_end_of_a_long_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []
    told = threading.Event()

    def put(line: bytes) -> None:
        if b"get_stuck" in line:
            lines.append(line)
            told.set()

    monkeypatch.setattr(watchdog, "QUIET_BEATS", 1)
    monkeypatch.setattr(watchdog, "_STACK_MAX", 500)
    log = Log(put, "router", Style(is_text=False), Level.INFO)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, LoopTimes(), log)
            await wait_all_tasks_blocked()
            get_stuck_until(told)
            nursery.cancel_scope.cancel()

    trio.run(main)

    assert b'"event":"loop.stuck"' in lines[0]
    assert len(lines[0]) < 1_000


def test_a_thread_that_is_gone_has_no_stack() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.ident is not None

    assert stack_of(thread.ident) == ""
