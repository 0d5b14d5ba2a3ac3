"""Schedules over HTTP: what is created, what is told of it, and what is refused."""

from typing import Final

import msgspec
import pytest

from corvo.model import ApiKey, Schedule
from corvo.protocol.ops.jobs import Cancel
from corvo.router.http.messages import Response
from corvo.router.schedules.bodies import (
    BackfillAnswer,
    ImportAnswer,
    Preview,
    ScheduleList,
    ScheduleView,
    standing,
)
from corvo.shard.firing import Firing
from corvo.shard.state.tables import JOBS
from corvo.times import S, parse_time
from tests.router.nests import Nest, problem, queue_of, run

A, B, C = (queue_of(number) for number in range(3))
NOON: Final = parse_time("2026-02-20T12:00:00Z")
KEYS: Final = {
    "all": ApiKey(key_hash="", name="all", role="operator"),
    "a": ApiKey(key_hash="", name="a", role="operator", queue_scope=(A,)),
    "producer": ApiKey(key_hash="", name="p", role="producer"),
}


class Scene:
    """A nest at noon of a day, with leaders that fire what is due."""

    def __init__(self) -> None:
        self.nest: Final = Nest(keys=KEYS)
        self._firing = [Firing() for _ in self.nest.shards]
        assert NOON is not None
        self.pass_to(NOON)

    def pass_to(self, at_ns: int) -> None:
        for shard, firing in zip(self.nest.shards, self._firing, strict=True):
            machine = shard.machine
            machine.clock_ns = at_ns
            while (op := firing.op(machine.tx, at_ns)) is not None:
                machine.do(op)
            self.nest.deliver()

    def pass_time(self, seconds: int) -> None:
        self.pass_to(self.nest.shards[0].machine.clock_ns + seconds * S)

    async def ask(self, method: str, path: str, body: object = b"", key: str = "all") -> Response:
        return await self.nest.ask(method, f"/api/v1/schedules{path}", body, x_api_key=key)

    async def create(self, **fields: object) -> ScheduleView:
        body = {"name": "tick", "queue": A, "cron": "* * * * *", **fields}
        answer = await self.ask("POST", "", body)
        assert answer.status == 201, answer.body
        self.pass_time(0)
        return msgspec.json.decode(answer.body, type=ScheduleView)

    async def get(self, identifier: str = f"{A}~tick") -> ScheduleView:
        answer = await self.ask("GET", f"/{identifier}")
        assert answer.status == 200, answer.body
        return msgspec.json.decode(answer.body, type=ScheduleView)

    def jobs(self) -> list[str]:
        return [job.id for shard in self.nest.shards for job in shard.machine.documents(JOBS)]


def test_a_schedule_is_created_once_and_tells_its_next_due_times() -> None:
    async def main() -> None:
        scene = Scene()
        made = await scene.create(cron="30 2 * * *", timezone="Europe/Berlin", payload={"n": 1})
        again = await scene.ask(
            "POST",
            "",
            {
                "name": "tick",
                "queue": A,
                "cron": "30 2 * * *",
                "timezone": "Europe/Berlin",
                "payload": {"n": 1},
            },
        )
        other = await scene.ask("POST", "", {"name": "tick", "queue": A, "cron": "@daily"})

        assert (made.id, made.status, made.next_run) == (
            f"{A}~tick",
            "active",
            "2026-02-21T01:30:00Z",
        )
        assert len(made.next) == 10
        assert made.next[0].local == "2026-02-21T02:30:00+01:00"
        assert bytes(made.payload if made.payload is not msgspec.UNSET else b"") == b'{"n":1}'
        assert again.status == 200
        assert problem(other)[:2] == (409, "SCHEDULE_EXISTS")

    run(main)


