"""Submissions on their way, against a twin that keeps one list and looks at all of it."""

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from corvo.protocol.numbers import WAITING_OPS_MAX
from corvo.protocol.ops.queues import Pause
from corvo.shard import gathering
from corvo.shard.gathering import INTERNAL, Gathering, Proposed, Submission
from corvo.shard.machine import Decoded
from corvo.shard.state.entry import Stamp, encode

OP: Final = Pause(queue="mail")


def submission(request: int, size: int = 1, client: int = 1, effects: int = 0) -> Submission:
    return Submission(client, request, (1, b"x" * size), OP, effects)


def add(gathered: Gathering, new: Submission, *, first: bool = False) -> None:
    gathered.add(new.client, new.request, new.record, new.op, effects=new.effects, first=first)


def propose(gathered: Gathering, index: int, term: int) -> list[Submission]:
    chosen = gathered.next_entry()
    stamp = Stamp(index)
    data = encode(stamp, [each.record for each in chosen])
    gathered.proposed(chosen, index=index, term=term, stamp=stamp, data=data)
    return chosen


def held(ours: Proposed | None) -> list[Submission]:
    return list(ours.submissions) if ours is not None else []


def requests(submissions: list[Submission]) -> list[int]:
    return [each.request for each in submissions]


def filled(*sizes: int) -> Gathering:
    gathered = Gathering()
    for number, size in enumerate(sizes):
        add(gathered, submission(number, size))
    return gathered


def test_an_entry_is_chosen_in_the_order_of_submission() -> None:
    gathered = filled(1, 1, 1)
    add(gathered, submission(9, client=INTERNAL), first=True)

    chosen = gathered.next_entry()

    assert requests(chosen) == [9, 0, 1, 2]


def test_choosing_takes_nothing_away() -> None:
    gathered = filled(1, 1)

    first, second = gathered.next_entry(), gathered.next_entry()

    assert first == second
    assert gathered.waiting == 2


@example(sizes=[1] * 1_100)
@given(sizes=st.lists(st.integers(0, 700_000) | st.integers(0, 50), min_size=1, max_size=700))
def test_entries_are_as_large_as_they_may_be_and_no_larger(sizes: list[int]) -> None:
    gathered = filled(*sizes)

    entries: list[list[int]] = []
    while gathered.has_gathered:
        chosen = propose(gathered, len(entries) + 1, 1)
        entries.append([len(each.record[1]) for each in chosen])

    assert [size for each in entries for size in each] == sizes
    for each, following in zip(entries, [*entries[1:], None], strict=True):
        assert len(each) <= gathering.ENTRY_OPS_MAX
        assert len(each) == 1 or sum(each) <= gathering.ENTRY_BYTES_MAX
        if following is not None:
            is_full = len(each) == gathering.ENTRY_OPS_MAX
            assert is_full or sum(each) + following[0] > gathering.ENTRY_BYTES_MAX


# ---- Effects of other shards.


def test_clients_and_other_shards_each_have_their_share_of_an_entry() -> None:
    gathered = Gathering()
    for number in range(1_000):
        add(gathered, submission(number, effects=100))
        add(gathered, submission(2_000 + number))

    chosen = propose(gathered, 1, 1)

    assert requests(chosen) == [*range(2_000, 2_000 + gathering.ENTRY_OPS_MAX), 0, 1]
    assert 2 * 100 <= gathering.ENTRY_EFFECTS_MAX < 3 * 100
    assert requests(propose(gathered, 2, 1))[-2:] == [2, 3]


@pytest.mark.parametrize(
    ("effects", "size"),
    [(gathering.ENTRY_EFFECTS_MAX + 1, 1), (1, gathering.ENTRY_EFFECTS_BYTES_MAX + 1)],
)
def test_an_op_with_more_effects_than_an_entry_may_have_is_alone(effects: int, size: int) -> None:
    gathered = Gathering()
    for number in range(2):
        add(gathered, submission(number, size, effects=effects))

    assert [requests(propose(gathered, 1, 1)), requests(propose(gathered, 2, 1))] == [[0], [1]]


def test_room_is_counted_for_clients_and_for_other_shards_by_itself() -> None:
    gathered = Gathering()
    full = gathering.WAITING_EFFECTS_BYTES_MAX

    seen = [(gathered.is_full, gathered.is_full_of_effects)]
    add(gathered, submission(1, full, effects=1))
    seen.append((gathered.is_full, gathered.is_full_of_effects))
    propose(gathered, 1, 1)
    gathered.applied(index=1, term=1)
    for number in range(WAITING_OPS_MAX):
        add(gathered, submission(number))
    seen.append((gathered.is_full, gathered.is_full_of_effects))

    assert seen == [(False, False), (False, True), (True, False)]


# ---- What becomes of entries.


def test_an_entry_of_another_term_took_the_place_of_ours() -> None:
    gathered = filled(1)
    propose(gathered, 5, 2)

    ours, lost = gathered.applied(index=5, term=3)

    assert (ours, requests(lost)) == (None, [0])
    assert gathered.is_idle


def test_what_was_passed_over_is_lost() -> None:
    gathered = filled(1)
    propose(gathered, 5, 2)

    before = gathered.applied(index=4, term=2)
    ours, lost = gathered.applied(index=6, term=3)

    assert before == (None, [])
    assert (ours, requests(lost)) == (None, [0])


def test_two_terms_may_have_proposed_for_one_index() -> None:
    gathered = Gathering()
    for number, (index, term) in enumerate([(5, 1), (6, 1), (7, 1), (6, 3), (7, 3)]):
        add(gathered, submission(number))
        propose(gathered, index, term)

    fates = [
        [requests(held(ours)), requests(lost)]
        for ours, lost in (
            gathered.applied(index=index, term=term) for index, term in [(5, 1), (6, 2), (7, 3)]
        )
    ]

    # Term 2 began behind the first entry, so nothing else of term 1 can come about.
    assert fates == [[[0], []], [[], [1, 3, 2]], [[4], []]]


