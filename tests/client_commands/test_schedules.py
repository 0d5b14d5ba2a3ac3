"""`corvo schedules`, against a real server."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from corvo.client.schedules import Backfill
from corvo.client_commands.schedule_fields import _KEPT
from corvo.router.schedules.bodies import ScheduleBody, ScheduleView
from tests.client.scripted import answer, problem, scripted
from tests.client_commands.running import Server

YEARLY = "0 3 1 1 *"


class Schedule(msgspec.Struct):
    id: str
    status: str = ""
    cron: str = ""
    timezone: str = ""
    overlap: str = ""
    missed: str = ""
    missed_max: int = 0
    missed_after_ms: int = 0
    jitter_ms: int = 0
    starts_at: str | None = None
    ends_at: str | None = None
    priority: int = 0
    max_retries: int = 0
    payload: object = None
    tags: dict[str, str] = {}
    changes: int = 0
    chain: dict[str, object] | None = None
    agent: dict[str, object] | None = None


def made(server: Server, name: str, *flags: str, queue: str = "sc") -> str:
    done = server.corvo("schedules", "create", name, queue, YEARLY, *flags, "-o", "id")
    assert done.code == 0, done.err
    return done.out.strip()


def schedule(server: Server, schedule_id: str) -> Schedule:
    return server.corvo("cron", "show", schedule_id, "-o", "json").json(Schedule)


def test_the_forms_of_the_list(server: Server) -> None:
    first, second = made(server, "forms-a", "--tz", "Europe/Berlin"), made(server, "forms-b")
    made(server, "forms-a", queue="sc-other")

    shown = server.on_terminal("schedules", "sc~forms-*", COLUMNS="200").out.splitlines()
    piped = server.corvo("schedules", "sc~forms-*").lines(Schedule)
    ids = server.corvo("cron", "list", "--queue", "sc-other", "-o", "id").out.split()
    whole = server.corvo("schedules", "-o", "json", first).json(dict[str, list[Schedule]])

    assert shown[0].split() == [
        *("ID", "STATE", "CRON", "ZONE", "NEXT_IN", "LAST", "FIRED", "SKIPPED")
    ]
    assert shown[1].split()[:2] == [first, "active"]
    assert shown[1].split()[7] == "Europe/Berlin"
    assert [one.id for one in piped] == [first, second]
    assert ids == ["sc-other~forms-a"]
    assert [one.id for one in whole["schedules"]] == [first]


def test_a_schedule_is_created_once_with_all_of_its_options(server: Server) -> None:
    words = ["schedules", "create", "all", "sc", YEARLY, '{"n": 1}', "--tz", "Europe/Berlin"]
    words += ["--overlap", "skip", "--missed", "all", "--missed-max", "7", "--missed-after", "5m"]
    words += ["--jitter", "90s", "--starts", "2026-01-01", "--ends", "2099-01-01"]
    words += ["--priority", "high", "--retries", "9", "--tag", "team=a", "--tag", "b=c"]

    created = server.corvo(*words)
    again = server.corvo(*words, "-o", "json")
    text = server.corvo("schedules", "show", "sc~all").out

    assert created.out.startswith("sc~all was created\ndescription  ")
    assert again.json(Schedule).id == "sc~all"
    assert server.corvo(*words).out.startswith("sc~all exists already: nothing was created\n")
    found = schedule(server, "sc~all")
    assert msgspec.structs.replace(found, status="") == Schedule(
        "sc~all",
        cron=YEARLY,
        timezone="Europe/Berlin",
        overlap="skip",
        missed="all",
        missed_max=7,
        missed_after_ms=300_000,
        jitter_ms=90_000,
        starts_at="2026-01-01T00:00:00Z",
        ends_at="2099-01-01T00:00:00Z",
        priority=1,
        max_retries=9,
        payload={"n": 1},
        tags={"team": "a", "b": "c"},
        changes=found.changes,
    )
    assert "missed        all, at most 7\n" in text
    assert "jitter        1m30s\n" in text
    assert "priority      high\n" in text


def test_a_payload_comes_from_stdin_or_a_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"from": "file"}')

    piped = server.corvo("cron", "create", "stdin", "sc", YEARLY, "-", given='{"from": "stdin"}')
    made(server, "file", f"@{file}")

    assert piped.code == 0
    assert schedule(server, "sc~stdin").payload == {"from": "stdin"}
    assert schedule(server, "sc~file").payload == {"from": "file"}


def test_a_change_keeps_all_that_is_not_named(server: Server) -> None:
    chain = '{"steps": [{"queue": "sc"}, {"queue": "sc-next", "priority": "high"}]}'
    made(server, "change", '{"n": 1}', "--jitter", "1m", "--tag", "a=b", "--chain", chain)
    before = schedule(server, "sc~change")

    done = server.corvo(
        *("cron", "change", "sc~change", "--cron", "0 4 1 1 *", "--jitter", "2m", "--tag", "c=d")
    )
    after = schedule(server, "sc~change")
    moved = server.corvo("cron", "change", "sc~change", "--queue", "sc-moved", "-o", "json")

    assert done.out.startswith("sc~change was changed\n")
    assert after == msgspec.structs.replace(
        before,
        cron="0 4 1 1 *",
        jitter_ms=120_000,
        tags={"a": "b", "c": "d"},
        changes=before.changes + 1,
    )
    assert after.chain is not None
    assert moved.code == 0, moved.err
    assert server.corvo("cron", "change", "sc~none", "--jitter", "1s").code == 3


def test_every_field_of_a_definition_is_kept_by_a_change() -> None:
    fields = {*ScheduleBody.__struct_fields__} & {*ScheduleView.__struct_fields__}
    unseen = {*ScheduleBody.__struct_fields__} - {*ScheduleView.__struct_fields__}
    spans = {name for name in unseen if f"{name}_ms" in ScheduleView.__struct_fields__}

    assert fields == _KEPT
    assert unseen - spans == {"request_key"}


def test_an_agents_limits_are_kept_by_a_change(server: Server) -> None:
    from corvo.client.calls import Client  # noqa: PLC0415 -- only needed here

    limits = {"max_iterations": 3, "max_cost_usd": 1.25, "iteration_timeout_ms": 9_000}
    body = {"name": "agent", "queue": "sc", "cron": YEARLY, "agent": limits}
    with Client([server.url], api_key=server.api_key) as client:
        client.change("POST", "/api/v1/schedules", body)

    server.corvo("cron", "change", "sc~agent", "--jitter", "1m")

    found = schedule(server, "sc~agent")
    assert (found.jitter_ms, found.agent) == (60_000, {**limits, "iteration_timeout": None})


def test_a_change_by_another_client_is_not_overwritten() -> None:
    view = {"id": "a~b", "name": "b", "queue": "a", "cron": YEARLY, "changes": 4, "fired": 9}
    refusal = problem(409, "CONFLICT", reason="schedule_changed")
    with scripted(answer(200, view), refusal) as server:
        done = Server(server.url).corvo("cron", "change", "a~b", "--jitter", "1s")
        sent = json.loads(server.asked[1].body)

    assert sent == {**{k: v for k, v in view.items() if k not in {"id", "fired"}}, "jitter": "1s"}
    assert done.code == 5
    assert "another client has changed it: run the command again" in done.err


def test_pause_and_resume_in_a_pipe(server: Server) -> None:
    ids = [made(server, f"pause-{number}") for number in range(2)]
    listed = server.corvo("schedules", "sc~pause-*", "-o", "jsonl").out

    paused = server.corvo("schedules", "pause", "-", given=listed)
    states = [schedule(server, each).status for each in ids]
    resumed = server.corvo("schedules", "resume", *ids, "-o", "jsonl").lines(Schedule)

    assert paused.out == "".join(f"{each} is paused: due times create no jobs\n" for each in ids)
    assert states == ["paused", "paused"]
    assert [one.status for one in resumed] == ["active", "active"]


def test_run_prints_the_id_of_its_job(server: Server) -> None:
    made(server, "run", '{"at": "{{schedule}}"}')

    text = server.corvo("schedules", "run", "sc~run").out
    job_id = server.corvo("schedules", "run", "sc~run", "-o", "id").out.strip()
    job = server.corvo("inspect", job_id, "-o", "json").json(dict[str, object])
    shown = server.corvo("schedules", "show", "sc~run").out

    assert text.startswith("sc~run has created the job sc~run@now-")
    assert job["payload"] == {"at": "run"}
    assert job_id in shown


def test_due_times_of_a_schedule_and_of_an_expression(server: Server) -> None:
    made(server, "next", "--tz", "Asia/Kolkata")

    times = server.corvo("schedules", "next", "sc~next", "-n", "2").lines(dict[str, str])
    shown = server.on_terminal("schedules", "next", "sc~next", COLUMNS="200").out.splitlines()
    words = ("schedules", "explain", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "366")
    text = server.corvo(*words, "-o", "table").out
    whole = server.corvo(*words, "-o", "json").json(dict[str, object])
    at = server.corvo("schedules", "explain", "@hourly", "-n", "1", "-o", "id").out

    assert [one["local"][4:] for one in times] == ["-01-01T03:00:00+05:30"] * 2
    assert shown[0].endswith("Asia/Kolkata")
    assert shown[1].split() == ["DUE", "UTC", "IN"]
    assert len(shown) == 7
    assert text.splitlines()[1].split() == ["DUE", "UTC", "IN", "NOTE"]
    assert "clocks" in text
    assert whole["timezone"] == "Europe/Berlin"
    assert at.endswith(":00:00Z\n")


def test_backfill_shows_the_count_and_asks(server: Server) -> None:
    words = ("schedules", "create", "back", "sc", "0 9 * * *", "--paused")
    assert server.corvo(*words).code == 0
    span = ("schedules", "backfill", "sc~back", "2026-02-01", "2026-02-04")

    listed = server.corvo(*span, "--dry-run")
    refused = server.corvo(*span)
    denied = server.on_terminal(*span, typed=b"n\n")
    created = server.on_terminal(*span, typed=b"y\n")
    again = server.corvo(*span, "--yes", "-o", "json").json(Backfill)
    none = server.corvo(*span[:3], "2026-02-01", "2026-02-02T01:00:00Z", "--dry-run", "-o", "id")

    assert "3 due times from 2026-02-01 up to, but not including, 2026-02-04" in listed.out
    assert (refused.code, denied.code, created.code) == (2, 2, 0)
    assert "3 jobs of sc~back will be created, due from 2026-02-01T09:00:00+00:00" in refused.err
    assert f"confirm it:   corvo {shlex.join(span)} --yes" in refused.err
    assert "3 jobs of sc~back created\n" in created.out
    assert (len(again.created), len(again.existing)) == (0, 3)
    assert none.out == "2026-02-01T09:00:00Z\n"


def test_delete_asks_and_counts_what_is_missing(server: Server) -> None:
    ids = [made(server, f"gone-{number}") for number in range(3)]

    refused = server.corvo("schedules", "delete", ids[0])
    one = server.on_terminal("schedules", "delete", ids[0], typed=b"y\n")
    partly = server.corvo("schedules", "delete", "-", "--yes", given="\n".join(ids))
    gone = server.corvo("schedules", "delete", "-y", "-o", "id", *ids)

    assert refused.code == 2
    assert f"confirm it:   corvo schedules delete '{ids[0]}' --yes" in refused.err
    assert one.out.endswith(f"{ids[0]} is deleted\n")
    assert partly.code == 7
    assert partly.out == f"{ids[1]} is deleted\n{ids[2]} is deleted\n"
    assert "delete: done for 2 of 3 schedules" in partly.err
    assert (gone.code, gone.out) == (3, "")


def test_a_crontab_is_imported(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("# nightly\n30 2 * * * /bin/backup\n")
    words = ("schedules", "import", str(file), "--queue", "sc-tab", "--tz", "Asia/Kolkata")

    tried = server.corvo(*words, "--dry-run", "-o", "table")
    none = server.corvo("schedules", "--queue", "sc-tab", "-o", "id").out
    done = server.corvo(*words, "-o", "json").json(dict[str, object])
    user = server.corvo(
        *("cron", "import", "-", "--queue", "sc-tab", "--users"), given="@daily root /bin/sweep\n"
    )
    listed = server.corvo("schedules", "--queue", "sc-tab").lines(Schedule)

    assert (tried.code, none) == (0, "")
    assert tried.out.split()[:5] == ["LINE", "RESULT", "CRON", "ID", "ERROR"]
    assert tried.err == "1 schedule valid; 0 lines failed\n"
    assert done["created"] == 1
    assert [line["status"] for line in user.lines(dict[str, object])] == ["created"]
    assert [one.timezone for one in listed] == ["Asia/Kolkata", "UTC"]


def test_lines_of_a_crontab_that_fail(server: Server) -> None:
    words = ("schedules", "import", "-", "--queue", "sc-bad")

    partly = server.corvo(*words, given="@daily /bin/a\n99 * * * * /bin/b\n", CORVO_OUTPUT="table")
    none = server.corvo(*words, given="99 * * * * /bin/b\n")

    assert (partly.code, none.code) == (7, 2)
    assert "failed" in partly.out
    assert "1 schedule created, or existed already; 1 line failed" in partly.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["show", "sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["show", "nearest"], 3, "the id is QUEUE~NAME, such as mail~nightly"),
        (["create", "bad", "sc", "99 * * * *"], 2, "cron: "),
        (["create", "bad", "sc", YEARLY, "--overlap", "maybe"], 2, "overlap: expected one of"),
        (["create", "bad", "sc", YEARLY, "{"], 2, "quote it for the shell"),
        (["create", "nearest", "sc", "@daily"], 5, "corvo schedules change 'sc~nearest' ..."),
        (["change", "sc~nearest"], 2, "nothing to change: pass an option"),
        (["change", "sc~nearest", "--tz", "Europe/Berln"], 2, "Europe/Berlin"),
        (["change", "sc~nearset", "--tz", "UTC"], 3, "did you mean:   sc~nearest"),
        (["pause", "sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["resume", "sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["run", "sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["delete", "sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["next", "sc~nearset"], 3, "did you mean:   sc~nearest"),
        (["backfill", "sc~nearset", "2d", "1d"], 3, "did you mean:   sc~nearest"),
        (["backfill", "sc~nearest", "1d", "2d"], 2, "to: expected a time after `from`"),
        (["import", "/nowhere/tab", "--queue", "sc"], 2, "the crontab /nowhere/tab cannot be read"),
        (["explain", "0 9 31 2 *"], 2, "0 9 L 2 *"),
        (["explain", "@daily", "--tz", "Europe/Berln"], 2, "Europe/Berlin"),
        (["lst"], 2, "did you mean `corvo schedules list`?"),
        (["pause", "-"], 2, "list some:   corvo schedules -o id"),
    ],
)
def test_each_failure_has_its_exit_code_and_hint(
    server: Server, words: list[str], code: int, told: str
) -> None:
    made(server, "nearest")

    done = server.corvo("schedules", *words, CORVO_OUTPUT="table")

    assert done.code == code, done.err
    assert told in done.err
