"""`corvo queues`, the actions on queues, `corvo workers` and `corvo status`."""

import msgspec
import pytest

from tests.client_commands.running import Server


class Queue(msgspec.Struct):
    name: str
    paused: bool
    pending: int


def queue(server: Server, name: str) -> Queue:
    [found] = server.corvo("queues", name, "-o", "jsonl").lines(Queue)
    return found


def test_the_forms_of_the_list(server: Server) -> None:
    server.enqueue("qu-forms", 2)

    shown = server.on_terminal("queues", "qu-f*").out.splitlines()
    piped = server.corvo("queues", "qu-f*").lines(Queue)
    names = server.corvo("queues", "-o", "id").out.split()
    whole = server.corvo("queues", "qu-forms", "--output-json").json(dict[str, list[Queue]])

    assert shown[0].split()[:4] == ["QUEUE", "STATE", "PENDING", "ACTIVE"]
    assert shown[1].split()[:4] == ["qu-forms", "running", "2", "0"]
    assert piped == whole["queues"] == [Queue("qu-forms", paused=False, pending=2)]
    assert "qu-forms" in names


def test_pause_and_resume_say_what_is_now_true(server: Server) -> None:
    server.enqueue("qu-pause")

    paused = server.on_terminal("pause", "qu-pause").out
    was = queue(server, "qu-pause").paused
    resumed = server.corvo("resume", "qu-pause", "-o", "json").json(dict[str, str])

    assert paused == "qu-pause is paused: no job is fetched\n  next:   corvo resume qu-pause\n"
    assert was
    assert resumed["queue"] == "qu-pause"
    assert not queue(server, "qu-pause").paused


def test_drain_waits_for_active_jobs(server: Server) -> None:
    [job_id] = server.enqueue("qu-drain")
    server.corvo("fetch", "qu-drain")

    late = server.corvo("drain", "qu-drain", "--wait", "1ms")
    server.corvo("ack", job_id)
    done = server.corvo("drain", "qu-drain", "--wait", "20s")

    assert (late.code, done.code) == (8, 0)
    assert "qu-drain has 1 active job" in late.err
    assert done.out == "qu-drain is drained: it has no active jobs\n"


@pytest.mark.parametrize("flags", [["--confirm"], ["--confirm", "{}"], ["--yes"]])
def test_clear_and_destroy_need_a_confirmation(server: Server, flags: list[str]) -> None:
    name = f"qu-gone-{len(''.join(flags))}"
    server.enqueue(name, 3)
    words = [flag.replace("{}", name) for flag in flags]

    refused = server.corvo("destroy", name)
    other = server.corvo("destroy", name, "--confirm", "other")
    cleared = server.corvo("clear", name, *words)
    left = queue(server, name).pending
    destroyed = server.corvo("destroy", name, *words)

    assert (refused.code, other.code) == (2, 2)
    assert f"the queue {name} and its 3 jobs will be deleted" in refused.err
    assert f"confirm it:   corvo destroy {name} --yes" in refused.err
    assert (cleared.out, left) == (f"{name} has no waiting jobs\n", 0)
    assert destroyed.out == f"{name} is deleted\n"
    assert server.corvo("queues", name).code == 3


@pytest.mark.parametrize("name", ["pause", "resume", "drain", "clear", "destroy", "queues"])
def test_an_unknown_queue_is_answered_with_the_nearest_name(server: Server, name: str) -> None:
    server.enqueue("qu-nearest")

    done = server.corvo(name, "qu-naerest")

    assert done.code == 3
    assert "error: queue 'qu-naerest' does not exist\n  did you mean:   qu-nearest\n" in (
        done.err if done.err.startswith("error:") else told(done.err)
    )


def told(err: str) -> str:
    """An error in JSON as the text for people."""
    error = msgspec.json.decode(err, type=dict[str, dict[str, object]])["error"]
    hints = error["hints"]
    assert isinstance(hints, list)
    return f"error: {error['message']}\n" + "".join(f"  {hint}\n" for hint in hints)


def test_status_has_counts_and_its_exit_code(server: Server) -> None:
    server.enqueue("qu-status", 4)

    while (shown := server.on_terminal("status")).code == 10:
        pass  # a shard has answered too late
    while server.corvo("status").code == 10:
        pass
    whole = server.corvo("status", "-o", "json").json(dict[str, dict[str, object]])
    text = server.corvo("status").out

    assert shown.code == 0
    assert shown.out.startswith("status: healthy\n2 shards, ")
    assert text.startswith("status: healthy\n")
    assert whole["cluster"]["status"] == "healthy"
    assert "queues" in whole["summary"]


def test_workers(server: Server) -> None:
    server.corvo("fetch", "qu-workers", "--wait", "1ms", "--worker-id", "raven")

    ids = server.corvo("workers", "-o", "id").out.split()
    shown = server.on_terminal("workers").out.splitlines()
    piped = server.corvo("workers").lines(dict[str, object])

    assert "raven" in ids
    assert shown[0].split()[:3] == ["WORKER", "STATE", "ACTIVE"]
    assert "raven" in {one["id"] for one in piped}


@pytest.mark.parametrize("words", [["queues"], ["status"], ["workers"], ["pause", "x"]])
def test_no_server_is_an_exit_code_and_a_hint(server: Server, words: list[str]) -> None:
    done = server.corvo(
        *words, "--server", "127.0.0.1:1", "-o", "table" if words[0] != "pause" else "json"
    )

    assert done.code == 6
    assert "is a server running there?   corvo server, or corvo dev" in done.err
