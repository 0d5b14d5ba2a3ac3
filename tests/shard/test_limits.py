"""The limits of a queue beside a dumb twin: a list of the times at which something was fetched."""

from typing import Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvo.kv.keys import RATE_LIMIT
from corvo.kv.tables import Meta, read_meta
from corvo.model import Job, Queue, State
from corvo.shard.state.entry import Stamp
from corvo.shard.state.limits import Allowance, Why, allowance, forget_rows, record_fetches
from corvo.shard.state.tables import JOBS
from corvo.shard.state.tx import Tx
from tests.support.memory import MemoryStore

MS: Final = 1_000_000
WINDOW_MS: Final = 10
FREE: Final = Queue(name="mail")
LIMITED: Final = Queue(name="mail", rate_limit=3, rate_window_ms=WINDOW_MS)

Step = tuple[int, int, str]
"""Milliseconds that pass, jobs that are wanted if any, and what happens to the memory before."""
STEPS: Final = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.integers(0, 4),
        st.sampled_from(["", "", "restart", "forget", "read"]),
    ),
    max_size=25,
)


def opened(store: MemoryStore) -> Tx:
    return Tx(store, read_meta(store), shard=0, shards=1)


def begin(tx: Tx, now_ns: int) -> None:
    tx.start(index=tx.meta.applied + 1, term=1, stamp=Stamp(now_ns))


def run(steps: list[Step], queue: Queue) -> tuple[list[Allowance], Meta, dict[bytes, bytes]]:
    """Fetch as much as is allowed, step by step; the twin says how much that is."""
    store = MemoryStore()
    tx = opened(store)
    fetched: list[int] = []
    answers = []
    now_ns = 100 * MS
    for passed_ms, want, memory in steps:
        now_ns += passed_ms * MS
        if memory == "restart":
            tx = opened(store)
        elif memory == "forget":
            forget_rows(tx, queue.name)
        elif memory == "read":
            allowance(tx, queue, now_ns=now_ns + WINDOW_MS * MS, want=1)
        begin(tx, now_ns)
        if not want:
            tx.commit()
            continue
        allowed = allowance(tx, queue, now_ns=tx.now_ns, want=want)
        used = sum(at > tx.now_ns - WINDOW_MS * MS for at in fetched)
        assert allowed.count == max(0, min(want, queue.rate_limit - used))
        if allowed.count:
            record_fetches(tx, queue, allowed.count)
            fetched += [tx.now_ns] * allowed.count
        tx.commit()
        answers.append(allowed)
    return answers, tx.meta, store.content()


@given(STEPS)
@example([(0, 3, ""), (11, 0, ""), (11, 1, "")])
def test_no_window_has_more_fetches_than_the_limit(steps: list[Step]) -> None:
    run(steps, LIMITED)


@given(STEPS)
@example([(0, 1, ""), (11, 0, ""), (0, 0, "restart"), (11, 1, "")])
def test_what_is_removed_does_not_depend_on_what_is_in_memory(steps: list[Step]) -> None:
    undisturbed = run([(passed_ms, want, "") for passed_ms, want, _ in steps], LIMITED)

    assert run(steps, LIMITED) == undisturbed


@given(STEPS)
def test_rows_that_left_the_window_are_removed_by_the_next_fetch(steps: list[Step]) -> None:
    _, _, content = run([*steps, (WINDOW_MS + 1, 1, "")], LIMITED)

    rows = [key for key in content if key.startswith(RATE_LIMIT.prefix)]
    assert len(rows) == 1


def test_a_row_is_a_key_of_the_registry() -> None:
    store = MemoryStore()
    tx = opened(store)
    begin(tx, 100 * MS)

    record_fetches(tx, LIMITED, 2)
    tx.commit()

    rows = sorted(key for key in store.content() if key.startswith(RATE_LIMIT.prefix))
    assert rows == [
        RATE_LIMIT.build("mail", 100 * MS, 100 * MS),
        RATE_LIMIT.build("mail", 100 * MS, 100 * MS + 1),
    ]


def test_what_is_wanted_is_allowed_where_there_is_no_limit() -> None:
    store = MemoryStore()
    tx = opened(store)
    begin(tx, 100 * MS)

    record_fetches(tx, FREE, 5)
    tx.commit()

    assert allowance(tx, FREE, now_ns=tx.now_ns, want=700) == Allowance(700)
    assert {key.partition(b"|")[0] for key in store.content()} == {b"m", b"ev", b"evc"}


def test_a_paused_queue_gives_nothing_whatever_its_limits() -> None:
    tx = opened(MemoryStore())
    queue = msgspec.structs.replace(LIMITED, paused=True)

    assert allowance(tx, queue, now_ns=1, want=1) == Allowance(0, Why.PAUSED)


def test_a_full_window_says_when_one_more_fits() -> None:
    tx = opened(MemoryStore())
    for at_ms in (100, 101, 102):
        begin(tx, at_ms * MS)
        record_fetches(tx, LIMITED, 1)
        tx.commit()
    until_ns = 110 * MS

    assert allowance(tx, LIMITED, now_ns=102 * MS, want=9) == Allowance(0, Why.RATE, until_ns)
    assert allowance(tx, LIMITED, now_ns=until_ns - 1, want=9).count == 0
    assert allowance(tx, LIMITED, now_ns=until_ns, want=9) == Allowance(1)


def test_a_limit_that_was_lowered_waits_for_as_many_as_are_too_many() -> None:
    tx = opened(MemoryStore())
    for at_ms in (100, 101, 102):
        begin(tx, at_ms * MS)
        record_fetches(tx, LIMITED, 1)
        tx.commit()
    lowered = msgspec.structs.replace(LIMITED, rate_limit=1)
    until_ns = 112 * MS

    assert allowance(tx, lowered, now_ns=102 * MS, want=1) == Allowance(0, Why.RATE, until_ns)
    assert allowance(tx, lowered, now_ns=until_ns - 1, want=1).count == 0
    assert allowance(tx, lowered, now_ns=until_ns, want=1) == Allowance(1)


@pytest.mark.parametrize(("active", "count"), [(0, 2), (1, 1), (2, 0), (3, 0)])
def test_no_more_are_active_than_may_be_at_once(active: int, count: int) -> None:
    tx = opened(MemoryStore())
    begin(tx, 100 * MS)
    for number in range(active):
        job = Job(
            id=f"j{number}",
            queue="mail",
            state=State.ACTIVE,
            payload=b"",
            created_ns=1,
            order_ns=1,
            lease_expires_ns=1,
        )
        JOBS.insert(tx, job)
    queue = Queue(name="mail", max_concurrency=2)

    allowed = allowance(tx, queue, now_ns=tx.now_ns, want=9)

    assert allowed == Allowance(count, None if count else Why.CONCURRENCY)


def test_the_narrower_of_two_limits_counts() -> None:
    tx = opened(MemoryStore())
    begin(tx, 100 * MS)
    record_fetches(tx, LIMITED, 1)

    counts = [
        allowance(
            tx, msgspec.structs.replace(LIMITED, max_concurrency=many), now_ns=tx.now_ns, want=9
        ).count
        for many in (1, 2, 3, 9)
    ]

    assert counts == [1, 2, 2, 2]
