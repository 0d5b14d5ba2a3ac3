"""A judge of JSON by the schemas of our own document: as much of JSON Schema as that has in it."""

import re
from collections.abc import Iterator
from typing import Final, cast

Schema = dict[str, object]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_KNOWN: Final = {
    "$ref",
    "additionalProperties",
    "anyOf",
    "default",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "oneOf",
    "pattern",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "title",
    "type",
}
"""What is judged by, or says nothing about the value. Anything else would be passed over unseen."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


def breaches(document: Schema, schema: Schema, value: object, at: str = "$") -> Iterator[str]:
    """What is wrong with a value."""
    assert schema.keys() <= _KNOWN, f"nobody judges {sorted(schema.keys() - _KNOWN)}"
    if "$ref" in schema:
        yield from breaches(document, resolve(document, str(schema["$ref"])), value, at)
        return
    kinds = schema.get("type")
    if kinds is not None:
        named = [kinds] if isinstance(kinds, str) else cast("list[str]", kinds)
        if not any(_is(value, kind) for kind in named):
            yield f"{at}: {value!r:.60} is no {kinds}"
            return
    if "enum" in schema and value not in cast("list[object]", schema["enum"]):
        yield f"{at}: {value!r:.60} is none of {schema['enum']}"
    for word, least, most in (("anyOf", 1, 99), ("oneOf", 1, 1)):
        if word in schema:
            ways = cast("list[Schema]", schema[word])
            fitting = sum(not any(breaches(document, way, value)) for way in ways)
            if not least <= fitting <= most:
                yield f"{at}: {value!r:.60} is {fitting} of {word}"
    match value:
        case str():
            yield from _of_text(schema, value, at)
        case int() | float():
            yield from _of_number(schema, value, at)
        case list():
            yield from _of_list(document, schema, value, at)
        case dict():
            yield from _of_object(document, schema, value, at)
        case _:
            pass


def resolve(document: Schema, reference: str) -> Schema:
    """What a reference into the document means."""
    found: object = document
    for part in reference.removeprefix("#/").split("/"):
        found = cast("Schema", found)[part]
    return cast("Schema", found)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _of_text(schema: Schema, value: str, at: str) -> Iterator[str]:
    if not _bound(schema, "minLength", 0) <= len(value) <= _bound(schema, "maxLength", 1 << 60):
        yield f"{at}: {len(value)} characters"
    if "pattern" in schema and not re.search(str(schema["pattern"]), value):
        yield f"{at}: {value!r:.60} is not like {schema['pattern']}"
    if schema.get("format") == "date-time" and not _TIME.fullmatch(value):
        yield f"{at}: {value!r:.60} is no time"


def _of_number(schema: Schema, value: float, at: str) -> Iterator[str]:
    if not _bound(schema, "minimum", -1e300) <= value <= _bound(schema, "maximum", 1e300):
        yield f"{at}: {value} is out of bounds"
    if value >= _bound(schema, "exclusiveMaximum", 1e300):
        yield f"{at}: {value} is out of bounds"


def _of_list(document: Schema, schema: Schema, value: list[object], at: str) -> Iterator[str]:
    if not _bound(schema, "minItems", 0) <= len(value) <= _bound(schema, "maxItems", 1 << 60):
        yield f"{at}: {len(value)} items"
    items = schema.get("items")
    if isinstance(items, dict):
        for number, item in enumerate(value):
            yield from breaches(document, items, item, f"{at}[{number}]")


def _of_object(document: Schema, schema: Schema, value: Schema, at: str) -> Iterator[str]:
    if len(value) > _bound(schema, "maxProperties", 1 << 60):
        yield f"{at}: {len(value)} properties"
    properties = cast("dict[str, Schema]", schema.get("properties", {}))
    for name in cast("list[str]", schema.get("required", [])):
        if name not in value:
            yield f"{at}: {name} is not there"
    others = schema.get("additionalProperties")
    for name, item in value.items():
        named = cast("Schema", schema.get("propertyNames", {}))
        yield from breaches(document, named, name, f"{at}: the name {name:.60}")
        if name in properties:
            yield from breaches(document, properties[name], item, f"{at}.{name}")
        elif isinstance(others, dict):
            yield from breaches(document, others, item, f"{at}.{name}")
        elif others is False:
            yield f"{at}: {name} should not be there"


def unknown_fields(document: Schema, schema: Schema, value: object, at: str = "$") -> Iterator[str]:
    """Fields of a value that its schema does not speak of: of an answer, all are to be known."""
    if "$ref" in schema:
        yield from unknown_fields(document, resolve(document, str(schema["$ref"])), value, at)
    elif "anyOf" in schema and "properties" not in schema:
        ways = cast("list[Schema]", schema["anyOf"])
        fitting = [way for way in ways if not any(breaches(document, way, value))]
        every = [list(unknown_fields(document, way, value, at)) for way in fitting]
        yield from min(every, key=len, default=[])
    elif isinstance(value, dict) and "properties" in schema:
        properties = cast("dict[str, Schema]", schema["properties"])
        for name, item in value.items():
            if name in properties:
                yield from unknown_fields(document, properties[name], item, f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        others = cast("Schema", schema["additionalProperties"])
        for name, item in value.items():
            yield from unknown_fields(document, others, item, f"{at}.{name}")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        items = cast("Schema", schema["items"])
        for number, item in enumerate(value):
            yield from unknown_fields(document, items, item, f"{at}[{number}]")


def _bound(schema: Schema, name: str, default: float) -> float:
    bound = schema.get(name, default)
    assert isinstance(bound, int | float)
    return bound
