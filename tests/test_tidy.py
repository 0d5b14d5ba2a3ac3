"""The house rules as tests: what a linter cannot say and a reviewer should not have to.

A rule is a function from one file to its complaints. `PLANTED` holds a violation of each, so that a
rule which has stopped to see anything is found out. Words that a rule forbids are written here so
that the rule does not find itself, as in `b[a]d`.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent

FILE_LINES_MAX: Final = 900  # beyond that, a file has two subjects
FUNCTION_LINES_MAX: Final = 70  # a screen, and some; the docstring does not count

LONG_FUNCTIONS: Final[dict[str, str]] = {}
"""The ratchet: `path:name` of each longer function, and why it reads better whole."""

LOUD: Final = (
    "corvo/{__main__,child,cli,clock,commands,connections,datadir,kept_link,link,listening}.py",
    "corvo/{container_init,node,notify}.py",
    "corvo/{peer_tls,process_stats,shard_links,supervisor,telemetry,topology,watchdog}.py",
    "corvo/{handover,peer_port}.py",
    "corvo/{clock_readings,forming,node_map,plans}.py",
    "corvo/backup_commands.py",
    "corvo/backup/{stored,taking}.py",
    "corvo/client/{calls,connections}.py",
    "corvo/client_commands/{bulk_runs,enqueue,interrupts,lines,options,progress,session}.py",
    "corvo/client_commands/{completion,dev,profile,profiles}.py",
    "corvo/client_commands/{events,waiting,worker,worker_commands,working}.py",
    "corvo/kv/{checkpoints,directories,level,stopped}.py",
    "corvo/mirror/{process,readers}.py",
    "corvo/mirror/follow/{building,checking,following,writing}.py",
    "corvo/raft/disk/files.py",
    "corvo/router/{api,ask,process,summary}.py",
    "corvo/router/*/{endpoints,fan_out}.py",
    "corvo/router/auth/{keeper,sharing}.py",
    "corvo/router/backups/restoring.py",
    "corvo/router/bulk/executor.py",
    "corvo/router/cluster/{asking,joining,watching}.py",
    "corvo/router/events/{boards,channels,cursors,listening}.py",
    "corvo/router/feeds/hub.py",
    "corvo/router/http/lines.py",
    "corvo/router/jobs/find.py",
    "corvo/router/server/*.py",
    "corvo/router/shards/{addressing,copies,links,long_poll,map_keeper,mirror,peers,present}.py",
    "corvo/router/stream/{frame_run,stream}.py",
    "corvo/router/tracing/{exporter,tracer}.py",
    "corvo/verify/{backups,command,directories,live,logs,members,mirrors,node_files,states}.py",
    "corvo/shard/driver/{copying,following,one_by_one,other_shard,poison,process,removal}.py",
    "corvo/shard/driver/{replica_links,room,snapshots,syncing,timekeeping}.py",
)
"""Modules that may wait, ask the time or touch the disk, by pattern. Every other module of corvo is
quiet."""

PROCESS_MAINS: Final = (
    "corvo/router/server/{door,serving,slow_lane}.py",
    "corvo/router/bulk/executor.py",
    "corvo/{router,mirror,shard/driver}/process.py",
    "corvo/shard/driver/poison.py",
    "corvo/node.py",
    "examples/python/worker.py",
)
"""The only places that may catch everything: behind them there is only the exit code, a 500,
the end of one connection, a bulk operation that is left to its lease, or a failed attempt."""

DOORS: Final[dict[str, tuple[str, ...]]] = {
    "croniter": ("corvo/cron.py",),
    "datetime": ("corvo/{telemetry,times,time_zones,wall_calendar}.py",),
    "fcntl": ("corvo/datadir.py", "corvo/kv/directories.py", "corvo/raft/disk/files.py"),
    "google_crc32c": ("corvo/raft/checksum.py",),
    "logging": (),
    "os": (
        "corvo/{child,cli,commands,datadir,node,notify,plans,process_stats,telemetry,watchdog}.py",
        "corvo/container_init.py",
        "corvo/client_commands/{completion,dev,lines,options,profile,profiles}.py",
        "corvo/client_commands/{worker,worker_commands}.py",
        "corvo/kv/directories.py",
        "corvo/mirror/process.py",
        "corvo/raft/disk/files.py",
        "corvo/shard/driver/{process,syncing}.py",
        "corvo/tui/{command,terminal}.py",
    ),
    "pathlib": (
        "corvo/{backup_commands,commands,datadir,listening,node,plans,peer_tls,process_stats}.py",
        "corvo/backup/{stored,taking}.py",
        "corvo/client_commands/{dev,enqueue,profiles,session,worker_commands}.py",
        "corvo/kv/{checkpoints,directories,stopped}.py",
        "corvo/mirror/{process,readers}.py",
        "corvo/mirror/follow/{building,writing}.py",
        "corvo/raft/disk/files.py",
        "corvo/router/node/certificates.py",
        "corvo/router/server/serving.py",
        "corvo/shard/driver/{disk,known,poison,process,room,timekeeping}.py",
        "corvo/tui/pictures.py",
        "corvo/verify/{backups,command,directories,logs,mirrors,node_files,states}.py",
    ),
    "plyvel": ("corvo/kv/level.py",),
    "rich": ("corvo/tui/*.py",),
    "sqlite_utils": ("corvo/mirror/follow/building.py",),
    "subprocess": ("corvo/supervisor.py", "corvo/client_commands/{dev,worker_commands}.py"),
    "threading": (
        "corvo/{telemetry,watchdog}.py",
        "corvo/client_commands/{bulk_runs,dev,interrupts,jobs,worker,worker_commands}.py",
        "corvo/mirror/written_queues.py",
        "corvo/shard/driver/syncing.py",
        "corvo/tui/fetching.py",
    ),
    "time": (
        "corvo/{clock,watchdog}.py",
        "corvo/client/calls.py",
        "corvo/client_commands/{bulk_runs,events,progress,session,worker}.py",
        "corvo/tui/{command,fetching}.py",
    ),
    "trio": LOUD,
    "tzdata": ("corvo/time_zones.py",),
    "zoneinfo": ("corvo/time_zones.py",),
}
"""Which modules of corvo may import a library, by pattern: one door each, so that what lies behind
it can be replaced, and faked."""


def expanded(pattern: str) -> Iterator[str]:
    """A pattern without its braces: `a/{b,c}.py` is `a/b.py` and `a/c.py`."""
    before, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern
        return
    choices, _, after = rest.partition("}")
    for choice in choices.split(","):
        yield from expanded(f"{before}{choice}{after}")


@cache
def is_among(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path is one of those that patterns name."""
    return any(fnmatchcase(path, plain) for pattern in patterns for plain in expanded(pattern))


