"""The subset of jq, against a plain evaluator and, where both say the same, against the real jq."""

import json
import re
import sqlite3

import jq
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from corvo.mirror.jq import BadJq, compile_jq, prepare
from corvo.mirror.jq.values import payload_matches
from tests.mirror import evaluator
from tests.mirror.jq_examples import (
    INTEGERS,
    PLAIN_NUMBERS,
    REALS,
    REFUSALS,
    payloads,
    trees,
    written,
)

PAYLOAD = (
    r'{"email": "user@example.com", "amount": 150, "tags": ["vip", "new"], "metadata":'
    r' {"region": "us-east"}, "template": "welcome-1", "items": [1, 2, 3, 4, 5, {"p": 6}],'
    r' "odd key": {"caf\u00e9": true}, "none": null}'
)


def found(source: str, *rows: str) -> list[bool | None]:
    """What SQLite says of each payload."""
    compiled = compile_jq(source)
    connection = sqlite3.connect(":memory:")
    prepare(connection)
    try:
        connection.execute("CREATE TABLE jobs (row INTEGER PRIMARY KEY, payload TEXT NOT NULL)")
        connection.executemany("INSERT INTO jobs (payload) VALUES (?)", ((row,) for row in rows))
        query = f"SELECT {compiled.text} FROM jobs ORDER BY row"  # noqa: S608  this is under test
        judged = [one for (one,) in connection.execute(query, compiled.parameters)]
    finally:
        connection.close()
    assert all(one in {None, 0, 1} for one in judged)
    for row, one in zip(rows, judged, strict=True):
        # Whatever SQLite makes of a payload, the same would have come out if it were a large one.
        assert payload_matches(source, row) is True or one != 1
        assert payload_matches(source, row) is not True or one == 1
    return [None if one is None else bool(one) for one in judged]


VOCABULARY = {
    *(
        "AND",
        "AS",
        "BY",
        "CASE",
        "CAST",
        "DESC",
        "DISTINCT",
        "ELSE",
        "END",
        "EXISTS",
        "FALSE",
        "FROM",
        "GLOB",
    ),
    *("IN", "IS", "JOIN", "LEFT", "LIMIT", "NOT", "NULL", "ON", "OR", "ORDER", "REAL", "SELECT"),
    *(
        "THEN",
        "TRUE",
        "WHEN",
        "WHERE",
        "abs",
        "coalesce",
        "count",
        "iif",
        "instr",
        "json_array_length",
    ),
    *(
        "json_each",
        "json_extract",
        "json_type",
        "json_valid",
        "length",
        "lower",
        "replace",
        "substr",
    ),
    *(
        "upper",
        "payload_matches",
        "jobs.payload",
        "j",
        "j.id",
        "j.key",
        "j.type",
        "j.value",
        "''",
        "'$'",
        "'*\\*'",
    ),
    *(
        r"'\\'",
        r"'\u0000'",
        r"'*\u0000*'",
        "'array'",
        "'boolean'",
        "'false'",
        "'integer'",
        "'null'",
    ),
    *("'number'", "'object'", "'real'", "'string'", "'text'", "'true'"),
}


def holds(source: str, payload: str) -> bool:
    return found(source, payload) == [True]


@pytest.mark.parametrize(
    "source",
    [
        '.email == "user@example.com"',
        ".amount > 100",
        '.tags | contains("vip")',
        '.metadata.region == "us-east"',
        '.template | startswith("welcome")',
        ".items | length > 5",
        ".items[0] == 1 and .items[-1].p == 6",
        '."odd key"["caf\\u00e9"] == true',
        '."odd key"."café"',
        '(.tags | contains("vip")) and (.amount < 100 | not)',
        '.tags | any(. == "new")',
        ".items | any(.p == 6) and all(. != null)",
        '.email | ascii_upcase | endswith(".COM")',
        'has("none") and .none == null and .missing == null',
        '.tags | type == "array"',
        '"user" < .email',
        "(.items | length) < .amount",
        '.metadata | has("region") and .region != "eu"',
        ".items | has(5)",
    ],
)
def test_an_expression_finds_what_it_means(source: str) -> None:
    assert found(source, PAYLOAD) == [True]


