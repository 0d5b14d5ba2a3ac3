"""Ops that stay decoded until they are applied, against replicas that decode the log.

A group lives through the same history several times: with every op kept decoded, with some, and
with none. Leaders lose their place, logs are cut, replicas start again and receive snapshots. What
is answered and what the states come to must be the same.
"""

from collections import Counter
from random import Random
from typing import Final, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import NewJob
from corvo.shard import gathering, machine
from corvo.shard.machine import Answer, Decoded, Machine
from corvo.shard.ops import OPS
from tests.shard.replaying import draws
from tests.shard.replicas import Heard, Replicas, records_of
from tests.shard.shard import Shard

COUNT: Final = 3
STEPS: Final = 300
SHARD: Final = 2
"""The client that may also bring what only shards may ask for."""


class Came(NamedTuple):
    """What a history came to."""

    heard: dict[int, list[tuple[int, Heard]]]
    digests: dict[int, list[int]]
    """Of each replica, whenever everything had come to rest."""


class History:
    """One group, and what befalls it by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.group = Replicas(COUNT)
        self.view = Shard(shards=1)
        self.draws = draws(self.view, self.random)
        self.digests: dict[int, list[int]] = {number: [] for number in self.group.voters}
        for number in self.group.voters:
            self.join(number)

    def join(self, number: int) -> None:
        self.group.replicas[number].joined(SHARD, is_shard=True)

    @property
    def leaders(self) -> list[int]:
        replicas = self.group.replicas
        return [number for number in self.group.voters if replicas[number].node.is_leader]

    def run(self) -> Came:
        steps = [
            *[self.submit] * 10,
            *[self.settle] * 4,
            self.elect,
            self.part,
            self.mend,
            self.slow,
            self.start,
            self.snapshot,
            self.pass_time,
        ]
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.rest()
        return Came(self.group.heard, self.digests)

    def submit(self) -> None:
        group = self.group
        for number in self.leaders or [1]:
            view = self.view
            view.store, view.machine = group.states[number].store, group.replicas[number].machine
            view.clock_ns = group.now_ns
            for _ in range(self.random.randrange(1, 5)):
                group.submit(self.random.choice(self.draws)(), to=number, client=SHARD)

    def settle(self) -> None:
        self.group.settle()

    def elect(self) -> None:
        """Have one of those elected that hear each other."""
        group = self.group
        heard = [number for number in group.voters if number not in group.cut_off]
        for number in heard:
            group.replicas[number].node.forget_leader()
        group.replicas[self.random.choice(heard)].node.campaign()
        group.settle()

    def part(self) -> None:
        """Cut the leader off, and let it go on proposing while another is elected."""
        self.mend()
        for number in self.leaders:
            self.group.cut_off[number] = None
        self.submit()
        self.settle()
        self.elect()

    def mend(self) -> None:
        """Let all hear each other, and tell who leads."""
        self.group.cut_off.clear()
        self.group.tick(3)

    def slow(self) -> None:
        self.store()
        if self.random.random() < 0.6:
            self.group.slow[self.random.choice(self.group.voters)] = None

    def store(self) -> None:
        self.group.slow.clear()
        for number, writes in self.group.writes.items():
            while writes:
                self.group.store(number)

    def start(self) -> None:
        number = self.random.choice(self.group.voters)
        self.group.start(number)
        self.join(number)

    def snapshot(self) -> None:
        for number in self.leaders:
            if self.group.replicas[number].machine.applied > self.group.storages[number].base.index:
                self.group.make_snapshot(number)

    def pass_time(self) -> None:
        self.group.pass_time(self.random.choice((1, 40, 900, 15_000)))

    def rest(self) -> None:
        """Mend everything, and look at what the states have come to."""
        group = self.group
        group.cut_off.clear()
        self.store()
        while len({replica.machine.applied for replica in group.replicas.values()}) > 1 or (
            not self.leaders
        ):
            group.tick()
        for number, replica in group.replicas.items():
            self.digests[number].append(replica.machine.digest)


@example(seed=1)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_what_is_kept_decoded_changes_no_answer_and_no_state(seed: int) -> None:
    came: list[Came] = []
    for bytes_max in (gathering.DECODED_BYTES_MAX, 600, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gathering, "DECODED_BYTES_MAX", bytes_max)
            came.append(History(seed).run())

    assert came[1] == came[2]
    assert came[0] == came[2]
    for after_each in zip(*came[0].digests.values(), strict=True):
        assert len({*after_each}) == 1, "followers decode the log"


def test_an_entry_is_decoded_again_only_where_it_was_not_proposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> Decoded:
        decoded.append(data)
        return whole(data)

    whole = machine.decode_entry
    monkeypatch.setattr(machine, "decode_entry", decode)
    group = Replicas(COUNT)
    for _ in range(3):
        group.put(NewJob(queue="mail"))
    group.tick()

    written = [each.data for each in group.entries() if records_of(each)]
    assert Counter(decoded) == dict.fromkeys(written, COUNT - 1)


def test_an_op_of_its_own_is_kept_as_the_log_would_give_it() -> None:
    """What the leader proposes by itself never was JSON before."""
    kept: dict[type[Op], int] = {}
    with pytest.MonkeyPatch.context() as patch:
        apply = Machine.apply

        def applied(
            self: Machine, *, index: int, term: int, data: bytes, decoded: Decoded | None = None
        ) -> list[Answer]:
            if decoded is not None:
                assert decoded == machine.decode_entry(data)
                for _, op in decoded.ops:
                    kept[type(op)] = kept.get(type(op), 0) + 1
            return apply(self, index=index, term=term, data=data, decoded=decoded)

        patch.setattr(Machine, "apply", applied)
        for seed in range(6):
            History(seed).run()

    assert len(kept) > len(OPS) // 2
