"""The registry of keys: what it says is what is written, and nobody's keys are in another's way."""

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.errors import BadKey
from corvo.kv import keys
from corvo.kv.keys import Kind, Space, Value

# Written out by hand: the code must not be asked what it ought to do.
# A moment is 0x0102030405060708, so that a byte out of its place shows.
MOMENT: Final = 72_623_859_790_382_856
ORIGINAL: Final[tuple[tuple[Space, str, tuple[Value, ...], bytes], ...]] = (
    (keys.JOB, "j|{jobID}", ("job_1",), b"j|job_1"),
    (keys.JOB_ERROR, r"je|{jobID}\x00{attempt:4BE}", ("job_1", 3), b"je|job_1\0\0\0\0\x03"),
    (
        keys.PENDING,
        r"p|{queue}\x00{priority:1B}{created_ns:8BE}{jobID}",
        ("mail", 1, MOMENT, "job_1"),
        b"p|mail\0\x01\x01\x02\x03\x04\x05\x06\x07\x08job_1",
    ),
    (keys.ACTIVE, r"a|{queue}\x00{jobID}", ("mail", "job_1"), b"a|mail\0job_1"),
    (
        keys.SCHEDULED,
        r"s|{queue}\x00{scheduled_ns:8BE}{jobID}",
        ("mail", MOMENT, "job_1"),
        b"s|mail\0\x01\x02\x03\x04\x05\x06\x07\x08job_1",
    ),
    (
        keys.RETRYING,
        r"r|{queue}\x00{retry_ns:8BE}{jobID}",
        ("mail", MOMENT, "job_1"),
        b"r|mail\0\x01\x02\x03\x04\x05\x06\x07\x08job_1",
    ),
    (
        keys.QUEUE_APPEND,
        r"qa|{queue}\x00{created_ns:8BE}{jobID}",
        ("mail", MOMENT, "job_1"),
        b"qa|mail\0\x01\x02\x03\x04\x05\x06\x07\x08job_1",
    ),
    (keys.QUEUE_CURSOR, "qac|{queue}", ("mail",), b"qac|mail"),
    (keys.QUEUE_CONFIG, "qc|{queue}", ("mail",), b"qc|mail"),
    (keys.QUEUE_NAME, "qn|{queue}", ("mail",), b"qn|mail"),
    (keys.UNIQUE, r"u|{queue}\x00{unique_key}", ("mail", "user-7"), b"u|mail\0user-7"),
    (
        keys.RATE_LIMIT,
        r"l|{queue}\x00{fetched_ns:8BE}{random:8BE}",
        ("mail", MOMENT, 0xF1F2F3F4F5F6F7F8),
        b"l|mail\0\x01\x02\x03\x04\x05\x06\x07\x08\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8",
    ),
    (keys.BATCH, "b|{batchID}", ("batch_1",), b"b|batch_1"),
    (keys.WORKER, "w|{workerID}", ("worker-1",), b"w|worker-1"),
    (keys.SCHEDULE, "sc|{scheduleID}", ("sched_1",), b"sc|sched_1"),
    (keys.EVENT, "ev|{seq:8BE}", (MOMENT,), b"ev|\x01\x02\x03\x04\x05\x06\x07\x08"),
    (keys.EVENT_CURSOR, "evc|", (), b"evc|"),
    (keys.BUDGET, r"bg|{scope}\x00{target}", ("queue", "mail"), b"bg|queue\0mail"),
    (keys.PROVIDER, "pv|{name}", ("smtp",), b"pv|smtp"),
    (keys.QUEUE_PROVIDER, "qp|{queue}", ("mail",), b"qp|mail"),
)
OURS: Final[tuple[tuple[Space, tuple[Value, ...], bytes], ...]] = (
    (keys.TIMER, (2, MOMENT, "job_1"), b"t|\x02\x01\x02\x03\x04\x05\x06\x07\x08job_1"),
    (keys.FINISHED, ("mail", MOMENT, "job_1"), b"f|mail\0\x01\x02\x03\x04\x05\x06\x07\x08job_1"),
    (keys.HELD, ("mail", MOMENT, "job_1"), b"h|mail\0\x01\x02\x03\x04\x05\x06\x07\x08job_1"),
    (keys.BLOCKED, ("mail", MOMENT, "job_1"), b"bl|mail\0\x01\x02\x03\x04\x05\x06\x07\x08job_1"),
    (keys.DEPENDENT, ("job_1", "job_1"), b"dp|job_1\0job_1"),
    (keys.COUNTS, ("mail",), b"qs|mail"),
    (keys.THROUGHPUT, ("mail", 7), b"tp|mail\0\x07"),
    (keys.REQUEST, ("pay-17",), b"rk|pay-17"),
    (keys.OUTBOX, (2, 7), b"ob|\0\0\0\x02\0\0\0\0\0\0\0\x07"),
    (keys.INBOX, (1,), b"ib|\0\0\0\x01"),
    (keys.FORWARD, ("job_1",), b"fw|job_1"),
    (keys.WATCHER, ("job_1", 2), b"dw|job_1\0\0\0\0\x02"),
    (keys.WATCHED, ("job_1",), b"dx|job_1"),
    (keys.ENDING, ("job_1",), b"de|job_1"),
    (keys.API_KEY, ("9f86d081",), b"ak|9f86d081"),
    (keys.META, ("applied",), b"m|applied"),
)
EXAMPLES: Final = {
    space.name: (values, key)
    for space, values, key in (*((it, values, key) for it, _, values, key in ORIGINAL), *OURS)
}

