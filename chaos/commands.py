"""The commands: run, check again, list, clean up."""

import argparse
import itertools
import os
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from chaos import counting, history, nemesis, plant
from chaos.bugs import Bug, all_bugs
from chaos.cluster import cleaning, machine
from chaos.faults import all_faults
from chaos.faults.fault import Fault
from chaos.nemesis import Planned
from chaos.remote import command_faults, site_of
from chaos.run import Failed, Options, leaves, run
from chaos.shrinking import shrink
from chaos.verdict import BROKEN, UNCOUNTED, WELL, Verdict, judge, read_verdict
from chaos.view import show
from chaos.workloads import all_workloads

PLAN: Final = "plan.json"
_MINUTE_S: Final = 60.0
_SLACK_S: Final = 5.0
_FLAGS: Final = {"--list": "list", "--replay": "replay", "--shrink": "shrink"}
"""Commands that can also be written as flags."""
_ROOT: Final = Path("chaos-runs")


def main(arguments: Sequence[str]) -> int:
    """`python -m chaos`: the exit code."""
    first, *others = arguments or ["--help"]
    told = _parser().parse_args([_FLAGS.get(first, first), *others])
    if told.command == "list":
        return _list()
    if told.command == "shrink":
        return _shrink(told)
    if told.command == "replay":
        return judge(told.directory).code
    if told.command == "count":
        return _count(told)
    if told.command == "plant":
        return _plant(told)
    if told.command == "clean":
        for line in cleaning.clean():
            print(line)
        return WELL
    return _run(told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Break a cluster on purpose, and check what it keeps."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="start a cluster, break it, and check the history")
    _run_arguments(running)
    planting = commands.add_parser("plant", help="plant bugs, each of which a run must find")
    planting.add_argument("names", nargs="*", metavar="NAME", help="bugs (default: all)")
    planting.add_argument(
        "--rewrite", action="store_true", help="write what was found into docs/reliability.md"
    )
    adding = commands.add_parser("count", help="add up the counts of runs, for the docs")
    adding.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="artefacts")
    adding.add_argument(
        "--rewrite", action="store_true", help="write the counts into docs/reliability.md"
    )
    smaller = commands.add_parser("shrink", help="find fewer faults that break the same promise")
    smaller.add_argument("directory", type=Path, metavar="DIR", help="artefacts of the run")
    smaller.add_argument("--tries", type=int, default=20, metavar="N", help="runs (default: 20)")
    checking = commands.add_parser("replay", help="check the history of an earlier run again")
    checking.add_argument("directory", type=Path, metavar="DIR", help="its artefacts")
    commands.add_parser("list", help="list faults and workloads")
    commands.add_parser("clean", help="remove what killed runs left behind")
    return parser


def _run_arguments(running: argparse.ArgumentParser) -> None:
    running.add_argument("--nodes", type=int, default=3, metavar="N", help="nodes (default: 3)")
    running.add_argument("--shards", type=int, default=2, metavar="N", help="shards (default: 2)")
    running.add_argument(
        "--minutes", type=float, default=2.0, metavar="M", help="time with faults (default: 2)"
    )
    running.add_argument(
        "--faults",
        default="all",
        metavar="NAME,…",
        help="faults by name or beginning of a name; `all` or `none` (default: all)",
    )
    running.add_argument(
        "--workloads", default="all", metavar="NAME,…", help="workloads by name (default: all)"
    )
    running.add_argument("--seed", type=int, help="seed of all draws (default: a random one)")
    running.add_argument(
        "--rate", type=float, default=40.0, metavar="N", help="jobs in a second (default: 40)"
    )
    running.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of every node, such as durability=relaxed",
    )
    running.add_argument(
        "--without",
        action="append",
        default=[],
        choices=sorted(machine.PROBES),
        help="an ability of the machine that is not to be used; without packets: the relay",
    )
    running.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="URL",
        help="address of a node of a running cluster, instead of a new one; several times",
    )
    running.add_argument(
        "--fault-cmd",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a fault of that cluster: a command in which {node} is the host of a node",
    )
    running.add_argument(
        "--bug", choices=sorted(all_bugs()), help="a bug that is planted in every node"
    )
    running.add_argument("--output", type=Path, metavar="DIR", help="directory of the artefacts")