@pytest.mark.parametrize(
    ("source", "payload", "judgement"),
    [
        (".a > 1", '{"a": "2"}', None),
        (".a < 1", "{}", None),
        (".a == 1", '{"a": true}', False),
        (".a == true", '{"a": 1}', False),
        ('.a == "1"', '{"a": 1}', False),
        (".a != 1", "{}", True),
        (".a.b == null", '{"a": 7}', True),
        (".a == .b", '{"a": [1], "b": [1]}', None),
        (".a == .b", '{"a": [1], "b": 1}', False),
        (".a == 2", '{"a": 1, "a": 2}', True),
        (".a.b == null", '{"a": {"b": 1}, "a": {}}', True),
        ('.a | startswith("x")', '{"a": 1}', None),
        ('(.a | startswith("x")) or .b', '{"a": 1, "b": 1}', True),
        ('.a == "x"', r'{"a": "x\u0000y"}', False),
        (r'.a == "x\u0000y"', r'{"a": "x\u0000y"}', True),
        (r'.a == "x\u0000y"', r'{"a": "x"}', False),
        (r'."a\u0000" == 1', r'{"a": 1}', False),
        ('.a != "x"', r'{"a": "x\\u0000y"}', True),
        ('.a | contains("\\\\u0000")', r'{"a": "x\\u0000y"}', True),
        ('.a == "{\\"b\\":1}"', '{"a": {"b":1}}', False),
        (".a.b == 1", '{"a": "{\\"b\\":1}"}', False),
        (".a | length == 9223372036854775808", '{"a": -9223372036854775808}', True),
        (". == 5", "5", True),
        (".a | length == 1", '{"a": {"b": 1, "b": 2}}', True),
        (".a | all(. > 1)", '{"a": [2, "x"]}', False),
        ('.a | all(. == "x")', '{"a": []}', True),
        ('.a | has("b")', "{}", False),
        (".a | has(0)", '{"a": null}', False),
        ('.a == "vip"', r'{"a": "\u0076ip"}', True),
        ('.a | contains("vip")', r'{"\u0061": ["v\u0069p"]}', True),
        (r'.a == "\ud83d\ude00"', '{"a": "😀"}', True),
        (".a < .b", '{"a": false, "b": true}', None),
        (".a == 1e60", '{"a": 1' + "0" * 60 + "}", True),
        (".a > 1e60", '{"a": 1' + "0" * 5000 + "}", True),
        (".a | length", "{}", "BadJq"),
    ],
)
def test_a_payload_that_is_not_as_expected_is_no_error(
    source: str, payload: str, judgement: bool | str | None
) -> None:
    if judgement == "BadJq":
        with pytest.raises(BadJq):
            compile_jq(source)
    else:
        opposite = None if judgement is None else not judgement
        assert holds(source, payload) is (judgement is True)
        assert holds(f"{source} | not", payload) is (opposite is True)


def test_what_is_not_json_is_found_by_nothing_and_stops_nothing() -> None:
    rows = found(".a != 1", "{", "", "not json", '{"a": 2}')

    assert rows == [None, None, None, True]


def test_a_large_payload_is_read_as_a_small_one_is() -> None:
    large = json.dumps({"a": 1, "b": ["x" * 40_000, "\0", {"c": "\uffff"}], "d": 1e400}).replace(
        "Infinity", "1e400"
    )

    judged = [
        holds(source, large)
        for source in (".a == 1", ".b[-1].c == .b[2].c", ".b[1] == .x", ".d > 1e300", ".a > 1")
    ]

    assert judged == [True, True, False, True, False]


def test_json_of_any_depth_that_the_door_lets_in_is_read() -> None:
    deep = '{"a":' + "[" * 900 + "]" * 900 + "}"

    assert found(".a | length == 1", deep) == [True]


