"""Transcripts: a group of nodes, commanded by a text file that holds every answer expected.

    # covers: I03
    # Why this must happen.

    > group 3
    > campaign 1
    1: pre-candidate in t0

A line that begins with `>` is a command, one with `#` a comment; whatever else stands below a
command is what it must print. `python -m tests.raft.transcript --rewrite [files]` writes the
answers anew: read the difference as carefully as code.

Nothing happens by itself, as in `tests.raft.group`. What a node does is printed when it does it:

    1 works
      1->2 t1 append prev 0/0 [1/1 no-op] commit 0     a message that leaves at once
      writes [1/1 no-op]                               what goes to its disk
      then 2->1 t1 accept 1 commit 0                   a message that waited for the disk
      applies [1/1 no-op]
    1: leader in t1                                    a change of role, term, leader or members

After every command the runner checks that no term has two leaders and that no two nodes ever
applied different entries at one index.

The commands:

    given 2 1 1 2 [term=3] [commit=1]           before `group`: a log with entries of these terms
    group 3 [4 learner] [election_ticks=10]     voters 1 to 3, learner 4, settings
    start 4 / crash 2 / restart 2               a new node; one that ends; one that returns
    campaign 1 / forget 2 / tick [1] [x10]      what a driver tells its node
    propose 1 hello / transfer 1 2 / read 1
    change 1 +4 -2 ~3 [explicit] / leave 1
    ready 1 / deliver [filter] / settle [1 2]   one round; mail by hand; all until nothing moves
    drop [filter] / mail                        lose or show what is under way
    block <filter>                              lose all of these from now on
    isolate 3 / heal                            all links of one down; all links up
    slow-disk 1 / store 1 [x2] / fast-disk 1    writes wait for `store`
    slow-apply / fast-apply                     committed entries are given out and not applied
    snapshot 1 [size] / compact 1 11            what a driver does to its log
    status [1] / log 1 / disk 1 / members 1 / progress 1
    elect 1 / pass 10                           `Group.elect`; ticks for all, settling after each
    quietly <command>                           without the printing

A filter is any of `1->2`, `->2`, `1->` and words such as `append`, `accept`, `beat`.
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from corvo.raft import (
    LEAVE,
    AnyMessage,
    Entry,
    Membership,
    MemoryStorage,
    Node,
    RaftError,
    Ready,
    Refused,
    Write,
)
from tests.raft.group import Group, members, with_log
from tests.raft.transcript_words import (
    Names,
    change_of,
    entries_words,
    entry_words,
    kind_of,
    membership_words,
    message_words,
    progress_words,
    role_words,
    status_words,
    write_words,
)

SCENARIOS = Path(__file__).parent / "scenarios"


def render(text: str) -> str:
    """The transcript with every answer as it is now."""
    stage = Stage()
    lines = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *stage.play(line.removeprefix("> "))]
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def difference(path: Path) -> str:
    """How the file differs from what happens; empty when it does not."""
    expected = path.read_text(encoding="utf-8")
    actual = render(expected)
    both = (expected.splitlines(), actual.splitlines())
    return "\n".join(difflib.unified_diff(*both, "expected", "what happens", lineterm="", n=8))


class TracedGroup(Group):
    """A group that writes down what its nodes do, and checks what must always hold."""

    def __init__(
        self, membership: Membership, storages: dict[int, MemoryStorage], settings: dict[str, int]
    ) -> None:
        self.lines: list[str] = []
        self.names = Names()
        self._roles: dict[int, str] = {}
        self._members: dict[int, str] = {}
        self._refused: dict[int, dict[str, int]] = {}
        self._leaders: dict[int, int] = {}
        self._applied: dict[int, Entry] = {}
        super().__init__(membership, storages=storages, **settings)
        self.auto_snapshot = False
        self.lines.clear()

    def tell(self, line: str) -> None:
        """Write down a line, behind what changed before it."""
        self.note_changes()
        self.lines.append(line)

    def start(
        self,
        replica: int,
        *,
        applied: int | None = None,
        repair: bool = False,
        returned: bool = False,
    ) -> Node:
        """Start, or restart, a node; it is told in one line."""
        for known in (self._roles, self._members, self._refused):
            known.pop(replica, None)
        node = super().start(replica, applied=applied, repair=repair, returned=returned)
        self.tell(status_words(node))
        return node

    def ready(self, replica: int) -> Ready:
        """One round of work, told."""
        self.note_changes()
        ready = super().ready(replica)
        if ready:
            self.lines.append(f"{replica} works")
            self.lines += [f"  {line}" for line in self._work_lines(replica, ready)]
        self.note_changes()
        return ready

    def _work_lines(self, replica: int, ready: Ready) -> Iterator[str]:
        yield from (message_words(message, self.names) for message in ready.messages)
        if ready.write is not None:
            yield from self._write_lines(replica, ready.write)
        if ready.committed:
            yield f"applies {entries_words(ready.committed)}"
        yield from (f"reads {self.names.of(read.context)} at {read.index}" for read in ready.reads)
        yield from (f"loses read {self.names.of(context)}" for context in ready.reads_lost)
        if ready.snapshot_wanted is not None:
            yield f"wants a snapshot of {ready.snapshot_wanted} or later"

    def _write_lines(self, replica: int, write: Write) -> Iterator[str]:
        if replica in self.slow_disks:
            yield f"begins write {write.token}: {write_words(write)}"
            return
        yield f"writes {write_words(write)}"
        yield from (f"then {message_words(message, self.names)}" for message in write.messages)

    def deliver(self) -> None:
        """Hand over everything in the mail; what is lost is told."""
        self.hand_over(lambda _: True, aloud=False)

    def hand_over(self, wanted: Callable[[AnyMessage], bool], *, aloud: bool) -> None:
        """Deliver those messages that are wanted; the rest stays in the mail."""
        for message in self.take(wanted):
            words = message_words(message, self.names)
            is_cut = (message.source, message.target) in self.cut_links
            if is_cut or message.target not in self.nodes or not self.passes(message):
                self.tell(f"lost {words}")
                continue
            if aloud:
                self.tell(f"delivered {words}")
            self.nodes[message.target].step(message)
            self.note_changes()

    def take(self, wanted: Callable[[AnyMessage], bool]) -> list[AnyMessage]:
        """Take those messages out of the mail."""
        taken = [message for message in self.mail if wanted(message)]
        self.mail = [message for message in self.mail if not wanted(message)]
        return taken

    def note_changes(self) -> None:
        """Write down what is different since the last look: roles, members, refusals."""
        for replica, node in sorted(self.nodes.items()):
            role, group = role_words(node), membership_words(node.membership)
            if self._roles.get(replica, role) != role:
                self.lines.append(f"{replica}: {role}")
            if self._members.get(replica, group) != group:
                self.lines.append(f"{replica}: {group}")
            refused = node.statistics().refused
            before = self._refused.get(replica, {})
            self.lines += [
                f"{replica} refuses it: {reason}"
                for reason, count in refused.items()
                if count > before.get(reason, 0)
            ]
            self._roles[replica], self._members[replica] = role, group
            self._refused[replica] = refused
        self._check()

    def _check(self) -> None:
        for replica, node in self.nodes.items():
            if node.is_leader:
                first = self._leaders.setdefault(node.term, replica)
                assert first == replica, f"term {node.term} has leaders {first} and {replica}"
        for replica, entries in self.applied.items():
            for entry in entries:
                known = self._applied.setdefault(entry.index, entry)
                assert known == entry, f"{replica} applied {entry}, another {known}"


class Stage:
    """Carries out commands."""

    def __init__(self) -> None:
        self._given: list[list[str]] = []
        self._group: TracedGroup | None = None
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "block": self._block,
            "campaign": lambda words: self._node(words).campaign(),
            "change": self._change,
            "compact": self._compact,
            "crash": self._crash,
            "deliver": lambda words: self.group.hand_over(_filter(words), aloud=True),
            "disk": self._disk,
            "drop": self._drop,
            "elect": self._elect,
            "fast-apply": lambda _: self._apply_by_hand(by_hand=False),
            "fast-disk": self._fast_disk,
            "forget": lambda words: self._node(words).forget_leader(),
            "given": self._given.append,
            "group": self._make_group,
            "heal": lambda _: self.group.heal(),
            "isolate": lambda words: self.group.isolate(int(words[0])),
            "leave": lambda words: self._tell_index(self._node(words).propose_change(LEAVE)),
            "log": self._log,
            "mail": self._mail,
            "members": lambda words: self._tell(membership_words(self._node(words).membership)),
            "pass": lambda words: self.group.tick(times=int(words[0])),
            "progress": self._progress,
            "propose": self._propose,
            "read": self._read,
            "ready": self._ready,
            "restart": self._start,
            "settle": self._settle,
            "slow-apply": lambda _: self._apply_by_hand(by_hand=True),
            "slow-disk": lambda words: self.group.slow_disks.add(int(words[0])),
            "snapshot": self._snapshot,
            "start": self._start,
            "status": self._status,
            "store": self._store,
            "tick": self._tick,
            "transfer": lambda words: self._node(words).transfer(int(words[1])),
        }

    @property
    def group(self) -> TracedGroup:
        """The nodes."""
        assert self._group is not None, "the first command but `given` is `group`"
        return self._group

    def play(self, command: str) -> list[str]:
        """What a command prints."""
        words = command.split()
        quietly = words[0] == "quietly"
        verb, *rest = words[1:] if quietly else words
        try:
            self.commands[verb](rest)
        except Refused as refusal:
            self._tell(f"{type(refusal).__name__}: {refusal}")
        except (AssertionError, LookupError, RaftError, ValueError) as error:
            done = self.group.lines if self._group else []
            error.add_note("\n".join([*done, f"at the command: {command}"]))
            raise
        if self._group is None:
            return []
        self.group.note_changes()
        lines, self.group.lines = self.group.lines, []
        return [] if quietly else lines

    def _tell(self, line: str) -> None:
        self.group.tell(line)

    # The group and its nodes.

    def _node(self, words: list[str]) -> Node:
        return self.group[int(words[0])]

    def _make_group(self, words: list[str]) -> None:
        learners = [int(words[at - 1]) for at, word in enumerate(words) if word == "learner"]
        group = members(*range(1, int(words[0]) + 1), learners=learners)
        storages = {}
        for replica, *rest in self._given:
            options = _numbers(rest)
            terms = [int(word) for word in rest if word.isdecimal()]
            storages[int(replica)] = with_log(
                group, terms, term=options.get("term"), commit=options.get("commit", 0)
            )
        self._group = TracedGroup(group, storages, _numbers(words))

    def _start(self, words: list[str]) -> None:
        self.group.start(int(words[0]))

    def _crash(self, words: list[str]) -> None:
        del self.group.nodes[int(words[0])]

    def _elect(self, words: list[str]) -> None:
        self.group.elect(int(words[0]))

    # Time and work.

    def _tick(self, words: list[str]) -> None:
        times = next((int(word[1:]) for word in words if word.startswith("x")), 1)
        who = [int(word) for word in words if word.isdecimal()] or list(self.group.nodes)
        for _ in range(times):
            for replica in who:
                self.group[replica].tick()
                self.group.note_changes()

    def _ready(self, words: list[str]) -> None:
        if not self.group.ready(int(words[0])):
            self._tell(f"{words[0]} has nothing to do")

    def _settle(self, words: list[str]) -> None:
        who = [int(word) for word in words] or list(self.group.nodes)
        for _ in range(100):
            self.group.work(*who)
            if not any(message.target in who for message in self.group.mail) and words:
                return
            if not self.group.mail:
                return
            self.group.hand_over(lambda message: not words or message.target in who, aloud=False)
        raise AssertionError("the group does not come to rest")

    def _apply_by_hand(self, *, by_hand: bool) -> None:
        self.group.auto_apply = not by_hand

    # Requests.

    def _tell_index(self, index: int) -> None:
        self._tell(f"at {index}")

    def _propose(self, words: list[str]) -> None:
        node = self._node(words)
        for word in words[1:]:
            letters, _, times = word.partition("*")
            self._tell_index(node.propose(letters.encode() * int(times or 1)))

    def _change(self, words: list[str]) -> None:
        self._tell_index(self._node(words).propose_change(change_of(words[1:])))

    def _read(self, words: list[str]) -> None:
        self._tell(f"read {self.group.names.of(self._node(words).read_index())}")

    # Mail.

    def _drop(self, words: list[str]) -> None:
        for message in self.group.take(_filter(words)):
            self._tell(f"dropped {self._words(message)}")

    def _block(self, words: list[str]) -> None:
        blocked, before = _filter(words), self.group.passes
        self.group.passes = lambda message: before(message) and not blocked(message)

    def _mail(self, _: list[str]) -> None:
        for message in self.group.mail:
            self._tell(self._words(message))

    def _words(self, message: AnyMessage) -> str:
        return message_words(message, self.group.names)

    # Disks.

    def _store(self, words: list[str]) -> None:
        replica = int(words[0])
        count = int(words[1][1:]) if len(words) > 1 else len(self.group.writes[replica])
        for _ in range(count):
            write = self.group.writes[replica][0]
            self._tell(f"{replica} has written {write.token}")
            for message in write.messages:
                self._tell(f"  {self._words(message)}")
            self.group.store(replica, 1)
            self.group.note_changes()

    def _fast_disk(self, words: list[str]) -> None:
        self._store(words)
        self.group.slow_disks.discard(int(words[0]))

    def _snapshot(self, words: list[str]) -> None:
        replica = int(words[0])
        state = self._node(words).describe_state()
        assert state is not None, "a scenario makes snapshots of what is applied and durable"
        data = b"state of %d" % state.index
        if len(words) > 1:
            data = data.ljust(int(words[1]), b".")
        self.group.storages[replica].make_snapshot(
            index=state.index, membership=state.membership, data=data
        )
        self._tell(f"snapshot {state.index}/{state.term} {len(data)} bytes")

    def _compact(self, words: list[str]) -> None:
        """Only where the present membership was in force already."""
        replica, index = map(int, words)
        self.group.storages[replica].compact(index=index, membership=self.group[replica].membership)

    # Looking.

    def _status(self, words: list[str]) -> None:
        for replica in [int(word) for word in words] or sorted(self.group.nodes):
            self._tell(status_words(self.group[replica]))

    def _log(self, words: list[str]) -> None:
        log = self.group.raft(int(words[0])).log
        if log.first_index > log.last_index:
            self._tell(f"nothing behind {log.base.index}/{log.base.term}")
            return
        for entry in log.entries(log.first_index, log.last_index, 1 << 20):
            notes = ["not durable"] if entry.index > log.stable else []
            notes += ["committed"] if entry.index <= log.commit else []
            self._tell(", ".join([entry_words(entry), *notes]))

    def _disk(self, words: list[str]) -> None:
        storage = self.group.storages[int(words[0])]
        state = storage.hard_state
        self._tell(f"term {state.term} vote {state.vote or 'nobody'}, behind {storage.base.index}")
        if storage.last_index > storage.base.index:
            entries = storage.entries(storage.base.index + 1, storage.last_index, 1 << 20)
            self._tell(entries_words(entries))

    def _progress(self, words: list[str]) -> None:
        for view in self._node(words).statistics().progress:
            self._tell(progress_words(view))


def _numbers(words: list[str]) -> dict[str, int]:
    """`name=3` among the words."""
    pairs = (word.split("=") for word in words if "=" in word)
    return {name: int(value) for name, value in pairs}


def _filter(words: list[str]) -> Callable[[AnyMessage], bool]:
    links = [word for word in words if "->" in word]
    kinds = [word for word in words if "->" not in word]

    def wanted(message: AnyMessage) -> bool:
        source, target = str(message.source), str(message.target)
        names = {f"{source}->{target}", f"->{target}", f"{source}->"}
        on_link = not links or not names.isdisjoint(links)
        return on_link and (not kinds or kind_of(message) in kinds)

    return wanted


def main(arguments: list[str]) -> int:
    """Show the differences, or write them."""
    parser = argparse.ArgumentParser(prog="tests.raft.transcript")
    parser.add_argument("--rewrite", action="store_true", help="write the answers anew")
    parser.add_argument("files", nargs="*", type=Path)
    chosen = parser.parse_args(arguments)
    differs = False
    for path in chosen.files or sorted(SCENARIOS.glob("*.txt")):
        found = difference(path)
        if found:
            differs = True
            print(f"{path.name}\n{found}")
            if chosen.rewrite:
                path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
    return int(differs and not chosen.rewrite)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
