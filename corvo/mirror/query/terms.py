"""A filter as conditions in SQL, each a constant text with parameters.

Nothing that a client wrote is in the text; how many things it named may show in it.
"""

from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from corvo.errors import CorvoError
from corvo.mirror.follow.schema import JOBS
from corvo.mirror.jq import BadJq, compile_jq
from corvo.model import STATES
from corvo.protocol.questions import Filter, Refused
from corvo.protocol.reasons import DLQ_REASONS
from corvo.protocol.words import PRIORITIES, PRIORITY_FORM, priority_number, state_words
from corvo.scopes import EVERYTHING, NOTHING, Scope
from corvo.times import NS_MAX, parse_time, sortable

Value: TypeAlias = str | int | None
F = TypeVar("F", bound=Filter)

STATE_WORDS: Final = tuple(state.word for state in STATES)
_WORDS: Final = {number: word for word, number in reversed(PRIORITIES.items())}
"""Of priorities: of two words for the same number, the first."""
_SHOWN: Final = 60
_LAST_LETTER: Final = "\U0010ffff"

encode_json: Final = msgspec.json.Encoder(order="sorted").encode
_decode_tags: Final = msgspec.json.Decoder(dict[str, str]).decode


class NotAnswered(CorvoError):
    """A question is refused; `refused` says why."""

    def __init__(self, code: str, error: str, field: str = "") -> None:
        super().__init__(error)
        self.refused: Final = Refused(code=code, error=error, field=field)


def bad_filter(field: str, error: str) -> NotAnswered:
    """An invalid field; the sentence says what is allowed."""
    return NotAnswered("bad_filter", f"{field}: {error}", field)


class Condition(NamedTuple):
    """A piece of SQL that is true of the jobs that are meant, and what it asks for."""

    text: str
    parameters: tuple[Value, ...] = ()


def all_of(conditions: list[Condition]) -> Condition:
    """All of them; of none, what is always true."""
    text = " AND ".join(f"({condition.text})" for condition in conditions)
    return Condition(text or "1", tuple(p for each in conditions for p in each.parameters))


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of a filter: conditions on jobs, and what an index needs to know of them."""

    light: dict[str, Condition]
    """By name: conditions on a job's short columns, which cost next to nothing."""
    heavy: list[Condition]
    """Conditions on long texts or on other tables."""
    payload_jq: str = ""
    """An expression that is not compiled yet: see `compiled`."""
    queue: str = ""
    """Empty: of any queue that may be seen."""
    states: tuple[str, ...] = ()
    """Empty: any."""
    priority: int | None = None
    scope: Scope = EVERYTHING
    """The queues that a job may be in, where `queue` is empty."""
    worker_id: str = ""
    is_void: bool = False
    """No job is meant."""

    def parameter(self, name: str) -> Value:
        """What a light condition compares with; None when there is no such condition."""
        condition = self.light.get(name)
        return None if condition is None else condition.parameters[0]

    def without(self, *names: str) -> list[Condition]:
        """The light conditions but those."""
        return [condition for name, condition in self.light.items() if name not in names]


_FIELDS: Final = frozenset(Filter.__struct_fields__)
_OWN: Final = frozenset({"dlq_reason", "priority", "state", "tags", "worker_id"})
"""Fields named as a column that have a condition of their own."""
_EQUAL: Final = tuple(one.name for one in JOBS.columns if one.name in _FIELDS - _OWN)
"""Fields named as a column: the column has this value."""
_MOMENTS: Final = {
    stem: one.name
    for one in JOBS.columns
    if f"{(stem := one.name.removesuffix('_at'))}_after" in _FIELDS
}
"""By the stem of a filter's two names, `created_after` and `created_before`: the column."""


