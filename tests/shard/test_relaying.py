"""Effects on their way to other shards, over links on which anything may go wrong."""

from typing import Final

import msgspec
import pytest

from corvo.protocol import wire
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Delete, Move
from corvo.shard import relaying
from corvo.shard.ops import NUMBERS
from corvo.shard.ops.transfer import BeginEpoch, Receive
from corvo.shard.relaying import Batch, Due, Relaying
from tests.shard.chaos import run
from tests.shard.cluster import QUEUES, SHARDS
from tests.shard.links import Links, effects_of, refused, taken
from tests.shard.shard import Shard

[[SMS, _], [MAIL, _], [PUSH, _]] = QUEUES
A, B, C = 0, 1, 2
MANY: Final = 1_000
"""Random interleavings that are tried."""
OLDER: Final = "the data of one of them was replaced by an older copy"


class Sender:
    """A shard that has effects on others, and what it sends of them."""

    def __init__(self) -> None:
        self.shard = Shard(number=A, shards=SHARDS)
        self.relaying = Relaying()

    def give(self, count: int, queue: str = MAIL, payload: bytes = b"1") -> None:
        """Have effects on another shard."""
        job = NewJob(queue=SMS, payload=msgspec.Raw(payload))
        ids = self.shard.put(*[job] * count)
        self.shard.do(Move(job_ids=ids, queue=queue))

    def due(self) -> Due:
        """What is due now, which is something."""
        due = self.relaying.due(self.shard.tx)
        assert due is not None
        return due

    def sent(self) -> list[Batch]:
        """The batches that leave now."""
        return self.due().batches

    def removed(self) -> list[int]:
        """Carry out what is to be removed now; up to which effects."""
        seqs: list[int] = []
        for op in self.due().removals:
            seqs.append(op.seq)
            self.shard.do(op)
            self.relaying.removed(op.shard)
        return seqs

    @property
    def error(self) -> str:
        return self.relaying.destination(B).error


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def linked() -> Sender:
    """One with links to both others."""
    sender = Sender()
    for shard in (B, C):
        sender.relaying.opened(shard)
    return sender


def sizes(batches: list[Batch]) -> list[int]:
    """How many effects each has."""
    return [len(effects_of(batch)) for batch in batches]


# What is sent.


def test_effects_leave_together_and_in_order(linked: Sender) -> None:
    linked.give(5)

    [batch] = linked.sent()

    assert (batch.shard, batch.last) == (B, 5)
    assert [(effect.source, effect.seq) for effect in effects_of(batch)] == [
        (A, seq) for seq in range(1, 6)
    ]
    assert linked.relaying.due(linked.shard.tx) is None


def test_effects_that_come_later_leave_while_others_are_under_way(linked: Sender) -> None:
    lasts = []
    for _ in range(3):
        linked.give(2)
        lasts += [batch.last for batch in linked.sent()]

    assert lasts == [2, 4, 6]


def test_a_batch_has_a_bounded_number_of_effects_and_so_has_the_window(linked: Sender) -> None:
    linked.give(1_000)

    batches = linked.sent()

    assert sizes(batches) == [relaying.BATCH_EFFECTS] * relaying.WINDOW_BATCHES
    linked.relaying.answered(batches[0], taken(batches[0].last))
    assert sizes(linked.sent()) == [relaying.BATCH_EFFECTS]