def _list() -> int:
    lacks = machine.probe()
    print("faults")
    for fault in all_faults().values():
        reason = uncovered(fault, lacks)
        print(f"  {fault.name:22} {fault.what}{f' [not covered: {reason}]' if reason else ''}")
    print("workloads")
    for workload in all_workloads().values():
        print(f"  {workload.name:22} {workload.what}")
    print("bugs that can be planted")
    for bug in all_bugs().values():
        print(f"  {bug.name:26} {bug.what}")
    return WELL


def _count(told: argparse.Namespace) -> int:
    what = {name: fault.what for name, fault in all_faults().items()}
    counts = counting.table(counting.read(told.directories), what)
    if told.rewrite:
        counting.PAGE.write_text(counting.rewrite(counting.PAGE.read_text(), counts))
    else:
        print(counts, end="")
    return WELL


def uncovered(fault: Fault, lacks: Mapping[str, str]) -> str:
    """Why this machine cannot make a fault; empty if it can."""
    return "; ".join(lacks[need] for need in fault.needs if need in lacks)


def chosen(names: str, known: Collection[str]) -> list[str]:
    """The names that were meant. Raises `ValueError` for a name that means none."""
    if names == "none":
        return []
    found: list[str] = []
    for name in names.split(","):
        fitting = [each for each in known if name in ("all", each) or each.startswith(f"{name}-")]
        if not fitting:
            raise ValueError(
                f"unknown name {name!r}: expected all, none or some of {', '.join(known)}"
            )
        found += fitting
    return sorted(set(found))


def _run(told: argparse.Namespace) -> int:
    seed = told.seed if told.seed is not None else secrets.randbelow(1 << 31)
    try:
        lacks = lacking(told.without)
        faults = _faults(told, lacks)
        workloads = all_workloads()
        working = {name: workloads[name] for name in chosen(told.workloads, workloads)}
    except ValueError as error:
        print(error)
        return UNCOUNTED
    directory = told.output or _ROOT / f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}"
    directory.mkdir(parents=True)
    seconds = told.minutes * _MINUTE_S
    options = Options(
        directory=directory,
        seed=seed,
        nodes=told.nodes,
        shards=told.shards,
        seconds=seconds,
        rate=told.rate,
        faults=faults,
        workloads=working,
        plan=nemesis.plan(str(seed), seconds, faults.values()),
        settings=dict(each.split("=", 1) for each in told.set),
        lacks=lacks,
        targets=told.target,
        api_key=os.environ.get("CORVO_API_KEY", ""),
        bug=all_bugs()[told.bug] if told.bug else None,
    )
    return carry_out(options)


def lacking(without: Collection[str]) -> dict[str, str]:
    """The abilities that the machine lacks, and those that are not wanted."""
    return {**machine.probe(), **dict.fromkeys(without, "not wanted")}


def _faults(told: argparse.Namespace, lacks: Mapping[str, str]) -> Mapping[str, Fault]:
    """The faults that were asked for and that can be made. Raises `ValueError`."""
    if told.target:
        for url in told.target:
            site_of(url, "")
        return command_faults(told.fault_cmd)
    known = all_faults()
    found = {}
    for name in chosen(told.faults, known):
        if reason := uncovered(known[name], lacks):
            print(f"not covered: {name}: {reason}")
        else:
            found[name] = known[name]
    return found


