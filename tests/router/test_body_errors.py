"""The sentences about bodies that do not have the expected form."""

import re

import msgspec
import pytest

from corvo.router.bulk.requests import BulkBody
from corvo.router.enqueue.bodies import EnqueueBatchBody, EnqueueBody
from corvo.router.http.body_errors import explain
from corvo.router.keys.endpoints import NewKey, OldKey
from corvo.router.leases.fetch import FetchBody
from corvo.router.leases.verbs import AckBody, HeartbeatBody
from corvo.router.table import ROUTES

BODIES = {row.takes for row in ROUTES.rows if row.takes is not None}
VALUES: tuple[object, ...] = (
    7,
    -7,
    1 << 70,
    0.5,
    "?",
    "",
    True,
    [],
    [[]],
    {},
    {"a": 1},
    "x" * 5_000,
    [1] * 30_000,
)


def sentence(body: type, value: object) -> tuple[str, str]:
    """The field and the sentence of a refused body."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(value), type=body)
    return explain(caught.value, body)


@pytest.mark.parametrize(
    ("body", "value", "error"),
    [
        (
            EnqueueBody,
            {"queue": "a", "unique_period": []},
            'unique_period: expected a whole number or a duration, such as "1h"; got a list',
        ),
        (EnqueueBody, {}, 'queue is required, such as "mail"'),
        (EnqueueBody, [], "the body: expected an object; got a list"),
        (EnqueueBody, {"queue": ""}, 'queue: expected at least 1 character, such as "mail"'),
        (
            EnqueueBody,
            {"queue": "a", "delay": 5},
            'delay: expected a duration, such as "1h30m"; got a whole number',
        ),
        (
            EnqueueBody,
            {"queue": "a", "scheduled_at": 5},
            (
                'scheduled_at: expected a time by RFC 3339, such as "2026-02-20T10:00:05Z"; '
                "got a whole number"
            ),
        ),
        (
            EnqueueBody,
            {"queue": "a", "priority": True},
            'priority: expected a whole number or a string, such as "high"; got a boolean',
        ),
        (
            EnqueueBody,
            {"queue": "a", "priority": 7},
            "priority: expected a whole number from 0 to 2",
        ),
        (
            EnqueueBody,
            {"queue": "a", "tags": {"a": 1}},
            'tags[...]: expected a string, such as "acme"; got a whole number',
        ),
        (
            EnqueueBatchBody,
            {"jobs": [{"queue": "a"}, {"queue": "a", "expire_active": "yes"}]},
            "jobs[1].expire_active: expected true or false, such as true; got a string",
        ),
        (EnqueueBatchBody, {"jobs": []}, "jobs: expected at least 1 item"),
        (
            FetchBody,
            {"queues": ["a"], "lease_seconds": 100_000},
            "lease_seconds: expected a whole number of seconds from 1 to 86400, such as 60",
        ),
        (
            FetchBody,
            {"queues": ["a", 7]},
            'queues[1]: expected a string, such as "mail"; got a whole number',
        ),
        (
            AckBody,
            {"lease_token": -1},
            "lease_token: expected a whole number of at least 0, such as 7",
        ),
        (
            AckBody,
            {"usage": {"cost_usd": "x"}},
            "usage.cost_usd: expected a number of US dollars, such as 0.0125; got a string",
        ),
        (
            BulkBody,
            {"action": "retry", "filter": {"statee": ["dead"]}},
            "filter: unknown field statee; did you mean state?",
        ),
        (BulkBody, {"action": "retry", "zzzz": 1}, "the body: unknown field zzzz"),
        (
            NewKey,
            {"name": "a", "role": "boss"},
            (
                'role: expected one of "admin", "operator", "producer", "readonly", "worker"; '
                "got 'boss'"
            ),
        ),
        (
            NewKey,
            {"name": "a", "namespace": 3},
            'namespace: expected "default", such as "default"; got a whole number',
        ),
        (
            HeartbeatBody,
            {"jobs": {"": {}}},
            "jobs: name of a field: expected at least 1 character",
        ),
        (
            HeartbeatBody,
            {"jobs": {"j": {"lease_token": "x"}}},
            "jobs[...].lease_token: expected a whole number, such as 7; got a string",
        ),
    ],
)
def test_an_error_names_the_field_the_expected_form_and_an_example(
    body: type, value: object, error: str
) -> None:
    assert sentence(body, value)[1] == error


def test_characters_that_are_not_allowed_are_answered_with_an_example() -> None:
    field, error = sentence(OldKey, {"key_hash": "?"})

    assert field == "key_hash"
    assert re.fullmatch(
        'key_hash: some characters are not allowed; expected a value such as "[0-9a-f]{64}"', error
    )


def test_a_long_value_is_cut() -> None:
    assert len(sentence(NewKey, {"name": "a", "role": "x" * 500})[1]) < 200


@pytest.mark.parametrize("body", sorted(BODIES, key=str))
def test_no_error_of_any_field_speaks_python(body: type[msgspec.Struct]) -> None:
    fields = msgspec.structs.fields(body)
    required = {field.encode_name: field for field in fields if field.required}
    decode = msgspec.json.Decoder(body).decode
    told: list[str] = []

    for field in fields:
        for value in VALUES:
            given = {**dict.fromkeys(required, "a"), field.encode_name: value}
            try:
                decode(msgspec.json.encode(given))
            except msgspec.ValidationError as error:
                told.append(explain(error, body).sentence)

    assert told
    for each in told:
        assert re.search(r"(expected |required|unknown field|not allowed|too large)", each), each
        assert not re.search(r"`|\b(int|str|float|dict|array|Object|regex|length|enum)\b", each), (
            each
        )