RAFT_NEEDS: Final = {"corvo", "google_crc32c", "msgspec"} | sys.stdlib_module_names
"""All that the Raft library may stand on: it is to be useful by itself."""

SPELLING: Final = {
    "analy[z]e": "analyse",
    "behavio[r]": "behaviour",
    "cance[l](?=ed|ing)": "cancell-",
    "cente[r]": "centre",
    "colo[r](?!-scheme|:)": "colour",  # those two are CSS's own
    "favo[r]": "favour",
    "hono[r]": "honour",
    "initiali[z]": "initialis-",
    "labe[l](?=ed|ing)": "labell-",
    "neighbo[r]": "neighbour",
    "normali[z]": "normalis-",
    "optimi[z]": "optimis-",
    "organi[z]": "organis-",
    "recogni[z]": "recognis-",
    "seriali[z]": "serialis-",
    "synchroni[z]": "synchronis-",
}
"""British spelling, by stem. A name that a library chose is passed over: see `check_spelling`."""

SPELT_OTHERWISE: Final = {
    "corvo/router/leases/verbs.py": '"cance[l]ed"',
    "corvo/tui/terminal.py": "[Cc]olo[r]_?[Ss]ystem",
    "corvo/tui/pictures.py": "colo[r]_system",
}
"""By file, a name of the HTTP API or of a library that has the other spelling."""


