"""The rules of the chart for a Prometheus without Kubernetes.

`files/alerts.yaml` is the one source. Its `${…}` are values of the chart; `files/corvo.rules.yaml`
has their defaults, and `make docs` writes it: `python -m tests.alerts.rules`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from tests.helm.values_reference import CHART, VALUES, default_of

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = CHART / "files" / "alerts.yaml"
PLAIN: Final = CHART / "files" / "corvo.rules.yaml"
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
METRICS_PAGE: Final = ROOT / "docs" / "metrics.md"
TABLE: Final = re.compile(
    r"(?<=<!-- alerts: `make docs` writes this -->\n).*?(?=<!-- /alerts -->)", re.DOTALL
)
_HEAD: Final = """\
# Alerts of Corvo for a Prometheus without Kubernetes: name this file under `rule_files`.
# `make docs` writes it, out of `files/alerts.yaml` and the default values of the chart.
# CorvoNodeDown expects that the name of the scrape job has "corvo" in it.
"""
_VALUE: Final = re.compile(r"\$\{([\w.]+)\}")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An alert, or a recorded expression."""

    expr: str
    alert: str = ""
    record: str = ""
    for_: str = msgspec.field(name="for", default="")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rules: list[Rule]


class Groups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: list[Group]


def defaults() -> dict[str, str]:
    """The values of the chart that the rules have, by the names of the source."""
    rule = default_of(yaml.safe_load(VALUES.read_text()), "metrics.prometheusRule")
    assert isinstance(rule, dict)
    limits = {
        f"{alert}.{name}": f"{value}"
        for alert, values in rule["limits"].items()
        for name, value in values.items()
    }
    return {"scrapeJobs": rule["scrapeJobs"], "runbooks": rule["runbooks"], **limits}


def wanted() -> list[str]:
    """The values that the source names."""
    return _VALUE.findall(SOURCE.read_text())


def with_values(values: Mapping[str, str]) -> str:
    """The source as a file of rules: these values, and else the defaults."""
    known = {**defaults(), **values}
    _, _, rules = SOURCE.read_text().partition("\ngroups:")
    return f"{_HEAD}groups:{_VALUE.sub(lambda found: known[found[1]], rules)}"


def groups_of(text: str) -> list[Group]:
    """A file of rules as Prometheus reads it."""
    return msgspec.convert(yaml.safe_load(text), Groups).groups


def alerts() -> Iterator[Rule]:
    """All alerts with their default values."""
    for group in groups_of(with_values({})):
        yield from (rule for rule in group.rules if rule.alert)


def value_of(alert: str) -> str:
    """The group of the chart's values for an alert."""
    name = alert.removeprefix("Corvo")
    return f"{name[0].lower()}{name[1:]}"


def table() -> str:
    """The alerts as a table for docs/metrics.md."""
    lines = ["| alert | severity | fires when | after |", "|---|---|---|---|"]
    for rule in alerts():
        summary = re.sub(r"\{\{ \$(labels\.)?(\w+)[^}]*\}\}", _spoken, rule.annotations["summary"])
        expression = " ".join(rule.expr.split()).replace("|", r"\|")
        link = f"[{rule.alert}](runbooks/{rule.alert}.md)"
        after = "at once" if rule.for_ == "0s" else rule.for_
        lines.append(
            f"| {link} | {rule.labels['severity']} | {summary}: `{expression}` | {after} |"
        )
    return "\n".join(lines) + "\n"


def _spoken(found: re.Match[str]) -> str:
    return "N" if found[2] == "value" else found[2].upper()


def rewrite() -> None:
    """Write the plain rules, and the table of the page."""
    PLAIN.write_text(with_values({}))
    METRICS_PAGE.write_text(TABLE.sub(lambda _: table(), METRICS_PAGE.read_text()))


if __name__ == "__main__":
    rewrite()