def _plant(told: argparse.Namespace) -> int:
    known = all_bugs()
    unknown = sorted(set(told.names) - known.keys())
    if unknown:
        print(f"unknown bug {unknown[0]!r}: expected some of {', '.join(known)}")
        return UNCOUNTED
    bugs = [known[name] for name in told.names] or list(known.values())
    directory = _ROOT / f"{time.strftime('%Y%m%d-%H%M%S')}-plant"
    results: list[plant.Result] = []
    for bug in bugs:
        results.append(plant.hunt(bug, directory, _run_planted))
        print(plant.row(results[-1]), flush=True)
        if told.rewrite:
            page = counting.PAGE.read_text()
            counting.PAGE.write_text(plant.rewrite(page, results, list(known)))
    print(plant.table(results), end="")
    return WELL if all(each.is_found for each in results) else BROKEN


def _run_planted(bug: Bug, seed: int, directory: Path) -> Verdict:
    """One run with a planted bug."""
    directory.mkdir(parents=True)
    lacks = machine.probe()
    known, workloads = all_faults(), all_workloads()
    faults = {name: known[name] for name in chosen(bug.faults, known)}
    missing = [reason for fault in faults.values() if (reason := uncovered(fault, lacks))]
    if missing:
        return Verdict(UNCOUNTED, missing[0])
    options = Options(
        directory=directory,
        seed=seed,
        nodes=bug.nodes,
        seconds=bug.seconds,
        rate=bug.rate,
        faults=faults,
        workloads={name: workloads[name] for name in chosen(bug.workloads, workloads)},
        plan=nemesis.plan(str(seed), bug.seconds, faults.values()),
        settings=bug.settings,
        lacks=lacks,
        bug=bug,
    )
    carry_out(options)
    return read_verdict(directory)


class Saved(msgspec.Struct, frozen=True):
    """The content of `plan.json`: all that a run needs to be made again."""

    seed: int
    nodes: int
    shards: int
    seconds: float
    rate: float
    workloads: list[str]
    plan: list[Planned]
    settings: dict[str, str] = {}
    bug: str = ""


def carry_out(options: Options) -> int:
    """Make a run and check its history: the exit code."""
    print(f"seed {options.seed}, artefacts in {options.directory}", flush=True)
    saved = Saved(
        options.seed,
        options.nodes,
        options.shards,
        options.seconds,
        options.rate,
        list(options.workloads),
        list(options.plan),
        dict(options.settings),
        "" if options.bug is None else options.bug.name,
    )
    encoded = msgspec.json.format(msgspec.json.encode(saved))
    (options.directory / PLAN).write_bytes(encoded)
    uncounted = ""
    try:
        trio.run(run, options, show)
    except* Failed as group:
        uncounted = "; ".join(map(str, leaves(group)))
    return judge(options.directory, uncounted).code


def _shrink(told: argparse.Namespace) -> int:
    saved = msgspec.json.decode((told.directory / PLAN).read_bytes(), type=Saved)
    known, workloads = all_faults(), all_workloads()
    number = itertools.count(1)

    def breaks(plan: Sequence[Planned]) -> bool:
        directory = told.directory / f"shrink-{next(number)}"
        directory.mkdir()
        print(f"{len(plan)} faults: {', '.join(each.name for each in plan)}")
        options = Options(
            directory=directory,
            seed=saved.seed,
            nodes=saved.nodes,
            shards=saved.shards,
            seconds=sum(each.gap_s + each.seconds for each in plan) + _SLACK_S,
            rate=saved.rate,
            faults=known,
            workloads={name: workloads[name] for name in saved.workloads},
            plan=plan,
            settings=saved.settings,
            lacks=machine.probe(),
            bug=all_bugs()[saved.bug] if saved.bug else None,
        )
        return carry_out(options) == BROKEN

    # Faults that were not made, because the time was over, need not be tried.
    made = {
        record.n for record in history.read(told.directory) if isinstance(record, history.Fault)
    }
    found = shrink([each for each in saved.plan if each.n in made], breaks, told.tries)
    print(f"smallest set of faults that was found to break a promise: {len(found)}")
    for each in found:
        print(f"  {each.n}: {each.name}, {each.seconds} s, {each.gap_s} s after the one before")
    return WELL
