"""Rights: every route declares where it names queues and jobs, and what is declared is checked.

The cases are generated from the declarations. A key for `evil*` asks each route for what is in the
queue of somebody else, at each place where a request can name it: nothing of that queue is in an
answer, and nothing in it changes. A key for every queue asks the same, so that it is seen that the
scope is what refuses. A new route is among the cases by itself; one that cannot be, because nothing
of the queue would be in its answer anyway, has to be listed here with the reason.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import permutations, product
from typing import Final

import msgspec
import pytest
import trio
from msgspec.structs import replace

from corvo.model import ApiKey, Job, Queue
from corvo.protocol.queries import GetNumbers, Query
from corvo.protocol.questions import QUESTIONS, MirrorAnswer, Refused
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import (
    NODE,
    RESULT,
    Rights,
    Where,
    in_body,
    job_in_path,
    queue_in_query,
)
from corvo.router.bulk.requests import ACTIONS
from corvo.router.http.messages import Request, Response
from corvo.router.leases.verbs import decode_heartbeat
from corvo.router.openapi.document import operation_id
from corvo.router.routes import Route
from corvo.router.shards.links import Answer
from corvo.router.shards.mirror import Mirror, problem_of
from corvo.router.table import ROUTES
from corvo.shard.state.tables import JOBS, QUEUES
from tests.mirror.shelves import Shelf
from tests.mirror.twin import Kept
from tests.router.nests import MachineShard, Nest, die, problem, queue_of, run
from tests.router.test_metrics import numbers

EVIL: Final = "evil-1"
MAIL: Final = f"{queue_of(1)}-of-ada"
PAYLOAD: Final = "ada-payload"
SCHEDULE: Final = "daily-report"
WORKER: Final = "ada-worker"
KEYS: Final = {
    "evil": ApiKey(key_hash="", name="evil", role="operator", queue_scope=("evil*",)),
    "free": ApiKey(key_hash="", name="free", role="operator"),
    "evil-admin": ApiKey(key_hash="", name="evil", role="admin", queue_scope=("evil*",)),
    "free-admin": ApiKey(key_hash="", name="free", role="admin"),
}
"""No admin key can be made with a scope; one that a later release might make is refused as well."""


# Declarations.


def name_of(row: Route) -> str:
    return f"{row.method} {row.path}"


async def nothing(_: Api, __: Request) -> Response:
    return Response()


ROW: Final = partial(
    Route, method="POST", endpoint=nothing, action=Action.WORK, tag="", summary="", description=""
)


def test_a_route_that_does_not_declare_its_rights_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="rights"):
        ROW(path="/new")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("path", "rights"),
    [
        ("/jobs/{id}", NODE),
        ("/jobs/{id}", RESULT),
        ("/jobs/{id}", job_in_path("job_id")),
        ("/jobs", job_in_path("id")),
        ("/jobs", queue_in_query("queue")),
        ("/jobs", in_body(decode_heartbeat)),
        ("/jobs", Rights(where=frozenset())),
    ],
)
def test_a_declaration_that_leaves_out_or_adds_a_part_of_the_route_is_refused(
    path: str, rights: Rights
) -> None:
    with pytest.raises(AssertionError):
        ROW(path=path, rights=rights)


NAMES: Final = frozenset(
    {"queue", "queues", "callback_queue", "move_to_queue", "job_id", "job_ids", "depends_on"}
)


@pytest.mark.parametrize("row", [row for row in ROUTES.rows if row.takes is not None], ids=name_of)
def test_a_body_that_names_queues_or_jobs_is_declared(row: Route) -> None:
    fields = set(re.findall(rb'"(\w+)":\s*{', msgspec.json.encode(msgspec.json.schema(row.takes))))
    named = {field.decode() for field in fields} & NAMES
    is_open_to_all = row.rights.needs_everything

    assert is_open_to_all or not named or row.rights.where & {Where.BODY, Where.RESULT}


# The world: two queues, with a job in each state and a bulk operation.


class ShelfMirror(Mirror):
    """A mirror's own answers, from tables with the jobs that the shards have now."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(replace(nest.api.config, mirror_socket="nowhere"))
        self._nest = nest
        nest.api.mirror = self

    @property
    def is_up(self) -> bool:
        return True

    async def _ask(self, number: int, body: bytes) -> MirrorAnswer:
        await trio.lowlevel.checkpoint()
        kepts = [
            Kept(job, shard.number)
            for shard in self._nest.shards
            for job in shard.machine.documents(JOBS)
        ]
        answer = Shelf(kepts)._answer(msgspec.json.decode(body, type=QUESTIONS[number]), 0)
        if isinstance(answer, Refused):
            raise problem_of(answer)
        return answer