def test_a_batch_has_a_bounded_number_of_bytes_unless_one_effect_has_more(linked: Sender) -> None:
    large = b'"%b"' % bytes(b"x" * (relaying.BATCH_BYTES // 3))
    linked.give(4, payload=large)
    linked.give(1, payload=b'"%b"' % bytes(b"x" * relaying.BATCH_BYTES))
    linked.give(1)

    assert sizes(linked.sent()) == [2, 2, 1, 1]


def test_nothing_more_is_sent_while_many_bytes_are_under_way(linked: Sender) -> None:
    for _ in range(4):
        linked.give(1, payload=b'"%b"' % bytes(b"x" * (relaying.WINDOW_BYTES // 2)))

    first, second = linked.sent()
    linked.relaying.answered(first, taken(1))

    assert [batch.last for batch in linked.sent()] == [3]
    assert second.last == 2


def test_no_shard_waits_for_another(linked: Sender) -> None:
    linked.give(1_000)
    linked.sent()
    linked.give(3, queue=PUSH)

    [batch] = linked.sent()

    assert (batch.shard, batch.last) == (C, 3)


def test_a_shard_of_the_earlier_version_gets_single_effects(sender: Sender) -> None:
    """It knows no epochs."""
    sender.shard.do(BeginEpoch())
    sender.relaying.opened(B, is_single=True)
    sender.give(6)

    batches = sender.sent()

    assert [batch.op for batch in batches] == [NUMBERS[Receive]] * relaying.WINDOW_BATCHES
    assert [effect.seq for batch in batches for effect in effects_of(batch)] == [1, 2, 3, 4]
    assert not any(b'"epoch"' in batch.body or b'"after"' in batch.body for batch in batches)


def test_a_link_is_asked_for_once_and_with_the_first_effect(sender: Sender) -> None:
    wanted = [sender.due().wanted]
    for _ in range(2):
        sender.give(1)
        due = sender.due()
        wanted.append(due.wanted)
        assert due.batches == []
    sender.relaying.opened(B)

    assert wanted == [[], [B], []]
    assert [batch.last for batch in sender.sent()] == [2]


def test_while_effects_are_held_nothing_leaves_and_nothing_is_removed(linked: Sender) -> None:
    linked.give(3)
    [batch] = linked.sent()
    linked.relaying.hold()
    linked.give(2)

    linked.relaying.answered(batch, taken(3))
    held = linked.due()
    linked.relaying.hold()
    linked.relaying.release()
    still = linked.due()
    linked.relaying.release()
    after = linked.due()

    for due in (held, still):
        assert (due.batches, due.removals) == ([], [])
    assert [each.last for each in after.batches] == [5]
    assert [each.seq for each in after.removals] == [3]


def test_a_link_that_is_opened_while_effects_are_held_sends_none(linked: Sender) -> None:
    linked.give(3)
    linked.sent()
    linked.relaying.hold()
    linked.relaying.closed(B, "gone")
    linked.relaying.opened(B)

    assert linked.sent() == []
    linked.relaying.release()
    assert [batch.last for batch in linked.sent()] == [3]


# What comes back.


def test_what_was_taken_is_removed_once(linked: Sender) -> None:
    linked.give(300)
    first, second, third = linked.sent()

    linked.relaying.answered(first, taken(first.last))
    [removal] = linked.due().removals
    linked.relaying.answered(second, taken(second.last))
    linked.relaying.answered(third, taken(third.last))
    meanwhile = linked.due().removals
    linked.shard.do(removal)
    linked.relaying.removed(B)

    assert removal.seq == first.last
    assert meanwhile == []
    assert linked.removed() == [300]
    assert linked.removed() == []


def test_a_late_answer_says_what_was_taken_as_well(linked: Sender) -> None:
    linked.give(5)
    [batch] = linked.sent()
    linked.relaying.closed(B, "gone")
    linked.relaying.opened(B)
    [again] = linked.sent()

    pauses = [linked.relaying.answered(each, taken(5)) for each in (batch, again, batch)]

    assert again.body == batch.body
    assert pauses == [0, 0, 0]
    assert linked.removed() == [5]


def test_an_answer_that_was_overtaken_takes_nothing_back(linked: Sender) -> None:
    linked.give(1)
    [first] = linked.sent()
    linked.give(1)
    [second] = linked.sent()

    for batch in (second, first):
        linked.relaying.answered(batch, taken(batch.last))

    assert linked.removed() == [2]
    assert linked.relaying.destination(B).delivered == 2


def test_after_a_refusal_all_that_was_not_taken_is_sent_again_in_order(linked: Sender) -> None:
    linked.give(512)
    batches = linked.sent()
    [first, second, third, fourth] = batches
    linked.relaying.answered(first, taken(first.last))

    pauses = [linked.relaying.answered(each, refused()) for each in (second, third, fourth)]
    linked.give(1)
    before = linked.sent()
    for each in (fourth, second):
        linked.relaying.try_again(each)
    still = linked.sent()
    linked.relaying.try_again(third)
    after = linked.sent()

    assert pauses[0] == relaying.PAUSE_MS
    assert all(0 < pause < relaying.PAUSE_MS for pause in pauses[1:])
    assert (before, still) == ([], [])
    assert [each.body for each in after[:3]] == [each.body for each in batches[1:]]
    assert after[3].last == 513


@pytest.mark.parametrize(
    ("answer", "pause_ms", "error"),
    [
        (wire.Busy(1, 70), 70, "it is overloaded"),
        (wire.NotLeader(1, None), relaying.PAUSE_MS, "its replica does not lead"),
        (refused(), relaying.PAUSE_MS, "no room"),
        (
            taken(2),
            relaying.PAUSE_MS,
            f"it has taken 2 effects, and this shard has given 1: {OLDER}",
        ),
        (
            taken(0),
            relaying.PAUSE_MS,
            f"it has taken 0 effects, and this shard has given 1: {OLDER}",
        ),
    ],
)
def test_a_refusal_names_a_pause_and_a_reason(
    linked: Sender, answer: wire.Answer, pause_ms: int, error: str
) -> None:
    linked.give(1)
    [batch] = linked.sent()

    assert linked.relaying.answered(batch, answer) == pause_ms
    assert linked.error == error
    assert linked.removed() == []
    linked.relaying.try_again(batch)
    [again] = linked.sent()
    linked.relaying.answered(again, taken(1))
    assert linked.error == ""


def test_the_refusal_of_a_batch_that_was_given_up_changes_nothing(linked: Sender) -> None:
    linked.give(1)
    [batch] = linked.sent()
    linked.relaying.closed(B, "gone")
    linked.relaying.opened(B)
    [again] = linked.sent()

    pause_ms = linked.relaying.answered(batch, refused())
    linked.relaying.try_again(batch)
    linked.give(1)

    assert pause_ms == 0
    assert [each.last for each in linked.sent()] == [2]
    linked.relaying.answered(again, taken(1))
    assert linked.removed() == [1]


def test_a_leader_that_comes_back_begins_with_what_is_not_removed(linked: Sender) -> None:
    linked.give(3)
    [batch] = linked.sent()
    linked.relaying.answered(batch, taken(2 + 1))
    [removal] = linked.due().removals
    linked.relaying.stand_down()

    due = linked.due()

    assert [each.body for each in due.batches] == [batch.body]
    assert due.removals == []
    linked.relaying.answered(due.batches[0], taken(3))
    assert linked.due().removals == [removal]


# Whatever happens.


@pytest.mark.parametrize("start", range(0, MANY, 100))
def test_every_effect_is_taken_once_and_in_order_whatever_becomes_of_links_and_processes(
    start: int,
) -> None:
    counts: dict[str, int] = {}
    for seed in range(start, start + 100):
        links = Links()
        run(seed, links)
        for what, count in links.counts.items():
            counts[what] = counts.get(what, 0) + count

    assert all(count > 20 for count in counts.values()), counts


def test_a_shard_that_lost_what_it_had_taken_is_sent_nothing_that_would_leave_a_gap() -> None:
    """Its directory was restored from an older copy: effects stop, and say why."""
    links = Links()
    links.relaying[A].opened(B)
    names = links.shards[A].put(*[NewJob(queue=SMS)] * 3)
    links.shards[A].do(Move(job_ids=names[:2], queue=MAIL))
    links.settle()
    links.shards[B] = Shard(number=B, shards=SHARDS)
    links.shards[A].do(Move(job_ids=names[2:], queue=MAIL))
    links.send(A)
    [one] = links.carried

    links.hear(one.answered(links.take(one)))

    assert links.relaying[A].destination(B).error == (
        "effect 3 of shard 0 is not the next one: send 1"
    )
    links.shards[A].do(Delete(job_ids=names))


# What waits.


def test_effects_that_nobody_takes_are_stalled_from_when_that_is_seen(sender: Sender) -> None:
    sender.give(2)
    sender.sent()
    relaying = sender.relaying

    first, later = relaying.look(5.0), relaying.look(15.0)

    assert [(each.shard, each.waiting, each.stalled_s) for each in first] == [(B, 2, 0.0)]
    assert [each.stalled_s for each in later] == [10.0]
    assert [each.is_stalled for each in (*first, *later)] == [False, True]


def test_effects_are_not_stalled_while_some_are_taken(linked: Sender) -> None:
    linked.give(500)
    [batch, *_] = linked.sent()
    linked.relaying.look(0.0)
    linked.relaying.answered(batch, taken(batch.last))

    [seen] = linked.relaying.look(60.0)

    assert (seen.waiting, seen.stalled_s) == (500 - batch.last, 0.0)


def test_nothing_waits_once_all_is_taken(linked: Sender) -> None:
    linked.give(1)
    [batch] = linked.sent()
    linked.relaying.look(0.0)
    linked.relaying.answered(batch, taken(1))

    assert linked.relaying.look(60.0) == []
