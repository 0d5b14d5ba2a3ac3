"""Ends of pipes: readers that leave, input that pauses, and batches of bounded size."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import msgspec
import pytest

from corvo.client_commands.failures import CommandFailed
from corvo.client_commands.ids import id_batches
from corvo.client_commands.lines import LINE_BYTES_MAX, batches
from corvo.client_commands.records import pick, select
from tests.client_commands.running import Server

Given = Callable[[bytes], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    """A function that makes a text stdin."""
    with ExitStack() as undo:

        def give(text: bytes) -> None:
            ours, theirs = os.pipe()
            reader = undo.enter_context(os.fdopen(ours))

            def write() -> None:
                with suppress(BrokenPipeError), os.fdopen(theirs, "wb") as pipe:
                    pipe.write(text)

            thread = threading.Thread(target=write)
            undo.callback(thread.join)
            undo.callback(reader.close)  # before the join: a writer may wait for its reader
            thread.start()
            monkeypatch.setattr("sys.stdin", reader)

        yield give


def test_a_reader_that_leaves_ends_the_command_quietly(server: Server) -> None:
    server.enqueue("pi-head", 2_000)

    with server.start("search", "--queue", "pi-head") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()

    assert (process.returncode, said) == (0, "")


def test_lines_come_in_batches_of_bounded_size() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "wb") as pipe:
        pipe.write(b"a\n\n bb \r\nccc\n" + b"d" * 10 + b"\nlast")

    found = list(batches(2, 12, file=ours))
    os.close(ours)

    assert [[*map(bytes, lines)] for lines in found] == [
        [b"a", b"bb"],
        [b"ccc"],
        [b"d" * 10],
        [b"last"],
    ]
    assert [line.number for lines in found for line in lines] == [1, 3, 4, 5, 6]


def test_input_that_pauses_is_passed_on() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"a\nb")

    first = next(batches(500, 100, file=ours))
    os.close(theirs)
    os.close(ours)

    assert first == [b"a"]


def test_a_line_without_end_is_refused(given: Given) -> None:
    given(b"x" * (LINE_BYTES_MAX + 2))

    with pytest.raises(CommandFailed, match="line 1 of stdin is longer"):
        list(batches(1, 1))


@pytest.mark.parametrize(
    "text",
    [
        b"a\nb\nc\n",
        b'{"id": "a"}\n{"job_id": "b", "id": "x"}\n{"id": "c"}\n',
        b'{"jobs": [\n{"id": "a"},\n{"id": "b"},\n{"id": "c"}\n]}\n',
        b'{\n  "jobs": [{"id": "a"}, {"id": "b"}, {"id": "c"}]\n}\n',
        b'[{"id": "a"}, {"id": "b"}, {"id": "c"}]',
    ],
)
def test_ids_are_read_in_each_form(given: Given, text: bytes) -> None:
    given(text)

    assert [*id_batches(["-"], 2)] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    "text", [b"a b\n", b'a\n{"queue": "a"}\n', b'a\n{"id"\n', b'{"total": 3}', b'[{"queue": 1}]']
)
def test_other_input_is_refused(given: Given, text: bytes) -> None:
    given(text)

    with pytest.raises(CommandFailed, match="stdin"):
        list(id_batches(["-"], 2))


def test_fields_keep_the_spelling_of_numbers() -> None:
    raw = msgspec.Raw(b'{"a": {"b": [1.50, {"c": "x"}]}, "d": 100000000000000000000000}')

    assert select(raw, ("a.b.0", "d")) == b'{"a.b.0":1.50,"d":100000000000000000000000}'
    assert bytes(pick(raw, "a.b.1.c")) == b'"x"'
    assert bytes(pick(raw, "a.b.7")) == bytes(pick(raw, "a.x.y")) == b"null"