def understand(given: Filter, scope: Scope) -> Meaning:
    """The meaning of a filter for a caller with a scope. Raises `NotAnswered`.

    Its `payload_jq` is left to `compiled`, for that may take long.
    """
    light: dict[str, Condition] = {}
    for name in _EQUAL:
        word = _text(given, name)
        if word is not None:
            light[name] = Condition(f"{name} = ?", (word,))
    states = _states(given.state)
    if states:
        light["state"] = Condition(f"state IN ({', '.join('?' * len(states))})", states)
    priority = _priority(given.priority)
    if priority is not None:
        light["priority"] = Condition("priority = ?", (priority,))
    _add_moments(given, light)
    _add_attempts(given, light)
    if given.has_errors is not None:
        light["has_errors"] = Condition("failures > 0" if given.has_errors else "failures = 0")
    dlq_reason = _text(given, "dlq_reason")
    if dlq_reason is not None:
        light["dlq_reason"] = _dlq_reason(dlq_reason)
    prefix = _text(given, "job_id_prefix")
    if prefix is not None:
        light["job_id_prefix"] = begins("id", prefix)
    if given.queue is None:
        is_seen = scope != NOTHING
        light["reserved"] = NOT_RESERVED
        if not scope.has_everything:
            light["scope"] = in_scope("queue", scope)
    else:
        is_seen = scope.covers(given.queue)
    return Meaning(
        light=light,
        heavy=_heavy(given),
        payload_jq=_text(given, "payload_jq") or "",
        queue=given.queue or "",
        states=states,
        priority=priority,
        scope=scope if given.queue is None else EVERYTHING,
        worker_id=given.worker_id or "",
        is_void=not is_seen,
    )


NOT_RESERVED: Final = Condition("queue < '_corvo.' OR queue >= '_corvo/'")
"""The queues of the server itself have jobs for whoever asks for them by name."""


def in_scope(column: str, scope: Scope) -> Condition:
    """The queues of a scope in SQL: of an empty one, what is never true."""
    if scope.has_everything:
        return Condition("1")
    conditions = [
        begins(column, one[:-1]) if one.endswith("*") else Condition(f"{column} = ?", (one,))
        for one in scope.names
    ]
    text = " OR ".join(f"({condition.text})" for condition in conditions)
    return Condition(text or "0", tuple(p for each in conditions for p in each.parameters))


def begins(column: str, prefix: str) -> Condition:
    """Texts that begin with another: a range, for texts are compared letter by letter."""
    if not prefix:
        return Condition(f"{column} >= ?", ("",))
    end = _behind_all(prefix)
    if end is None:
        return Condition(f"{column} >= ?", (prefix,))
    return Condition(f"{column} >= ? AND {column} < ?", (prefix, end))


def _behind_all(prefix: str) -> str | None:
    """The first text behind all that begin with a prefix; None when there is none."""
    stem = prefix.rstrip(_LAST_LETTER)
    if not stem:
        return None
    next_letter = ord(stem[-1]) + 1
    # Surrogates are no letters of a text.
    return stem[:-1] + chr(0xE000 if next_letter == 0xD800 else next_letter)


def has_tags(stored: str | None, wanted: str) -> bool:
    """Whether tags, as they are stored, have all of the wanted ones."""
    if stored is None:
        return False
    return _decode_tags(wanted).items() <= _decode_tags(stored).items()


def _text(given: Filter, name: str) -> str | None:
    text: str | None = getattr(given, name)
    if text == "":
        raise bad_filter(name, "expected a value; leave the field out to match all jobs")
    return text


