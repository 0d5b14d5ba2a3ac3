"""The condition of a direction between two hosts decides about each of its packets."""

from random import Random

from chaos.cluster.rules import BACKLOG_BYTES_MAX, Direction, Rule


def direction(rule: Rule) -> Direction:
    made = Direction(Random(1))
    made.rule = rule
    return made


def test_a_direction_without_a_rule_delivers_every_packet_at_once() -> None:
    made = Direction(Random(1))

    assert [made.due(now, 100) for now in (1.0, 2.0)] == [(1.0,), (2.0,)]
    assert (made.counts.passed, made.counts.dropped) == (2, 0)


def test_a_cut_direction_drops_and_counts_every_packet() -> None:
    made = direction(Rule(is_cut=True))

    assert [made.due(1.0, 100) for _ in range(3)] == [(), (), ()]
    assert (made.counts.passed, made.counts.dropped) == (0, 3)


def test_a_share_of_the_packets_is_lost() -> None:
    made = direction(Rule(loss=0.25))

    arrived = sum(len(made.due(1.0, 100)) for _ in range(4_000))

    assert 2_800 < arrived < 3_200
    assert made.counts.dropped == 4_000 - arrived


def test_a_delay_with_jitter_lets_packets_overtake_each_other() -> None:
    made = direction(Rule(delay_ms=10, jitter_ms=50))

    times = [made.due(1.0, 100)[0] for _ in range(100)]

    assert all(1.0099 < at < 1.0601 for at in times)
    assert times != sorted(times)
    assert made.counts.delayed == 100


def test_a_duplicate_arrives_twice() -> None:
    made = direction(Rule(duplicates=1.0))

    assert made.due(1.0, 100) == (1.0, 1.0)
    assert made.counts.duplicated == 1


def test_a_slow_direction_sends_packets_one_after_the_other_and_drops_what_does_not_fit() -> None:
    made = direction(Rule(bytes_per_second=1_000))

    assert made.due(0.0, 500) == (0.5,)
    assert made.due(0.0, 500) == (1.0,)
    assert made.due(100.0, 500) == (100.5,)
    made.due(100.0, BACKLOG_BYTES_MAX)
    assert made.due(100.0, 1) == ()