def test_a_preview_of_a_change_of_the_clocks_says_so() -> None:
    async def main() -> None:
        body = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2026-03-28T12:00:00Z"}
        answer = await Scene().ask("POST", "/preview", {**body, "count": 2})
        shown = msgspec.json.decode(answer.body, type=Preview)

        assert [each.at for each in shown.next] == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        assert "does not exist" in shown.next[0].note
        assert shown.description == "at 02:30, every day, Europe/Berlin"

    run(main)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"cron": "61 * * * *"}, "cron", "minute"),
        ({"timezone": "Europe/Berln"}, "timezone", "Europe/Berlin"),
        ({"name": "a b"}, "name", "letters"),
        ({"overlap": "none"}, "overlap", "allow, skip, queue, cancel"),
        ({"jitter": "5m"}, "jitter", "less than 1m"),
        ({"missed_after": "0s"}, "missed_after", "at least 100ms"),
        ({"starts_at": "2026-03-02", "ends_at": "2026-03-01"}, "ends_at", "after starts_at"),
        ({"missed_after": "soon"}, "missed_after", "duration"),
        ({"queue": "_corvo.x"}, "queue", "_corvo."),
    ],
)
def test_an_invalid_schedule_names_its_field(
    fields: dict[str, object], field: str, words: str
) -> None:
    async def main() -> None:
        body = {"name": "tick", "queue": A, "cron": "* * * * *", **fields}
        answer = await Scene().ask("POST", "", body)
        told = msgspec.json.decode(answer.body, type=dict[str, object])

        assert (answer.status, told["field"]) == (400, field)
        assert words in str(told["error"])

    run(main)


def test_runs_tell_what_became_of_them() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.create(overlap="skip")
        scene.pass_time(60)
        scene.pass_time(60)
        waiting = await scene.get()
        [job] = scene.jobs()
        scene.nest.shards[0].machine.do(Cancel(job_ids=[job]))
        ended = await scene.get()

        assert [run.result for run in waiting.runs] == ["skipped", "running"]
        assert waiting.runs[0].why == "a job of an earlier due time had not ended"
        assert waiting.running == [job]
        assert "created no job" in waiting.why
        assert [run.result for run in ended.runs] == ["skipped", "cancelled"]

    run(main)


def test_a_pause_and_an_end_are_told() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.create(ends_at="2026-02-20T12:01:30Z")
        paused = await scene.ask("POST", f"/{A}~tick/pause")
        resumed = await scene.ask("POST", f"/{A}~tick/resume")
        scene.pass_time(200)
        ended = await scene.get()
        statuses = [
            msgspec.json.decode(answer.body, type=ScheduleView).status
            for answer in (paused, resumed)
        ]

        assert statuses == ["paused", "active"]
        assert (ended.status, ended.next_run, ended.next) == ("ended", None, [])

    run(main)


def test_what_stands_in_the_way_is_named() -> None:
    base = Schedule(id="q~n", name="n", queue="q", cron="@daily", job="{}")
    told = {
        "failed": msgspec.structs.replace(base, error="gone"),
        "moving": msgspec.structs.replace(base, moving_to="other"),
        "waiting": msgspec.structs.replace(base, queued_ns=1),
    }

    for status, schedule in told.items():
        found, why = standing(schedule, has_next=True)
        assert found == status
        assert why


def test_a_change_moves_a_schedule_to_another_shard() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.create()
        body = {"name": "tick", "queue": B, "cron": "* * * * *", "changes": 1}
        moving = await scene.ask("PUT", f"/{A}~tick", body)
        told = msgspec.json.decode(moving.body, type=ScheduleView)
        scene.nest.deliver()
        late = await scene.ask("PUT", f"/{B}~tick", body)
        gone = await scene.ask("GET", f"/{A}~tick")

        assert (told.status, told.moving_to) == ("moving", f"{B}~tick")
        assert (await scene.get(f"{B}~tick")).queue == B
        assert problem(late)[:2] == (409, "SCHEDULE_CHANGED")
        assert problem(gone)[:2] == (404, "NOT_FOUND")

    run(main)


def test_a_run_now_and_a_deletion() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.create()
        made = await scene.ask("POST", f"/{A}~tick/run")
        deleted = await scene.ask("DELETE", f"/{A}~tick")
        again = await scene.ask("DELETE", f"/{A}~tick")

        assert msgspec.json.decode(made.body)["job_id"] == scene.jobs()[0]
        assert msgspec.json.decode(deleted.body) == {"id": f"{A}~tick", "status": "deleted"}
        assert problem(again)[:2] == (404, "NOT_FOUND")

    run(main)


