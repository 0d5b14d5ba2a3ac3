"""Stand-ins for the processes of a node: they write down what befalls them, and behave as told.

    python -m tests.support.standins NAME JOURNAL DEED

Each line of the journal is a name, a word and a process id. Deeds: `serve` answers every
connection with its process id and leaves when asked; `late:PIPE` does so once somebody opens that
pipe; `stay` does not leave, for a minute; `die:70,71,…` ends with the first of these codes, the
next start with the next, and behind the last it serves; a code of `-9` is a kill; `says:LINE`
writes a line for the node, and serves. Each update is answered with a notice.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

_STAY_S: Final = 60.0
"""Longer than anybody waits for it, and not for ever, should a test fail."""


class Told(msgspec.Struct):
    """The part of any config that a stand-in reads."""

    listen: list[int] = []
    shard: int | None = None


class Journal:
    """What befell the processes of a node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, name: str, word: str) -> None:
        with self._path.open("a") as opened:
            opened.write(f"{name} {word} {os.getpid()}\n")  # one write, so no two lines mix

    def lines(self) -> list[tuple[str, str, int]]:
        """Name, word and process of each line."""
        if not self._path.exists():
            return []
        rows = [line.split() for line in self._path.read_text().splitlines()]
        return [(name, word, int(pid)) for name, word, pid in rows]

    def words(self, name: str) -> list[str]:
        """What befell one of them."""
        return [word for who, word, _ in self.lines() if who == name]

    def last_pid(self, name: str) -> int:
        """Of its latest life."""
        return [pid for who, _, pid in self.lines() if who == name][-1]


def command(name: str, journal: Path, deed: str = "serve") -> tuple[str, ...]:
    """The command that starts one."""
    return (sys.executable, "-m", "tests.support.standins", name, str(journal), deed)


async def answer(stream: trio.SocketStream) -> None:
    await stream.send_all(b"%d" % os.getpid())
    await stream.aclose()


async def live(told: Told, note: Callable[[str], None], *, leaves: bool) -> None:
    """Answer connections until stdin closes."""
    async with trio.open_nursery() as nursery:
        for descriptor in told.listen:
            listening = trio.socket.fromfd(descriptor, trio.socket.AF_INET, trio.socket.SOCK_STREAM)
            nursery.start_soon(trio.serve_listeners, answer, [trio.SocketListener(listening)])
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
            while data := await stdin.receive_some():
                if b"prepare\n" in data:
                    note("prepared")
                for _ in range(data.count(b'"map"')):
                    note("updated")
                    sys.stdout.write('{"unneeded":9}\n')
                    sys.stdout.flush()
        if not leaves:
            await trio.sleep(_STAY_S)
        nursery.cancel_scope.cancel()


def main() -> int:
    name, path, deed = sys.argv[1:]
    told = msgspec.json.decode(sys.stdin.buffer.readline(), type=Told)
    if told.shard is not None:
        name = f"{name}-{told.shard}"
    journal = Journal(Path(path))
    lives = journal.words(name).count("started")
    journal.note(name, "started")
    if deed.startswith("die:"):
        codes = [int(code) for code in deed.removeprefix("die:").split(",")]
        if lives < len(codes):
            if codes[lives] < 0:
                os.kill(os.getpid(), -codes[lives])
            return codes[lives]
    # What a terminal sends is not for it.
    signal.signal(signal.SIGINT, lambda *_: journal.note(name, "interrupted"))
    if deed.startswith("late:"):
        Path(deed.removeprefix("late:")).read_bytes()
    if deed.startswith("says:"):
        sys.stdout.write(deed.removeprefix("says:") + "\n")
    trio.run(lambda: live(told, lambda word: journal.note(name, word), leaves=deed != "stay"))
    journal.note(name, "left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