async def ask_replica(shard: MachineShard, query: Query) -> Answer:
    """A shard's answer; there is no replica around the machines, whose numbers are made up."""
    if isinstance(query, GetNumbers):
        told = msgspec.to_builtins(numbers())
        return Answer(msgspec.json.encode(told), 1)
    return await MachineShard.ask(shard, query)


class World:
    def __init__(self) -> None:
        self.nest: Final = Nest(keys=KEYS)
        self.jobs: dict[str, list[str]] = {}
        self.bulk_id = ""
        self.batch_id = ""

    async def begin(self) -> None:
        ShelfMirror(self.nest)
        for shard in self.nest.shards:
            vars(shard)["ask"] = partial(ask_replica, shard)
        for queue, worker in ((MAIL, WORKER), (EVIL, "evil-worker")):
            payload = {"payload": {"of": PAYLOAD if queue == MAIL else "evil"}}
            dead = die(self.nest, queue)
            active = await self._do("enqueue", {"queue": queue, **payload})
            fetch = {"queues": [queue], "worker_id": worker, "wait_seconds": 0}
            await self._do("fetch", fetch)
            waiting = await self._do("enqueue", {"queue": queue, **payload})
            held = await self._do("enqueue", {"queue": queue, **payload})
            await self._do(f"jobs/{held}/hold", {})
            later = await self._do("enqueue", {"queue": queue, "delay_ms": 60_000, **payload})
            self.jobs[queue] = [active, waiting, held, later, dead]
            schedule = {"queue": queue, "name": SCHEDULE, "cron": "0 9 * * *", "timezone": "UTC"}
            await self._do("schedules", {**schedule, **payload})
        batch = {"jobs": [{"queue": MAIL}], "batch": {"callback_queue": MAIL}}
        answer = await self.nest.ask("POST", "/api/v1/enqueue/batch", batch, x_api_key="free")
        self.batch_id = msgspec.json.decode(answer.body, type=dict[str, object])["batch_id"]  # type: ignore[assignment]
        order = {"filter": {"queue": MAIL}, "action": "retry", "async": True}
        answer = await self.nest.ask("POST", "/api/v1/jobs/bulk", order, x_api_key="free")
        self.bulk_id = msgspec.json.decode(answer.body, type=dict[str, object])["bulk_operation_id"]  # type: ignore[assignment]

    async def _do(self, path: str, body: object) -> str:
        answer = await self.nest.ask("POST", f"/api/v1/{path}", body, x_api_key="free")
        assert answer.status < 300, answer.body
        return str(msgspec.json.decode(answer.body, type=dict[str, object]).get("job_id"))

    @property
    def theirs(self) -> tuple[list[Job], list[Queue]]:
        """Everything of the queue that is not the asker's, and of its bulk operation."""
        machines = [shard.machine for shard in self.nest.shards]
        jobs = [job for machine in machines for job in machine.documents(JOBS)]
        queues = [queue for machine in machines for queue in machine.documents(QUEUES)]
        return (
            [job for job in jobs if not job.queue.startswith("evil")],
            [queue for queue in queues if not queue.name.startswith("evil")],
        )

    def shows(self, body: bytes, asked: str = "") -> bool:
        """Whether an answer has something of the queue that was not in the request."""
        marks = [MAIL, PAYLOAD, WORKER, self.bulk_id, self.batch_id, *self.jobs[MAIL]]
        return any(mark.encode() in body for mark in marks if mark not in asked)


