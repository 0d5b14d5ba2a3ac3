"""A shard continues from an older copy of its data, or from nothing: effects travel on.

What followed from the lost entries stays in the other shards. Beside that, each effect is taken
once, and none is lost.
"""

from typing import Final

import msgspec
import pytest

from corvo.protocol.ops.base import Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.shard.ops.transfer import OUT_OF_ORDER, Receive, Renumber, Skip
from corvo.shard.state import epochs, outbox
from tests.shard.chaos import Chaos
from tests.shard.cluster import QUEUES, SHARDS, Name, home_of
from tests.shard.links import Links
from tests.shard.shard import EVERYTHING, MS, Shard
from tests.support.memory import MemoryStore

[[SMS, _], [MAIL, _], [_, _]] = QUEUES
A, B = 0, 1
LIVES: Final = 300

Effects = dict[tuple[int, int], list[bytes]]
"""By source and target, in order. An effect is known by its content and the time of its entry."""


class Copy(msgspec.Struct):
    """A shard's data at some moment, and what had happened by then."""

    number: int
    store: MemoryStore
    given: Effects
    got: Effects


class Losses(Links):
    """Shards that lose entries, and a note of each effect in the history that each has."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[tuple[int, int, int, int], bytes] = {}
        """By source, target, epoch and number, what an effect is known by."""
        self.given_now: Effects = {}
        self.got_now: Effects = {}
        self.forgotten: Effects = {}
        """The effects that their target had taken, before it lost that."""
        self.copies = [Copy(number, MemoryStore(), {}, {}) for number in range(SHARDS)]
        self.counts |= dict.fromkeys(("losses", "renumbered", "skipped"), 0)
        self.ops: list[Renumber | Skip] = []

    # Losing.

    def copy(self, number: int) -> Copy:
        """Copy a shard's data, whose process runs."""
        self.look()
        store = MemoryStore()
        store.write(dict(self.shards[number].store.scan(b"", b"\xff", limit=EVERYTHING)))
        given = {pair: [*all_] for pair, all_ in self.given_now.items() if pair[0] == number}
        got = {pair: [*all_] for pair, all_ in self.got_now.items() if pair[1] == number}
        copy = Copy(number, store, given, got)
        self.copies.append(copy)
        return copy

    def put_back(self, copy: Copy) -> None:
        """A shard continues from a copy. It is not told that it has lost anything."""
        self.look()
        number, before = copy.number, self.shards[copy.number]
        # What is on its way to the process ends with its links.
        self.carried = [
            one for one in self.carried if one.batch.shard != number or one.answer is not None
        ]
        self.asked = [
            one for one in self.asked if one.target != number or (one.answer and not one.skip)
        ]
        for pair in [pair for pair in self.given_now if pair[0] == number]:
            self.given_now[pair] = [*copy.given.get(pair, [])]
        for pair in [pair for pair in self.got_now if pair[1] == number]:
            kept = [*copy.got.get(pair, [])]
            gone = [effect for effect in self.got_now[pair] if effect not in kept]
            self.forgotten.setdefault(pair, []).extend(gone)
            self.got_now[pair] = kept
        store = MemoryStore()
        store.write(dict(copy.store.scan(b"", b"\xff", limit=EVERYTHING)))
        shard = Shard(store, number=number, shards=SHARDS)
        shard.clock_ns = max(before.clock_ns, before.now_ns) + MS  # as no restart is quicker
        self.shards[number] = shard
        self.restart(number)
        self.counts["losses"] += 1

    def found(self, source: int, op: Renumber | Skip | None) -> None:
        if op is None:
            return
        self.ops.append(op)
        self.counts["renumbered" if isinstance(op, Renumber) else "skipped"] += 1
        if isinstance(op, Renumber):
            self.look()
            pair = (source, op.shard)
            fresh = [
                self.names[*pair, epoch, row.seq]
                for row in self.outbox(self.shards[source])
                if row.shard == op.shard and row.seq > op.common
                for epoch in [msgspec.json.decode(row.body, type=Receive).epoch]
            ]
            # One that is made between a loss and what follows from it is not put back here: see
            # `corvo.shard.state.epochs`.
            self.copies = [
                copy for copy in self.copies if not {*fresh} & {*copy.given.get(pair, [])}
            ]

    # Noting.

    def look(self) -> None:
        super().look()
        for source, shard in enumerate(self.shards):
            for row in self.outbox(shard):
                op = msgspec.json.decode(row.body, type=Receive)
                effect = b"%d %b" % (row.at_ns, msgspec.json.encode(op.effect))
                name = (source, row.shard, op.epoch, op.seq)
                assert self.names.setdefault(name, effect) == effect, "an epoch is used twice"
                given = self.given_now.setdefault((source, row.shard), [])
                if effect not in given:
                    given.append(effect)

    def compare(self) -> None:
        """Note what was taken, and that none was taken twice."""
        for pair, effects in self.got.items():
            got = self.got_now.setdefault(pair, [])
            got += [self.names[*pair, effect.epoch, effect.seq] for effect in effects]
            effects.clear()
        for got in self.got_now.values():
            assert len(got) == len(set(got)), "an effect was taken twice"

    # The end.

    def settle(self) -> None:
        """All links are well from now on; what one has forgotten is found."""
        for source, each in enumerate(self.relaying):
            for target in range(SHARDS):
                if target != source:
                    each.closed(target, "the last time")
                    each.opened(target)
        self.carried.clear()
        self.paused.clear()
        self.asked.clear()
        for _ in range(100):
            self.look()
            for number in range(SHARDS):
                self.send(number)
            if not self.carried:
                break
            carried, self.carried = self.carried, []
            for one in carried:
                self.hear(one.answered(self.take(one)))
            asked, self.asked = self.asked, []
            for question in asked:
                while self.go_on(question):
                    pass
            paused, self.paused = self.paused, []
            for one in paused:
                self.relaying[one.source].try_again(one.batch)
        self.compare()

    def check(self) -> None:
        """All effects of the histories that are left were taken, in their order."""
        assert [self.outbox(shard) for shard in self.shards] == [[]] * SHARDS
        for pair, given in self.given_now.items():
            got, forgotten = self.got_now.get(pair, []), self.forgotten.get(pair, [])
            missing = [effect for effect in given if effect not in got]
            assert not [effect for effect in missing if effect not in forgotten]
            assert [effect for effect in got if effect in given] == [
                effect for effect in given if effect in got
            ]
        for shard in self.shards:
            shard.check()

    # Jobs.

    def put(self, queue: str) -> Name:
        home = home_of(queue)
        [job_id] = self.shards[home].put(NewJob(queue=queue))
        return home, job_id

    def move_some(self, count: int) -> list[Name]:
        """Jobs that are on their way from A to B."""
        names = [self.put(SMS) for _ in range(count)]
        for name in names:
            self.move(name, MAIL)
        self.look()
        return names


