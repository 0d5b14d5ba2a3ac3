"""Prometheus' text format 0.0.4: metric families and their samples."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from corvo.measures import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PIECE_LINES: Final = 500
"""Lines that are joined at a time: far less than a millisecond."""

S = TypeVar("S")
Sample: TypeAlias = float | Histogram
Samples: TypeAlias = Sample | dict[tuple[str, ...], Sample] | Sequence[float] | None
"""One sample; or one for each combination of label values; or, in a sequence, one for each label
value that the family lists; or none, and then there is no line."""


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
    listed: tuple[str, ...] = ()
    """Its label with each value, as in a line: for samples that are a sequence."""


def gauge(
    name: str,
    text: str,
    read: Callable[[S], Samples],
    labels: str = "",
    listed: Iterable[str] = (),
) -> Family[S]:
    """A family of values that rise and fall.

    `listed`: all values of its only label, if `read` gives the samples in their order.
    """
    names = tuple(labels.split())
    written = tuple(_write_labels(names, (value,)) for value in listed)
    return Family(name, "gauge", text, read, names, written)


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
        self.add_all(group, [(source, values)])

    def add_all(self, group: Group[S], sources: Iterable[tuple[S, tuple[str, ...]]]) -> None:
        """Add all samples of many sources, each with the values of the group's labels.

        Each of 1,000 queues has some 10 samples, so a sample costs a line to format, and no call.
        """
        named = [(source, _write_labels(group.labels, values)) for source, values in sources]
        for family in group.families:
            name, read, lines = family.name, family.read, self._lines[family.name]
            for source, labels in named:
                samples = read(source)
                if samples is None:
                    continue
                if isinstance(samples, (int, float)):
                    lines.append(f"{name}{{{labels}}} {samples}" if labels else f"{name} {samples}")
                elif isinstance(samples, Histogram):
                    _write(lines, name, labels, samples)
                elif isinstance(samples, dict):
                    for own, sample in samples.items():
                        own_labels = _write_labels(family.labels, own)
                        inner = f"{labels},{own_labels}" if labels else own_labels
                        _write(lines, name, inner, sample)
                else:
                    start = f"{name}{{{labels}," if labels else f"{name}{{"
                    lines += [
                        f"{start}{own}}} {sample}"
                        for own, sample in zip(family.listed, samples, strict=True)
                    ]

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


def _write_labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if len(names) == len(values) == 1:  # as nearly all have
        return f'{names[0]}="{escape(values[0])}"'
    pairs = zip(names, values, strict=True)
    return ",".join([f'{name}="{escape(value)}"' for name, value in pairs])


def escape(value: str) -> str:
    """The value of a label, which may be any text."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
