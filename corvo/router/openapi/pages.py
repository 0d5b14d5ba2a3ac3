"""The page at `/docs`: the OpenAPI document for people. One page, no script, nothing from outside.

It is read as it stands, on a phone as on a desk, and in the dark; and whatever of it came from
somewhere else is escaped.
"""

import re
from collections.abc import Iterator
from html import escape
from typing import Final

import msgspec

_REF: Final = "#/components/schemas/"
_HOST: Final = "http://127.0.0.1:8080"
_SAMPLES: Final = {
    "id": "s02_job_01HF7YAT000000000003800000",
    "job_id": "s02_job_01HF7YAT000000000003800000",
    "name": "mail",
    "queue": "mail",
    "key_hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}


# The document, as far as it is shown.


class Schema(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What JSON may be."""

    ref: str = msgspec.field(name="$ref", default="")
    type: str | list[str] = ""
    format: str = ""
    title: str = ""
    description: str = ""
    enum: list[msgspec.Raw] = []
    examples: list[msgspec.Raw] = []
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    items: "Schema | bool | None" = None
    any_of: list["Schema"] = []
    properties: dict[str, "Schema"] = {}
    additional_properties: "Schema | bool | None" = None
    required: list[str] = []


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One thing beside the body."""

    name: str
    place: str = msgspec.field(name="in")
    description: str
    schema: Schema
    required: bool = False


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """A body."""

    schema: Schema
    example: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent."""

    content: dict[str, Content]
    required: bool = False


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered."""

    ref: str = msgspec.field(name="$ref", default="")
    description: str = ""
    content: dict[str, Content] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One route."""

    operation_id: str
    tags: list[str]
    summary: str
    description: str
    parameters: list[Parameter] = []
    request_body: Body | None = None
    responses: dict[str, Response]
    security: list[dict[str, list[str]]] | None = None


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A group of operations."""

    name: str
    description: str


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What the document is of."""

    title: str
    summary: str
    description: str
    version: str


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """What is referred to."""

    schemas: dict[str, Schema]
    responses: dict[str, Response]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    info: Info
    tags: list[Tag]
    paths: dict[str, dict[str, Operation]]
    components: Components


_decode: Final = msgspec.json.Decoder(Document).decode


def page(document: bytes) -> bytes:
    """The page of a document."""
    read = _decode(document)
    return "\n".join(_page(read)).encode()


def _page(document: Document) -> Iterator[str]:
    info = document.info
    groups = [(tag, list(_operations(document, tag.name))) for tag in document.tags]
    groups = [(tag, operations) for tag, operations in groups if operations]
    yield "<!doctype html>"
    yield '<html lang="en">'
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{escape(info.title)} {escape(info.version)}: HTTP</title>"
    yield '<link rel="stylesheet" href="/docs.css">'
    yield "<header>"
    yield f"<h1>{escape(info.title)} <small>{escape(info.version)}</small></h1>"
    yield f"<p>{escape(info.summary)}. "
    yield 'As OpenAPI: <a href="/openapi.json">openapi.json</a>.</p>'
    for paragraph in info.description.split("\n\n"):
        yield f"<p>{_prose(paragraph)}</p>"
    yield "</header>"
    yield '<nav aria-label="Groups">'
    for tag, _ in groups:
        yield f'<a href="#{escape(tag.name)}">{escape(tag.name)}</a>'
    yield '<a href="#schemas">Schemas</a>'
    yield "</nav>"
    yield "<main>"
    for tag, operations in groups:
        yield f'<section id="{escape(tag.name)}">'
        yield f"<h2>{escape(tag.name)}</h2>"
        yield f"<p>{_prose(tag.description)}</p>"
        for path, method, operation in operations:
            yield from _operation(document, path, method, operation)
        yield "</section>"
    yield '<section id="schemas">'
    yield "<h2>Schemas</h2>"
    for name, schema in document.components.schemas.items():
        yield from _component(name, schema)
    yield "</section>"
    yield "</main>"
    yield "</html>"
    yield ""


def _operations(document: Document, tag: str) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in document.paths.items():
        for method, operation in methods.items():
            if tag in operation.tags:
                yield path, method.upper(), operation


# One operation.


def _operation(document: Document, path: str, method: str, operation: Operation) -> Iterator[str]:
    yield f'<details id="{escape(operation.operation_id)}">'
    yield "<summary>"
    yield f'<code class="{method.lower()}">{method}</code> <code>{escape(path)}</code>'
    yield f"<span>{_prose(operation.summary)}</span>"
    yield "</summary>"
    yield f"<p>{_prose(operation.description)}</p>"
    if operation.security == []:
        yield "<p>No API key is needed.</p>"
    if operation.parameters:
        yield "<h4>Parameters</h4>"
        yield "<table>"
        for one in operation.parameters:
            needed = ", required" if one.required else ""
            yield (
                f"<tr><th><code>{escape(one.name)}</code><td>{escape(one.place)}{needed}"
                f"<td>{_type(one.schema)}<td>{_prose(one.description)}"
            )
        yield "</table>"
    if operation.request_body is not None:
        [content] = operation.request_body.content.values()
        needed = "required" if operation.request_body.required else "optional"
        yield f"<h4>Body</h4><p>{_type(content.schema)}, {needed}.</p>"
    yield "<h4>Example</h4>"
    yield f"<pre>{escape(_curl(path, method, operation))}</pre>"
    yield "<h4>Answers</h4>"
    yield "<table>"
    for status, response in operation.responses.items():
        yield from _response(document, status, response)
    yield "</table>"
    yield "</details>"


def _response(document: Document, status: str, response: Response) -> Iterator[str]:
    if response.ref:
        response = document.components.responses[response.ref.rpartition("/")[2]]
    types = [_type(content.schema) for content in response.content.values()]
    yield (
        f"<tr><th><code>{escape(status)}</code><td>{_prose(response.description)}"
        f"<td>{', '.join(types)}"
    )
    for content in response.content.values():
        if content.example is not msgspec.UNSET:
            example = msgspec.json.format(bytes(content.example), indent=2).decode()
            yield f"<tr><td><td colspan=2><pre>{escape(example)}</pre>"


def _curl(path: str, method: str, operation: Operation) -> str:
    url = _HOST + re.sub(r"\{(\w+)\}", lambda found: _SAMPLES.get(found[1], "x"), path)
    parts = ["curl"] if method == "GET" else [f"curl -X {method}"]
    parts[0] += f" {url}"
    body = operation.request_body
    if body is not None:
        [content] = body.content.values()
        if content.example is not msgspec.UNSET:
            # Between the single quotes of a shell.
            in_quotes = bytes(content.example).decode().replace("'", "'\\''")
            parts += ["-H 'Content-Type: application/json'", f"-d '{in_quotes}'"]
    return " \\\n  ".join(parts)


# Types.


def _component(name: str, schema: Schema) -> Iterator[str]:
    yield f'<details id="schema-{escape(name)}">'
    yield f"<summary><code>{escape(name)}</code><span>{_prose(schema.description)}</span></summary>"
    if not schema.properties:
        yield f"<p>{_type(schema)}</p>"
    else:
        yield "<table>"
        for field, one in schema.properties.items():
            needed = "required" if field in schema.required else ""
            example = bytes(one.examples[0]).decode() if one.examples else ""
            shown = f" Example: <code>{escape(example)}</code>" if example else ""
            yield (
                f"<tr><th><code>{escape(field)}</code><td>{needed}<td>{_type(one)}"
                f"<td>{_prose(one.description)}{shown}"
            )
        yield "</table>"
    yield "</details>"


def _type(schema: Schema) -> str:
    """What JSON may be, in a few words."""
    if schema.ref:
        name = escape(schema.ref.removeprefix(_REF))
        return f'<a href="#schema-{name}">{name}</a>'
    if schema.any_of:
        return " or ".join(_type(one) for one in schema.any_of)
    if schema.enum:
        return " or ".join(f"<code>{escape(bytes(one).decode())}</code>" for one in schema.enum)
    kind = " or ".join(schema.type) if isinstance(schema.type, list) else schema.type
    match kind:
        case "":
            return "any JSON"
        case "array":
            items = schema.items if isinstance(schema.items, Schema) else Schema()
            return f"list of {_type(items)}{_bounds(schema.min_items, schema.max_items)}"
        case "object" if isinstance(schema.additional_properties, Schema):
            return f"object of {_type(schema.additional_properties)}"
        case "string":
            length = _bounds(schema.min_length, schema.max_length, "characters")
            return (schema.format or kind) + length
        case _:
            return escape(kind) + _bounds(schema.minimum, schema.maximum)


def _bounds(least: float | None, most: float | None, unit: str = "") -> str:
    words = []
    if least:
        words.append(f"from {least:.15g}" if most is not None else f"at least {least:.15g}")
    if most is not None:
        words.append(f"to {most:.15g}" if words else f"up to {most:.15g}")
    return f", {' '.join([*words, unit]).strip()}" if words else ""


def _prose(text: str) -> str:
    """Text in which names stand between backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