def _states(given: list[str] | str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    words = state_words(given)
    if not given:
        raise bad_filter("state", "expected a value; leave the field out to match all jobs")
    for word in words:
        if word not in STATE_WORDS:
            raise bad_filter(
                "state", f"expected one of {', '.join(STATE_WORDS)}; got {_quoted(word)}"
            )
    return tuple(dict.fromkeys(words))


def _priority(given: str | int | None) -> int | None:
    if given is None:
        return None
    number = priority_number(given)
    if number is None:
        raise bad_filter("priority", f"expected {PRIORITY_FORM}; got {_quoted(str(given))}")
    return number


def written_one_way(given: F) -> F:
    """The same filter, where a value can be written in several ways in one of them."""
    if isinstance(given.state, str):
        given = replace(given, state=state_words(given.state))
    number = _priority(given.priority)
    return given if number is None else replace(given, priority=_WORDS[number])


def _dlq_reason(word: str) -> Condition:
    if word not in DLQ_REASONS:
        allowed = ", ".join(DLQ_REASONS)
        raise bad_filter("dlq_reason", f"expected one of {allowed}; got {_quoted(word)}")
    return Condition("dlq_reason = ?", (word,))


def _add_moments(given: Filter, light: dict[str, Condition]) -> None:
    for stem, column in _MOMENTS.items():
        after = _moment(given, f"{stem}_after")
        before = _moment(given, f"{stem}_before")
        if after is not None:
            light[f"{stem}_after"] = Condition(f"{column} > ?", (after,))
        if before is not None:
            light[f"{stem}_before"] = Condition(f"{column} < ?", (before,))
        if after is not None and before is not None and after > before:
            raise bad_filter(f"{stem}_after", f"expected a time before {stem}_before")


def _moment(given: Filter, name: str) -> str | None:
    text = _text(given, name)
    if text is None:
        return None
    at_ns = parse_time(text)
    if at_ns is None:
        example = "2026-02-20T10:00:05Z, 2026-02-20T11:00:05.25+01:00 or 2026-02-20"
        raise bad_filter(
            name, f"expected a time by RFC 3339 or a date, such as {example}; got {_quoted(text)}"
        )
    return sortable(min(max(0, at_ns), NS_MAX))


def _add_attempts(given: Filter, light: dict[str, Condition]) -> None:
    least, most = given.attempt_min, given.attempt_max
    if least is not None:
        light["attempt_min"] = Condition("attempt >= ?", (least,))
    if most is not None:
        light["attempt_max"] = Condition("attempt <= ?", (most,))
    if least is not None and most is not None and least > most:
        raise bad_filter(
            "attempt_min", f"expected at most attempt_max, which is {most}; got {least}"
        )


_ERROR: Final = (
    "EXISTS (SELECT 1 FROM job_errors INDEXED BY idx_job_errors_job"
    " WHERE job_errors.job_id = jobs.id"
    " AND job_errors.shard = jobs.shard AND {})"
)


def _heavy(given: Filter) -> list[Condition]:
    """The heavy conditions, the cheapest first."""
    heavy = []
    worker_id = _text(given, "worker_id")
    if worker_id is not None:
        failed_it = _ERROR.format("job_errors.worker_id = ?")
        heavy.append(Condition(f"worker_id = ? OR failures > 0 AND {failed_it}", (worker_id,) * 2))
    if given.tags is not None:
        if not given.tags:
            raise bad_filter("tags", "expected a value; leave the field out to match all jobs")
        heavy.append(_tags(given.tags))
    piece = _text(given, "error_contains")
    if piece is not None:
        found = _ERROR.format("instr(job_errors.error, ?) > 0")
        meant = f"instr(reason, ?) > 0 OR failures > 0 AND {found}"
        heavy.append(Condition(meant, (piece, piece)))
    piece = _text(given, "payload_contains")
    if piece is not None:
        heavy.append(Condition("instr(payload, ?) > 0", (piece,)))
    return heavy


def compiled(meaning: Meaning) -> Meaning:
    """The same with its `payload_jq` among the heavy conditions. Raises `NotAnswered`."""
    if not meaning.payload_jq:
        return meaning
    try:
        found = compile_jq(meaning.payload_jq)
    except BadJq as error:
        raise bad_filter("payload_jq", str(error)) from None
    condition = Condition(found.text, found.parameters)
    return replace(meaning, heavy=[*meaning.heavy, condition], payload_jq="")


def _tags(tags: dict[str, str]) -> Condition:
    """Tags are stored as canonical JSON, so a job that has one has its text, too.

    That is told in no time. It is not proof, for the text could be made of the ends of two others:
    where it is there, the tags are read.
    """
    pairs = [encode_json({key: value})[1:-1].decode() for key, value in tags.items()]
    texts = ["instr(tags, ?) > 0"] * len(pairs)
    return Condition(
        f"{' AND '.join(texts)} AND has_tags(tags, ?)", (*pairs, encode_json(tags).decode())
    )


def _quoted(text: str) -> str:
    return repr(text[:_SHOWN])
