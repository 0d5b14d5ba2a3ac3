"""`corvo events`, `batches`, `dead` and `keys`, against a real server."""

import json
import signal
from typing import Final

import msgspec

from corvo.client.events import Message, messages
from tests.client.scripted import answer, scripted
from tests.client_commands.running import Server

PLACES: Final = ((1, 0), (1, 1), (1, 0), (1, 1), (2, 0))


class Event(msgspec.Struct):
    type: str
    queue: str
    job_id: str = ""


def test_events_of_the_past_in_each_form(server: Server) -> None:
    ids = server.enqueue("li-events", 2)
    server.corvo("cancel", ids[0])
    words = ("events", "--queue", "li-events", "--types", "enqueued,cancelled")

    piped = server.corvo(*words).lines(Event)
    shown = server.on_terminal(*words, "--since", "1h").out.splitlines()
    as_ids = server.corvo(*words, "-o", "id", "--types", "cancelled").out.split()

    assert [event.type for event in piped] == ["enqueued", "enqueued", "cancelled"]
    assert shown[0].split() == ["AT", "TYPE", "QUEUE", "JOB", "STATE", "BY", "WHY"]
    assert shown[-1].split()[1:4] == ["cancelled", "li-events", ids[0]]
    assert as_ids == [ids[0]]


def test_events_are_followed_and_continued(server: Server) -> None:
    server.enqueue("li-follow")
    words = ("events", "-f", "--queue", "li-follow", "--types", "enqueued")

    with server.start(*words, "--since", "1h") as process:
        assert process.stdout is not None
        first = msgspec.json.decode(process.stdout.readline(), type=Event)
        [second_id] = server.enqueue("li-follow")
        second = msgspec.json.decode(process.stdout.readline(), type=Event)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

    assert (first.type, second.job_id) == ("enqueued", second_id)
    assert process.returncode == 130
    assert "continue:   corvo events -f --from '" in err


def test_events_that_are_gone_say_where_to_start() -> None:
    with scripted(answer(410, {"code": "GONE", "error": "no longer stored"})) as server:
        done = Server(server.url).corvo("events", "--from", "s0=1-0", "-o", "table")

    assert done.code == 1
    assert "start at the present:   corvo events -f" in done.err


def test_events_that_come_again_are_written_once() -> None:
    events = [{"shard": 0, "seq": seq, "number": n, "type": "dead"} for seq, n in PLACES]
    body = "".join(f"id: 5\ndata: {json.dumps(event)}\n\n" for event in events)
    with scripted(answer(200, body.encode(), closes=True)) as server:
        done = Server(server.url).corvo("events", "--since", "1h")

    found = [(event["seq"], event["number"]) for event in done.lines(dict[str, object])]
    assert found == [(1, 0), (1, 1), (2, 0)]


def test_messages_are_cut_at_empty_lines() -> None:
    lines = [b"retry: 2000\n", b"id: 1\n", b"\n", b": alive\n", b"\n"]
    more = [b"id: 2\n", b"event: x\n", b"data: {\n", b"data: }\n", b"\n", b"id: 3\n", b"data: c\n"]

    found = list(messages([*lines, *more]))

    assert found == [Message(b"", "1"), Message(b"", "1"), Message(b"{\n}", "2")]


def test_dead_jobs_and_how_to_retry_them(server: Server) -> None:
    [job_id] = server.enqueue("li-dead")
    server.corvo("fetch", "li-dead")
    server.corvo("fail", job_id, "--error", "boom", "--no-retry")

    shown = server.on_terminal("dead", "li-dead").out
    piped = server.corvo("dead", "li-dead", "-o", "id").out.split()
    whole = server.corvo("dead", "li-dead", "-o", "json").json(dict[str, list[dict[str, object]]])

    assert piped == [job_id]
    assert whole["jobs"][0]["last_error"] == "boom"
    assert "  retry them:   corvo bulk retry --state dead --queue li-dead\n" in shown


def test_batches(server: Server) -> None:
    body = {"jobs": [{"queue": "li-batch"}] * 2, "batch": {"callback_queue": "li-done"}}
    batch_id = made_batch(server, body)

    listed = server.corvo("batches", "-o", "id").out.split()
    shown = server.corvo("batches", batch_id, "-o", "table").out
    whole = server.corvo("batches", batch_id, "-o", "json").json(dict[str, object])
    lines = server.corvo("batches", batch_id).lines(dict[str, object])

    assert batch_id in listed
    assert "callback   li-done\n" in shown
    assert f"its jobs:   corvo search --batch-id {batch_id}\n" in shown
    assert (whole["total"], lines[0]["total"]) == (2, 2)


def made_batch(server: Server, body: object) -> str:
    from corvo.client.calls import Client, read  # noqa: PLC0415 -- only needed here
    from corvo.client.jobs import EnqueuedMany  # noqa: PLC0415 -- as above

    with Client([server.url], api_key=server.api_key) as client:
        return read(client.change("POST", "/api/v1/enqueue/batch", body), EnqueuedMany).batch_id


def test_keys_are_created_listed_and_deleted(server: Server) -> None:
    made = server.corvo("keys", "create", "raven", "--role", "worker", "--expires", "90d")
    text = server.corvo("keys", "status", CORVO_API_KEY=made.out.strip())
    listed = server.corvo("keys", "list").lines(dict[str, object])
    shown = server.on_terminal("keys", "list").out
    refused = server.corvo("keys", "delete", "raven")
    deleted = server.corvo("keys", "delete", "raven", "--yes")
    late = server.corvo("queues", CORVO_API_KEY=made.out.strip(), CORVO_OUTPUT="table")

    assert "is shown only this once" in made.err
    assert "this request: raven (worker)\n" in text.out
    assert "raven" in {one["name"] for one in listed}
    assert shown.split()[:5] == ["NAME", "ROLE", "QUEUES", "ENABLED", "EXPIRES"]
    assert "confirm it:   corvo keys delete raven --yes" in refused.err
    assert (deleted.code, deleted.out) == (0, "the API key raven was deleted\n")
    assert late.code == 4
    assert "pass an API key:   CORVO_API_KEY, or --api-key @FILE" in late.err
