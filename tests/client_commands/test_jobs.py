"""`corvo search`, the actions on jobs, and `corvo bulk`, against a real server."""

import signal
from typing import Final

import msgspec
import pytest

from corvo.client_commands.jobs import DEEDS_BY_NAME
from corvo.client_commands.options import run
from corvo.client_commands.search import VERBS
from corvo.client_commands.session import Session
from tests.client.scripted import answer, scripted
from tests.client_commands.running import Server


class Job(msgspec.Struct):
    id: str
    queue: str
    state: str


class Tally(msgspec.Struct):
    processed: int
    affected: int
    skipped_total: int
    errors: int


def states(server: Server, ids: list[str]) -> set[str]:
    jobs = server.corvo("inspect", "-", "-o", "jsonl", given="\n".join(ids)).lines(Job)
    assert len(jobs) == len(ids)
    return {job.state for job in jobs}


def test_a_pipe_gets_every_job_and_a_terminal_the_first(server: Server) -> None:
    ids = server.enqueue("se-all", 1_150)

    piped = server.corvo("search", "--queue", "se-all")
    whole = server.corvo("search", "--queue", "se-all", "-o", "json").json(dict[str, list[Job]])
    shown = server.on_terminal("search", "--queue", "se-all")

    assert sorted(job.id for job in piped.lines(Job)) == sorted(ids)
    assert sorted(job.id for job in whole["jobs"]) == sorted(ids)
    lines = shown.out.splitlines()
    assert lines[0].split() == ["ID", "QUEUE", "STATE", "TRY", "AGE", "ERROR"]
    assert len(lines) == 1 + 50 + 2
    assert lines[-2] == "… 50 of 1,150 shown. --all for the rest, or act on them:"
    assert lines[-1] == "    corvo bulk retry --queue se-all"
    assert "\x1b" not in shown.out


def test_the_forms_of_a_search(server: Server) -> None:
    ids = sorted(server.enqueue("se-forms", 3, "--tag", "a=b,c"))
    words = ("search", "--queue", "se-forms")

    as_ids = server.corvo(*words, "-o", "id").out.split()
    as_json = server.corvo(*words, "-o", "json").json(dict[str, list[Job]])
    as_csv = server.corvo(*words, "-o", "csv").out.splitlines()
    as_table = server.corvo(*words, "-o", "table", "--no-headers").out.splitlines()
    count = server.corvo(*words, "--count")
    by_variable = server.corvo(*words, CORVO_OUTPUT="id").out.split()
    chosen = server.corvo(*words, "-o", "csv", "--fields", "queue,payload", "--sort", "created_at")

    assert sorted(as_ids) == sorted(by_variable) == ids
    assert sorted(job.id for job in as_json["jobs"]) == ids
    assert as_csv[0].startswith("id,queue,state,")
    assert '"a=b,c"' in as_csv[1]
    assert len(as_table) == 3
    assert msgspec.json.decode(count.out) == {"total": 3, "is_exact": True}
    assert sorted(chosen.out.splitlines()) == [
        "queue,payload",
        *(f"se-forms,{n}" for n in range(3)),
    ]


BEHIND: Final = {"jobs": [], "total": 3, "is_behind": True}


def test_a_pipe_waits_for_the_mirror() -> None:
    whole = {"jobs": [{"id": "a~1", "queue": "a", "state": "dead"}], "total": 1}
    present = answer(200, [], "Corvo-Seq: s0=9")
    with scripted(answer(200, BEHIND), present, answer(200, whole)) as late:
        done = Server(late.url).corvo("search", "-o", "id")

    assert (done.code, done.out) == (0, "a~1\n")


def test_a_count_waits_for_the_mirror() -> None:
    whole = {"jobs": [], "total": 4}
    with scripted(answer(200, BEHIND), answer(200, []), answer(200, whole)) as late:
        done = Server(late.url).corvo("search", "--count")

    assert (done.code, done.out) == (0, '{"total":4,"is_exact":true}\n')


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_mirror_that_stays_behind_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    monkeypatch.setattr(Session, "patience", lambda *_: lambda: False)
    monkeypatch.setattr(Session, "is_terminal", is_terminal)

    with scripted(answer(200, BEHIND)) as server:
        code = run("search", VERBS["search"], ["--server", server.url, "-o", "table"])
    said = capsys.readouterr()

    assert (code, said.out) == (0 if is_terminal else 6, "")
    wanted = "may be missing: the mirror is behind" if is_terminal else "--timeout 5m"
    assert wanted in said.err


