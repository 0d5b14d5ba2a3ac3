"""The dashboards: their files, and each query against the numbers of a real cluster."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from corvo.router.node.families import FAMILIES
from tests.alerts import runbooks
from tests.alerts.boards import BOARDS, DIRECTORY, Board, document, path_of
from tests.alerts.firing import secure, three_in
from tests.alerts.prometheus import Prometheus, needs_prometheus, prometheus_of
from tests.cluster.nodes import Cluster, cluster_of
from tests.support.certificates import needs_openssl
from tests.support.links import on_sockets

VARIABLES: Final = re.compile(r"\$(namespace|job|instance|queue|datasource)\b|\$__rate_interval\b")
_RATE_INTERVAL: Final = "12s"

EMPTY: Final = {
    "corvo_shard_effects_waiting": "no effect waits in a healthy cluster",
}
"""Metrics without a series in the cluster of the test, and why."""


def queries_of(board: Board) -> Iterator[tuple[str, str]]:
    """The title of a panel, and a query of it."""
    for row in board.rows:
        for panel in row.panels:
            for query in panel.queries:
                yield panel.title, query.expr


def filled(expr: str) -> str:
    """A query with the values that Grafana puts in for All."""
    return VARIABLES.sub(lambda found: ".*" if found[1] else _RATE_INTERVAL, expr)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_file_is_that_of_the_table(board: Board) -> None:
    assert path_of(board).read_text() == document(board), "run `make docs`"


def test_there_is_no_other_file() -> None:
    assert {*DIRECTORY.iterdir()} == {path_of(board) for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_is_one_that_grafana_can_import(board: Board) -> None:
    shown = json.loads(document(board))
    panels = shown["panels"]
    taken = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({*taken}) == len(taken)
    assert all(x < 24 for x, _ in taken)
    assert all(panel["description"].endswith(".") for panel in panels if panel["type"] != "row")
    sources = {json.dumps(panel["datasource"]) for panel in panels if panel["type"] != "row"}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_each_query_follows_the_variables_and_names_metrics_that_there_are(board: Board) -> None:
    names = {"datasource", *(name for name, _ in board.variables)}
    used = {name for _, expr in queries_of(board) for name in re.findall(r"\$([a-z]+)\b", expr)}

    assert used <= names
    for _, expr in queries_of(board):
        assert {*runbooks.metrics_in(expr)} <= {*FAMILIES}
        assert runbooks.recorded_in(expr) == []
        assert expr.count("{") == len(re.findall(r'\{namespace=~"\$namespace",job=~"\$job"', expr))
        assert "[" not in expr or "[$__rate_interval]" in expr


@needs_openssl
@needs_prometheus
@on_sockets
async def test_each_query_finds_series_of_a_real_cluster(tmp_path: Path) -> None:
    members = await three_in(tmp_path, limits__fetch_wait_s_max="1")
    secure(tmp_path, members)
    ports = [member.address[1] for member in members]
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        async with prometheus_of(tmp_path / "prometheus", ports) as prometheus:
            empty = await empty_queries(cluster, prometheus)

    assert len(empty) == len(EMPTY), empty


async def empty_queries(cluster: Cluster, prometheus: Prometheus) -> list[str]:
    """The queries that may find nothing, and do while the cluster works; all others find series."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, cluster)
        await prometheus.until("corvo_queue_workers == 1")
        # A rate needs two scrapes at least, which the counters of an answer have with it.
        await prometheus.until('min(count_over_time(up{job="corvo"}[1m])) > 5')
        empty = []
        for board in BOARDS:
            for _, expr in queries_of(board):
                if not any(name in expr for name in EMPTY):
                    # On a busy machine, scrapes and answers are late.
                    await prometheus.until(filled(expr))
                elif not await prometheus.query(filled(expr)):
                    empty.append(expr)
        nursery.cancel_scope.cancel()
    return empty


async def work(cluster: Cluster) -> None:
    """Enqueue, fail and complete jobs, and search for them."""
    first = cluster[0]
    while True:
        for queue in ("mail", "mail", "sms"):
            await cluster.until(first, "POST", "/api/v1/enqueue", {"queue": queue})
        claim = {"queues": ["mail"], "worker_id": "w-1", "wait_ms": 0}
        for word in ("ack", "fail"):
            answer = await cluster.until(first, "POST", "/api/v1/fetch", claim)
            if answer.status == 200:
                fetched = json.loads(answer.body)
                job = fetched["job_id"]
                body = {"lease_token": fetched["lease_token"], "error": "no such address"}
                await cluster.ask(first, "POST", f"/api/v1/{word}/{job}", body)
        await cluster.ask(first, "POST", "/api/v1/jobs/search", {"queue": "mail"})
        await cluster.ask(first, "GET", "/api/v1/jobs/mail~none")
        await trio.sleep(0.2)
