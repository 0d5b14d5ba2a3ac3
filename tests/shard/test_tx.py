"""What an entry gives its ops: time, ids, tokens and dice, the same for every replica."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from corvo.ids import Mint
from corvo.kv.tables import read_meta
from corvo.shard.state.entry import Stamp
from corvo.shard.state.tx import TOKEN_BITS, Grace, Tx
from tests.support.memory import MemoryStore

NOW_NS: Final = 1_700_000_000_000_000_000


def opened(store: MemoryStore, *, shard: int = 3) -> Tx:
    return Tx(store, read_meta(store), shard=shard, shards=4)


def started(tx: Tx, *, now_ns: int = NOW_NS, dice: int = 0) -> Tx:
    tx.start(index=tx.meta.applied + 1, term=1, stamp=Stamp(now_ns, dice))
    return tx


def test_ids_are_minted_from_the_shard_the_time_and_the_index() -> None:
    tx = started(opened(MemoryStore()))

    assert tx.mint.job() == Mint(3, NOW_NS, 1).job()


def test_a_stamp_that_goes_backwards_does_not_take_time_back() -> None:
    tx = started(opened(MemoryStore()))
    tx.commit()

    started(tx, now_ns=5)

    assert tx.now_ns == NOW_NS + 1
    assert tx.mint.job() == Mint(3, NOW_NS + 1, 2).job()


def test_the_tokens_of_a_later_entry_are_greater_than_all_of_an_earlier_one() -> None:
    tx = started(opened(MemoryStore()))
    last = tx.token + (1 << TOKEN_BITS) - 1
    tx.commit()

    started(tx)

    assert tx.token == last + 1


def test_a_token_stays_within_what_json_can_carry_for_billions_of_entries() -> None:
    tx = opened(MemoryStore())
    tx.meta = type(tx.meta)(applied=(1 << 44) - 2)

    started(tx)

    assert tx.token < 1 << 53


@given(st.integers(0, 2**32 - 1), st.text(st.characters(exclude_categories=["Cs"])))
def test_dice_are_alike_everywhere_and_within_their_range(dice: int, name: str) -> None:
    one = started(opened(MemoryStore()), dice=dice)
    other = started(opened(MemoryStore(), shard=1), dice=dice)

    thrown = one.dice_for(name)

    assert thrown == other.dice_for(name)
    assert 0 <= thrown < 1 << 16


def test_the_dice_of_an_entry_are_spread_over_its_jobs() -> None:
    tx = started(opened(MemoryStore()), dice=0x9E3779B1)

    thrown = [tx.dice_for(tx.mint.job()) >> 12 for _ in range(1_600)]

    assert all(50 <= thrown.count(sixteenth) <= 150 for sixteenth in range(16))


def test_a_job_has_other_dice_in_another_entry() -> None:
    entries = [
        started(opened(MemoryStore()), dice=number * 0x9E3779B1 >> 4) for number in range(16)
    ]

    thrown = {tx.dice_for("job") for tx in entries}

    assert len(thrown) == 16


def test_a_time_of_grace_outlives_the_process() -> None:
    store = MemoryStore()
    tx = started(opened(store))
    tx.commit()
    started(tx, now_ns=NOW_NS + 500)

    tx.give_grace(NOW_NS + 10_000)
    tx.commit()

    assert tx.grace == Grace(NOW_NS, NOW_NS + 10_000)
    assert opened(store).grace == tx.grace


def test_without_a_leader_ever_there_is_no_grace() -> None:
    assert opened(MemoryStore()).grace == Grace(0, 0)