class Case(msgspec.Struct):
    """One request, which names what is not the asker's at one place."""

    row: Route
    where: Where
    path: str
    query: dict[str, str] = {}
    body: str = ""

    @property
    def text(self) -> str:
        return f"{self.path} {self.query} {self.body}"

    async def ask(self, world: World, key: str) -> Response:
        role = "-admin" if self.row.action is Action.ADMIN else ""
        body = msgspec.json.decode(self.body) if self.body else b""
        request = partial(world.nest.ask, self.row.method, self.path, body, query=self.query)
        if self.row.action is Action.OPEN:
            return await request()
        return await request(x_api_key=f"{key}{role}")


EXAMPLES: Final[dict[str, list[object]]] = {
    **{operation_id(row): [row.takes_example] for row in ROUTES.rows if row.takes_example},
    "post_release_batch": [{"jobs": [{"job_id": "s00_job_0"}]}],
    "post_heartbeat": [{"jobs": {"s00_job_0": {}}}, {"jobs": [{"job_id": "s00_job_0"}]}],
    "post_enqueue": [
        {"queue": "mail"},
        {"queue": "mail", "chain": {"steps": [{"queue": "mail"}, {"queue": "mail"}]}},
        {"queue": "mail", "chain": {"steps": [{"queue": "sms"}] * 2, "on_failure": "mail"}},
        {"queue": "mail", "chain": {"steps": [{"queue": "sms"}] * 2, "on_exit": "mail"}},
        {"queue": "mail", "chain_config": {"steps": [{"queue": "mail"}]}},
        {"queue": "mail", "chain_config": {"depends_on": ["s00_job_0"]}},
        {"queue": "mail", "depends_on": ["s00_job_0"]},
    ],
    "post_enqueue_batch": [
        {"jobs": [{"queue": "mail"}, {"queue": "sms"}], "batch": {"callback_queue": "done"}},
        {"jobs": [{"queue": "mail"}, {"queue": "mail", "depends_on": ["s00_job_0"]}]},
        {"jobs": [{"queue": "mail", "chain": {"steps": [{"queue": "mail"}, {"queue": "mail"}]}}]},
    ],
    "post_jobs_bulk": [
        {"action": "cancel", "job_ids": ["s00_job_0", "s00_job_1"]},
        {"action": "move", "job_ids": ["s00_job_0"], "move_to_queue": "mail"},
        {"action": "move", "filter": {"state": ["dead"]}, "move_to_queue": "mail"},
    ],
}
"""Bodies by the route's operation id: each name of a queue or job in one is a case of its own."""
NAMED: Final = re.compile('"(?P<queue>mail|sms|done|mail-slow)"|"(?P<job>s[0-9]{2}_job_[0-9A-Z]+)"')
FILTERS: Final = ('{"queue": "mail"}', "{}", '{"job_ids": ["s00_job_0"]}')
"""Bodies of routes whose answer is filtered."""

STREAMS: Final = {"/api/v1/events"}
"""Their answers have no end: what is in them is held by `tests/router/test_events.py`."""
WITHOUT_A_NAME: Final = {
    "/api/v1/metrics/throughput": "counts of minutes that have not ended yet",
    "/api/v1/bulk/{id}/progress": "a stream: the owner's is not begun here",
}
"""Routes in whose answers nothing of the queue would be, whoever asked."""


def theirs_at(text: str, world: World, at: int, job_id: str) -> str:
    """A body whose names are the asker's, but for one."""
    spots = iter(range(len(text)))

    def name(found: re.Match[str]) -> str:
        is_theirs = next(spots) == at
        if found["queue"]:
            return f'"{MAIL if is_theirs else EVIL}"'
        return f'"{job_id if is_theirs else world.jobs[EVIL][0]}"'

    return NAMED.sub(name, text)


