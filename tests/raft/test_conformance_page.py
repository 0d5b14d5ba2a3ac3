"""The conformance list is whole: every rule tested or declined, and the page says which."""

import re

import pytest

from tests.raft.conformance import (
    PAGE,
    WHOLE_FILE,
    Cover,
    Inconsistent,
    covers,
    covers_in,
    gaps,
    page,
)
from tests.raft.conformance_rules import DECLINED, GROUPS, RULES


def test_every_rule_is_tested_or_declined() -> None:
    assert gaps(covers()) == []


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(covers()), "run `python -m tests.raft.conformance`"


def test_every_id_belongs_to_a_group_and_stands_in_its_order() -> None:
    expected = sorted(RULES, key=lambda rule: ("".join(GROUPS).index(rule[0]), rule[1:]))

    assert list(RULES) == expected
    assert all(re.fullmatch(r"[A-Z]\d{2,3}[ab]?", rule) for rule in RULES)


def test_a_rule_that_nobody_tests_is_a_gap() -> None:
    proven = [Cover(rule, "test_a.py", "test_a") for rule in RULES if rule not in DECLINED]

    assert gaps(proven) == []
    assert gaps(proven[1:]) == ["P01 is neither tested nor declined"]


def test_a_rule_that_is_tested_cannot_be_declined_too() -> None:
    proven = [Cover(rule, "test_a.py", "test_a") for rule in RULES if rule not in DECLINED]

    found = gaps([*proven, Cover("T21", "test_a.py", "test_a")])

    assert found == ["T21 is declined, and tested"]


def test_markers_are_found_on_files_on_tests_and_on_single_cases() -> None:
    text = """
pytestmark = [pytest.mark.conformance("N14")]

@pytest.mark.conformance("P01", "P02")
@pytest.mark.conformance("P02")
def test_a() -> None: ...

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.conformance("R006a"))])
def test_b(n: int) -> None: ...
"""

    found = list(covers_in("tests/test_x.py", text))

    assert found == [
        Cover("N14", "tests/test_x.py", WHOLE_FILE),
        Cover("P01", "tests/test_x.py", "test_a"),
        Cover("P02", "tests/test_x.py", "test_a"),
        Cover("R006a", "tests/test_x.py", "test_b"),
    ]


@pytest.mark.parametrize(
    "marker",
    [
        'pytest.mark.conformance("P99")',
        'pytest.mark.conformance("P01", "Q1")',
        "pytest.mark.conformance()",
        "pytest.mark.conformance(RULE)",
        'pytest.mark.conformance("P01", id="P02")',
    ],
)
def test_a_marker_that_names_no_rule_is_refused(marker: str) -> None:
    with pytest.raises(Inconsistent):
        list(covers_in("tests/test_x.py", f"@{marker}\ndef test_a() -> None: ...\n"))


def test_a_marker_that_decorates_no_test_is_refused() -> None:
    with pytest.raises(Inconsistent):
        list(covers_in("tests/test_x.py", 'MARK = pytest.mark.conformance("P01")\n'))


def test_a_page_shows_open_declined_and_proven_rules() -> None:
    written = page([Cover("P01", "tests/raft/test_x.py", "test_p01_p02_a_term_is_entered")])

    assert (
        f"| P01 | {RULES['P01']} | [test_x](../tests/raft/test_x.py): a term is entered |"
        in written
    )
    assert f"| P02 | {RULES['P02']} | **open** |" in written
    assert f"| T23 | {RULES['T23']} | *does not apply*: replicas have no priorities |" in written
