"""Sentences about JSON that does not have the expected form: the field, the form and an example.

msgspec names the place, and the type as Python writes it. The sentences name the expected form as a
user of the API knows it, with the example of the field from texts.toml.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec import inspect

from corvo.nearest import nearest
from corvo.router.texts import key_of, texts

_PLACED: Final = re.compile(r"(.*?)(?: - at (`key` in )?`\$(.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNIT: Final = re.compile(r"in (?:whole )?(seconds|milliseconds|bytes|US dollars)\b")
_SHOWN_MAX: Final = 60
_HUGE: Final = 1 << 31
"""A bound above this is of the format, and no help."""

_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_FORMS: Final = {"as a duration": "a duration", "RFC 3339": "a time by RFC 3339"}
"""By a part of the field's text, what a string there is."""
_GOT: Final = {
    **_KINDS,
    "float": "a number with decimals",
    "bool": "a boolean",
    "null": "null",
    "bytes": "bytes",
}


class BodyError(NamedTuple):
    """What is wrong with a body."""

    field: str
    sentence: str


def explain(error: msgspec.ValidationError, expected: object) -> BodyError:
    """The field and the sentence for an error of msgspec; `expected` is the type of the body."""
    found = _PLACED.fullmatch(str(error))
    assert found is not None
    what, is_name, path = found[1], bool(found[2]), found[3] or ""
    where = path.removeprefix(".")
    place = _place(expected, path)
    if missing := re.fullmatch("Object missing required field `(.+)`", what):
        field = f"{where}.{missing[1]}" if where else missing[1]
        return BodyError(field, f"{field} is required{_place(expected, f'.{field}').example}")
    shown = where or "the body"
    if is_name:
        return BodyError(where, f"{shown}: name of a field: {_sentence(what, _NOWHERE)}")
    return BodyError(where, f"{shown}: {_sentence(what, place)}")


class _Place(NamedTuple):
    """What is known of the place of an error."""

    types: tuple[inspect.Type, ...]
    """The types that a value may have there."""
    key: str = ""
    """The row of the field's text."""
    is_item: bool = False
    """Whether the place is within the field's list or object."""

    @property
    def example(self) -> str:
        """An example as the end of a sentence."""
        text = texts().fields.get(self.key)
        shown = text.example if text is not None else None
        if self.is_item:
            items = shown.values() if isinstance(shown, dict) else shown
            shown = next(iter(items), None) if isinstance(items, Iterable) else None
        return f", such as {msgspec.json.encode(shown).decode()}" if shown is not None else ""

    @property
    def about(self) -> str:
        """The text of the field."""
        text = texts().fields.get(self.key)
        return text.about if text is not None else ""

    @property
    def unit(self) -> str:
        """The unit of a number, to follow its name."""
        found = _UNIT.search(self.about)
        return f" of {found[1]}" if found is not None else ""


_NOWHERE: Final = _Place(())


def _place(expected: object, path: str) -> _Place:
    """The types and the field that a path leads to, as far as it can be followed."""
    place = _Place(_options(_type_of(expected)))
    for step in _STEP.finditer(path):
        name, is_index = step[1], step[2] is not None
        place = _item(place) if is_index else _field(place, name)
    return place


def _field(place: _Place, name: str) -> _Place:
    for one in place.types:
        if isinstance(one, inspect.StructType):
            for field in one.fields:
                if field.encode_name == name:
                    return _Place(_options(field.type), key_of(one.cls.__name__, name))
    return _NOWHERE


def _item(place: _Place) -> _Place:
    for one in place.types:
        if isinstance(one, inspect.ListType | inspect.VarTupleType):
            return _Place(_options(one.item_type), place.key, is_item=True)
        if isinstance(one, inspect.DictType):
            return _Place(_options(one.value_type), place.key, is_item=True)
    return _NOWHERE


@lru_cache(maxsize=256)
def _type_of(expected: object) -> inspect.Type:
    return inspect.type_info(expected)


def _options(one: inspect.Type) -> tuple[inspect.Type, ...]:
    """The types of a union, and any type by itself; descriptions around them are left out."""
    if isinstance(one, inspect.Metadata):
        return _options(one.type)
    if isinstance(one, inspect.UnionType):
        return tuple(option for each in one.types for option in _options(each))
    return (one,)