def path_of(row: Route, queue: str, job_id: str) -> str:
    if row.id_of == "schedule":
        job_id = f"{queue}~{SCHEDULE}"
    return re.sub(r"{\w+}", job_id, re.sub("{(queue|name)}", queue, row.path))


def bodies_of(row: Route) -> list[str]:
    examples = EXAMPLES.get(operation_id(row), [{}])
    return [msgspec.json.encode(example).decode() for example in examples]


def cases_of(row: Route, world: World) -> Iterator[Case]:
    """The cases of a route, as its declaration has them."""
    own = path_of(row, EVIL, world.jobs[EVIL][0])
    wait = {"wait_seconds": "0"} if row.is_parked else {}
    for where, job_id in product(sorted(row.rights.where, key=str), world.jobs[MAIL]):
        case = partial(Case, row, where)
        match where:
            case Where.PATH:
                body = NAMED.sub(f'"{EVIL}"', bodies_of(row)[0]) if row.takes is not None else ""
                yield case(path_of(row, MAIL, job_id), body=body)
            case Where.QUERY:
                names = row.rights.names - set(re.findall(r"{(\w+)}", row.path))
                yield from (case(own, query={name: MAIL, **wait}) for name in names)
            case Where.BODY:
                for text in bodies_of(row):
                    spots = NAMED.findall(text)
                    assert spots, f"an example of {row.path} names nothing"
                    for at in range(len(spots)):
                        yield case(own, body=theirs_at(text, world, at, job_id))
            case Where.RESULT:
                ids = {"bulk operation": world.bulk_id, "batch": world.batch_id}
                named = ids.get(row.id_of, job_id)
                if row.takes is None:
                    known = {each.name for each in row.query}
                    for wanted in ({"q": "ada"}, {"q": "ada", "queue": MAIL}):
                        query = {name: wanted[name] for name in wanted if name in known}
                        yield case(path_of(row, MAIL, named), query=query)
                    continue
                texts = FILTERS if Where.BODY not in row.rights.where else ()
                yield from (case(own, body=theirs_at(text, world, 0, job_id)) for text in texts)
            case Where.NODE | Where.EVERYTHING:
                yield case(own)


@pytest.mark.parametrize("row", ROUTES.rows, ids=name_of)
def test_no_route_shows_or_changes_a_queue_that_its_caller_may_not_see(row: Route) -> None:
    async def main() -> None:
        first = World()
        await first.begin()
        cases = list(cases_of(row, first))
        assert cases, "every route has a case"
        has_shown = [await tried(case) for case in cases]
        if row.rights.where == {Where.RESULT} and row.path not in STREAMS | {*WITHOUT_A_NAME}:
            assert any(has_shown), "a caller with every queue sees something"

    run(main)


async def tried(case: Case) -> bool:
    """Whether a caller with every queue is shown something. Every world has the same ids."""
    world = World()
    await world.begin()
    before = world.theirs

    refused = await case.ask(world, "evil")
    after = world.theirs
    allowed = await case.ask(world, "free")

    assert after == before, case
    assert allowed.status != 403, (case, allowed.body)
    assert not world.shows(refused.body, case.text), (case, refused.body)
    if case.where in {Where.PATH, Where.QUERY, Where.BODY, Where.EVERYTHING}:
        assert refused.status == 403, (case, refused.body)
        assert b"API key 'evil' has " in refused.body, (case, refused.body)
    return world.shows(allowed.body)


# Bulk operations: each action, on jobs that are named or that a filter means.