@pytest.mark.parametrize(
    ("source", "at", "hint"),
    [
        ("", 0, "incomplete"),
        (".a ==", 5, "incomplete"),
        (".a", -1, ""),
        ('.a == "x', 6, "no closing"),
        (r'.a == "\q"', 7, "after"),
        (r'.a == "\ud800"', 6, "surrogate"),
        (r'.a == "\u12"', 7, "four hex"),
        (r'.a == "\(.b)"', 7, "a value in a string"),
        (".a = 1", 3, "=="),
        (".a == 'x'", 6, "double quotes"),
        (".a == 01", 6, "JSON"),
        (".a == .5", 6, "0.5"),
        (".a-b == 1", 2, "arithmetic"),
        (".a-1 == 1", 2, "a key with a dash"),
        (".é == 1", 1, "needs quotes"),
        ("a == 1", 0, "with a dot"),
        (".a == b", 6, "with a dot"),
        ("1 == 1", 2, "payload"),
        ('"x"', 0, "compare"),
        (".a == 1 == true", 8, "and"),
        ("(.a == 1) == true", 4, "compared"),
        ("not .a", 0, "after its condition"),
        (".a | not(.b)", 5, "after its condition"),
        (".a[]", 3, "any"),
        (".a[1:2]", 4, "slices"),
        (".a[1.5]", 3, "index"),
        (".a[9999999999]", 3, "at most"),
        (".a[99999999999999999999999]", 3, "at most"),
        ('.a | test("x")', 5, "regular"),
        ("select(.a)", 0, "not needed"),
        ("map(.a)", 0, "unknown function"),
        ('.a?.b == "x"', 2, "not needed"),
        ("..a", 0, "write the path"),
        (".a // 1", 3, "not supported"),
        (".a, .b", 2, "one condition"),
        ("(.a", 3, "expected `)`"),
        (".a)", 2, "nothing is open"),
        ("$x", 0, "variables"),
        (".a == {}", 6, "objects"),
        (".a == []", 6, "expected a value"),
        (".a > null", 5, "=="),
        (".a | type == 5", 13, "never equal"),
        (".a | length", 5, "compare"),
        (".a | length | contains(5)", 23, "string"),
        (".a | startswith(1)", 16, "string"),
        (".a | has(-1)", 9, "index"),
        ('.tags | contains("x") and .b == 1', 26, "parentheses"),
        ("/* */ .a", 0, "arithmetic"),
        (".a; DROP TABLE jobs", 2, "one condition"),
        (".a and", 6, "incomplete"),
        ("and", 0, "expected a condition"),
        (".a == 1\0", 7, "unexpected character"),
        ("(.a | .b).c", 9, "continue the path"),
        (".a | (.b == 1 | length)", 16, "condition"),
        ("1 | .a", 0, "before"),
        (".a | 1", 3, "after"),
        (".a == 1 | .b", 10, "has no elements"),
    ],
)
def test_an_error_points_at_its_place_and_says_what_is_allowed(
    source: str, at: int, hint: str
) -> None:
    if at < 0:
        compile_jq(source)
        return

    with pytest.raises(BadJq) as caught:
        compile_jq(source)

    assert caught.value.at == at
    assert hint in caught.value.error


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (".a == " + '"' + "x" * 4000 + '"', ".a == " + '"' + "é" * 2100 + '"'),
        ("(" * 14 + ".a" + ")" * 14, "(" * 16 + ".a" + ")" * 16),
        (".a" * 16, ".a" * 17),
        (".a" * 16 + " == " + ".b" * 16, ".a" * 8 + " | " + ".b" * 9),
        (" and ".join([".a"] * 30), " and ".join([".a"] * 64)),
        ("any(any(any(.a)))", "any(any(any(any(.a))))"),
        (" | ".join([".a"] * 15), " | ".join(["."] * 17)),
        (".a" + " | not" * 14, ".a" + " | not" * 17),
        (".[999999999]", ".[1000000000]"),
        (" or ".join([".a.b == .c.d"] * 16), " or ".join([".a.b == .c.d.e"] * 13)),
    ],
)
def test_an_expression_has_limits_and_up_to_them_sqlite_takes_it(small: str, large: str) -> None:
    found(small, PAYLOAD)

    with pytest.raises(BadJq):
        compile_jq(large)


def test_the_largest_shapes_are_no_trouble_to_sqlite() -> None:
    way = ".a" * 15
    sources = [
        f"{way} == {way} or {way} != {way}",
        " or ".join([".a.b == .c.d"] * 16),
        " or ".join(["any(any(any(.a | length == 1)))"] * 7),
        "(" * 12 + ".a == 1 or .b == 2" + " and .c == 3)" * 12,
        "any(all(any(" + "(" * 9 + ".a and .b" + " | not)" * 9 + ")))",
    ]

    assert all(len(found(source, PAYLOAD)) == 1 for source in sources)


@given(st.data())
def test_sqlite_finds_what_the_plain_evaluator_finds(data: st.DataObject) -> None:
    tree = data.draw(trees())
    source = data.draw(written(tree))
    rows = data.draw(st.lists(payloads(), min_size=1, max_size=6))

    judged = found_unless_trap(source, rows)

    assert [one is True for one in judged] == [evaluator.matches(tree, row) for row in rows], source
    for one in judged:
        event(f"judged {one}")


@given(st.data())
def test_the_real_jq_finds_the_same(data: st.DataObject) -> None:
    tree = data.draw(trees(PLAIN_NUMBERS))
    source = data.draw(written(tree))
    rows = data.draw(st.lists(payloads(PLAIN_NUMBERS), min_size=1, max_size=6))
    program = jq.compile(evaluator.as_jq(tree))

    judged = found_unless_trap(source, rows)

    real = [program.input_text(row).first() for row in rows]
    assert [one is True for one in judged] == [one is True for one in real], source


