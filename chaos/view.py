"""The view of a run while it goes on: on a terminal a live page, otherwise a line now and then."""

from collections import Counter
from typing import Final

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chaos.run import Stage

_LIVE_S: Final = 0.5
_PLAIN_S: Final = 10.0
_FAULTS: Final = 8


async def show(stage: Stage) -> None:
    """Show a run until cancelled."""
    console = Console()
    if not console.is_terminal:
        while True:
            await trio.sleep(_PLAIN_S)
            print(line(stage), flush=True)
    with Live(page(stage), console=console, auto_refresh=False) as live:
        while True:
            live.update(page(stage), refresh=True)
            await trio.sleep(_LIVE_S)


def line(stage: Stage) -> str:
    """A run in one line."""
    recorder = stage.recorder
    types = _types(stage)
    verified = sum(fault.verified for fault in recorder.faults)
    active = ", ".join(f"{each.fault.name} {each.case.target}" for each in stage.nemesis.active)
    now = f"  now: {active}" if active else ""
    return (
        f"{trio.current_time() - stage.started_s:6.0f} s  {recorder.phase:6}"
        f"  ops {sum(types.values())}: {types['ok']} ok, {types['fail']} fail,"
        f" {types['info']} unknown  events {sum(recorder.events.values())}"
        f"  faults {verified} of {len(recorder.faults)} verified{now}"
    )


def page(stage: Stage) -> Group:
    """A run on a screen."""
    return Group(Text(line(stage), style="bold"), _nodes(stage), _faults(stage), _ops(stage))


def _types(stage: Stage) -> Counter[str]:
    types: Counter[str] = Counter()
    for (_, kind), count in stage.recorder.counts.items():
        types[kind] += count
    return types


def _nodes(stage: Stage) -> Table:
    table = Table(title="nodes and shards", title_justify="left")
    table.add_column("node")
    for shard in range(stage.cluster.shards):
        table.add_column(f"shard {shard}", justify="right")
    table.add_column("events", justify="right")
    table.add_column("fault")
    for node in stage.cluster.members:
        leads = [
            "leads" if stage.nemesis.leaders.get(shard) == node.name else "·"
            for shard in range(stage.cluster.shards)
        ]
        faults = [
            f"{each.fault.name} ({each.state})"
            for each in stage.nemesis.active
            if node.name in each.case.nodes
        ]
        style = "red" if not node.is_running else "yellow" if faults else ""
        events = stage.recorder.events[node.name]
        table.add_row(node.name, *leads, str(events), ", ".join(faults), style=style)
    return table


def _faults(stage: Stage) -> Table:
    table = Table(title="last faults", title_justify="left")
    for name in ("n", "fault", "target", "seconds", "proof"):
        table.add_column(name)
    for fault in stage.recorder.faults[-_FAULTS:]:
        lasted = f"{(fault.t_end - fault.t) / 1e9:.1f}"
        proof = fault.proof[:70] if fault.verified else "not verified"
        style = "" if fault.verified else "red"
        table.add_row(str(fault.n), fault.name, fault.target, lasted, proof, style=style)
    return table


def _ops(stage: Stage) -> Table:
    table = Table(title="operations", title_justify="left")
    for name in ("op", "ok", "fail", "unknown"):
        table.add_column(name, justify="right" if name != "op" else "left")
    counts = stage.recorder.counts
    for name in sorted({name for name, _ in counts}):
        table.add_row(name, *(str(counts[name, kind]) for kind in ("ok", "fail", "info")))
    latencies = sorted(stage.recorder.latencies_ns)
    if latencies:
        middle, late = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
        table.caption = f"answers: median {middle / 1e6:.0f} ms, 99 % {late / 1e6:.0f} ms"
    return table
