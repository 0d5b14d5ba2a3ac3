"""A client of a run: one call at a time, each attempt recorded, and repeated at another node."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

import msgspec
import trio

from chaos import api, history
from chaos.history import Args, Item, NewJob, Op, Res
from chaos.http import Answer, Connection, Lost, Site
from chaos.recording import Recorder, now_ns

_PATIENCE_S: Final = 6.0
"""How long an answer may take beyond the wait that was asked for; then its outcome is unknown."""
_PAUSE_S: Final = 0.2
_PAUSE_S_MAX: Final = 2.0
Reader = Callable[[Answer], Res]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call: its name in the history, and how it is sent and read."""

    f: str
    method: str = "POST"
    path: str
    body: object = None
    args: Args
    read: Reader
    is_keyed: bool = True
    """Whether it has a request key, so that it can be repeated."""
    may_repeat: bool = True
    missing_is_answer: bool = False
    """Whether 404 is an answer like any other."""


class Client:
    """One logical client, which has one call under way at a time."""

    def __init__(
        self, name: str, sites: Sequence[Site], recorder: Recorder, random: Random
    ) -> None:
        self.name: Final = name
        self.random: Final = random
        self._sites = sites
        self._recorder = recorder
        self._connections: dict[str, Connection] = {}
        self._at = random.randrange(len(sites))
        self._session = 1
        self._keys = 0
        self.seq: dict[str, int] = {}
        """The positions that this session has seen."""

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def next_key(self) -> str:
        """A request key that no other call of the run has."""
        self._keys += 1
        return f"{self.name}-{self._keys}"

    def move_on(self) -> None:
        """Send the next request to another node."""
        if len(self._sites) > 1:
            step = self.random.randrange(1, len(self._sites))
            self._at = (self._at + step) % len(self._sites)

    async def call(
        self, request: Request, *, key: str = "", tries: int = 6, min_seq: bool = False
    ) -> Op:
        """Send a request until its outcome is known, or so many times; the last attempt."""
        key = key or self.next_key()
        pause_s = _PAUSE_S
        number = 0
        while True:
            number += 1
            op, wait_s = await self._attempt(request, key, number, min_seq=min_seq)
            is_over = op.type == "ok" or (op.type == "fail" and op.http not in (429, 503))
            if is_over:
                break
            self.move_on()
            if number >= tries or not request.may_repeat:
                break
            await trio.sleep(max(wait_s, pause_s * (0.5 + self.random.random())))
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            if not request.is_keyed:
                key = self.next_key()
                number, tries = 0, tries - number
        if op.type == "info":
            # A call without a known outcome may still be under way: no later call of the session
            # may rely on its place before or after it.
            self._session += 1
            self.seq = {}
        return op

    async def _attempt(
        self, request: Request, key: str, number: int, *, min_seq: bool
    ) -> tuple[Op, float]:
        # Nodes join and leave in the course of a run.
        site = self._sites[self._at % len(self._sites)]
        connection = self._connections.get(site.name)
        if connection is None:
            connection = self._connections[site.name] = Connection(site)
        headers = {"idempotency-key": key} if request.is_keyed else {}
        sent_seq = dict(self.seq) if min_seq else {}
        if sent_seq:
            headers["corvo-min-seq"] = api.header_of(sent_seq)
        body = b"" if request.body is None else msgspec.json.encode(request.body)
        answer: Answer | None = None
        t_inv = now_ns()
        done: int | None = None
        try:
            with (
                suppress(Lost),
                trio.move_on_after(_PATIENCE_S + request.args.wait_ms / 1e3),
            ):
                answer = await connection.ask(request.method, request.path, body, headers)
                done = now_ns()
        finally:
            # Also of a call that was cancelled: its request may have been sent.
            op, wait_s = self._judged(
                request,
                Op(
                    n=self._recorder.next_number(),
                    client=self.name,
                    session=f"{self.name}.{self._session}",
                    op_id=key,
                    f=request.f,
                    t_inv=t_inv,
                    type="info",
                    t_ret=done,
                    try_=number,
                    keyed=request.is_keyed,
                    node=site.name,
                    args=request.args,
                    min_seq=sent_seq,
                ),
                answer,
            )
            self._recorder.op(op)
        return op, wait_s

    def _judged(self, request: Request, op: Op, answer: Answer | None) -> tuple[Op, float]:
        """The attempt with its answer, and the seconds that the server asks to wait."""
        if answer is None:
            return op, 0.0
        seq = api.positions(answer.headers.get("corvo-seq", ""))
        for shard, index in seq.items():
            self.seq[shard] = max(index, self.seq.get(shard, 0))
        if answer.status < 300 or (answer.status == 404 and request.missing_is_answer):
            made = msgspec.structs.replace(
                op, type="ok", http=answer.status, seq=seq, res=request.read(answer)
            )
            return made, 0.0
        problem = api.problem_of(answer)
        made = msgspec.structs.replace(
            op,
            type="fail" if problem.outcome == "not_applied" else "info",
            http=answer.status,
            seq=seq,
            code=problem.code,
            outcome=problem.outcome,
            reason=problem.reason,
            res=_partial(request, answer, problem),
        )
        return made, problem.retry_after_ms / 1e3

    # ---- calls

    async def enqueue(self, jobs: Sequence[NewJob], batch: history.Callback | None = None) -> Op:
        """Enqueue jobs, each with a mark of its own."""
        key = self.next_key()
        made = tuple(api.marked(job, f"{key}/{number}") for number, job in enumerate(jobs))
        if batch is not None and batch.queue:
            batch = msgspec.structs.replace(batch, mark=f"{key}/callback")
        args = Args(jobs=made, batch=batch)
        if len(made) == 1 and batch is None:
            request = Request(
                f="enqueue",
                path="/api/v1/enqueue",
                body=api.job_body(made[0]),
                args=args,
                read=api.read_enqueue,
            )
        else:
            body: dict[str, object] = {"jobs": [api.job_body(job) for job in made]}
            if batch is not None:
                body["batch"] = _batch_body(batch)
            request = Request(
                f="enqueue",
                path="/api/v1/enqueue/batch",
                body=body,
                args=args,
                read=api.read_enqueue_batch,
            )
        return await self.call(request, key=key)

    async def fetch(
        self, queues: Sequence[str], count: int, *, wait_ms: int = 0, lease_ms: int = 5_000
    ) -> tuple[history.Delivered, ...]:
        """Fetch jobs; none if there was no answer."""
        body = {
            "queues": list(queues),
            "worker_id": self.name,
            "count": count,
            "wait_ms": wait_ms,
            "lease_ms": lease_ms,
        }
        args = Args(
            queues=tuple(queues), worker=self.name, count=count, wait_ms=wait_ms, lease_ms=lease_ms
        )
        op = await self.call(
            Request(
                f="fetch",
                path="/api/v1/fetch/batch",
                body=body,
                args=args,
                read=api.read_fetch,
                is_keyed=False,
                may_repeat=False,
            )
        )
        return op.res.delivered

    async def finish(self, f: str, item: Item, *, tries: int = 6, **fields: object) -> Op:
        """Ack, fail, release or snooze one job, under its lease token."""
        body: dict[str, object] = {"lease_token": item.token, **fields}
        return await self.call(
            Request(
                f=f,
                path=f"/api/v1/{f}/{item.job_id}",
                body=body,
                args=Args(items=(item,), worker=self.name),
                read=api.read_item(item.job_id),
            ),
            tries=tries,
        )

    async def ack_many(self, items: Sequence[Item]) -> Op:
        """Ack several jobs."""
        acks = [{"job_id": item.job_id, "lease_token": item.token} for item in items]
        return await self.call(
            Request(
                f="ack",
                path="/api/v1/ack/batch",
                body={"acks": acks},
                args=Args(items=tuple(items), worker=self.name),
                read=api.read_items,
            )
        )

    async def heartbeat(self, items: Sequence[Item]) -> Op:
        """Renew leases."""
        jobs = [{"job_id": item.job_id, "lease_token": item.token} for item in items]
        return await self.call(
            Request(
                f="heartbeat",
                path="/api/v1/heartbeat",
                body={"worker_id": self.name, "jobs": jobs},
                args=Args(items=tuple(items), worker=self.name),
                read=api.read_beats([item.job_id for item in items]),
                # A stored answer would say that a lease lasts which has ended since.
                is_keyed=False,
            ),
            tries=2,
        )

    async def change(self, f: str, job_id: str, **fields: object) -> Op:
        """One action of an operator on a job."""
        method, path = ("DELETE", "") if f == "delete" else ("POST", f"/{f}")
        queue, number = fields.get("queue", ""), fields.get("priority", 0)
        args = Args(
            items=(Item(job_id),),
            queue=queue if isinstance(queue, str) else "",
            number=number if isinstance(number, int) else 0,
        )
        return await self.call(
            Request(
                f=f,
                method=method,
                path=f"/api/v1/jobs/{job_id}{path}",
                body=fields,
                args=args,
                read=api.read_item(job_id),
            )
        )

    async def get(self, job_id: str, consistency: str = "", *, min_seq: bool = False) -> Op:
        """Read a job."""
        query = f"?consistency={consistency}" if consistency else ""
        return await self.call(
            Request(
                f="get",
                method="GET",
                path=f"/api/v1/jobs/{job_id}{query}",
                args=Args(items=(Item(job_id),), consistency=consistency),
                read=api.read_job,
                is_keyed=False,
                missing_is_answer=True,
            ),
            tries=2,
            min_seq=min_seq,
        )


def _batch_body(batch: history.Callback) -> dict[str, object]:
    if not batch.queue:
        return {}
    return {
        "callback_queue": batch.queue,
        "callback_payload": msgspec.Raw(api.payload_of(batch.mark)),
    }


def _partial(request: Request, answer: Answer, problem: api.Problem) -> Res:
    """What an error says about the parts of a request that had their effect."""
    if request.f == "enqueue" and problem.outcome != "not_applied" and b'"jobs"' in answer.body:
        return api.read_enqueue_batch(answer)
    return history.NO_RES
