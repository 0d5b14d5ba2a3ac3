"""Wrong API keys: their answers wait, those to right ones do not, and addresses take no memory."""

import tracemalloc
from math import ceil
from typing import Final

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from corvo.model import ApiKey
from corvo.router.auth.guesses import FIRST_S, FORGIVEN_S, FREE, SLOTS, WAITING_MAX, Guesses
from corvo.router.auth.keyring import hash_key
from corvo.router.config import Limits
from corvo.router.http.messages import Request, Response
from corvo.router.node.health import Info
from corvo.router.server.door import Door
from corvo.router.table import ROUTES
from tests.router.machines import Node
from tests.support.links import jumping

HERE: Final = "192.0.2.7"
ELSEWHERE: Final = "198.51.100.4"
GOOD: Final = "of-a-worker-that-works"


def guesses(delay_s_max: float = 2.0) -> Guesses:
    return Guesses(delay_s_max, b"not known outside")


def delays(count: int, table: Guesses, address: str = HERE, *, at_s: float = 0.0) -> list[float]:
    """Of so many wrong keys at one moment."""
    return [table.wrong(address, at_s) for _ in range(count)]


def test_some_wrong_keys_are_free_and_then_each_doubles_the_delay() -> None:
    found = delays(FREE + 7, guesses())

    assert found[:FREE] == [0.0] * FREE
    assert found[FREE:] == [FIRST_S, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_an_address_pays_for_nobody_else() -> None:
    table = guesses()
    delays(100, table)

    assert table.wrong(ELSEWHERE, 0.0) == 0.0


def test_wrong_keys_are_forgotten_and_however_many_they_were_not_too_late() -> None:
    table = guesses()
    delays(10_000, table)

    assert table.wrong(HERE, 0.0) == 2.0
    assert delays(FREE, table, at_s=FORGIVEN_S * 100) == [0.0] * FREE


@given(st.lists(st.tuples(st.sampled_from([HERE, ELSEWHERE]), st.integers(0, 60)), max_size=60))
def test_the_table_is_what_a_dumb_list_would_say(moves: list[tuple[str, int]]) -> None:
    table = guesses()
    levels: dict[str, tuple[float, float]] = {}
    now_s = 0.0
    for address, pause_s in moves:
        now_s += pause_s
        level, at_s = levels.get(address, (0.0, 0.0))
        level = min(max(level - (now_s - at_s) / FORGIVEN_S, 0) + 1, FREE + 20)
        levels[address] = level, now_s
        expected = min(0.1 * 2 ** (ceil(level) - FREE - 1), 2.0) if level > FREE else 0.0

        assert table.wrong(address, now_s) == expected


def test_a_million_addresses_take_the_memory_of_one() -> None:
    table = guesses()
    delays(10, table)
    tracemalloc.start()
    try:
        for number in range(3 * SLOTS):
            table.wrong(f"2001:db8::{number:x}", float(number))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert grown < 64 * 2 * SLOTS


def test_only_so_many_answers_wait() -> None:
    table = guesses()
    delays(FREE + 1, table)
    table.waiting = WAITING_MAX

    assert table.wrong(HERE, 0.0) == 0.0


# In a router.


def keyed(limits: Limits | None = None) -> Node:
    """A node with one API key."""
    node = Node(limits=limits)
    made = ApiKey(key_hash=hash_key(GOOD), name="w", role="worker")
    node.api.keyring.replace([made], now_s=trio.current_time())
    return node


async def ask(node: Node, key: str, path: str = "/api/v1/bulk/x") -> Response:
    door = Door(node.api, ROUTES, on_bug=lambda _, error: raise_(error))
    headers = {"x-api-key": key} if key else {}
    return await door.answer(Request(method="GET", path=path, headers=headers, peer=HERE))


def raise_(error: BaseException) -> None:
    raise error


@jumping
async def test_guessing_becomes_slow_and_a_good_key_of_the_same_address_does_not() -> None:
    node = keyed()
    began = trio.current_time()

    statuses = [(await ask(node, f"guess {number}")).status for number in range(24)]
    took_s = trio.current_time() - began
    good = await ask(node, GOOD)
    missing = await ask(node, "")

    assert statuses == [401] * 24
    assert 20 < took_s < 22
    assert (good.status, missing.status) == (404, 401)
    assert trio.current_time() - began == took_s
    assert node.api.guesses.total == 24


@jumping
async def test_what_needs_no_key_is_no_way_to_guess_faster() -> None:
    node = keyed()
    for number in range(FREE):
        await ask(node, f"guess {number}", "/api/v1/auth/status")
    began = trio.current_time()

    status = await ask(node, "guess", "/api/v1/auth/status")
    info = await ask(node, "guess", "/api/v1/info")

    assert (status.status, info.status) == (200, 200)
    assert trio.current_time() - began == pytest.approx(FIRST_S + 2 * FIRST_S)


@jumping
async def test_a_delay_of_nothing_is_none() -> None:
    node = keyed(Limits(guess_delay_ms=0))

    for number in range(100):
        assert (await ask(node, f"guess {number}")).status == 401

    assert trio.current_time() == 0.0


@jumping
async def test_a_client_that_goes_while_its_answer_waits_waits_no_more() -> None:
    node = keyed()
    for number in range(FREE):
        await ask(node, f"guess {number}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, node, "guess")
        await trio.testing.wait_all_tasks_blocked()
        assert node.api.guesses.waiting == 1
        nursery.cancel_scope.cancel()

    assert node.api.guesses.waiting == 0


@jumping
async def test_the_version_is_shown_to_a_caller_with_a_key() -> None:
    node = keyed()

    versions = [
        msgspec.json.decode((await ask(node, key, "/api/v1/info")).body, type=Info).server_version
        for key in ("", "guess", GOOD)
    ]
    document = await ask(node, "", "/openapi.json")

    assert versions[:2] == ["", ""]
    assert versions[2]
    assert versions[2].encode() not in document.body
