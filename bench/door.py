"""What one client can do to another: latency of a quiet client beside each flood of `bench.floods`.

Three numbers for each flood, taken one after another and the median of two rounds: the quiet client
alone; beside the flood while it goes to a *second* node on the same machine, which shows what the
flood costs in processors alone (the control); and beside the flood to its own node. The ratio is
that of the last to the control.

`door:PART` measures only the floods with that part in their names, such as `door:WebSocket`.
"""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

import trio

from bench.floods import FLOODS, SPIN
from bench.http_client import connected
from bench.measure import Measurement
from bench.server import Server, serving

MEASURED_S: Final = 1.5
SETTLING_S: Final = 0.3
ROUNDS: Final = 2
_PAUSE_S: Final = 0.003
_BODY: Final = b'{"queue":"quiet","payload":1}'


def measure(directory: Path, part: str = "") -> Iterator[Measurement]:
    """Measure in `directory`, which must exist: the floods that have `part` in their names."""
    names = [name for name in [SPIN, *FLOODS] if part in name]
    assert names, f"no flood has {part!r} in its name; there are: {', '.join(FLOODS)}"
    for name in ("this", "other"):
        (directory / name).mkdir()
    with (
        serving(directory / "this", "--set", "http2=on") as this,
        serving(directory / "other", "--set", "http2=on") as other,
    ):
        _p50(this)  # the first requests are slower than all others
        for name in names:
            yield from _row(name, this, other)


def _row(name: str, this: Server, other: Server) -> Iterator[Measurement]:
    alone, control, beside, shares = [], [], [], []
    for _ in range(ROUNDS):
        alone.append(_p50(this))
        with _flooding(name, other):
            control.append(_p50(this))
        before, begun = this.used(), perf_counter()
        with _flooding(name, this):
            beside.append(_p50(this))
        shares.append(this.used().since(before).router / (perf_counter() - begun))
    quiet, same, flooded = (statistics.median(each) for each in (alone, control, beside))
    yield Measurement(f"{name}: p50 alone", quiet * 1e3, "ms")
    yield Measurement(f"{name}: p50, flood elsewhere", same * 1e3, "ms", same / quiet)
    yield Measurement(f"{name}: p50, flood here", flooded * 1e3, "ms", flooded / same)
    yield Measurement(f"{name}: router", 100 * statistics.median(shares), "% of one")


def _p50(server: Server) -> float:
    return statistics.median(trio.run(_quiet, server.port))


async def _quiet(port: int) -> list[float]:
    """Seconds of the requests of a client that sends one now and then."""
    latencies: list[float] = []
    async with connected(port) as connection:
        until = perf_counter() + MEASURED_S
        while perf_counter() < until:
            begun = perf_counter()
            status, answer = await connection.ask("POST", "/api/v1/enqueue", _BODY)
            latencies.append(perf_counter() - begun)
            assert status == 201, answer
            await trio.sleep(_PAUSE_S)
    return latencies


@contextmanager
def _flooding(name: str, server: Server) -> Iterator[None]:
    """A process that floods a node while the block runs."""
    process = subprocess.Popen([sys.executable, "-m", "bench.floods", name, str(server.port)])
    try:
        sleep(SETTLING_S)
        yield
    finally:
        process.kill()
        process.wait()
        sleep(SETTLING_S)
