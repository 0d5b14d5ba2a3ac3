"""Fields of a request's body that are not known, or known and not kept: found, so that it is said.

    body  ->  a twin of its struct that refuses unknown fields  ->  the endpoint
                     | refused
                     v
              the struct as it is declared, and `Form.look` for the names that it ignored

A body with known fields only is decoded once, at the price of a plain struct. Only a body that the
twin refuses is looked through name by name. A field that is declared and not kept has no place in
the twin, so that it is found in the same way: `NotKept` is its mark.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Final, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from corvo.nearest import nearest
from corvo.router.http.messages import FieldWarning, Request, bad_field

T = TypeVar("T", bound=msgspec.Struct)

SHOWN_MAX: Final = 8
"""Warnings of one request; the others are only counted."""
LOOK_BYTES_MAX: Final = 128 << 10
"""Of a body that is looked through: some ten milliseconds, if it has nothing but unknown fields.
Of a larger one only the first is named."""
_NAME_SHOWN: Final = 60
_TEXT: Final = "text"
_BODY: Final = "body"


def not_kept(text: str) -> msgspec.Meta:
    """The mark of a field that is taken and has no effect. `text` says so."""
    return msgspec.Meta(extra={_TEXT: text})


def json_of(body: type[msgspec.Struct]) -> msgspec.Meta:
    """The mark of a field whose JSON is read later, as a struct of this type."""
    return msgspec.Meta(extra={_BODY: body})


# The twin that refuses.


@cache
def twin_of(body: type[T]) -> type[T]:
    """A struct like another one that refuses unknown fields, and all structs in it as well."""
    fields = []
    for field in msgspec.structs.fields(body):
        strict = _strict(field.type)
        if strict is not field.type:
            fields.append((field.name, strict, _like(field)))
    if not fields and body.__struct_config__.forbid_unknown_fields:
        return body
    twin = msgspec.defstruct(
        body.__name__, fields, bases=(body,), kw_only=True, forbid_unknown_fields=True
    )
    assert issubclass(twin, body)
    return twin


def _like(field: msgspec.structs.FieldInfo) -> object:
    """The default and the name of a field."""
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory, name=field.encode_name)
    if field.default is not msgspec.NODEFAULT:
        return msgspec.field(default=field.default, name=field.encode_name)
    return msgspec.field(name=field.encode_name)


def _strict(annotation: object) -> object:
    """A type with the twins of its structs; the same object where it has none."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return twin_of(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, *marks = parts
        if any(_extra(mark) for mark in marks):
            # No value at all fits, so that it is looked into; null is as absent.
            return NoneType if NoneType in get_args(kind) else msgspec.UnsetType
        strict = _strict(kind)
        return annotation if strict is kind else Annotated[(strict, *marks)]
    strict_parts = tuple(map(_strict, parts))
    if all(one is other for one, other in zip(strict_parts, parts, strict=True)):
        return annotation
    if origin is UnionType or origin is Union:
        return Union[strict_parts]  # noqa: UP007 -- of a tuple
    assert origin is list or origin is dict
    return origin[strict_parts]


def _extra(mark: object) -> Mapping[str, object]:
    return (mark.extra or {}) if isinstance(mark, msgspec.Meta) else {}


# What a body may have, and what it has.


class Format(NamedTuple):
    """How objects and lists are written."""

    kind: Callable[[memoryview], str]
    """`object`, `list`, `null`, `text` for JSON within a `bin`, or empty for any other."""
    fields: Callable[[bytes | msgspec.Raw], dict[str, msgspec.Raw]]
    objects: Callable[[bytes | msgspec.Raw], list[dict[str, msgspec.Raw]]]
    """Of a list: here all items of a list are objects."""


def _kind_of_json(value: memoryview) -> str:
    return {"{": "object", "[": "list", "n": "null"}.get(chr(value[0]), "")


def _kind_of_msgpack(value: memoryview) -> str:
    head = value[0]
    if head in {0xDE, 0xDF} or head & 0xF0 == 0x80:
        return "object"
    if head in {0xDC, 0xDD} or head & 0xF0 == 0x90:
        return "list"
    return {0xC0: "null", 0xC4: "text", 0xC5: "text", 0xC6: "text"}.get(head, "")


JSON: Final = Format(
    _kind_of_json,
    msgspec.json.Decoder(dict[str, msgspec.Raw]).decode,
    msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode,
)
MSGPACK: Final = Format(
    _kind_of_msgpack,
    msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode,
    msgspec.msgpack.Decoder(list[dict[str, msgspec.Raw]]).decode,
)
_unpack_bin: Final = msgspec.msgpack.Decoder(bytes).decode


class Finding(NamedTuple):
    """A field that has no effect."""

    path: str
    name: str = ""
    known: frozenset[str] = frozenset()
    """Names that it could have been meant to be."""
    what: str = "unknown field"
    unkept: str = ""
    """Why nothing of it is kept, of a field that is known."""

    @property
    def text(self) -> str:
        """The sentence about it."""
        if self.unkept:
            return self.unkept
        near = nearest(self.name, tuple(sorted(self.known)))
        return self.what + (f"; did you mean {near}?" if near else "")