NAMES: Final = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1
)
FIELDS: Final[dict[Kind, st.SearchStrategy[Value]]] = {
    Kind.TEXT: NAMES,
    Kind.TAIL: NAMES,
    Kind.U8: st.integers(0, 2**8 - 1),
    Kind.U32: st.integers(0, 2**32 - 1),
    Kind.U64: st.integers(0, 2**64 - 1),
}

BAD_NAMES: Final = {
    "empty": "",
    "with a zero byte": "ma\0il",
    "that ends with a zero byte": "mail\0",
    "with half of a surrogate pair": "ma\ud800il",
}


def values_of(space: Space) -> st.SearchStrategy[tuple[Value, ...]]:
    return st.tuples(*(FIELDS[field.kind] for field in space.fields))


def in_order(values: tuple[Value, ...]) -> tuple[int | bytes, ...]:
    """What fields are compared by: text by its bytes, numbers by their size."""
    return tuple(value.encode() if isinstance(value, str) else value for value in values)


spaces: Final = pytest.mark.parametrize("space", keys.SPACES, ids=lambda space: space.name)


# The layouts of the original, which other programs know.


@pytest.mark.parametrize(("space", "layout", "values", "key"), ORIGINAL, ids=lambda it: "")
def test_a_key_of_the_original_is_the_same_byte_for_byte(
    space: Space, layout: str, values: tuple[Value, ...], key: bytes
) -> None:
    built = space.build(*values)

    assert built == key
    assert space.layout == layout
    assert space.parse(key) == values


def test_all_twenty_spaces_of_the_original_are_there_and_compared() -> None:
    compared = tuple(space for space, _, _, _ in ORIGINAL)

    assert len(compared) == 20
    assert keys.SPACES[:20] == compared


# The registry.


@spaces
def test_the_example_of_a_space_is_what_it_builds(space: Space) -> None:
    values, key = EXAMPLES[space.name]

    assert space.build(*values) == key
    assert space.parse(key) == values


@spaces
def test_the_layout_of_a_space_begins_with_its_prefix(space: Space) -> None:
    head, bar, _ = space.layout.partition("|")

    assert bar
    assert space.prefix == head.encode() + b"|"
    assert head.isascii()
    assert head.isalpha()
    assert head.islower()