def linked() -> Losses:
    losses = Losses()
    losses.settle()
    return losses


def test_new_effects_are_taken_if_their_numbers_were_used_before_the_loss() -> None:
    cluster = linked()
    cluster.move_some(2)
    cluster.settle()
    copy = cluster.copy(A)
    cluster.move_some(3)
    cluster.settle()

    cluster.put_back(copy)
    fresh = cluster.move_some(5)  # with the numbers of the lost ones, and more
    cluster.settle()

    assert [cluster.where(name) for name in fresh] == [[B]] * 5
    assert [type(op) for op in cluster.ops] == [Renumber]
    assert outbox.last_taken(cluster.shards[B].tx, A) == 10
    cluster.check()


def test_effects_that_the_copy_holds_are_sent_if_nobody_has_taken_them() -> None:
    cluster = linked()
    cluster.move_some(2)
    cluster.settle()
    waiting = cluster.move_some(2)

    cluster.put_back(cluster.copy(A))
    fresh = cluster.move_some(1)
    cluster.settle()

    assert [cluster.where(name) for name in (*waiting, *fresh)] == [[B]] * 3
    assert cluster.ops == []
    cluster.check()


def test_effects_that_the_copy_holds_are_not_taken_again() -> None:
    cluster = linked()
    taken = cluster.move_some(2)
    copy = cluster.copy(A)
    cluster.settle()

    cluster.put_back(copy)
    fresh = cluster.move_some(1)
    cluster.settle()

    assert [cluster.where(name) for name in (*taken, *fresh)] == [[B]] * 3
    assert cluster.ops == []
    cluster.check()


@pytest.mark.parametrize("is_older", [True, False])
def test_a_shard_that_has_forgotten_what_it_took_takes_what_comes_next(is_older: bool) -> None:
    cluster = linked()
    cluster.move_some(2)
    cluster.settle()
    copy = cluster.copy(B)
    cluster.move_some(3)
    cluster.settle()

    cluster.put_back(copy if is_older else cluster.copies[B])
    fresh = cluster.move_some(2)
    cluster.settle()

    assert [cluster.where(name) for name in fresh] == [[B], [B]]
    assert [op.seq for op in cluster.ops if isinstance(op, Skip)] == [5]
    cluster.check()


def test_effects_that_were_given_after_one_loss_outlast_the_next() -> None:
    """The other shard was away all the time, so nobody had compared them."""
    cluster = linked()
    copy = cluster.copy(A)
    cluster.move_some(3)
    cluster.settle()
    cluster.put_back(copy)
    waiting = cluster.move_some(2)
    later = cluster.copy(A)
    cluster.move_some(2)

    cluster.put_back(later)
    fresh = cluster.move_some(1)
    cluster.settle()

    assert [cluster.where(name) for name in (*waiting, *fresh)] == [[B]] * 3
    cluster.check()


