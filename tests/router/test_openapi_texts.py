"""The texts of the OpenAPI document: everything has one, with unit, default and example."""

import re
from collections.abc import Iterator
from typing import Final, cast

from corvo.router.openapi.document import problems_of
from corvo.router.table import ROUTES
from corvo.router.texts import key_of, texts
from tests.router.schemas import Schema, breaches
from tests.router.test_openapi import DOCUMENT, ROWS, of, operation

UNITS: Final = (
    ("_ms(_max)?$|^ms$", "millisecond"),
    ("_ns$", "nanosecond"),
    ("_s$|seconds|^p[0-9]+$|^avg$|^le$", "second"),
    ("_bytes$", "bytes"),
    ("_usd$", "US dollars"),
    ("(_at|_after|_before)$", "RFC 3339|duration"),
)
"""By a pattern for the name of a field, what its text has to name."""


def schemas() -> Iterator[tuple[str, Schema]]:
    for name, schema in of("components", "schemas").items():
        yield name, cast("Schema", schema)


def properties() -> Iterator[tuple[str, str, Schema]]:
    for name, schema in schemas():
        for field, one in cast("dict[str, Schema]", schema.get("properties", {})).items():
            yield name, field, one


def enums(value: object) -> Iterator[str]:
    """The values of all enums in a schema, those that it refers to left out."""
    match value:
        case dict():
            yield from (str(one) for one in value.get("enum", []) if one != "")
            for key, item in value.items():
                yield from () if key in {"enum", "examples"} else enums(item)
        case list():
            for item in value:
                yield from enums(item)
        case _:
            pass


def test_everything_in_the_document_has_a_text() -> None:
    operations = {name: operation(row) for name, row in ROWS.items()}
    parameters = [
        one
        for each in operations.values()
        for one in cast("list[Schema]", each.get("parameters", []))
    ]
    responses = [
        cast("Schema", one)
        for each in operations.values()
        for one in of("responses", within=each).values()
    ]
    told: list[tuple[object, Schema]] = [
        *operations.items(),
        *((each["name"], each) for each in parameters),
        *((each, each) for each in responses if "$ref" not in each),
        *(
            (name, cast("Schema", each))
            for kind in ("responses", "headers")
            for name, each in of("components", kind).items()
        ),
        *schemas(),
        *((f"{name}.{field}", each) for name, field, each in properties()),
        *((each["name"], each) for each in cast("list[Schema]", DOCUMENT["tags"])),
    ]

    missing = [name for name, each in told if not str(each.get("description", "")).endswith(".")]

    assert len(told) > 1_200
    assert not missing, f"write sentences for these: {missing}"
    assert not [each["name"] for each in parameters if "example" not in each]


def test_no_text_is_of_nothing() -> None:
    used = {key_of(name, field) for name, field, _ in properties()}

    assert used == texts().fields.keys(), f"remove {texts().fields.keys() - used}"
    assert {name for name, _ in schemas()} == texts().schemas.keys()
    assert {row.tag for row in ROUTES.rows} == texts().tags.keys()
    statuses = {status for row in ROUTES.rows for status in (*row.gives, *problems_of(row))}
    assert statuses == texts().statuses.keys()


def test_a_field_that_is_new_has_no_text_yet() -> None:
    assert key_of("EnqueueBody", "colour") == ""
    assert key_of("EnqueueBody", "error") == "error"
    assert key_of("ProblemBody", "error") == "ProblemBody.error"


def test_a_field_has_an_example_that_it_allows() -> None:
    for name, field, schema in properties():
        is_made_of_others = "$ref" in str(schema)
        examples = cast("list[object]", schema.get("examples", []))
        assert (
            examples
            or is_made_of_others
            or not schema.keys() - {"description"}
            or field in {"samples", "chain_id", "chain_step"}
        ), f"{name}.{field} has no example"
        for example in examples:
            assert not list(breaches(DOCUMENT, schema, example)), f"{name}.{field}: {example!r}"


def test_a_number_names_its_unit() -> None:
    for name, field, schema in properties():
        for pattern, unit in UNITS:
            if re.search(pattern, field) and schema.get("examples"):
                text = str(schema["description"])
                assert re.search(unit, text), f"{name}.{field} does not name {unit}: {text}"


def test_a_field_of_a_request_that_may_be_left_out_names_its_default() -> None:
    bodies = {row.takes.__name__ for row in ROUTES.rows if row.takes is not None}

    for name, field, schema in properties():
        if name in bodies:
            required = cast("list[str]", of("components", "schemas", name).get("required", []))
            text = str(schema["description"])
            assert ("Default: " in text) is (field not in required), f"{name}.{field}: {text}"


def test_every_value_of_an_enum_is_in_the_text() -> None:
    for name, schema in schemas():
        for value in schema.get("enum", []):  # type: ignore[attr-defined]
            assert f"`{value}`" in str(schema["description"]), f"{name}: {value}"
    for name, field, schema in properties():
        for value in enums(schema):
            assert f"`{value}`" in str(schema["description"]), f"{name}.{field}: {value}"
