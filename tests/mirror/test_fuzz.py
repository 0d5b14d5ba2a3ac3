"""The short form of the fuzz: a real node, and questions with and without sense."""

from pathlib import Path

from tests.mirror import fuzzing


def test_a_node_answers_whatever_it_is_asked_and_finds_what_there_is(tmp_path: Path) -> None:
    seen = fuzzing.fuzz(tmp_path, examples=60)

    assert seen.compared > 20
    assert seen.found > 20