def test_an_empty_search_is_valid_in_every_form(server: Server) -> None:
    words = ("search", "--queue", "se-none")

    assert server.corvo(*words, "-o", "json").json(dict[str, list[Job]]) == {"jobs": []}
    assert server.corvo(*words, "-o", "jsonl").out == ""
    assert server.corvo(*words, "-o", "table").out == ""


def test_held_is_a_search(server: Server) -> None:
    [job_id] = server.enqueue("se-held")
    server.corvo("hold", job_id, "--reason", "to be seen")

    found = server.corvo("held", "--queue", "se-held", "-o", "id")

    assert found.out.split() == [job_id]


@pytest.mark.parametrize(
    ("name", "words", "before", "after"),
    [
        ("cancel", [], "", "cancelled"),
        ("retry", [], "cancel", "pending"),
        ("hold", [], "", "held"),
        ("approve", [], "hold", "pending"),
        ("reject", ["--reason", "no"], "hold", "dead"),
        ("requeue", [], "hold reject", "pending"),
        ("move", ["ac-target"], "", "pending"),
        ("priority", ["high"], "", "pending"),
        ("expedite", [], "delay", "pending"),
    ],
)
def test_an_action_on_one_job_and_on_many(
    server: Server, name: str, words: list[str], before: str, after: str
) -> None:
    flags = ("--delay", "1h") if before == "delay" else ()
    ids = server.enqueue(f"ac-{name}", 3, *flags)
    for action in before.replace("delay", "").split():
        server.corvo(action, "-", "--yes", given="\n".join(ids))

    one = server.corvo(name, ids[0], *words)
    many = server.corvo(name, *ids[1:], *words, "--yes", "-o", "json")

    assert (one.code, many.code) == (0, 0), (one.err, many.err)
    assert one.out.startswith(f"{ids[0]} was {DEEDS_BY_NAME[name].done}")
    assert many.json(Tally) == Tally(processed=2, affected=2, skipped_total=0, errors=0)
    assert states(server, ids) == {after}


@pytest.mark.parametrize(("name", "words"), [("release", []), ("snooze", ["--delay", "1h"])])
def test_active_jobs_are_given_back(server: Server, name: str, words: list[str]) -> None:
    ids = server.enqueue(f"ac-{name}", 3)
    server.corvo("fetch", f"ac-{name}", "--count", "3")

    one = server.corvo(name, ids[0], *words)
    many = server.corvo(name, "-", *words, "--yes", "-o", "id", given="\n".join([*ids[1:], "a~b"]))

    assert (one.code, many.code) == (0, 7), (one.err, many.err)
    assert many.out.split() == ids[1:]
    assert states(server, ids) == {"pending" if name == "release" else "scheduled"}


def test_delete_asks_on_a_terminal_for_more_than_one(server: Server) -> None:
    ids = server.enqueue("ac-delete", 2)

    no = server.on_terminal("delete", *ids, typed=b"n\n")
    yes = server.on_terminal("delete", *ids, typed=b"y\n")

    assert (no.code, yes.code) == (2, 0)
    assert "acts on 2 jobs.\nDelete them? [y/N] " in no.out
    assert "deleted 2, skipped 0, errors 0\n" in yes.out
    assert server.corvo("inspect", ids[0]).code == 3


def test_a_move_can_reset_the_attempts_of_many(server: Server) -> None:
    ids = server.enqueue("ac-reset", 2)

    done = server.corvo("move", *ids, "ac-reset-2", "--reset-attempts", "--yes")

    assert done.out == "moved 2, skipped 0, errors 0\n"