# The sentences.


def _sentence(what: str, place: _Place) -> str:
    for pattern, make in _SENTENCES:
        found = re.fullmatch(pattern, what, re.DOTALL)
        if found is not None:
            return make(found, place)
    plain = what.replace("`", "")
    return plain[:1].lower() + plain[1:]


def _wrong_type(found: re.Match[str], place: _Place) -> str:
    kinds = [kind for kind in found[1].split(" | ") if kind != "null"]
    named = [_kind(kind, place) for kind in kinds]
    got = _GOT.get(found[2], found[2])
    return f"expected {' or '.join(named)}{place.example}; got {got}"


def _kind(kind: str, place: _Place) -> str:
    words = [f'"{word}"' for word in _words(place)]
    if kind == "str" and words:
        return f"{', '.join(words[:-1])} or {words[-1]}" if words[:-1] else words[0]
    if kind == "str":
        for hint, form in _FORMS.items():
            if hint in place.about:
                return form
    unit = place.unit if kind in {"int", "float"} else ""
    return _KINDS.get(kind, kind) + unit


def _out_of_bounds(found: re.Match[str], place: _Place) -> str:
    kind = _KINDS.get(found[1], found[1]) + place.unit
    least, most = _bounds(place)
    if least is not None and most is not None:
        bounds = f"from {least} to {most}"
    elif least is not None:
        bounds = f"of at least {least}"
    elif most is not None:
        bounds = f"of at most {most}"
    else:
        bounds = f"{'of at least' if found[2] == '>=' else 'of at most'} {found[3]}"
    example = place.example
    is_number = example[-1:].isdigit()
    return f"expected {kind} {bounds}{example if is_number else ''}"


def _bounds(place: _Place) -> tuple[float | None, float | None]:
    for one in place.types:
        if isinstance(one, inspect.IntType | inspect.FloatType):
            most = one.le
            return one.ge, most if most is None or most < _HUGE else None
    return None, None


def _wrong_length(found: re.Match[str], place: _Place) -> str:
    unit = {"str": "character", "array": "item", "object": "field"}.get(found[1], "item")
    least = found[2] == ">="
    count = int(found[3])
    plural = "" if count == 1 else "s"
    return f"expected at {'least' if least else 'most'} {count} {unit}{plural}{place.example}"


def _wrong_form(_: re.Match[str], place: _Place) -> str:
    example = place.example
    return "some characters are not allowed" + (
        f"; expected a value{example[1:]}" if example else ""
    )


def _wrong_word(found: re.Match[str], place: _Place) -> str:
    shown = found[1] if len(found[1]) <= _SHOWN_MAX else f"{found[1][:_SHOWN_MAX]}..."
    words = ", ".join(f'"{word}"' for word in _words(place))
    return f"expected one of {words}; got {shown}" if words else f"unknown value {shown}"


def _words(place: _Place) -> list[str]:
    words: list[str] = []
    for one in place.types:
        if isinstance(one, inspect.LiteralType):
            words += map(str, one.values)
        elif isinstance(one, inspect.EnumType):
            words += (str(member.value) for member in one.cls)
    return words


def _unknown_field(found: re.Match[str], place: _Place) -> str:
    known = tuple(
        field.encode_name
        for one in place.types
        if isinstance(one, inspect.StructType)
        for field in one.fields
    )
    near = nearest(found[1], known)
    return f"unknown field {found[1][:_SHOWN_MAX]}" + (f"; did you mean {near}?" if near else "")


def _too_large(_: re.Match[str], place: _Place) -> str:
    return f"the number is too large{place.example}"


_SENTENCES: Final[tuple[tuple[str, Callable[[re.Match[str], _Place], str]], ...]] = (
    ("Expected `(.+)`, got `(.+)`", _wrong_type),
    ("Expected `(.+)` of length (<=|>=) ([0-9]+)", _wrong_length),
    ("Expected `(.+)` matching regex .*", _wrong_form),
    ("Expected `(.+)` (<=|>=|<|>) (.+)", _out_of_bounds),
    ("Invalid enum value (.+)", _wrong_word),
    ("Object contains unknown field `(.+)`", _unknown_field),
    ("Number out of range", _too_large),
)
