"""The shortest run: one node is killed once while clients work with it, and nothing is lost."""

from pathlib import Path

import msgspec
import trio

from chaos import history, verdict
from chaos.cluster import machine
from chaos.faults import all_faults
from chaos.history import Fault, FinalDone
from chaos.nemesis import Planned
from chaos.run import Options, Stage, run
from chaos.workloads import all_workloads
from tests.support.links import on_sockets


async def unseen(stage: Stage) -> None:
    del stage
    await trio.sleep_forever()


@on_sockets
async def test_one_node_is_killed_while_clients_work_and_the_history_is_well(
    tmp_path: Path,
) -> None:
    workloads = all_workloads()
    options = Options(
        directory=tmp_path,
        seed=1,
        nodes=1,
        seconds=2.0,
        warm_s=0.5,
        faults=all_faults(),
        workloads={name: workloads[name] for name in ("producers", "workers")},
        plan=[Planned(1, 0.1, "kill-node", 0.1)],
        lacks=machine.probe(),
    )

    await run(options, unseen)
    found = verdict.judge(tmp_path)

    records = list(history.read(tmp_path))
    assert [fault.verified for fault in records if isinstance(fault, Fault)] == [True]
    assert [done.drained for done in records if isinstance(done, FinalDone)] == [True]
    assert found.code == 0, found
    written = (tmp_path / verdict.VERDICT).read_bytes()
    assert msgspec.json.decode(written, type=verdict.Verdict).code == 0
    assert "<svg" in (tmp_path / verdict.PAGE).read_text()
