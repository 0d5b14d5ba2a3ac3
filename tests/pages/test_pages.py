"""Every command of the README, the tutorials and the how-to pages, as a reader types it."""

import re
import shutil
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio

from corvo.client_commands.options import parser_of
from corvo.command_table import COMMANDS
from tests.cli_reference import verbs_of
from tests.cluster.nodes import PATIENCE_S
from tests.node.http import Client
from tests.pages.languages import EXAMPLES, GO, missing
from tests.support.pages import (
    ROOT,
    Block,
    Shell,
    blocks,
    bound,
    general,
    is_as_printed,
    on_ports,
    ready,
    shell_in,
    steps,
)
from tests.support.ports import free_ports

DOCS: Final = ROOT / "docs"
KINDS: Final = ("tutorials", "howto", "concepts")
PAGES: Final = [
    ROOT / "README.md",
    *(page for kind in KINDS for page in sorted((DOCS / kind).glob("*.md"))),
    *(DOCS / name for name in ("events.md", "schedules.md", "top.md")),
]
LANGUAGES: Final = {"", "go", "ini", "javascript", "json", "python", "sh", "text", "toml", "yaml"}
"""Of blocks. Only `sh` is typed."""
USUAL: Final = "8080"
"""The port of a page, unless it says otherwise."""
NEEDS: Final = {"worker-in-node.md": "node", "worker-in-go.md": "go"}
REPEATED: Final = re.compile(
    r"corvo (?:batches|events|explain|inspect|queues|search|status)\b"
    r"|curl -s \S+/(?:metrics|readyz|jobs(?!.*--json))"
)
"""Commands that only read are repeated until a worker, or the mirror, is as far as the page."""
_LOOK_S: Final = 0.1


class Named(msgspec.Struct):
    """A queue or a schedule."""

    name: str = ""
    id: str = ""


class Schedules(msgspec.Struct):
    schedules: list[Named] = []


class Reader:
    """Types the blocks of a page into a shell, and compares what is printed."""

    def __init__(self, shell: Shell, directory: Path, ports: dict[str, str]) -> None:
        self._shell = shell
        self._directory = directory
        self._ports = ports
        self._beside: list[tuple[Path, str]] = []
        self._last: Block | None = None
        self._output = ""

    async def read(self, page: list[Block]) -> None:
        """All blocks."""
        for block in page:
            if block.file:
                await trio.Path(self._directory / Path(block.file).name).write_text(
                    on_ports(block.text, self._ports)
                )
            elif block.language == "sh" and not block.note.startswith("not run: "):
                await self._type(block)
            elif block.language == "text":
                await self._compare(on_ports(block.text, self._ports))
        for path, printed in self._beside:
            with trio.fail_after(PATIENCE_S):
                while not is_as_printed(output := path.read_text(), printed):
                    assert output.count("\n") <= printed.count("\n") + 40, output
                    await trio.sleep(_LOOK_S)

    async def _type(self, block: Block) -> None:
        self._last = block
        code = await self._run(block)
        with trio.move_on_after(PATIENCE_S):
            while REPEATED.match(block.text) and code != block.code:
                code = await self._run(block)
        assert code == block.code, f"$ {block.text}\n{self._output}"

    async def _run(self, block: Block) -> int:
        """Run a command; its exit code."""
        command = on_ports(block.text, self._ports).rstrip()
        command = re.sub(r"^corvo dev\b", f"corvo dev --port {self._ports[USUAL]}", command)
        if block.is_beside:
            path = self._directory / f"terminal-{len(self._beside)}"
            before, _, last = command.rpartition("\n")
            await self._shell.run(f"({before}\nexec {last}) </dev/null >{path.name} 2>&1 &")
            with trio.fail_after(PATIENCE_S):
                while True:
                    if path.exists() and "\n" in path.read_text():
                        break  # the reader sees that it has begun
                    await trio.sleep(_LOOK_S)
            self._beside.append((path, "..."))
            if last.startswith("corvo server"):
                await ready(bound(last))
            return 0
        code, self._output = await self._shell.run(
            f"failed=0; trap 'failed=$?' ERR; {{ {command}\n}} 2>&1 </dev/null; (exit $failed)"
        )
        return code

    async def _compare(self, printed: str) -> None:
        assert self._last is not None
        if self._last.is_beside:
            self._beside[-1] = (self._beside[-1][0], printed)
            return
        with trio.move_on_after(PATIENCE_S):
            while REPEATED.match(self._last.text) and not is_as_printed(self._output, printed):
                await self._run(self._last)
        assert is_as_printed(self._output, printed), (
            f"$ {self._last.text}\n{general(self._output)}\nThe page has:\n{general(printed)}"
        )


