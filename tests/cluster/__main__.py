"""`python -m tests.cluster VERB`: real nodes, for longer than tests.

Exit code 1 when something was lost or doubled, or is not equal.
"""

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.cluster import away, backup, balance, damage, failover, heal, rolling, snapshot
from tests.cluster.comparing import Compared
from tests.cluster.figures import in_ms
from tests.support.networks import is_possible

ENQUEUE_S: Final = 0.2
"""The 99th percentile of enqueues while a snapshot is installed."""
ELECTION_S: Final = 1.6
"""The election timeout by default. A leader without a majority has ended after twice that."""


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(
        name: str, verb: Callable[[argparse.Namespace, Path], bool], text: str, **options: float
    ) -> None:
        command = commands.add_parser(name, help=text)
        command.set_defaults(verb=verb)
        for option, default in options.items():
            command.add_argument(f"--{option}", type=type(default), default=default)

    add("failover", fail_over, "kill leading nodes", kills=50, shards=4)
    add("lose", lose, "cut leading nodes off, as if machines were lost", kills=20, shards=4)
    add("rolling", restart, "restart all nodes, one after the other", rounds=3, shards=4)
    add("away", take_away, "a node is away under load, and catches up", minutes=1.0, rate=100.0)
    add("heal", cut_and_heal, "cut nodes off and link them again", rounds=10, shards=3, seed=1)
    add("snapshot", replace_node, "an empty node replaces one under load", jobs=1_000_000)
    add("backup", back_up, "back a cluster up under load, and restore it", jobs=1_000_000, shards=3)
    add("balance", replace_one_of_five, "five nodes, of which one is replaced", shards=8, zones=0)
    add("damage", damage_files, "damage each kind of file of one node in all ways", seed=1)
    commands.choices["damage"].add_argument(
        "--kinds", default="", help="kinds of files, with commas"
    )
    read = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cluster-") as directory:
        return int(not read.verb(read, Path(directory)))


def restart(read: argparse.Namespace, directory: Path) -> bool:
    """Restart nodes, and print the result; whether all is well."""
    seen = trio.run(partial(rolling.run, directory, rounds=read.rounds, shards=read.shards))
    print(f"{seen.jobs} jobs, {seen.repeated} requests repeated, {len(seen.failed)} failed twice")
    print("\n".join(sorted({*seen.failed})[:10]))
    print(f"{seen.missing} jobs are missing, {seen.doubled} are there twice")
    print(f"requests: {seen.times}; a bare sync beside them: {seen.bare}")
    return not (seen.missing or seen.doubled)


def fail_over(read: argparse.Namespace, directory: Path) -> bool:
    """Kill nodes, and print the result; whether all is well."""
    seen = trio.run(partial(failover.run, directory, kills=read.kills, shards=read.shards))
    return say_pauses(seen, "killed")


def lose(read: argparse.Namespace, directory: Path) -> bool:
    """Cut nodes off, and print the result; whether all is well."""
    run = partial(failover.run, directory, kills=read.kills, shards=read.shards, cut=True)
    return say_pauses(trio.run(run), "cut off, without a reset of a connection")


def say_pauses(seen: failover.Seen, what: str) -> bool:
    """Print the pauses after nodes were lost; whether all is well."""
    led = sorted(gap for kill in seen.kills for gap in kill.led_s)
    others = sorted(gap for kill in seen.kills for gap in kill.others_s)
    print(f"{len(seen.kills)} nodes {what}, {seen.events} events")
    for name, gaps in (("shards that it led", led), ("other shards", others)):
        if len(gaps) > 1:
            cuts = statistics.quantiles(gaps, n=20)
            print(
                f"pause of {name}: p50 {cuts[9]:.3f} s, p95 {cuts[18]:.3f} s, most {gaps[-1]:.3f} s"
            )
    print(f"a bare sync beside it: {seen.bare}")
    print(f"answers that were no success: {seen.oddities}")
    print("\n".join(seen.wrongs) or "nothing was lost or doubled")
    return not seen.wrongs


def take_away(read: argparse.Namespace, directory: Path) -> bool:
    """Take a node away, and print the result; whether all is well."""
    seen = trio.run(partial(away.run, directory, minutes=read.minutes, rate=read.rate))
    print(
        f"a node was away for {seen.away_s / 60:.1f} minutes: {seen.jobs} jobs at {read.rate:.0f} a"
        f" second, {seen.worked} worked on, {seen.repeated} requests repeated;"
        f" {seen.processor:.1%} of a core"
    )
    for each in seen.caught_up:
        print(f"shard {each.shard}: {each.lacked} entries by {each.way}, in {each.seconds:.2f} s")
    for name, times in seen.times.items():
        print(f"{name}: enqueues {times}; bare syncs {seen.bare[name]}")
    return say_compared(seen.compared)


def replace_node(read: argparse.Namespace, directory: Path) -> bool:
    """Replace a node, and print the result; whether it kept its bar."""
    tell = partial(print, flush=True)
    seen = trio.run(partial(snapshot.run, directory, jobs=read.jobs, tell=tell))
    sizes = {shard: f"{size / 2**20:.0f} MiB" for shard, size in sorted(seen.sizes.items())}
    print(f"the empty node voted in all shards after {seen.install_s:.1f} s; snapshots: {sizes}")
    for name, times in seen.times.items():
        print(f"{name}: enqueues {times}; bare syncs {seen.bare[name]}")
    print(f"memory before and at most, in MiB: {seen.rss_mib}")
    print(f"{seen.repeated} requests repeated")
    return seen.times["during"].quantile(99) < ENQUEUE_S


