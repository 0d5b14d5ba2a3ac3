"""The commands: run, check again, list, clean up."""

import argparse
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from chaos import nemesis
from chaos.cluster import cleaning, machine
from chaos.faults import all_faults
from chaos.faults.fault import Fault
from chaos.nemesis import Planned
from chaos.run import Failed, Options, run
from chaos.verdict import UNCOUNTED, WELL, judge
from chaos.view import show
from chaos.workloads import all_workloads

PLAN: Final = "plan.json"
_MINUTE_S: Final = 60.0
_ROOT: Final = Path("chaos-runs")


def main(arguments: Sequence[str]) -> int:
    """`python -m chaos`: the exit code."""
    told = _parser().parse_args(arguments)
    if told.command == "list":
        return _list()
    if told.command == "check":
        return judge(told.directory).code
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
    running.add_argument("--output", type=Path, metavar="DIR", help="directory of the artefacts")
    checking = commands.add_parser("check", help="check the history of an earlier run again")
    checking.add_argument("directory", type=Path, metavar="DIR", help="its artefacts")
    commands.add_parser("list", help="list faults and workloads")
    commands.add_parser("clean", help="remove what killed runs left behind")
    return parser


def _list() -> int:
    lacks = machine.probe()
    print("faults")
    for fault in all_faults().values():
        reason = uncovered(fault, lacks)
        print(f"  {fault.name:22} {fault.what}{f' [not covered: {reason}]' if reason else ''}")
    print("workloads")
    for workload in all_workloads().values():
        print(f"  {workload.name:22} {workload.what}")
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
    directory = told.output or _ROOT / f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}"
    directory.mkdir(parents=True)
    try:
        known, workloads = all_faults(), all_workloads()
        faults = {name: known[name] for name in chosen(told.faults, known)}
        working = {name: workloads[name] for name in chosen(told.workloads, workloads)}
    except ValueError as error:
        print(error)
        return UNCOUNTED
    lacks = machine.probe()
    for name, fault in list(faults.items()):
        if reason := uncovered(fault, lacks):
            print(f"not covered: {name}: {reason}")
            del faults[name]
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
        plan=_plan(directory, seed, seconds, faults),
    )
    print(f"seed {seed}, artefacts in {directory}")
    return carry_out(options)


def carry_out(options: Options) -> int:
    """Make a run and check its history: the exit code."""
    uncounted = ""
    try:
        trio.run(run, options, show)
    except Failed as error:
        uncounted = str(error)
    return judge(options.directory, uncounted).code


def _plan(
    directory: Path, seed: int, seconds: float, faults: Mapping[str, Fault]
) -> Sequence[Planned]:
    planned = nemesis.plan(str(seed), seconds, faults.values())
    (directory / PLAN).write_bytes(msgspec.json.format(msgspec.json.encode(planned)))
    return planned