def test_some_jobs_that_cannot_change_are_listed(server: Server) -> None:
    ids = server.enqueue("ac-some", 2)
    server.corvo("cancel", ids[0])

    partly = server.corvo("cancel", *ids, "--yes")
    none = server.corvo("cancel", *ids, "--yes")

    assert (partly.code, none.code) == (7, 5)
    assert "cancelled 1, skipped 1 (bad_state 1), errors 0\n" in partly.out
    assert f"skipped {ids[0]}: " in partly.err


# Bulk.


@pytest.mark.parametrize("form", ["id", "jsonl", "json"])
def test_a_search_is_piped_into_a_bulk(server: Server, form: str) -> None:
    ids = server.enqueue(f"bu-pipe-{form}", 3)
    found = server.corvo("search", "--queue", f"bu-pipe-{form}", "-o", form).out

    done = server.corvo("bulk", "cancel", "-", "--yes", "-o", "json", given=found)

    assert done.json(Tally) == Tally(processed=3, affected=3, skipped_total=0, errors=0)
    assert states(server, ids) == {"cancelled"}


def test_a_bulk_without_a_dash_reads_the_pipe_as_corvo_go_does(server: Server) -> None:
    ids = server.enqueue("bu-old", 2)

    done = server.corvo("bulk", "move", "bu-new", "--yes", given="\n".join(ids))

    assert done.out == "moved 2, skipped 0, errors 0\n"


def test_a_bulk_by_filter_is_previewed_and_run(server: Server) -> None:
    ids = server.enqueue("bu-filter", 5)
    words = ("bulk", "cancel", "--queue", "bu-filter")

    dry = server.corvo(*words, "--dry-run", "-o", "json").json(dict[str, object])
    text = server.corvo(*words, "--dry-run").out
    refused = server.corvo(*words)
    kept = states(server, ids)
    done = server.corvo(*words, "--yes", "--filter", '{"state": ["pending"]}')
    listed = server.corvo("bulk", "list", "-o", "json").json(dict[str, list[dict[str, object]]])

    assert (dry["total"], dry["would_affect"]) == (5, 5)
    assert "would change  5\n" in text
    assert "it changes 5 of them. Without a terminal, this needs --yes" in refused.err
    assert kept == {"pending"}
    assert (done.code, done.out) == (0, "cancelled 5, skipped 0, errors 0\n")
    assert states(server, ids) == {"cancelled"}
    assert listed["bulks"][0]["action"] == "cancel"


def test_a_dry_run_of_a_pipe_counts_all_batches(server: Server) -> None:
    ids = server.enqueue("bu-dry", 4)

    done = server.corvo("bulk", "retry", "-", "--dry-run", given="\n".join(ids))

    assert "jobs          4\n" in done.out
    assert "states        4 pending\n" in done.out
    assert states(server, ids) == {"pending"}


def test_a_detached_bulk_is_watched_and_stopped(server: Server) -> None:
    server.enqueue("bu-slow", 40)
    words = ("bulk", "cancel", "--queue", "bu-slow", "--rate", "1", "--yes", "--detach")

    bulk_id = server.corvo(*words, "-o", "id").out.strip()
    with server.start("bulk", "watch", bulk_id) as watching:
        stopped = server.corvo("bulk", "stop", bulk_id)
        out, _ = watching.communicate()

    assert stopped.out.startswith(f"{bulk_id} is ")
    assert watching.returncode == 7
    assert "status     cancelled\n" in out


def test_ctrl_c_says_what_continues(server: Server) -> None:
    server.enqueue("bu-int", 40)
    words = ("bulk", "cancel", "--queue", "bu-int", "--rate", "1", "--yes")
    before = server.corvo("bulk", "list", "-o", "id").out.split()

    with server.start(*words) as process:
        while server.corvo("bulk", "list", "-o", "id").out.split() == before:
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    bulk_id = next(line.split()[-1] for line in err.splitlines() if "bulk watch" in line)
    server.corvo("bulk", "stop", bulk_id)

    assert process.returncode == 130
    assert "interrupted: changed 0, skipped 0, errors 0, of 0 jobs" in err
    assert f"stop it:   corvo bulk stop {bulk_id}" in err