def back_up(read: argparse.Namespace, directory: Path) -> bool:
    """Back a cluster up and restore it, and print the result; whether it kept its bar."""
    tell = partial(print, flush=True)
    run = partial(backup.run, directory, jobs=read.jobs, shards=read.shards)
    seen = trio.run(partial(run, tell=tell))
    for name, times in seen.times.items():
        print(f"{name}: enqueues {times}")
    for made in (seen.first, seen.second):
        mib = [size / 2**20 for size in (made.bytes_received, made.bytes_shared)]
        print(f"{mib[0]:.0f} MiB received, {mib[1]:.0f} MiB shared")
    print(f"{seen.back.jobs} jobs came back to {read.shards} shards")
    print(f"queues with another digest: {seen.differing or 'none'}")
    slowest = max(seen.times[name].quantile(99) for name in ("backup", "second backup"))
    return slowest < ENQUEUE_S and not seen.differing


def replace_one_of_five(read: argparse.Namespace, directory: Path) -> bool:
    """Replace a node of five, and print the result; whether all is well."""

    def say_stage(stage: balance.Stage) -> None:
        counts = f"replicas {stage.replicas}, leaders {stage.leaders}"
        print(f"{stage.name}, after {stage.seconds:.1f} s: {counts}", flush=True)

    run = partial(balance.run, directory, shards=read.shards, zones=bool(read.zones))
    seen = trio.run(partial(run, tell=say_stage))
    print(f"{seen.answers} answers of each node to each kind of request about each shard")
    print(f"{seen.requests} requests, {seen.repeated} repeated, {len(seen.failed)} failed twice")
    print("\n".join(seen.failed[:5]), end="\n" if seen.failed else "")
    return say_compared(seen.compared) and not seen.failed


def cut_and_heal(read: argparse.Namespace, directory: Path) -> bool:
    """Cut nodes off, and print the result; whether all is well."""
    kind = "network namespaces" if is_possible() else "SIGSTOP: this user may make no namespaces"
    print(f"nodes are cut off by {kind}")
    run = partial(heal.run, directory, rounds=read.rounds, shards=read.shards, seed=read.seed)
    rounds = trio.run(partial(run, tell=say_round))
    told = [each for one in rounds for each in one.told]
    refused = [each.seconds for each in told if each.what.startswith("503")]
    print(f"refusals at the node, {ELECTION_S:.1f} s is an election timeout: {in_ms(refused)}")
    print(f"what writes were told: {dict(Counter(each.what for each in told).most_common())}")
    print(f"from healing to the first write: {in_ms([one.back_s for one in rounds])}")
    print(f"{sum(one.events for one in rounds)} events of clients")
    compared = Compared()
    for one in rounds:
        compared.add(one.compared)
    wrongs = [wrong for one in rounds for wrong in one.wrongs]
    print("\n".join(wrongs[:20]) or "nothing was lost or doubled, or is otherwise than was told")
    return say_compared(compared) and not wrongs


def damage_files(read: argparse.Namespace, directory: Path) -> bool:
    """Damage files, and print the result; whether all is well."""
    kinds = read.kinds.split(",") if read.kinds else ()
    run = partial(damage.run, directory, kinds=kinds, seed=read.seed, tell=say_case)
    cases = trio.run(run)
    ends = Counter((case.kind, case.end) for case in cases)
    for kind in sorted({case.kind for case in cases}):
        print(f"{kind}: {', '.join(f'{ends[kind, end]} {end}' for end in damage.ENDS)}")
    wrongs = [case for case in cases if not case.is_explained]
    print(f"{len(cases)} files damaged, {len(wrongs)} times without a word what to do")
    compared = Compared()
    for case in cases:
        compared.add(case.compared)
    return say_compared(compared) and not wrongs


def say_case(case: damage.Case) -> None:
    """Print what became of one damaged file."""
    print(
        f"{case.file} ({case.way}, {case.stop}): {case.end} after {case.seconds:.1f} s", flush=True
    )
    for line in [*case.said, *case.compared.differences]:
        print(f"    {line}", flush=True)


def say_round(seen: heal.Round) -> None:
    """Print the result of one cut."""
    refused = [each.seconds for each in seen.told if each.what.startswith("503")]
    print(
        f"cut {seen.cut}, leader of {seen.led} shards, {seen.cut_s:.1f} s: last write after"
        f" {seen.last_s:.2f} s, back after {seen.back_s:.2f} s, {len(seen.wrongs)} wrong,"
        f" {len(seen.compared.differences)} different; refusals {in_ms(refused)};"
        f" {dict(Counter(each.what for each in seen.told))}",
        flush=True,
    )


def say_compared(compared: Compared) -> bool:
    """Print the result of a comparison; whether all was equal."""
    print(
        f"{compared.replicas} replicas with {compared.documents} documents of shards and"
        f" {compared.rows} rows of mirrors compared: {len(compared.differences)} differences"
    )
    print("\n".join(compared.differences[:10]), end="\n" if compared.differences else "")
    return not compared.differences


if __name__ == "__main__":
    sys.exit(main())
