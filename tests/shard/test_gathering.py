"""Submissions on their way, against a twin that keeps one list and looks at all of it."""

from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from corvo.shard import gathering
from corvo.shard.gathering import INTERNAL, Gathering, Submission


def submission(request: int, size: int = 1, client: int = 1) -> Submission:
    return Submission(client, request, (1, b"x" * size))


def requests(submissions: list[Submission]) -> list[int]:
    return [each.request for each in submissions]


def filled(*sizes: int) -> Gathering:
    gathered = Gathering()
    for number, size in enumerate(sizes):
        gathered.add(submission(number, size))
    return gathered


def test_an_entry_is_chosen_in_the_order_of_submission() -> None:
    gathered = filled(1, 1, 1)
    gathered.add(submission(9, client=INTERNAL), first=True)

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
        chosen = gathered.next_entry()
        gathered.proposed(chosen, index=len(entries) + 1, term=1)
        entries.append([len(each.record[1]) for each in chosen])

    assert [size for each in entries for size in each] == sizes
    for each, following in zip(entries, [*entries[1:], None], strict=True):
        assert len(each) <= gathering.ENTRY_OPS_MAX
        assert len(each) == 1 or sum(each) <= gathering.ENTRY_BYTES_MAX
        if following is not None:
            is_full = len(each) == gathering.ENTRY_OPS_MAX
            assert is_full or sum(each) + following[0] > gathering.ENTRY_BYTES_MAX


def test_an_entry_of_another_term_took_the_place_of_ours() -> None:
    gathered = filled(1)
    gathered.proposed(gathered.next_entry(), index=5, term=2)

    done, lost = gathered.applied(index=5, term=3)

    assert (done, requests(lost)) == ([], [0])
    assert gathered.is_idle


def test_what_was_passed_over_is_lost() -> None:
    gathered = filled(1)
    gathered.proposed(gathered.next_entry(), index=5, term=2)

    before = gathered.applied(index=4, term=2)
    done, lost = gathered.applied(index=6, term=3)

    assert before == ([], [])
    assert (done, requests(lost)) == ([], [0])


def test_two_terms_may_have_proposed_for_one_index() -> None:
    gathered = Gathering()
    for number, (index, term) in enumerate([(5, 1), (6, 1), (7, 1), (6, 3), (7, 3)]):
        gathered.add(submission(number))
        gathered.proposed(gathered.next_entry(), index=index, term=term)

    fates = [
        [requests(each) for each in gathered.applied(index=index, term=term)]
        for index, term in [(5, 2), (6, 3), (7, 1)]
    ]

    assert fates == [[[], [0]], [[3], [1]], [[2], [4]]]


def test_nobody_knows_what_became_of_what_a_snapshot_holds() -> None:
    gathered = Gathering()
    for number in range(4):
        gathered.add(submission(number))
        gathered.proposed(gathered.next_entry(), index=10 + number, term=1)

    unknown = gathered.skipped_to(11)

    assert requests(unknown) == [0, 1]
    assert gathered.waiting == 2


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
        self.count = 0

    @rule(size=st.integers(0, 9), first=st.booleans())
    def add(self, size: int, first: bool) -> None:
        self.count += 1
        new = submission(self.count, size)
        self.gathering.add(new, first=first)
        self.gathered.insert(0 if first else len(self.gathered), new)

    @precondition(lambda self: self.gathered)
    @rule()
    def propose(self) -> None:
        self.last += 1
        chosen = self.gathering.next_entry()
        assert chosen == self.gathered
        self.gathering.proposed(chosen, index=self.last, term=self.term)
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
        term = data.draw(st.sampled_from([*terms, self.term + 1]))

        done, lost = self.gathering.applied(index=self.applied, term=term)

        assert done == [each for _, its, held in here if its == term for each in held]
        assert lost == [each for _, its, held in here if its != term for each in held]
        self.proposed = [each for each in self.proposed if each[0] > self.applied]

    @rule()
    def give_up(self) -> None:
        assert self.gathering.refuse_gathered() == self.gathered
        self.gathered = []

    @invariant()
    def all_is_counted(self) -> None:
        waiting = [*self.gathered, *(each for _, _, held in self.proposed for each in held)]
        assert self.gathering.waiting == len(waiting)
        assert self.gathering._bytes == sum(len(each.record[1]) for each in waiting)
        assert self.gathering.is_idle == (not waiting)
        assert self.gathering.has_gathered == bool(self.gathered)


TestTwin = Twin.TestCase
