"""Prometheus' text format 0.0.4: metric families and their samples."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from corvo.measures import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PIECE_LINES: Final = 500
"""Lines that are joined at a time: far less than a millisecond."""

S = TypeVar("S")
Sample: TypeAlias = float | Histogram
Samples: TypeAlias = Sample | Mapping[tuple[str, ...], Sample] | None
"""One sample; or one for each combination of label values; or none, and then there is no line."""


class Declared(msgspec.Struct, frozen=True):
    """What a scraper reads of one metric, beside its samples."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


class Family(msgspec.Struct, Generic[S], frozen=True):
    """One metric, and where its samples are read from."""

    name: str
    kind: str
    help: str
    read: Callable[[S], Samples]
    labels: tuple[str, ...] = ()
    """Beside those of its group."""


def gauge(name: str, text: str, read: Callable[[S], Samples], labels: str = "") -> Family[S]:
    """A family of values that rise and fall."""
    return Family(name, "gauge", text, read, tuple(labels.split()))


def counter(name: str, text: str, read: Callable[[S], Samples], labels: str = "") -> Family[S]:
    """A family of values that only rise, until their process starts again."""
    return Family(name, "counter", text, read, tuple(labels.split()))


def histogram(name: str, text: str, read: Callable[[S], Samples], labels: str = "") -> Family[S]:
    """A family of counts by upper bound."""
    return Family(name, "histogram", text, read, tuple(labels.split()))


class Group(msgspec.Struct, Generic[S], frozen=True):
    """The families that are read from one kind of source, and the labels that name the source."""

    labels: tuple[str, ...]
    families: tuple[Family[S], ...]

    def declared(self) -> Iterator[Declared]:
        """All of them, with all labels."""
        for it in self.families:
            yield Declared(it.name, it.kind, it.help, (*self.labels, *it.labels))


class Page:
    """Collects samples in any order and writes them family by family."""

    def __init__(self, declared: Iterable[Declared]) -> None:
        self._declared = {family.name: family for family in declared}
        self._lines: dict[str, list[str]] = {name: [] for name in self._declared}

    def add(self, group: Group[S], source: S, *values: str) -> None:
        """Add all samples of one source; `values` are those of the group's labels."""
        of_group = _pairs(group.labels, values)
        for family in group.families:
            samples = family.read(source)
            if samples is None:
                continue
            lines = self._lines[family.name]
            if isinstance(samples, Mapping):
                for own, sample in samples.items():
                    pairs = [*of_group, *_pairs(family.labels, own)]
                    _write(lines, family.name, ",".join(pairs), sample)
            else:
                _write(lines, family.name, ",".join(of_group), samples)

    def pieces(self) -> Iterator[bytes]:
        """The text, in pieces that are quickly made."""
        for name, lines in self._lines.items():
            if not lines:
                continue
            declared = self._declared[name]
            yield f"# HELP {name} {declared.help}\n# TYPE {name} {declared.kind}\n".encode()
            for start in range(0, len(lines), _PIECE_LINES):
                text = "\n".join(lines[start : start + _PIECE_LINES])
                yield f"{text}\n".encode()


def _write(lines: list[str], name: str, labels: str, sample: Sample) -> None:
    in_braces = f"{{{labels}}}" if labels else ""
    if not isinstance(sample, Histogram):
        lines.append(f"{name}{in_braces} {sample}")
        return
    inner = f"{labels}," if labels else ""
    seen = 0
    for bound, count in zip((*sample.bounds, "+Inf"), sample.counts, strict=True):
        seen += count  # the format's buckets hold all that is smaller, too
        lines.append(f'{name}_bucket{{{inner}le="{bound}"}} {seen}')
    lines.append(f"{name}_sum{in_braces} {sample.total}")
    lines.append(f"{name}_count{in_braces} {seen}")


def _pairs(labels: tuple[str, ...], values: tuple[str, ...]) -> list[str]:
    return [f'{name}="{escape(value)}"' for name, value in zip(labels, values, strict=True)]


def escape(value: str) -> str:
    """The value of a label, which may be any text."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