Node = ast.stmt | ast.expr | ast.excepthandler
"""The parts of a syntax tree that the rules look at."""


@dataclass(frozen=True)
class File:
    """One text file of the repository."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[Node]:
        return [node for node in ast.walk(self.module) if isinstance(node, Node)]

    @cached_property
    def module(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_quiet(self) -> bool:
        return self.is_python and self.path.startswith("corvo/") and not is_among(self.path, LOUD)

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full name of each imported module."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None, f"{self.path}: ruff's TID252 asks for full names"
                yield node.lineno, node.module


Complaints = Iterator[tuple[int, str]]
Rule = Callable[[File], Complaints]


# ---- Rules of size and words.


def check_file_length(file: File) -> Complaints:
    lines = file.text.count("\n")
    if file.path.endswith((".py", ".md")) and lines > FILE_LINES_MAX:
        yield FILE_LINES_MAX, f"{lines} lines: find the second subject and give it a file"


def check_function_length(file: File) -> Complaints:
    if not file.is_python:
        return
    for node in file.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        lines = node.end_lineno - node.lineno + 1 - docstring_lines(node)
        if lines > FUNCTION_LINES_MAX and f"{file.path}:{node.name}" not in LONG_FUNCTIONS:
            yield node.lineno, f"{node.name} has {lines} lines: split it where a name appears"


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    assert first.end_lineno is not None
    return first.end_lineno - first.lineno + 1


def check_module_docstring(file: File) -> Complaints:
    if file.is_python and not ast.get_docstring(file.module):
        yield 1, "say in a docstring what this module is for"


def check_loose_ends(file: File) -> Complaints:
    for line, text in numbered(file):
        if re.search(r"\b(FIX[M]E|TO[D]O|X[X]X)\b", text):
            yield line, "do it now, or open an issue: a note in the code is read by nobody"


def check_spelling(file: File) -> Complaints:
    if file.path == "LICENSE":
        return
    for line, written in numbered(file):
        text = re.sub(SPELT_OTHERWISE.get(file.path, "^$"), "", written)
        for stem, better in SPELLING.items():
            # Behind a dot, dash or underscore it is a name that somebody else chose.
            if re.search(rf"(?<![\w.-]){stem}", text, re.IGNORECASE):
                yield line, f"British spelling: {better}"


def check_foreign_places(file: File) -> Complaints:
    for line, text in numbered(file):
        if re.search(r"(?<![\w.])/(work|root|tmp|home)/", text):
            yield line, "a path of one machine: name a place inside the repository, or tmp_path"
        if re.search(r"py[p]i\.org|pythonhosted\.or[g]|npmj[s]\.|crates\.i[o]", text):
            yield line, "a registry's address: pip and apt know where to look"


def numbered(file: File) -> Iterator[tuple[int, str]]:
    return enumerate(file.text.splitlines(), start=1)


# ---- Rules of the quiet rooms and their doors.


def check_quiet_builtins(file: File) -> Complaints:
    refused = {"breakpoint", "hash", "id", "input", "open", "print"}
    if not file.is_quiet:
        return
    for node in file.nodes:
        if isinstance(node, ast.Call) and called(node) in refused:
            yield node.lineno, f"{called(node)}() in a quiet module: return what is to be told"


def check_set_order(file: File) -> Complaints:
    if not file.is_quiet:
        return
    for node in file.nodes:
        for walked in walked_by(node):
            if isinstance(walked, ast.Set | ast.SetComp) or called(walked) in {"set", "frozenset"}:
                yield walked.lineno, "the order of a set differs between replicas: use sorted()"


def walked_by(node: Node) -> list[ast.expr]:
    """The expressions whose order this node makes visible."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return [node.iter]
    if isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
        return [generator.iter for generator in node.generators]
    if isinstance(node, ast.Call) and called(node) in {"enumerate", "iter", "list", "tuple", "zip"}:
        return node.args
    return []


