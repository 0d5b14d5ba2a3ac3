"""Texts of the HTTP API that stand in texts.toml: of fields, schemas, statuses, tags, parameters.

The file is read when the OpenAPI document or an error first needs a text. It says how a field finds
its text. That text is the only one: a remark in a struct is for maintainers.
"""

from functools import cache
from pkgutil import get_data

import msgspec
from msgspec.structs import replace


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a field."""

    about: str
    example: object = None
    example_json: str = ""
    default: str = ""
    """The value of a request's field that is left out; empty where that is only `not set`."""


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    tags: dict[str, str]
    statuses: dict[int, str]
    schemas: dict[str, str]
    parameters: dict[str, object]
    """Examples of parameters in paths and queries."""
    fields: dict[str, Field]
    """By `Schema.field`, or by `field` alone."""


@cache
def texts() -> Texts:
    """All texts, each field under every name that it has."""
    data = get_data("corvo.router", "texts.toml")
    assert data is not None, "the package has lost texts.toml"
    read = msgspec.toml.decode(data, type=Texts)
    fields: dict[str, Field] = {}
    for names, field in read.fields.items():
        example = msgspec.json.decode(field.example_json) if field.example_json else field.example
        for name in names.split(", "):
            assert name not in fields, f"{name} has two texts"
            fields[name] = replace(field, example=example)
    return replace(read, fields=fields)


def key_of(schema: str, field: str) -> str:
    """The row of a field of a schema; empty when there is none."""
    own, fields = f"{schema}.{field}", texts().fields
    return own if own in fields else field if field in fields else ""


def parameter_example(name: str) -> object:
    """The example of a parameter in a path or query: that of the field of its name, or its own."""
    own = texts().parameters
    return own[name] if name in own else texts().fields[name].example