@spaces
def test_every_field_of_a_space_is_read_from_its_layout(space: Space) -> None:
    written = {
        Kind.TEXT: "{%s}\\x00",
        Kind.TAIL: "{%s}",
        Kind.U8: "{%s:1B}",
        Kind.U32: "{%s:4BE}",
        Kind.U64: "{%s:8BE}",
    }

    fields = "".join(written[field.kind] % field.name for field in space.fields)

    assert space.prefix.decode() + fields == space.layout


def test_spaces_are_told_apart_by_name_and_by_prefix() -> None:
    names = {space.name for space in keys.SPACES}
    prefixes = {space.prefix for space in keys.SPACES}

    assert len(names) == len(keys.SPACES)
    assert len(prefixes) == len(keys.SPACES)


def test_every_space_that_the_module_names_is_registered() -> None:
    named = [value for value in vars(keys).values() if isinstance(value, Space)]

    assert tuple(named) == keys.SPACES


def test_no_key_of_a_space_lies_among_those_of_another() -> None:
    ranges = sorted((space.prefix, keys.prefix_end(space.prefix)) for space in keys.SPACES)

    apart = [stop <= start for (_, stop), (start, _) in pairwise(ranges)]

    assert all(apart)


# What is built can be read again, and is in order.


@given(st.sampled_from(keys.SPACES).flatmap(lambda it: st.tuples(st.just(it), values_of(it))))
def test_what_was_built_is_parsed_again(case: tuple[Space, tuple[Value, ...]]) -> None:
    space, values = case

    key = space.build(*values)

    assert space.parse(key) == values
    assert space.prefix <= key < keys.prefix_end(space.prefix)


@given(
    st.sampled_from(keys.SPACES).flatmap(
        lambda it: st.tuples(st.just(it), values_of(it), values_of(it))
    )
)
def test_the_order_of_keys_is_the_order_of_their_fields(
    case: tuple[Space, tuple[Value, ...], tuple[Value, ...]],
) -> None:
    space, one, other = case

    before = space.build(*one) < space.build(*other)

    assert before == (in_order(one) < in_order(other))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**64 - 1)), min_size=2))
def test_pending_keys_sort_by_priority_and_then_by_time(places: list[tuple[int, int]]) -> None:
    built = [keys.PENDING.build("mail", *place, "job_1") for place in places]

    assert [keys.PENDING.parse(key)[1:3] for key in sorted(built)] == sorted(places)


@given(
    st.sampled_from(
        [space for space in keys.SPACES if space.fields and space.fields[0].kind is Kind.TEXT]
    ).flatmap(lambda it: st.tuples(st.just(it), values_of(it), values_of(it)))
)
def test_the_keys_of_one_name_are_apart_from_those_of_any_other(
    case: tuple[Space, tuple[Value, ...], tuple[Value, ...]],
) -> None:
    space, one, other = case
    name = one[0]
    assert isinstance(name, str)
    prefix = space.prefix + name.encode() + b"\0"

    is_inside = prefix <= space.build(*other) < keys.prefix_end(prefix)

    assert is_inside == (other[0] == name)


@given(st.sampled_from(keys.SPACES), st.binary(max_size=40))
def test_any_bytes_are_either_a_key_or_a_bad_key(space: Space, garbage: bytes) -> None:
    key = space.prefix + garbage

    try:
        values = space.parse(key)
    except BadKey:
        return

    assert space.build(*values) == key


# Refusals.


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
@spaces
def test_a_bad_name_is_part_of_no_key(space: Space, name: str) -> None:
    texts = [at for at, field in enumerate(space.fields) if field.kind in {Kind.TEXT, Kind.TAIL}]

    for at in texts:
        example, _ = EXAMPLES[space.name]
        values = (*example[:at], name, *example[at + 1 :])
        with pytest.raises(BadKey, match=space.fields[at].name):
            space.build(*values)