@given(st.data())
def test_an_expression_means_to_the_real_jq_what_it_means_to_us(data: st.DataObject) -> None:
    """Handed over as it is written, where jq does not object and no rule of ours is another."""
    tree = data.draw(trees(PLAIN_NUMBERS).filter(is_as_in_jq))
    source = data.draw(written(tree))
    rows = data.draw(st.lists(payloads(PLAIN_NUMBERS), min_size=1, max_size=6))
    program = jq.compile(source)

    judged = found_unless_trap(source, rows)

    for one, row in zip(judged, rows, strict=True):
        try:
            [real] = program.input_text(row).all()
        except ValueError:
            event("jq objects")
            continue
        event(f"jq says {bool(real)}")
        assert (one is True) == (real is not None and real is not False), (source, row)


def is_as_in_jq(tree: evaluator.Tree) -> bool:
    """Whether there is no rule of ours in it that is another than jq's, but for errors."""
    match tree:
        case evaluator.Both():
            return is_as_in_jq(tree.left) and is_as_in_jq(tree.right)
        case evaluator.Not() | evaluator.Behind():
            return is_as_in_jq(tree.condition)
        case evaluator.Each():
            return False  # what cannot be judged inside does not hold; objects are walked by jq
        case evaluator.Compare():
            sides = (tree.left, tree.right)
            literals = [
                one
                for one in sides
                if not isinstance(one, evaluator.Path | evaluator.Call | evaluator.Chain)
            ]
            return tree.operator in {"==", "!="} and bool(literals)
        case evaluator.Ask(name="contains"):
            return isinstance(tree.argument, str)
        case _:
            return True


def found_unless_trap(source: str, rows: list[str]) -> list[bool | None]:
    try:
        return found(source, *rows)
    except BadJq as error:
        assume(not any(one in error.error for one in REFUSALS))
        raise


@given(
    st.text(
        st.sampled_from([*'.."|()[]=!<>0123-e\\ux \n\t', *"abé😀\0'", *"andornotanylength"]),
        max_size=60,
    )
    | st.lists(
        st.sampled_from(
            [
                *(".a", ".", '."b"', "[0]", "[-1]", '["c"]', "(", ")", "|", "==", "!=", "<", "and"),
                *("or", "not", "length", "type", 'contains("x")', 'has("a")', "any(", "all", "1"),
                *('"x"', "null", "true", ",", "startswith(", "ascii_downcase", "-", "1e5"),
            ]
        ),
        max_size=14,
    ).map(" ".join)
    | st.text(max_size=40)
)
def test_whatever_is_written_is_an_expression_or_refused(source: str) -> None:
    try:
        rows = found(source, PAYLOAD, "5", '"x"', "[[1]]", "null")
    except BadJq as refused:
        is_counted_by_shards = 0 <= refused.at <= len(source) and bool(refused.error)
    else:
        is_counted_by_shards = len(rows) == 5
        event("an expression")

    assert is_counted_by_shards


@given(st.data())
def test_no_letter_of_an_expression_gets_into_the_sql(data: st.DataObject) -> None:
    source = data.draw(trees().flatmap(written))
    try:
        compiled = compile_jq(source)
    except BadJq as error:
        assume(not any(one in error.error for one in REFUSALS))
        raise

    words = re.findall(r"'[^']*'|[A-Za-z_][\w.]*", compiled.text)
    assert {re.sub(r"^j[0-9]+", "j", word) for word in words} <= VOCABULARY


@given(st.data())
def test_the_sql_is_the_same_whatever_the_keys_and_values_are(data: st.DataObject) -> None:
    evil = st.sampled_from(["'", '"; DROP TABLE jobs; --', "?1", "x' OR '1'='1", "$.a", "%", "é"])
    anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
    keys = [data.draw(evil | anything) for _ in range(2)]
    template = ".[{}].b == {} or (.c | contains({})) or any(.[{}] != null)"

    plain = compile_jq(template.format('"k"', '"k"', '"k"', '"k"'))
    evils = [evaluator.spelled(key) for key in (*keys, *keys)]
    other = compile_jq(template.format(*evils))

    assert other.text == plain.text
    assert keys[0] in other.parameters
    assert keys[1] in other.parameters


@given(st.sampled_from(INTEGERS + REALS), st.sampled_from(INTEGERS + REALS))
def test_numbers_compare_as_numbers_do(one: str, other: str) -> None:
    left, right = evaluator.decoded(one), evaluator.decoded(other)
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)

    judged = [found(f". {sign} {other}", one)[0] for sign in ("<", "==", ">")]

    assert judged == [left < right, left == right, left > right]
