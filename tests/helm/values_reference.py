"""The values of the chart, as the comments of values.yaml document them: table and JSON schema."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import yaml

CHART: Final = Path(__file__).parents[2] / "helm" / "corvo"
VALUES: Final = CHART / "values.yaml"
README: Final = CHART / "README.md"
SCHEMA: Final = CHART / "values.schema.json"
TABLE: Final = re.compile(
    r"(?<=<!-- values: `make docs` writes this -->\n).*?(?=<!-- /values -->)", re.DOTALL
)

_DURATION: Final = r"^([0-9]+(ms|s|m|h|d))+$"
_PARAM: Final = re.compile(r"^ *## @param (\S+) \[([^\]]+)\] (.+)$")
_SECTION: Final = re.compile(r"^## @section (.+)$")
_PLAIN: Final = {"string", "boolean", "number", "object", "array"}


class Value(msgspec.Struct, frozen=True):
    """One value: its path, its type in words, and its text."""

    name: str
    kind: str
    about: str
    section: str
    default: object


def values() -> list[Value]:
    """All documented values, in the order of the file."""
    text = VALUES.read_text()
    defaults = yaml.safe_load(text)
    found = []
    section = ""
    for line in text.splitlines():
        if header := _SECTION.match(line):
            section = header[1]
        elif param := _PARAM.match(line):
            name, kind, about = param.groups()
            found.append(Value(name, kind, about, section, default_of(defaults, name)))
        else:
            assert "## @" not in line or line.startswith("#   ##"), f"cannot be read: {line}"
    return found


def default_of(defaults: object, name: str) -> object:
    """The default of a value. Fails if the file has no such value."""
    found = defaults
    for part in name.split("."):
        assert isinstance(found, dict), f"{name}: it is not in values.yaml"
        assert part in found, f"{name}: it is not in values.yaml"
        found = found[part]
    return found


def leaves(defaults: object, documented: set[str], prefix: str = "") -> Iterator[str]:
    """The paths of all values in the file, down to those that are documented as a whole."""
    assert isinstance(defaults, dict)
    for key, value in defaults.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in documented:
            yield from leaves(value, documented, f"{name}.")
        else:
            yield name


# ---- The table of README.md.


def table() -> str:
    """One table for each section."""
    lines: list[str] = []
    section = ""
    for value in values():
        if value.section != section:
            section = value.section
            lines += ["", f"### {section}", "", "| value | default | type | what it is |"]
            lines.append("|---|---|---|---|")
        shown = msgspec.json.encode(value.default).decode() if value.default != "" else ""
        cells = (
            f"`{value.name}`",
            f"`{shown}`" if shown else "",
            value.kind,
            value.about.replace("|", r"\|"),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines).lstrip("\n") + "\n"


# ---- values.schema.json.


def schema() -> str:
    """The schema, which `helm` applies to every command."""
    root = _group()
    root["$schema"] = "http://json-schema.org/draft-07/schema#"
    for value in values():
        *parents, last = value.name.split(".")
        group = root
        for parent in parents:
            properties = group["properties"]
            assert isinstance(properties, dict)
            group = properties.setdefault(parent, _group())
        properties = group["properties"]
        assert isinstance(properties, dict)
        properties[last] = {**rule_of(value.kind), "description": value.about}
    properties = root["properties"]
    assert isinstance(properties, dict)
    # A chart that has this one among its own may have more of these.
    properties["global"]["additionalProperties"] = True
    return msgspec.json.format(msgspec.json.encode(root), indent=2).decode() + "\n"


def _group() -> dict[str, object]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def rule_of(kind: str) -> dict[str, object]:
    """The JSON schema of a type in words."""
    if kind.endswith(" or null"):
        rule = rule_of(kind.removesuffix(" or null"))
        return {**rule, "type": [rule["type"], "null"]}
    if kind.startswith("one of "):
        return {"enum": kind.removeprefix("one of ").split(", ")}
    if kind == "duration":
        return {"type": "string", "pattern": _DURATION}
    if kind == "quantity":
        return {"type": ["string", "integer"]}
    if bounds := re.fullmatch(r"integer (\d+)\.\.(\d*)", kind):
        rule = {"type": "integer", "minimum": int(bounds[1])}
        return {**rule, "maximum": int(bounds[2])} if bounds[2] else rule
    assert kind in _PLAIN, f"{kind}: no such type"
    return {"type": kind}
