"""The report of a run is one page that needs nothing else, and shows what the history has."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from chaos import history, report
from chaos.history import Created, Fault, ItemResult, Op, Phase, Res, Run

SECOND = 1_000_000_000


def op(n: int, second: float, kind: history.OpType, code: str = "") -> Op:
    start = round(second * SECOND)
    returned = None if kind == "info" else start + 5_000_000
    return Op(n, "c", "c.1", f"c-{n}", "ack", start, kind, returned, code=code)


def records() -> list[history.Record]:
    return [
        Run(seed=7, version="1.0", nodes=(history.Node("a", ""),), shards=2, t=0, wall_ns=0),
        Phase(SECOND, "load"),
        Phase(2 * SECOND, "faults"),
        Fault(1, 2 * SECOND, "kill-node", "a", 3 * SECOND, verified=True, proof="gone: <a>"),
        Fault(2, 3 * SECOND, "loss", "a,b", 4 * SECOND),
        op(1, 1.5, "ok"),
        op(2, 2.5, "fail", "LEASE_LOST"),
        op(3, 2.6, "info"),
        Phase(6 * SECOND, "quiet"),
    ]


def page(directory: Path) -> str:
    history.write(directory, records())
    leads = [report.Lead(SECOND, 0, "a"), report.Lead(3 * SECOND, 0, "")]
    (directory / report.LEADERS).write_bytes(msgspec.json.encode(leads))
    return report.html(report.gather(directory), ["sanity ok <fine>"])


def test_a_page_shows_verdict_faults_leaders_and_unknown_calls(tmp_path: Path) -> None:
    shown = page(tmp_path)

    assert "seed 7" in shown
    assert "sanity ok &lt;fine&gt;" in shown
    assert "gone: &lt;a&gt;" in shown
    assert "not verified" in shown
    assert "leader of shard 0" in shown
    assert "<td>LEASE_LOST</td>" in shown
    assert "<td>no answer</td>" in shown
    assert shown.count("<svg") == 3


def test_a_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    shown = page(tmp_path)

    assert not any(word in shown for word in ("<script", "src=", "href=", "@import", "url("))


def test_a_page_of_an_empty_history_can_be_drawn(tmp_path: Path) -> None:
    history.write(tmp_path, [])

    assert "</html>" in report.html(report.gather(tmp_path), [])


def test_each_job_of_an_acknowledged_request_counts_as_an_operation(tmp_path: Path) -> None:
    created = tuple(Created(f"job-{number}", "pending") for number in range(3))
    items = (ItemResult("job-0", "completed"), ItemResult("job-1", code="lease_lost"))
    told = [
        replace(op(1, 1.0, "ok"), res=Res(created=created)),
        replace(op(2, 2.0, "ok"), res=Res(items=items)),
        op(3, 3.0, "ok"),
        replace(op(4, 4.0, "fail"), res=Res(created=created)),
    ]
    history.write(tmp_path, [*records()[:3], *told])

    assert report.gather(tmp_path).operations == 3 + 1 + 1