def test_an_answer_says_nothing_of_effects_that_were_given_after_it_was_asked_for() -> None:
    """The other shard names what it has taken, which are the forgotten ones."""
    cluster = linked()
    cluster.move_some(2)
    copy = cluster.copy(A)
    cluster.move_some(2)
    cluster.settle()
    cluster.put_back(copy)
    cluster.relaying[A].opened(B)
    cluster.send(A)
    [one] = cluster.carried

    fresh = cluster.move_some(3)
    cluster.send(A)
    cluster.hear(one.answered(cluster.take(one)))
    cluster.send(A)
    cluster.settle()

    assert [cluster.where(name) for name in fresh] == [[B]] * 3
    cluster.check()


def test_a_batch_with_an_old_number_is_refused_when_its_effects_have_new_ones() -> None:
    cluster = linked()
    copy = cluster.copy(A)
    cluster.move_some(1)
    cluster.settle()
    cluster.put_back(copy)
    cluster.move_some(3)
    old = cluster.outbox(cluster.shards[A])
    cluster.settle()

    answers = [cluster.bring(A, old[first:]) for first in range(3)]

    assert [getattr(answer, "code", "") for answer in answers] == [OUT_OF_ORDER] * 3
    cluster.check()


def test_ops_that_are_repeated_change_nothing() -> None:
    cluster = linked()
    copy = cluster.copy(A)
    cluster.move_some(3)
    cluster.settle()
    cluster.put_back(copy)
    cluster.move_some(1)
    cluster.settle()
    [renumber] = cluster.ops
    assert isinstance(renumber, Renumber)
    skip = Skip(source=A, seq=2, epoch=1)
    before = [shard.machine.digest for shard in cluster.shards]

    counts = [cluster.shards[A].do(renumber).count, cluster.shards[B].do(skip).count]

    assert counts == [0, 0]
    assert [shard.machine.digest for shard in cluster.shards] == before


def test_effects_of_an_earlier_version_are_taken_once() -> None:
    """They have no epoch, and neither have those that follow until a leader begins one."""
    cluster = Losses()
    cluster.shards[A] = Shard(number=A, shards=SHARDS)
    early = cluster.move_some(2)
    cluster.settle()
    early += cluster.move_some(1)

    cluster.restart(A)
    late = cluster.move_some(1)
    cluster.settle()

    assert [cluster.where(name) for name in (*early, *late)] == [[B]] * 4
    assert cluster.ops == []
    cluster.check()


def test_an_effect_is_refused_if_the_one_before_it_was_never_taken() -> None:
    """It begins an epoch, and has the next number by chance."""
    cluster = linked()
    copy = cluster.copy(A)
    cluster.move_some(1)
    cluster.settle()
    cluster.put_back(copy)
    cluster.move_some(1)
    cluster.restart(A)
    cluster.move_some(1)
    [_, second] = cluster.outbox(cluster.shards[A])

    answer = cluster.bring(A, [second])

    assert isinstance(answer, Rejected)
    assert answer.code == OUT_OF_ORDER
    assert "was replaced by an older copy" in answer.error


def test_a_bounded_number_of_epochs_is_kept() -> None:
    cluster = linked()
    for _ in range(epochs.TAKEN_MAX + 5):
        cluster.restart(A)
        cluster.move_some(1)
        cluster.settle()

    assert len(epochs.taken(cluster.shards[B].tx, A)) == epochs.TAKEN_MAX
    cluster.check()


class Misfortunes(Chaos):
    """Anything may happen next, and shards lose entries beside it."""

    def __init__(self, seed: int, cluster: Losses) -> None:
        super().__init__(seed, cluster)
        self.losses = cluster

    def step(self) -> None:
        dice = self.random.random()
        if dice < 0.05:
            self.losses.copy(self.random.randrange(SHARDS))
        elif dice < 0.08:
            self.losses.put_back(self.random.choice(self.losses.copies))
        else:
            super().step()

    def check(self) -> None:
        self.losses.compare()
        self.tokens.clear()  # of two copies of a job, one may have an older token


@pytest.mark.parametrize("start", range(0, LIVES, 50))
def test_whatever_is_lost_each_effect_that_is_not_forgotten_is_taken_once(start: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(start, start + 50):
        losses = Losses()
        chaos = Misfortunes(seed, losses)
        try:
            for _ in range(chaos.random.randrange(40, 160)):
                chaos.step()
                chaos.check()
            losses.settle()
            losses.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        for what in ("losses", "renumbered", "skipped", "doubled", "lost"):
            counts[what] = counts.get(what, 0) + losses.counts[what]

    assert all(counts.values()), counts