def test_nobody_knows_what_became_of_what_a_snapshot_holds() -> None:
    gathered = Gathering()
    for number in range(4):
        add(gathered, submission(number))
        propose(gathered, 10 + number, 1)

    unknown = gathered.skipped_to(11)

    assert requests(unknown) == [0, 1]
    assert gathered.waiting == 2


def test_what_is_given_up_is_not_waited_for_and_what_gathers_is() -> None:
    gathered = Gathering()
    for number in range(2):
        add(gathered, submission(number))
        propose(gathered, 10 + number, 1)
    add(gathered, submission(2))

    given_up = gathered.give_up_proposed()

    assert requests(given_up) == [0, 1]
    assert gathered.waiting == 1
    assert gathered.applied(index=10, term=1) == (None, [])


# ---- What stays decoded.


def test_what_was_decoded_is_kept_with_the_entry() -> None:
    gathered = filled(1, 2)
    [first, second] = propose(gathered, 5, 2)

    ours, _ = gathered.applied(index=5, term=2)

    assert ours is not None
    assert ours.decoded(encode(Stamp(5), [first.record, second.record])) == Decoded(
        Stamp(5), [(1, OP), (1, OP)]
    )


def test_what_was_decoded_is_used_for_no_other_bytes() -> None:
    gathered = filled(1)
    [only] = propose(gathered, 5, 2)
    ours, _ = gathered.applied(index=5, term=2)

    assert ours is not None
    with pytest.raises(AssertionError, match="an index and a term name one entry"):
        ours.decoded(encode(Stamp(6), [only.record]))


def test_with_much_waiting_nothing_more_is_kept_decoded() -> None:
    gathered = filled(gathering.DECODED_BYTES_MAX - 1)
    propose(gathered, 1, 1)
    add(gathered, submission(1))
    add(gathered, submission(2))
    propose(gathered, 2, 1)

    first, _ = gathered.applied(index=1, term=1)
    second, _ = gathered.applied(index=2, term=1)
    add(gathered, submission(3))

    assert first is not None
    assert first.decoded(first.data) is not None
    assert [each.op for each in held(second)] == [OP, None]
    assert second is not None
    assert second.decoded(second.data) is None
    assert gathered.next_entry()[0].op == OP, "all that waited is applied"


class Twin(RuleBasedStateMachine):
    """A leader that loses its place and comes back, whose log is cut and written anew."""

    def __init__(self) -> None:
        super().__init__()
        self.gathering = Gathering()
        self.gathered: list[Submission] = []
        self.proposed: list[tuple[int, int, list[Submission]]] = []  # index, term, what it holds
        self.applied = 0
        self.last = 0
        self.term = 1
        self.log_term = 0
        self.count = 0

    @rule(size=st.integers(0, 9), first=st.booleans(), effects=st.sampled_from([0, 1, 9]))
    def add(self, size: int, first: bool, effects: int) -> None:
        self.count += 1
        new = submission(self.count, size, effects=effects)
        add(self.gathering, new, first=first)
        self.gathered.insert(0 if first else len(self.gathered), new)
        # Those of clients come before those of other shards, and else in the order of submission.
        self.gathered.sort(key=lambda each: each.effects > 0)

    @precondition(lambda self: self.gathered)
    @rule()
    def propose(self) -> None:
        self.last += 1
        chosen = propose(self.gathering, self.last, self.term)
        assert chosen == self.gathered
        self.proposed.append((self.last, self.term, chosen))
        self.gathered = []

    @rule(data=st.data())
    def lead_again(self, data: st.DataObject) -> None:
        """Another term, and a log of which only what is applied is certain to be the same."""
        self.term += 2
        self.last = data.draw(st.integers(self.applied, self.last))

    @precondition(lambda self: self.applied < self.last)
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        self.applied += 1
        here = [each for each in self.proposed if each[0] == self.applied]
        terms = [term for _, term, _ in here] or [self.term - 1]
        # No term of a log is less than the one before it.
        term = max(self.log_term, data.draw(st.sampled_from([*terms, self.term + 1])))
        behind = sorted(
            (each for each in self.proposed if each[0] > self.applied), key=lambda each: each[0]
        )

        ours, lost = self.gathering.applied(index=self.applied, term=term)

        assert held(ours) == [each for _, its, ops in here if its == term for each in ops]
        never = [
            *(each for _, its, ops in here if its != term for each in ops),
            *(each for _, its, ops in behind if its < term for each in ops),
        ]
        assert lost == never
        self.proposed = [each for each in behind if each[1] >= term]
        self.log_term = term
        self.term = max(self.term, term)  # it leads again before it proposes

    @rule()
    def give_up(self) -> None:
        assert self.gathering.refuse_gathered() == self.gathered
        self.gathered = []

    @invariant()
    def all_is_counted(self) -> None:
        waiting = [*self.gathered, *(each for _, _, ops in self.proposed for each in ops)]
        assert self.gathering.waiting == len(waiting)
        for lane, are_effects in ((self.gathering._clients, 0), (self.gathering._shards, 1)):
            mine = [each for each in waiting if bool(each.effects) == are_effects]
            assert lane.ops == len(mine)
            assert lane.bytes == sum(len(each.record[1]) for each in mine)
        assert self.gathering.is_idle == (not waiting)
        assert self.gathering.has_gathered == bool(self.gathered)


TestTwin = Twin.TestCase