async def cleared(port: str) -> None:
    """Remove what the page before has left."""
    client = Client(("127.0.0.1", int(port)))
    try:
        found = await client.ask("GET", "/api/v1/schedules")
        for schedule in found.read(Schedules).schedules:
            await client.ask("DELETE", f"/api/v1/schedules/{schedule.id}")
        found = await client.ask("GET", "/api/v1/queues")
        for queue in msgspec.json.decode(found.body, type=list[Named]):
            await client.ask("DELETE", f"/api/v1/queues/{queue.name}")
    finally:
        client.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_does_what_the_page_says(
    page: Path,
    port: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> None:
    language = NEEDS.get(page.name, "")
    if missing(language):
        pytest.skip(f"the commands of this page are not run: {missing(language)}")
    if language == "go":
        request.getfixturevalue("built")  # so that the build of the page is short
    # Short, for the sockets below it.
    directories = tmp_path_factory.mktemp("p"), tmp_path_factory.mktemp("t")

    # Each command has a time limit of its own, and the page as a whole has none.
    trio.run(read, page.read_text(), language, port, *directories)


async def read(text: str, language: str, port: str, directory: Path, temporary: Path) -> None:
    """Follow a page. Every command is compared with its output."""
    others = sorted({*re.findall(r"127\.0\.0\.1:(\d+)", text)} - {USUAL})
    ports = dict(zip(others, map(str, free_ports(len(others))), strict=True))
    [own] = free_ports(1)
    ports[USUAL] = str(own) if starts_a_server(text) else port
    await cleared(port)
    if language:
        shutil.copytree(EXAMPLES / language, directory, dirs_exist_ok=True)
    environment = {
        "CORVO_SERVER": f"http://127.0.0.1:{ports[USUAL]}",
        "CORVO_OUTPUT": "table",  # as on a terminal
        "COLUMNS": "120",
        "TMPDIR": str(temporary),
        **GO,
    }
    async with shell_in(directory, **environment) as shell:
        try:
            await Reader(shell, directory, ports).read(list(blocks(text)))
        finally:
            with trio.CancelScope(shield=True):  # its node does not end with it if it is killed
                await shell.run("{ kill '%?corvo dev' && wait '%?corvo dev'; } 2>/dev/null")


def starts_a_server(text: str) -> bool:
    """Whether a page starts the server that it uses."""
    return any(
        block.is_beside and re.search(r"^corvo (?:dev|server)\b", block.text, re.MULTILINE)
        for block in blocks(text)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_a_page_is_of_a_known_kind(page: Path) -> None:
    text = page.read_text()

    found = list(blocks(text))
    kinds = {block.language for block in found}
    notes = {block.note.partition(":")[0].rstrip("0123456789 ") for block in found}

    assert not list(steps(text)), "commands are blocks of `sh` here"
    assert text.count("```") == 2 * len(found), "blocks start at the first column"
    assert kinds <= LANGUAGES
    assert notes <= {"", "file", "another terminal", "exit code", "not run"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_file_in_a_page_is_the_file_in_the_repository(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.file.startswith("examples/"):
            assert block.text == (ROOT / block.file).read_text(), f"copy {block.file} to the page"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_a_page_only_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`corvo ([^`\n]+)`", text)
    for block in blocks(text):
        if block.note.startswith("not run: "):
            named += re.findall(r"^corvo (.+)$", block.text, re.MULTILINE)

    for words in map(str.split, named):
        assert words[0] in COMMANDS, words
        parsers = [parser_of(name, verb) for name, verb in verbs_of(words[0])]
        known = {option for parser in parsers for option in parser._option_string_actions}
        typed = {word for word in words if word.startswith("--")}
        assert not parsers or typed <= known, words


def test_every_command_of_a_tutorial_is_run() -> None:
    for page in (DOCS / "tutorials").glob("*.md"):
        assert not any(block.note.startswith("not run") for block in blocks(page.read_text()))


def test_a_page_that_is_wrong_is_found() -> None:
    page = (
        "<!-- exit code 3 -->\n```sh\ncorvo inspect a\n```\n"
        "It prints:\n\n```text\na\n...\nb...\n```\n"
    )

    [typed, printed] = blocks(page)

    assert (typed.language, typed.text, typed.code) == ("sh", "corvo inspect a\n", 3)
    assert is_as_printed("a\nb c\n", printed.text)
    assert is_as_printed("a\nx\ny\nb\n", printed.text)
    assert not is_as_printed("a\nx\n", printed.text)
    assert not is_as_printed("x\nb\n", printed.text)
