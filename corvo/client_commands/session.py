"""One run of a command: the client, the terminal, and how results are shown."""

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TextIO, TypeVar

import msgspec

from corvo.client.calls import Client
from corvo.client.connections import Answer
from corvo.client.errors import Unreachable
from corvo.client_commands.failures import CommandFailed
from corvo.client_commands.records import (
    IDS,
    JSON,
    JSONL,
    TABLE,
    Layout,
    Listing,
    Records,
    one_line,
    select,
)

T = TypeVar("T")

LOOK_S: Final = 0.5
"""Between two looks at something that is waited for."""
_TERMINAL: Final = "/dev/tty"


class Style(NamedTuple):
    """How a command talks."""

    output: str
    fields: tuple[str, ...] = ()
    has_headers: bool = True
    is_confirmed: bool = False
    is_quiet: bool = False
    protected: str = ""
    """Name of a protected profile that was not named for this command."""


class Session:
    """What a command works with."""

    def __init__(self, connect: Callable[[], Client], style: Style) -> None:
        self._connect = connect
        self._client: Client | None = None
        self.output: Final = style.output
        self.is_quiet: Final = style.is_quiet
        self._style = style

    @property
    def client(self) -> Client:
        """The client of the server; it is made when it is first needed."""
        if self._client is None:
            self._client = self._connect()
        return self._client

    def another_client(self) -> Client:
        """A client of its own for another thread, to be closed there."""
        return self._connect()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    @property
    def is_json(self) -> bool:
        """Whether results are for programs."""
        return self.output in {JSON, JSONL}

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads the results now."""
        return sys.stdout.isatty()

    # Results.

    def show(self, answer: Answer | bytes, text: str, ids: tuple[str, ...] = ()) -> None:
        """Print a result: the answer of the server as it is, the ids, or the text for people."""
        if self.is_json:
            body = answer if isinstance(answer, bytes) else answer.body
            chosen = select(body.strip() or b"null", self._style.fields)
            if self.output == JSON:
                text = msgspec.json.format(bytes(chosen)).decode() + "\n"
            else:
                text = one_line(chosen) + "\n"
        elif self.output == IDS:
            text = "".join(f"{one}\n" for one in ids)
        sys.stdout.write(text)
        sys.stdout.flush()

    @contextmanager
    def listing(self, listing: Listing[T]) -> Iterator[Records[T]]:
        """A list that is written page by page."""
        layout = Layout(
            self.output,
            self.now_ns(),
            self._style.fields,
            shutil.get_terminal_size().columns if self.output == TABLE and self.is_terminal else 0,
            self._style.has_headers,
        )
        records = Records(listing, layout, sys.stdout.write)
        yield records
        records.close()
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print what is on the way, beside the result."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        """Print a remark for people, unless the output is for programs or `--quiet`."""
        if not self.is_quiet:
            self.say(text)

    def now_ns(self) -> int:
        """The time now."""
        return time.time_ns()

    def patience(self, options: argparse.Namespace) -> Callable[[], bool]:
        """Whether the time limit of a request with its repeats is not over."""
        limit_s: float = options.timeout
        ends_at = time.monotonic() + limit_s
        return lambda: time.monotonic() < ends_at

    # Questions.

    def confirm(self, about: Callable[[], str], question: str, command: str) -> None:
        """Ask before something dangerous, unless `--yes` was passed. Raises `CommandFailed`.

        `about` says what it means, and `command` is the one that does it without a question.
        """
        if self._style.is_confirmed:
            return
        meaning = about()
        with _terminal() as terminal:
            if terminal is None:
                also = f" --profile {self._style.protected}" if self._style.protected else ""
                raise CommandFailed(
                    "NOT_CONFIRMED",
                    f"{meaning}. Without a terminal, this needs --yes{also and ' and --profile'}",
                    hints=[f"confirm it:   {command} --yes{also}"],
                )
            where = f"[{self._style.protected.upper()}] " if self._style.protected else ""
            sys.stderr.write(f"{meaning[0].upper()}{meaning[1:]}.\n{where}{question} [y/N] ")
            sys.stderr.flush()
            if terminal.readline().strip().lower() not in {"y", "yes"}:
                raise CommandFailed("NOT_CONFIRMED", "nothing was changed")

    # Waiting.

    def wait(
        self,
        is_done: Callable[[], bool],
        within_s: float | None,
        still: Callable[[], str],
        look_s: float = LOOK_S,
        *,
        may_start: bool = False,
    ) -> None:
        """Wait until something is so; once a server has answered, nodes may start or stop.

        Raises `CommandFailed` with `still` when the time is over. Without one, it never is. Raises
        `Unreachable` if no server answers at first, unless the server itself `may_start` meanwhile:
        otherwise the address may be wrong.
        """
        ends_at = time.monotonic() + within_s if within_s is not None else float("inf")
        has_answered = may_start
        while True:
            silent = ""
            try:
                if is_done():
                    return
                has_answered = True
            except Unreachable as error:
                if not has_answered:
                    raise
                silent = error.message
            if time.monotonic() + look_s > ends_at:
                raise CommandFailed("TIME_OVER", f"after {within_s:g} s, {silent or still()}")
            # The server has no request that waits for a state.
            time.sleep(look_s)


@contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """Where a person can answer: stdin, or the terminal itself if stdin is a pipe."""
    if not sys.stderr.isatty():
        yield None
    elif sys.stdin.isatty():
        yield sys.stdin
    else:
        try:
            terminal = Path(_TERMINAL).open(encoding="utf-8")  # noqa: SIM115 -- closed below
        except OSError:
            yield None
            return
        with terminal:
            yield terminal
