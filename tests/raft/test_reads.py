"""Read rounds: a read is proven by the round that was started for it, or by a later one."""

from hypothesis import given
from hypothesis import strategies as st

from corvo.raft import NOBODY, ReadContext
from corvo.raft.reads import Asked, ReadRounds


def asked(context: int, index: int, asker: int = NOBODY) -> Asked:
    return Asked(ReadContext(context), asker, index)


def ask(rounds: ReadRounds, context: int, index: int = 5, asker: int = NOBODY) -> None:
    rounds.ask(ReadContext(context), asker, index)


def test_without_a_read_no_round_is_wanted() -> None:
    rounds = ReadRounds()

    assert (len(rounds), rounds.round, rounds.wants_round, rounds.own()) == (0, 0, False, [])


def test_reads_that_arrive_together_share_a_round() -> None:
    rounds = ReadRounds()
    ask(rounds, 1, index=5)
    ask(rounds, 2, index=6, asker=3)

    assert (rounds.wants_round, rounds.start_round()) == (True, 1)

    assert (rounds.wants_round, len(rounds)) == (False, 2)
    assert rounds.confirm(1) == [asked(1, 5), asked(2, 6, 3)]
    assert len(rounds) == 0


def test_a_read_that_arrives_while_a_round_is_under_way_waits_for_the_next() -> None:
    rounds = ReadRounds()
    ask(rounds, 1)
    rounds.start_round()
    ask(rounds, 2)

    assert rounds.confirm(1) == [asked(1, 5)]
    assert rounds.wants_round
    assert rounds.start_round() == 2
    assert rounds.confirm(1) == []
    assert rounds.confirm(2) == [asked(2, 5)]


def test_a_later_round_confirms_the_earlier_ones_too_in_order() -> None:
    rounds = ReadRounds()
    for context in (1, 2, 3):
        ask(rounds, context)
        rounds.start_round()

    assert rounds.confirm(0) == []
    assert rounds.confirm(2) == [asked(1, 5), asked(2, 5)]
    assert rounds.confirm(2) == []
    assert len(rounds) == 1


def test_a_read_from_before_the_first_commit_is_asked_at_that_commit() -> None:
    rounds = ReadRounds()
    rounds.ask_early(ReadContext(1), NOBODY)
    rounds.ask_early(ReadContext(2), 3)

    assert (rounds.wants_round, len(rounds)) == (False, 2)
    rounds.release_early(9)

    assert (rounds.wants_round, rounds.start_round()) == (True, 1)
    assert rounds.confirm(1) == [asked(1, 9), asked(2, 9, 3)]
    rounds.release_early(10)
    assert len(rounds) == 0


def test_what_is_lost_with_leadership_is_what_the_own_driver_asked() -> None:
    rounds = ReadRounds()
    ask(rounds, 1)
    ask(rounds, 2, asker=3)
    rounds.start_round()
    ask(rounds, 3)
    ask(rounds, 4, asker=2)
    rounds.ask_early(ReadContext(5), NOBODY)
    rounds.ask_early(ReadContext(6), 2)

    assert sorted(rounds.own()) == [1, 3, 5]
    assert len(rounds) == 6


@given(st.lists(st.sampled_from(("ask", "early", "release", "start", "confirm")), max_size=60))
def test_every_read_is_confirmed_once_by_a_round_that_began_after_it(deeds: list[str]) -> None:
    rounds = ReadRounds()
    born: dict[int, int] = {}  # the newest round when the read could first be asked
    answered: list[int] = []
    waiting_early: list[int] = []

    for context, deed in enumerate(deeds):
        match deed:
            case "ask":
                ask(rounds, context, index=context)
                born[context] = rounds.round
            case "early":
                rounds.ask_early(ReadContext(context), NOBODY)
                waiting_early.append(context)
            case "release":
                rounds.release_early(context)
                born |= dict.fromkeys(waiting_early, rounds.round)
                waiting_early.clear()
            case "start":
                rounds.start_round()
            case _:
                for read in rounds.confirm(rounds.round):
                    assert born[read.context] < rounds.round
                    answered.append(read.context)
        assert len(rounds) == len(born) + len(waiting_early) - len(answered)

    assert len(answered) == len({*answered})
    assert {*rounds.own()} == ({*born} | {*waiting_early}) - {*answered}