def test_a_repeated_request_key_runs_once() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.create()
        path = f"/api/v1/schedules/{A}~tick/run"
        answers = [
            await scene.nest.ask("POST", path, x_api_key="all", idempotency_key="k")
            for _ in range(2)
        ]

        assert answers[0].body == answers[1].body
        assert len(scene.jobs()) == 1

    run(main)


def test_a_backfill_lists_first_and_creates_each_job_once() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.create(cron="0 * * * *")
        body = {"from": "2026-02-20T06:00:00Z", "to": "2026-02-20T09:00:00Z"}
        path = f"/{A}~tick/backfill"
        asked = [{**body, "dry_run": True}, body, body]
        answers = [
            msgspec.json.decode((await scene.ask("POST", path, each)).body, type=BackfillAnswer)
            for each in asked
        ]
        future = await scene.ask("POST", path, {**body, "to": "2026-02-20T15:00:00Z"})
        long = await scene.ask("POST", path, {**body, "from": "2025-01-01"})
        backwards = await scene.ask("POST", path, {**body, "to": "2026-02-20T05:00:00Z"})

        assert [len(each.due) for each in answers] == [3, 3, 3]
        assert [len(each.created) for each in answers] == [0, 3, 0]
        assert len(answers[2].existing) == 3
        assert [problem(each)[0] for each in (future, long, backwards)] == [400] * 3
        assert b"send 2025-02-11T16:00:00Z first" in long.body

    run(main)


def test_a_crontab_is_imported_line_by_line() -> None:
    async def main() -> None:
        scene = Scene()
        text = "MAILTO=ops\nCRON_TZ=Asia/Kolkata\n5 4 * * * /usr/bin/backup all\n@daily\n"
        body = {"queue": A, "crontab": text}
        tried = await scene.ask("POST", "/import", {**body, "dry_run": True})
        made = await scene.ask("POST", "/import", body)
        told = [msgspec.json.decode(each.body, type=ImportAnswer) for each in (tried, made)]
        schedule = await scene.get(f"{A}~backup")

        assert [line.status for line in told[0].lines] == ["ignored", "valid", "failed"]
        assert [line.status for line in told[1].lines] == ["ignored", "created", "failed"]
        assert (told[1].created, told[1].failed) == (1, 1)
        assert schedule.timezone == "Asia/Kolkata"
        assert msgspec.json.decode(bytes(schedule.payload or b"")) == {
            "command": "/usr/bin/backup all"
        }

    run(main)


def test_a_list_has_the_schedules_of_all_shards_page_by_page() -> None:
    async def main() -> None:
        scene = Scene()
        for number in range(5):
            for queue in (A, B, C):
                await scene.create(name=f"n{number}", queue=queue)
        ids: list[str] = []
        after = ""
        while True:
            query = {"limit": "4", **({"after": after} if after else {})}
            page = await scene.nest.read(
                ScheduleList, "/api/v1/schedules", query=query, x_api_key="all"
            )
            ids += [each.id for each in page.schedules]
            after = page.after
            if not page.has_more:
                break
        own = await scene.nest.read(ScheduleList, "/api/v1/schedules", x_api_key="a")
        of_b = await scene.nest.read(
            ScheduleList, "/api/v1/schedules", query={"queue": B}, x_api_key="all"
        )

        assert ids == sorted(f"{queue}~n{n}" for queue in (A, B, C) for n in range(5))
        assert {each.queue for each in own.schedules} == {A}
        assert [each.id for each in of_b.schedules] == [f"{B}~n{n}" for n in range(5)]

    run(main)


def test_a_producer_may_not_create_schedules() -> None:
    async def main() -> None:
        body = {"name": "tick", "queue": A, "cron": "* * * * *"}
        answer = await Scene().ask("POST", "", body, key="producer")

        assert answer.status == 403

    run(main)
