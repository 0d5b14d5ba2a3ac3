"""The end of a run: all queues are emptied by fresh workers, and all that is left is read."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec
import trio

from chaos import api, history
from chaos.calls import Client
from chaos.feeds import Listener
from chaos.history import QueueRow
from chaos.http import Answer, Connection, Lost, Site
from chaos.recording import Recorder, now_ns
from chaos.workloads import schedules
from chaos.workloads.limits import command
from chaos.workloads.scene import PAUSED, QUEUES, Scene
from chaos.workloads.searchers import queues
from chaos.workloads.workers import item_of

_WORKERS: Final = 6
_COUNT: Final = 100
_DRAIN_S: Final = 120.0
_LOOK_S: Final = 0.3
_READ_S: Final = 300.0
"""How long a read may fail after all faults have ended; other work can keep the machine busy."""
_SETTLE_S: Final = 60.0
_PAGE: Final = 500
_IDS: Final = 500


async def drain(scene: Scene) -> bool:
    """Empty all queues; whether that succeeded in time."""
    operator = scene.client("drain-operator")
    await command(operator, "resume", PAUSED)
    for each in scene.recorder.schedule_ids:
        await schedules.command(operator, "pause_schedule", each)
    is_empty = False
    async with trio.open_nursery() as nursery:
        for number in range(_WORKERS):
            nursery.start_soon(_empty, scene.client(f"drain-{number}"))
        with trio.move_on_after(_DRAIN_S):
            while not is_empty:
                rows = [row for row in await queues(operator, tries=6) if row.name in QUEUES]
                is_empty = bool(rows) and not any(map(_waits, rows))
                await trio.sleep(_LOOK_S)
        nursery.cancel_scope.cancel()
    operator.close()
    return is_empty


async def _empty(client: Client) -> None:
    try:
        while True:
            jobs = await client.fetch(QUEUES, _COUNT, lease_ms=10_000)
            if jobs:
                await client.ack_many([item_of(job) for job in jobs])
            else:
                await trio.sleep(_LOOK_S)
    finally:
        client.close()


def _waits(row: QueueRow) -> bool:
    return bool(row.pending or row.active or row.scheduled or row.retrying)


async def settle(listeners: Sequence[Listener]) -> None:
    """Wait until all listeners have the same position, so that each has all events."""
    with trio.move_on_after(_SETTLE_S):
        steady = 0
        before: list[str] = []
        while steady < 3:
            await trio.sleep(_LOOK_S)
            now = [listener.last_id for listener in listeners]
            is_same = now == before and len(set(now)) == 1
            steady = steady + 1 if is_same else 0
            before = now


class Reader:
    """It reads what is left after a run. No client calls meanwhile."""

    def __init__(self, sites: Sequence[Site], recorder: Recorder) -> None:
        self._sites = sites
        self._recorder = recorder

    async def read(self, *, drained: bool) -> None:
        """Read jobs, queues, batches, schedules, replicas and mirrors."""
        for site in self._sites:
            await self._mirror(site)
        found = await self._jobs(list(self._recorder.job_ids))
        missing = tuple(each for each in self._recorder.job_ids if each not in found)
        if missing:
            self._recorder.write(history.FinalMissing(missing))
        for site in self._sites:
            for row in api.read_queues(await self._ask(site, "GET", "/api/v1/queues")).queues:
                if row.name in QUEUES:
                    self._recorder.write(history.FinalQueue(site.name, row))
        for batch in self._recorder.batch_ids:
            await self._batch(batch)
        for schedule in self._recorder.schedule_ids:
            await self._schedule(schedule)
        await self._replicas()
        self._recorder.write(history.FinalDone(now_ns(), len(found), len(missing), drained=drained))

    async def _jobs(self, ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(ids), _IDS):
            site = self._sites[0]
            body = {"job_ids": ids[start : start + _IDS]}
            answer = await self._ask(site, "POST", "/api/v1/jobs/bulk-get", body)
            for row in api.read_jobs(answer):
                found.add(row.job_id)
                self._recorder.write(history.FinalJob("shard", site.name, row))
        return found

    async def _mirror(self, site: Site) -> None:
        """Read all jobs of the run that the mirror of a node has."""
        total, as_of = 0, dict[str, int]()
        is_whole, is_behind = True, False
        for queue in QUEUES:
            page = await self._queue(site, queue)
            # Nothing changes meanwhile, so all pages are of one position.
            as_of = {shard: max(as_of.get(shard, 0), at) for shard, at in page.positions.items()}
            total = total + page.total if page.total_is_exact and total >= 0 else -1
            is_whole = is_whole and page.is_whole
            is_behind = is_behind or page.is_behind
        self._recorder.write(
            history.FinalMirror(site.name, as_of, total, is_whole=is_whole, is_behind=is_behind)
        )

    async def _queue(self, site: Site, queue: str) -> api.Page:
        query = {"queue": queue, "limit": str(_PAGE)}
        patience = trio.current_time() + _SETTLE_S
        while True:
            answer = await self._ask(site, "GET", f"/api/v1/jobs?{urlencode(query)}")
            page = api.read_page(answer)
            if page.is_behind and trio.current_time() < patience:
                await trio.sleep(_LOOK_S)  # on a busy machine it takes a while
                continue
            for row in api.read_jobs(answer):
                self._recorder.job_ids[row.job_id] = None
                self._recorder.write(history.FinalJob("mirror", site.name, row))
            if not page.has_more or page.cursor is None:
                return page
            query["cursor"] = page.cursor

    async def _batch(self, batch_id: str) -> None:
        site = self._sites[0]
        answer = await self._ask(site, "GET", f"/api/v1/batches/{batch_id}", may_miss=True)
        if answer.status != 200:
            return
        row = api.read_batch(answer).batch
        if row is not None:
            self._recorder.write(history.FinalBatch(site.name, row))

    async def _schedule(self, schedule_id: str) -> None:
        site = self._sites[0]
        path = f"/api/v1/schedules/{schedule_id}"
        answer = await self._ask(site, "GET", path, may_miss=True)
        if answer.status == 200:
            self._recorder.write(api.read_schedule(answer, site.name))

    async def _replicas(self) -> None:
        """Read the replicas of each shard until all have applied as much.

        A shard has new entries now and then also when it is idle.
        """
        found: Mapping[int, Sequence[history.FinalReplica]] = {}
        with trio.move_on_after(_SETTLE_S):
            while True:
                answer = await self._ask(self._sites[0], "GET", "/api/v1/cluster/status")
                seen = replicas(answer.body)
                found = {
                    shard: known if are_equal(known := found.get(shard, ())) else rows
                    for shard, rows in seen.items()
                }
                if all(map(are_equal, found.values())):
                    break
                await trio.sleep(_LOOK_S)
        for rows in found.values():
            for row in rows:
                self._recorder.write(row)

    async def _ask(
        self, site: Site, method: str, path: str, body: object = None, *, may_miss: bool = False
    ) -> Answer:
        """Ask until there is an answer: the cluster is healed. Raises `NoAnswer`."""
        last: object = None
        with trio.move_on_after(_READ_S):
            while True:
                connection = Connection(site)
                try:
                    data = b"" if body is None else msgspec.json.encode(body)
                    answer = await connection.ask(method, path, data)
                    if answer.status == 200 or (may_miss and answer.status == 404):
                        return answer
                    last = (answer.status, answer.body[:300])
                except Lost as error:
                    last = error
                finally:
                    connection.close()
                await trio.sleep(_LOOK_S)
        raise NoAnswer(f"{method} {path} at {site.name}: {last}")


def replicas(body: bytes) -> Mapping[int, Sequence[history.FinalReplica]]:
    """The voters of each shard, out of the state of the cluster."""
    view = msgspec.json.decode(body, type=_Status).cluster
    if view is None:
        return {}
    names = {node.number: node.name for node in view.nodes}
    return {
        shard.shard: [
            history.FinalReplica(
                names.get(each.node, str(each.node)), shard.shard, each.applied, each.digest,
                each.role,
            )
            for each in shard.replicas
            if each.is_voter
        ]
        for shard in view.shards
    }  # fmt: skip


def are_equal(rows: Sequence[history.FinalReplica]) -> bool:
    """Whether the digests of all replicas of a shard are those of one index."""
    return bool(rows) and len({row.index for row in rows}) == 1 and all(row.digest for row in rows)


class NoAnswer(Exception):
    """A node did not answer after all faults had ended."""


class _Node(msgspec.Struct):
    number: int
    name: str


class _Replica(msgspec.Struct):
    node: int
    is_voter: bool = True
    role: str = ""
    applied: int = 0
    digest: str = ""


class _Shard(msgspec.Struct):
    shard: int
    replicas: list[_Replica]


class _View(msgspec.Struct):
    nodes: list[_Node]
    shards: list[_Shard]


class _Status(msgspec.Struct):
    cluster: _View | None = None