PARTS: Final[tuple[dict[str, object], ...]] = (
    {"filter": {"queue": MAIL}},
    {"filter": {"state": ["pending", "active", "held", "dead", "scheduled"]}},
    {"filter": {}, "all": True},
)


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("action", ACTIONS)
def test_no_bulk_action_touches_jobs_of_another_queue(action: str, part: dict[str, object]) -> None:
    async def main() -> None:
        world = World()
        await world.begin()
        extra = {"move": {"move_to_queue": "evil-2"}, "change_priority": {"priority": "high"}}
        body = {"action": action, **part, **extra.get(action, {})}
        before = world.theirs

        would = await world.nest.ask(
            "POST", "/api/v1/jobs/bulk", {**body, "dry_run": True}, x_api_key="evil"
        )
        done = await world.nest.ask("POST", "/api/v1/jobs/bulk", body, x_api_key="evil")

        assert (would.status, done.status) == (200, 200), done.body
        assert not world.shows(would.body)
        assert not world.shows(done.body)
        assert world.theirs == before
        everyone = await world.nest.ask("POST", "/api/v1/jobs/bulk", body, x_api_key="free")
        assert everyone.status == 200
        assert world.theirs != before, "for every queue it does something"

    run(main)


@pytest.mark.parametrize("action", ACTIONS)
def test_no_bulk_action_takes_ids_of_jobs_of_another_queue(action: str) -> None:
    async def main() -> None:
        world = World()
        await world.begin()
        extra = {"move": {"move_to_queue": "evil-2"}, "change_priority": {"priority": "high"}}
        before = world.theirs
        for job_id, how in product(world.jobs[MAIL], ({}, {"dry_run": True}, {"async": True})):
            ids = [world.jobs[EVIL][0], job_id]
            body = {"action": action, "job_ids": ids, **extra.get(action, {}), **how}

            refused = await world.nest.ask("POST", "/api/v1/jobs/bulk", body, x_api_key="evil")

            assert refused.status == 403, refused.body
        assert world.theirs == before

    run(main)


# Sums.


def test_without_a_mirror_only_a_caller_with_every_queue_sees_the_sums_of_all_queues() -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        await nest.ask("POST", "/api/v1/enqueue", {"queue": MAIL}, x_api_key="free")

        path = "/api/v1/metrics/throughput"
        refused = await nest.ask("GET", path, x_api_key="evil")
        allowed = await nest.ask("GET", path, x_api_key="free")

        assert problem(refused)[:2] == (503, "MIRROR_UNAVAILABLE")
        assert allowed.status == 200

    run(main)


# Between the check and the change.


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "", b""),
        ("POST", "/cancel", {}),
        ("POST", "/priority", {"priority": "high"}),
        ("POST", "/move", {"queue": EVIL}),
    ],
)
def test_a_job_that_leaves_the_scope_after_the_check_is_not_changed(
    method: str, path: str, body: object
) -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        theirs = next(
            name for name in (f"mail-{n}" for n in range(99)) if nest[name] is not nest[EVIL]
        )
        job_id = nest.put(EVIL)
        target = f"/api/v1/jobs/{job_id}"
        await nest.ask("POST", f"{target}/move", {"queue": theirs}, x_api_key="free")
        answers = []

        async def change() -> None:
            answers.append(await nest.ask(method, f"{target}{path}", body, x_api_key="evil"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            await trio.sleep(0.01)  # it is in no queue while it travels
            nest.deliver()

        assert [problem(answer)[:2] for answer in answers] == [(403, "FORBIDDEN")]
        job = nest[theirs].job(job_id)
        assert job.trail[-1].what == "arrived", job.trail

    run(main)


@pytest.mark.parametrize(("shard", "other"), [*permutations(range(3), 2)])
def test_an_id_that_is_in_two_queues_is_only_for_callers_of_both(shard: int, other: int) -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        theirs = queue_of(shard)
        own = next(name for name in (f"evil-{n}" for n in range(99)) if nest[name].number == other)
        nest.put(theirs, id="letter-1")
        nest.put(own, id="letter-1")

        refused = await nest.ask("DELETE", "/api/v1/jobs/letter-1", x_api_key="evil")

        assert problem(refused)[:2] == (403, "FORBIDDEN")
        assert nest[theirs].find("letter-1") is not None

    run(main)
