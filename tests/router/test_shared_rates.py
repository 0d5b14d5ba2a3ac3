"""One client at several routers: what it gets together, against twins and against the bound."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol.routers import REPORT_USE, Use, UsedTokens
from corvo.router.auth.rates import CLIENTS_MAX, REPORTED_MAX, Rates
from corvo.router.auth.sharing import REPORT_S, RateSharing
from corvo.router.config import Limits
from corvo.router.http.messages import Problem
from tests.support.links import jumping

REPORT_MS: Final = round(REPORT_S * 1_000)


class Twin:
    """The dumb twin of a bucket: everything that it has heard of, played again each time."""

    def __init__(self, rate: int, burst: int, nodes: int) -> None:
        self.rate, self.burst = rate, burst
        self.lowest = burst - nodes * (burst + rate)
        self.heard: list[tuple[int, int]] = []

    def level(self, now_ms: int) -> Fraction:
        level, last_ns = Fraction(self.burst), 0
        for at_ms, tokens in [*self.heard, (now_ms, 0)]:
            at_ns = int(at_ms / 1_000 * 1e9)  # a float may be one nanosecond off
            level = min(level + Fraction(self.rate * (at_ns - last_ns), 10**9), self.burst * ONE)
            level = max(level - tokens, self.lowest * ONE)
            last_ns = at_ns
        return level


ONE: Final = Fraction(1)


class Router:
    """A router with one kind of limit, and its reports."""

    def __init__(
        self, rate: int, burst: int, nodes: int, *, clients_max: int = CLIENTS_MAX
    ) -> None:
        limits = Limits(write_rate=rate, write_burst=burst)
        self.nodes: Final = nodes
        self.rates: Final = Rates(limits, clients_max=clients_max)
        self.rates.on_use = lambda: None
        self.twin: Final = Twin(rate, burst, nodes)
        self.due_ms: int | None = None

    def ask(self, now_ms: int, items: int = 1) -> bool:
        cost = min(items, self.twin.burst)
        expected = self.twin.level(now_ms) >= cost
        try:
            self.rates.charge("ann", is_write=True, now_s=lambda: now_ms / 1_000, items=items)
        except Problem:
            assert not expected
            return False
        assert expected
        self.twin.heard.append((now_ms, cost))
        if self.due_ms is None:
            self.due_ms = now_ms + REPORT_MS
        return True

    def hear(self, uses: Sequence[Use], now_ms: int) -> None:
        self.rates.pay(uses, nodes=self.nodes, now_s=now_ms / 1_000)
        self.twin.heard += [(now_ms, use.writes) for use in uses]


class World:
    """Several routers, a link between each two, and a clock."""

    def __init__(self, nodes: int, rate: int, burst: int, delays_ms: Sequence[int | None]) -> None:
        """Reports take one of these times, in turn; None is a report that is lost."""
        self.routers: Final = [Router(rate, burst, nodes) for _ in range(nodes)]
        self.delays_ms: Final = list(delays_ms)
        self.sent = 0
        self.on_the_way: list[tuple[int, Router, list[Use]]] = []
        self.admitted: list[tuple[int, int]] = []

    def until(self, now_ms: int) -> None:
        """Send and deliver all reports that are due."""
        while due := self._due(now_ms):
            at_ms, is_sending, number = min(due)
            if is_sending:
                self._send(self.routers[number], at_ms)
            else:
                _, router, uses = self.on_the_way.pop(number)
                router.hear(uses, at_ms)

    def _due(self, now_ms: int) -> list[tuple[int, bool, int]]:
        sending = [(router.due_ms, True, number) for number, router in enumerate(self.routers)]
        coming = [(at_ms, False, number) for number, (at_ms, *_) in enumerate(self.on_the_way)]
        return [
            (at_ms, is_sending, number)
            for at_ms, is_sending, number in (*sending, *coming)
            if at_ms is not None and at_ms <= now_ms
        ]

    def _send(self, router: Router, at_ms: int) -> None:
        router.due_ms = None
        uses = router.rates.take_used()
        for other in self.routers:
            if other is not router:
                delay_ms = self.delays_ms[self.sent % len(self.delays_ms)]
                self.sent += 1
                if delay_ms is not None:
                    self.on_the_way.append((at_ms + delay_ms, other, uses))

    def ask(self, number: int, now_ms: int, items: int) -> None:
        self.until(now_ms)
        router = self.routers[number]
        if router.ask(now_ms, items):
            self.admitted.append((now_ms, min(items, router.twin.burst)))


REQUESTS: Final = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.just(0) | st.integers(0, 50) | st.integers(0, 1_500),
        st.integers(1, 9),
    ),
    max_size=60,
)


@given(
    st.integers(1, 40),
    st.integers(1, 20),
    REQUESTS,
    st.lists(st.integers(0, 500), min_size=1, max_size=5),
)
def test_the_sum_of_all_routers_stays_below_the_bound(
    rate: int, burst: int, requests: list[tuple[int, int, int]], delays_ms: list[int]
) -> None:
    nodes = 3
    there = World(nodes, rate, burst, delays_ms)
    now_ms = 0
    for number, later_ms, items in requests:
        now_ms += later_ms
        there.ask(number, now_ms, items)

    late_s = Fraction(REPORT_MS + max(delays_ms), 1_000)
    for begin, (from_ms, _) in enumerate(there.admitted):
        tokens = 0
        for until_ms, cost in there.admitted[begin:]:
            tokens += cost
            period_s = Fraction(until_ms - from_ms, 1_000)
            assert tokens <= nodes * burst + rate * (period_s + (nodes - 1) * late_s)


@given(
    st.integers(1, 40),
    st.integers(1, 20),
    REQUESTS,
    st.lists(st.none() | st.integers(0, 3_000), min_size=1, max_size=5),
)
def test_with_lost_reports_each_router_limits_by_itself(
    rate: int, burst: int, requests: list[tuple[int, int, int]], delays_ms: list[int | None]
) -> None:
    nodes = 3
    there = World(nodes, rate, burst, delays_ms)
    now_ms = 0
    for number, later_ms, items in requests:
        now_ms += later_ms
        there.ask(number, now_ms, items)

    tokens = sum(cost for _, cost in there.admitted)
    assert tokens <= nodes * (burst + Fraction(rate * now_ms, 1_000))


@given(st.integers(1, 40), st.integers(1, 20), REQUESTS)
def test_a_client_of_one_router_gets_what_it_gets_without_others(
    rate: int, burst: int, requests: list[tuple[int, int, int]]
) -> None:
    there = World(3, rate, burst, [10])
    alone = Router(rate, burst, 1)
    now_ms = 0
    expected = []
    for _, later_ms, items in requests:
        now_ms += later_ms
        there.ask(1, now_ms, items)
        if alone.ask(now_ms, items):
            expected.append((now_ms, min(items, burst)))

    assert there.admitted == expected


def test_a_client_that_asks_everywhere_all_the_time_gets_its_rate_once() -> None:
    """20 seconds: the bursts of three nodes, and then no more than the rate."""
    there = World(3, 10, 20, [5, 50])
    for now_ms in range(0, 20_000, 50):
        for number in range(3):
            there.ask(number, now_ms, 1)

    tokens = len(there.admitted)

    assert 10 * 20 <= tokens <= 3 * 20 + 10 * (20 + 2 * 0.25)


def test_what_a_bucket_owes_has_a_bound() -> None:
    router = Router(10, 20, 3)
    router.hear([Use("ann", 0, 2**60)], 0)
    owed = 3 * (20 + 10) - 20

    assert not router.ask(owed * 100 + 99)
    assert router.ask(owed * 100 + 100)


def test_reports_are_remembered_for_no_more_clients_than_buckets() -> None:
    router = Router(10, 20, 3, clients_max=3_000)
    for number in range(5_000):
        router.rates.charge(f"c{number}", is_write=True, now_s=lambda: 1.0)

    first, second, third = (router.rates.take_used() for _ in range(3))

    assert [len(each) for each in (first, second, third)] == [REPORTED_MAX, 1_000, 0]
    assert not router.rates.has_used


def test_reads_and_writes_are_reported_apart() -> None:
    rates = Rates(Limits(read_rate=10, read_burst=5, write_rate=10, write_burst=5))
    rates.on_use = lambda: None
    rates.charge("ann", is_write=True, now_s=lambda: 1.0, items=3)
    rates.charge("ann", is_write=False, now_s=lambda: 1.0)
    rates.charge("bob", is_write=False, now_s=lambda: 1.0)

    assert rates.take_used() == [Use("ann", 1, 3), Use("bob", 1, 0)]


# When reports are sent.


class Peers:
    """The links to the other routers."""

    def __init__(self) -> None:
        self.told: list[tuple[float, UsedTokens]] = []

    def tell(self, number: int, body: bytes) -> None:
        assert number == REPORT_USE
        used = msgspec.msgpack.decode(body, type=UsedTokens)
        self.told.append((trio.current_time(), used))


def use(rates: Rates) -> None:
    rates.charge("ann", is_write=True, now_s=trio.current_time)


@jumping
async def test_uses_are_gathered_for_a_report_and_an_idle_router_sends_nothing() -> None:
    peers = Peers()
    rates = Rates(Limits(write_rate=100, write_burst=100))
    sharing = RateSharing(rates, peers)  # type: ignore[arg-type]  # all that it needs
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sharing.run)
        await trio.sleep(3_600)
        began = trio.current_time()
        use(rates)
        await trio.sleep(REPORT_S / 2)
        use(rates)
        await trio.sleep(3_600)
        use(rates)
        await trio.sleep(3_600)
        nursery.cancel_scope.cancel()

    assert [used.uses for _, used in peers.told] == [[Use("ann", 0, 2)], [Use("ann", 0, 1)]]
    assert peers.told[0][0] - began == pytest.approx(REPORT_S)


@jumping
async def test_without_a_limit_nothing_is_remembered_and_nothing_is_sent() -> None:
    peers = Peers()
    rates = Rates(Limits())
    await RateSharing(rates, peers).run()  # type: ignore[arg-type]  # all that it needs

    use(rates)

    assert not rates.has_used
    assert not peers.told