class Form(msgspec.Struct):
    """What a place of a body may have: fields of a struct, values of an object, items of a list."""

    names: frozenset[str] | None = None
    """Of a struct: the names that it knows."""
    inner: dict[str, "Form"] = {}
    """Of a struct: fields with structs in them."""
    values: "Form | None" = None
    items: "Form | None" = None
    unkept: str = ""
    """Why nothing of it is kept."""

    def look(
        self, value: bytes | msgspec.Raw, format_: Format, path: str = ""
    ) -> Iterator[Finding]:
        """All fields that are not known or not kept, in their order.

        Raises what the decoders raise, for names that are no text.
        """
        view = memoryview(value)
        kind = format_.kind(view) if view else ""
        if self.unkept:
            if kind != "null":
                yield Finding(path, unkept=self.unkept)
        elif kind == "text":
            yield from self.look(_unpack_bin(value).lstrip(), JSON, path)
        elif kind == "list" and self.items is not None:
            # All at once: a batch has thousands.
            for number, fields in enumerate(format_.objects(value)):
                if self.items.is_of_interest(fields):
                    yield from self.items.look_at_fields(fields, format_, f"{path}[{number}]")
        elif kind == "object" and self.names is not None:
            yield from self.look_at_fields(format_.fields(value), format_, path)
        elif kind == "object" and self.values is not None:
            for name, one in format_.fields(value).items():
                yield from self.values.look(one, format_, _joined(path, name))

    def is_of_interest(self, fields: Mapping[str, msgspec.Raw]) -> bool:
        """Whether an object has an unknown field, or one that may have others in it."""
        assert self.names is not None
        return not (fields.keys() <= self.names and fields.keys().isdisjoint(self.inner))

    def look_at_fields(
        self, fields: Mapping[str, msgspec.Raw], format_: Format, path: str
    ) -> Iterator[Finding]:
        """The same for the fields of an object."""
        assert self.names is not None
        if not fields.keys() <= self.names:
            for name in fields:
                if name not in self.names:
                    yield Finding(_joined(path, name), name, self.names)
        for name, form in self.inner.items():
            if name in fields:
                yield from form.look(fields[name], format_, _joined(path, name))


def _joined(path: str, name: str) -> str:
    shown = name if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]}..."
    return f"{path}.{shown}" if path else shown


_UNKNOWN: Final = re.compile(
    r"Object contains unknown field `(.+?)`(?: - at `\$\.?(.*)`)?", re.DOTALL
)
_UNKEPT: Final = re.compile(r"Expected `null`, got `object` - at `\$\.?(.*)`", re.DOTALL)


def first_of(error_of_twin: str) -> list[Finding]:
    """The field for which a twin refused a body that has the form of its struct."""
    if found := _UNKNOWN.fullmatch(error_of_twin):
        return [Finding(_joined(found[2] or "", found[1]), found[1])]
    if found := _UNKEPT.fullmatch(error_of_twin):
        return [Finding(found[1], unkept="this field is not stored yet")]
    return []


def unread_body(data: bytes) -> list[Finding]:
    """What the body of a request has whose route reads none."""
    try:
        found = list(Form(names=frozenset()).look(data.strip() or b"{}", JSON))
        is_empty = data.strip() in {b"", b"{}", b"null"}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found, is_empty = [], False
    return found if found or is_empty else [Finding("body", what="this request takes no body")]


def warn(request: Request, found: Sequence[Finding]) -> None:
    """Name fields without effect in the answer. Raises `Problem` where unknown ones are refused."""
    if request.is_strict:
        for one in found:
            if not one.unkept:
                raise bad_field(one.path, f"{one.path}: {one.text}")
    shown = [FieldWarning(one.path, one.text) for one in found[:SHOWN_MAX]]
    request.warnings += tuple(shown)
    request.ignored += len(found)


@cache
def form_of(body: type[msgspec.Struct]) -> Form:
    """The form of a struct as it is declared."""
    fields = msgspec.structs.fields(body)
    inner = {field.encode_name: _form(field.type) for field in fields}
    return Form(
        names=frozenset(inner),
        inner={name: form for name, form in inner.items() if form is not None},
    )


def _form(annotation: object) -> Form | None:
    """The form of a type; None when no struct is in it."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return form_of(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, *marks = parts
        for extra in map(_extra, marks):
            if _TEXT in extra:
                return Form(unkept=str(extra[_TEXT]))
            if _BODY in extra:
                return _form(extra[_BODY])
        return _form(kind)
    if origin is UnionType or origin is Union:
        return _merged([form for form in map(_form, parts) if form is not None])
    if origin is list and (items := _form(parts[0])):
        return Form(items=items)
    if origin is dict and (values := _form(parts[1])):
        return Form(values=values)
    return None


def _merged(forms: Sequence[Form]) -> Form | None:
    """The form of a union: what begins otherwise than the others is told from them by that."""
    if not forms:
        return None
    merged = Form()
    for form in forms:
        is_object = form.names is not None or form.values is not None
        assert not (is_object and (merged.names is not None or merged.values is not None))
        merged = Form(
            names=merged.names if form.names is None else form.names,
            inner=merged.inner or form.inner,
            values=merged.values or form.values,
            items=merged.items or form.items,
        )
    return merged
