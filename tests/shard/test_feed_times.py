"""Places of times in a feed: nothing since then is before the place, unless the answer says so."""

from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol import wire
from corvo.protocol.ops.enqueue import NewJob
from corvo.shard.machine import Machine
from corvo.shard.pages import seek
from tests.shard.shard import START_NS, Shard

STEPS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def sought(shard: Shard, since_ns: int) -> wire.Sought:
    return seek(shard.machine, wire.Seek(1, since_ns))


def happening(steps: list[int], bytes_max: int) -> tuple[Shard, list[int]]:
    """A shard with an entry after each step, and the time of each entry."""
    shard = Shard()
    shard.machine = Machine(shard.store, shard=0, shards=4, feed_bytes_max=bytes_max)
    times = []
    for step in steps:
        shard.clock_ns += step
        shard.put(NewJob(queue="mail"))
        times.append(shard.machine.now_ns)
    return shard, times


@given(STEPS, st.sampled_from([1_000, 10_000, 1 << 20]), st.integers(-3, 60))
def test_nothing_since_a_time_is_before_its_place(
    steps: list[int], bytes_max: int, since: int
) -> None:
    shard, times = happening(steps, bytes_max)
    since_ns = START_NS + since

    found = sought(shard, since_ns)

    feed = shard.tx.feed
    assert feed.begin.index <= found.index <= feed.index
    assert found.digest == feed.digest_at(found.index)
    assert found.now_ns == times[-1]
    before = [time for time in times[: found.index] if time >= (found.whole_ns or since_ns)]
    assert before == [], "it would be missed"
    behind = [time for time in times[found.index :] if time < since_ns]
    assert behind == [], "it need not come again"
    if feed.begin.index == 0:
        assert found.whole_ns == 0, "nothing is lost"


@given(STEPS, st.sampled_from([1_000, 10_000]), st.integers(-3, 60))
def test_what_is_whole_since_a_time_is_found_whole_by_it(
    steps: list[int], bytes_max: int, since: int
) -> None:
    shard, _ = happening(steps, bytes_max)

    found = sought(shard, START_NS + since)

    assert found.whole_ns == 0 or sought(shard, found.whole_ns).whole_ns == 0


def test_a_shard_to_which_nothing_happened_has_everything() -> None:
    found = sought(Shard(), 1)

    assert (found.index, found.whole_ns) == (0, 0)