def check_chance(file: File) -> Complaints:
    if not file.is_quiet:
        return
    for node in file.nodes:
        if isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
            yield node.lineno, "chance is an argument: `from random import Random`, as a type"
        if isinstance(node, ast.ImportFrom) and taken_from(node, "random") - {"Random"}:
            yield node.lineno, "chance is an argument: only the class Random may be named"
        if isinstance(node, ast.Call) and called(node) == "Random":
            yield node.lineno, "chance is an argument: let the caller make the Random"


def check_doors(file: File) -> Complaints:
    if not (file.is_python and file.path.startswith("corvo/")):
        return
    for line, name in file.imports():
        library = name.partition(".")[0]
        if library in DOORS and not is_among(file.path, DOORS[library]):
            yield line, f"{library} has one door, and this is not it: see DOORS"


def check_raft_stands_alone(file: File) -> Complaints:
    if not (file.is_python and file.path.startswith("corvo/raft/")):
        return
    for line, name in file.imports():
        inside = name == "corvo.raft" or name.startswith("corvo.raft.")
        if name.partition(".")[0] not in RAFT_NEEDS or (name.startswith("corvo") and not inside):
            yield line, f"the Raft library stands alone and may not import {name}"


# ---- Rules of conduct.


def check_broad_except(file: File) -> Complaints:
    if not file.is_python or is_among(file.path, PROCESS_MAINS):
        return
    for node in file.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(one is None or named(one) in {"Exception", "BaseException"} for one in caught):
            yield node.lineno, "catch what you can handle; a bug must reach the process main"


def check_sleep(file: File) -> Complaints:
    if not (file.is_python and file.path.startswith("tests/")):
        return
    for node in file.nodes:
        slept = isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
        taken = isinstance(node, ast.ImportFrom) and "sleep" in taken_from(node, "time")
        if slept or taken:
            yield node.lineno, "no test sleeps: pass the time, or wait for the event"


def check_skips(file: File) -> Complaints:
    if not file.is_python:
        return
    reasoned = {
        id(node.func)
        for node in file.nodes
        if isinstance(node, ast.Call) and any(word.arg == "reason" for word in node.keywords)
    }
    for node in file.nodes:
        mark = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"pytest\.mark\.(skip|skipif|xfail)", mark) and id(node) not in reasoned:
            yield node.lineno, f"{mark} needs reason=: the summary prints it as not covered"


def check_empty_assertion(file: File) -> Complaints:
    if not file.is_python:
        return
    for node in file.nodes:
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and node.test.value:
            yield node.lineno, "this assertion proves nothing: assert what the test is named after"


def check_replace(file: File) -> Complaints:
    if not file.is_python:
        return
    calls = {id(node.func) for node in file.nodes if isinstance(node, ast.Call)}
    for node in file.nodes:
        name = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
        if re.fullmatch(r"(msgspec\.)?(structs\.)?replace", name) and id(node) not in calls:
            yield (
                node.lineno,
                "mypy checks a call of `replace` by that name: keep it in no variable",
            )


def taken_from(node: ast.ImportFrom, module: str) -> set[str]:
    return {alias.name for alias in node.names} if node.module == module else set()


def called(node: ast.expr) -> str:
    return named(node.func) if isinstance(node, ast.Call) else ""


def named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


# ---- The rules, each with a violation that it must find.