@spaces
def test_a_number_that_does_not_fit_is_part_of_no_key(space: Space) -> None:
    widths = {Kind.U8: 8, Kind.U32: 32, Kind.U64: 64}
    numbers = [(at, widths[it.kind]) for at, it in enumerate(space.fields) if it.kind in widths]

    example, _ = EXAMPLES[space.name]

    for at, bits in numbers:
        for number in (-1, 1 << bits):
            with pytest.raises(BadKey, match=space.fields[at].name):
                space.build(*example[:at], number, *example[at + 1 :])


@spaces
def test_a_field_of_the_wrong_type_is_part_of_no_key(space: Space) -> None:
    example, _ = EXAMPLES[space.name]

    for at, value in enumerate(example):
        wrong: Value = 1 if isinstance(value, str) else "1"
        with pytest.raises(BadKey, match=space.fields[at].name):
            space.build(*example[:at], wrong, *example[at + 1 :])


@spaces
def test_a_key_has_as_many_fields_as_its_layout(space: Space) -> None:
    example, _ = EXAMPLES[space.name]

    with pytest.raises(BadKey, match=f"has {len(space.fields)} fields"):
        space.build(*example, "more")
    if example:
        with pytest.raises(BadKey, match=f"has {len(space.fields)} fields"):
            space.build(*example[:-1])


@spaces
def test_a_key_of_one_space_is_none_of_another(space: Space) -> None:
    others = [other for other in keys.SPACES if other is not space]

    for other in others:
        with pytest.raises(BadKey, match="is not a key of"):
            other.parse(EXAMPLES[space.name][1])


def test_a_key_that_is_cut_short_or_too_long_is_refused() -> None:
    key = keys.JOB_ERROR.build("job_1", 3)

    with pytest.raises(BadKey, match="attempt is cut short"):
        keys.JOB_ERROR.parse(key[:-1])
    with pytest.raises(BadKey, match="1 bytes too many"):
        keys.JOB_ERROR.parse(key + b"\0")
    with pytest.raises(BadKey, match="jobID does not end"):
        keys.JOB_ERROR.parse(b"je|job_1")


# Values and ranges.


def test_the_value_of_a_unique_lock_is_the_id_a_bar_and_the_time() -> None:
    value = keys.unique_value("job_1", MOMENT)

    assert value == b"job_1|\x01\x02\x03\x04\x05\x06\x07\x08"


@given(NAMES, st.integers(0, 2**64 - 1))
def test_the_value_of_a_unique_lock_is_parsed_again(job_id: str, expires_ns: int) -> None:
    value = keys.unique_value(job_id, expires_ns)

    assert keys.parse_unique_value(value) == (job_id, expires_ns)


@pytest.mark.parametrize(("job_id", "expires_ns"), [("a|b", 1), ("job_1|", 2), ("|", 0x7C7C << 48)])
def test_a_bar_in_the_id_or_in_the_time_does_not_confuse(job_id: str, expires_ns: int) -> None:
    value = keys.unique_value(job_id, expires_ns)

    assert keys.parse_unique_value(value) == (job_id, expires_ns)


@pytest.mark.parametrize("value", [b"", b"|12345678", b"job_1|1234567", b"job_1 12345678"])
def test_bytes_that_are_no_unique_lock_are_refused(value: bytes) -> None:
    with pytest.raises(BadKey, match="unique lock"):
        keys.parse_unique_value(value)


@given(st.binary(max_size=30).map(lambda it: it + b"|"), st.lists(st.binary(max_size=40)))
def test_prefix_end_is_behind_all_that_begin_with_the_prefix(
    prefix: bytes, others: list[bytes]
) -> None:
    candidates = [*others, *(prefix + other for other in others), prefix, prefix + b"\xff" * 9]

    found = [key for key in candidates if prefix <= key < keys.prefix_end(prefix)]

    assert found == [key for key in candidates if key.startswith(prefix)]


def test_a_prefix_that_nothing_is_behind_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="prefixes end"):
        keys.prefix_end(b"a\xff")
