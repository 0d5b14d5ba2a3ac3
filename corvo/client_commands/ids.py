"""Job ids from arguments, or from stdin in bounded batches: ids, JSON lines, or one document."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from corvo.client_commands.failures import CommandFailed
from corvo.client_commands.lines import LINE_BYTES_MAX, Line, batches

STDIN: Final = "-"
_DOCUMENT_BYTES_MAX: Final = 256 << 20


class _Named(msgspec.Struct, frozen=True):
    id: str = ""
    job_id: str = ""

    @property
    def name(self) -> str:
        return self.job_id or self.id


class _Document(msgspec.Struct, frozen=True):
    jobs: list[_Named]


def id_batches(
    words: Sequence[str], count: int, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[list[str]]:
    """Ids in batches. The word `-` stands for stdin. Raises `CommandFailed`."""
    if list(words) != [STDIN]:
        if STDIN in words:
            raise CommandFailed("BAD_OPTION", "pass ids, or - for ids from stdin, and not both")
        yield from _split(words, count)
        return
    found = batches(count, LINE_BYTES_MAX, is_stopped)
    first = next(found, [])
    if first and _is_document(first[0]):
        yield from _split(_of_document(chain([first], found)), count)
        return
    for lines in chain([first] if first else [], found):
        yield [_id_of(line) for line in lines]


def _split(ids: Sequence[str], count: int) -> Iterator[list[str]]:
    for start in range(0, len(ids), count):
        yield list(ids[start : start + count])


def _is_document(line: Line) -> bool:
    """Whether a line begins a JSON document, such as an answer of a search."""
    if line[:1] not in {b"{", b"["}:
        return False
    try:
        return not msgspec.json.decode(line, type=_Named).name
    except msgspec.DecodeError:
        return True


def _of_document(lines: Iterator[list[Line]]) -> list[str]:
    parts: list[bytes] = []
    size = 0
    for line in chain.from_iterable(lines):
        size += len(line)
        if size > _DOCUMENT_BYTES_MAX:
            raise CommandFailed(
                "TOO_LONG",
                "stdin is one JSON document of more than 256 MiB",
                hints=["write a line for each job:   corvo search ... -o id"],
            )
        parts.append(line)
    data = b"\n".join(parts)
    try:
        if data[:1] == b"[":
            named = msgspec.json.decode(data, type=list[_Named])
        else:
            named = msgspec.json.decode(data, type=_Document).jobs
    except msgspec.DecodeError as error:
        raise CommandFailed(
            "BAD_INPUT",
            f"stdin is JSON without jobs: {error}",
            hints=["expected ids, one on a line, or the output of:   corvo search"],
        ) from error
    if not all(one.name for one in named):
        raise CommandFailed("BAD_INPUT", "a job on stdin has no id")
    return [one.name for one in named]


def _id_of(line: Line) -> str:
    """The id in a line: the whole line, or a field of an object."""
    if line[:1] != b"{":
        text = line.decode(errors="replace")
        if not text.isprintable() or " " in text:
            raise CommandFailed(
                "BAD_INPUT", f"line {line.number} of stdin is not a job id: {text[:80]!r}"
            )
        return text
    try:
        name = msgspec.json.decode(line, type=_Named).name
    except msgspec.DecodeError as error:
        raise CommandFailed(
            "BAD_INPUT", f"line {line.number} of stdin is not JSON: {error}"
        ) from error
    if not name:
        raise CommandFailed("BAD_INPUT", f"line {line.number} of stdin has no field id or job_id")
    return name