PLANTED: Final[tuple[tuple[Rule, str, str], ...]] = (
    (check_file_length, "a.md", "\n" * (FILE_LINES_MAX + 1)),
    (check_function_length, "a.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (check_module_docstring, "a.py", "x = 1\n"),
    (check_loose_ends, "a.py", "# TO" + "DO: later\n"),
    (check_spelling, "a.md", "the behavi" + "or of a queue\n"),
    (check_foreign_places, "a.md", "see {}/notes\n".format("/work")),
    (check_foreign_places, "a.txt", "--index-url https://{}.org/simple\n".format("pypi")),
    (check_quiet_builtins, "corvo/a.py", "shard = hash(queue) % 4\n"),
    (check_set_order, "corvo/a.py", "for voter in {1, 2}: pass\n"),
    (check_set_order, "corvo/a.py", "voters = tuple(set(voters))\n"),
    (check_set_order, "corvo/a.py", "voters = [v for v in {*a, *b}]\n"),
    (check_chance, "corvo/a.py", "import random\n"),
    (check_chance, "corvo/a.py", "from random import choice\n"),
    (check_chance, "corvo/a.py", "dice = Random(1)\n"),
    (check_doors, "corvo/a.py", "import os.path\n"),
    (check_doors, "corvo/raft/core.py", "from time import monotonic\n"),
    (check_raft_stands_alone, "corvo/raft/core.py", "import trio\n"),
    (check_raft_stands_alone, "corvo/raft/core.py", "from corvo.config import Config\n"),
    (check_broad_except, "a.py", "try: f()\nexcept Exception: pass\n"),
    (check_broad_except, "a.py", "try: f()\nexcept (OSError, BaseException): pass\n"),
    (check_broad_except, "a.py", "try: f()\nexcept: pass\n"),
    (check_sleep, "tests/a.py", "time.sleep(1)\n"),
    (check_sleep, "tests/a.py", "from time import sleep\n"),
    (check_skips, "a.py", "@pytest.mark.skip\ndef test_a(): pass\n"),
    (check_skips, "a.py", "@pytest.mark.xfail(strict=True)\ndef test_a(): pass\n"),
    (check_empty_assertion, "a.py", "assert True\n"),
    (check_replace, "a.py", "_replace = msgspec.structs.replace\n"),
    (check_replace, "a.py", "change = partial(replace, job)\n"),
)

RULES: Final = tuple(dict.fromkeys(rule for rule, _, _ in PLANTED))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_repository_keeps_the_rule(rule: Rule) -> None:
    complaints = [
        f"{file.path}:{line}: {complaint}" for file in files() for line, complaint in rule(file)
    ]

    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_the_rule_finds_a_planted_violation(rule: Rule, path: str, text: str) -> None:
    assert list(rule(File(path, text)))


def test_every_rule_has_a_planted_violation() -> None:
    defined = {value for name, value in globals().items() if name.startswith("check_")}

    assert defined == set(RULES)


def test_every_named_exception_still_exists() -> None:
    paths = {file.path for file in files()}
    patterns = {*LOUD, *PROCESS_MAINS, *(pattern for door in DOORS.values() for pattern in door)}
    plain = sorted({each for pattern in patterns for each in expanded(pattern)})
    gone = [each for each in plain if not any(fnmatchcase(path, each) for path in paths)]

    assert not gone, f"no longer there, so strike it off: {gone}"
    assert {name.partition(":")[0] for name in LONG_FUNCTIONS} <= paths


def test_a_pattern_names_what_its_braces_say() -> None:
    assert list(expanded("a/{b,c}/*.py")) == ["a/b/*.py", "a/c/*.py"]
    assert is_among("a/c/d.py", ("a/{b,c}/*.py",))
    assert not is_among("a/d/d.py", ("a/{b,c}/*.py",))


@cache
def files() -> tuple[File, ...]:
    """Every text file that is in the repository, or would be with the next commit."""
    found = []
    for path in sorted(paths_by_git() or paths_by_walk()):
        try:
            found.append(File(path, (ROOT / path).read_text(encoding="utf-8")))
        except (FileNotFoundError, UnicodeDecodeError):
            continue  # deleted and not yet committed, or not text
    return tuple(found)


def paths_by_git() -> list[str]:
    """Tracked files and new ones; nothing when this is not a checkout, or git is not here."""
    if not (ROOT / ".git").exists():
        return []
    # Whoever owns the checkout: git is asked for names only.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    try:
        listed = subprocess.run(
            [*command, "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return listed.stdout.split("\0")[:-1]


def paths_by_walk() -> list[str]:
    """The same for an unpacked archive, where what git would ignore has a well-known name."""
    ignored = re.compile(
        r"\.venv|\.git|\..*_cache|\.hypothesis|\.coverage.*|__pycache__|build|dist|.*\.egg-info"
    )
    return [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(ignored.fullmatch(part) for part in path.relative_to(ROOT).parts)
    ]
