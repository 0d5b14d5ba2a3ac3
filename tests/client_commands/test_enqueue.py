"""`corvo enqueue` and `corvo inspect`, against a real server."""

from pathlib import Path

import msgspec
import pytest

from corvo.client.errors import BadClientOption
from corvo.client_commands.enqueue import backoff_of, with_set
from tests.client_commands.running import Server


class Job(msgspec.Struct):
    id: str
    queue: str
    state: str
    payload: msgspec.Raw
    max_retries: int = 0
    priority: int = 2
    retry_backoff: str = ""
    retry_base_delay_ms: int = 0
    unique_key: str = ""
    tags: dict[str, str] = {}
    traceparent: str = ""
    tracestate: str = ""


def inspected(server: Server, job_id: str) -> Job:
    return server.corvo("inspect", job_id, "-o", "json").json(Job)


def test_a_job_is_in_the_trace_in_which_the_command_runs(server: Server) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    traced = server.corvo("enqueue", "en-trace", "-o", "id", TRACEPARENT=parent, TRACESTATE="a=b")
    plain = server.corvo("enqueue", "en-trace", "-o", "id", TRACEPARENT="none of ours\n")
    jobs = [inspected(server, done.out.split()[0]) for done in (traced, plain)]

    assert [(job.traceparent, job.tracestate) for job in jobs] == [(parent, "a=b"), ("", "")]


def test_a_job_with_every_common_flag(server: Server) -> None:
    flags = ["--priority", "high", "--delay", "1h", "--unique", "u-1", "--retries", "7"]
    more = ["--backoff", "exp:2s..1m", "--tag", "a=b", "--tags", '{"c": "d"}', "--expire", "2d"]

    done = server.corvo("enqueue", "en-flags", '{"n": 1.50}', *flags, *more, "-o", "id")
    job = inspected(server, done.out.strip())

    assert (job.state, job.priority, job.max_retries) == ("scheduled", 1, 7)
    assert (job.retry_backoff, job.retry_base_delay_ms) == ("exponential", 2_000)
    assert (job.unique_key, job.tags) == ("u-1", {"a": "b", "c": "d"})
    assert msgspec.json.format(bytes(job.payload), indent=-1) == b'{"n":1.50}'


def test_people_read_a_sentence_and_programs_the_answer(server: Server) -> None:
    told = server.on_terminal("enqueue", "en-forms", "{}", "--id", "one")
    again = server.corvo("enqueue", "en-forms", "{}", "--id", "one", "-o", "json")
    line = server.corvo("enqueue", "en-forms", "-o", "jsonl")

    assert told.out == (
        "en-forms~one was enqueued in en-forms (pending)\n  next:   corvo inspect en-forms~one\n"
    )
    assert again.json(dict[str, object])["unique_existing"] is True
    assert line.out.count("\n") == 1


def test_the_payload_comes_from_a_file_or_from_set(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"to": "ada"}\n')
    words = ["--set", "to=bob", "--set", "n:=5", "--set", "at.home:=true", "-o", "id"]

    of_file = server.corvo("enqueue", "en-set", f"@{file}", "-o", "id").out.strip()
    of_set = server.corvo("enqueue", "en-set", f"@{file}", *words).out.strip()

    assert msgspec.json.decode(inspected(server, of_file).payload) == {"to": "ada"}
    wanted = {"to": "bob", "n": 5, "at": {"home": True}}
    assert msgspec.json.decode(inspected(server, of_set).payload) == wanted


def test_lines_of_a_pipe_are_jobs_in_batches(server: Server) -> None:
    ids = server.enqueue("en-lines", 1_201)
    some = server.corvo("inspect", "-", "-o", "jsonl", given="\n".join(ids)).lines(Job)

    assert len({*ids}) == 1_201
    assert [job.id for job in some] == ids
    assert [bytes(job.payload) for job in some] == [str(n).encode() for n in range(1_201)]


def test_lines_can_be_whole_jobs(server: Server) -> None:
    given = '{"queue": "en-other", "payload": 1}\n\n{"payload": 2, "max_retries": 9}\n'

    done = server.corvo("enqueue", "en-whole", "-", "--jobs", "--retries", "4", given=given)
    jobs = server.corvo("search", "--payload-jq", ". == 2", "--queue", "en-whole").lines(Job)

    assert (done.out, done.err) == ("enqueued 2 jobs\n", "")
    assert [job.max_retries for job in jobs] == [9]


def test_a_wrong_line_says_its_number_and_how_to_continue(server: Server) -> None:
    done = server.corvo("enqueue", "en-wrong", "-", given="1\n" * 500 + "2\n{oops\n")

    assert done.code == 2
    assert "error: line 502 of stdin is not JSON" in done.err
    assert "lines up to 500 were enqueued: 500 jobs" in done.err
    assert "tail -n +501 FILE | corvo enqueue ... -" in done.err


def test_wait_shows_the_result_of_the_job(server: Server) -> None:
    with server.start("enqueue", "en-wait", "{}", "--wait", "50s", "-o", "table") as process:
        job_id = ""
        while not job_id:
            job_id = server.corvo("fetch", "en-wait", "--wait", "20s", "-o", "id").out.strip()
        server.corvo("ack", job_id, "--result", '{"pages": 12}')
        out, err = process.communicate()

    assert (process.returncode, out) == (0, '{"pages":12}\n')
    assert f"{job_id} was enqueued" in err


def test_another_job_under_a_known_id_is_a_conflict(server: Server) -> None:
    server.corvo("enqueue", "en-id", "1", "--id", "a")
    done = server.corvo("enqueue", "en-id", "2", "--id", "a")

    assert done.code == 5
    assert "ID_REUSED, exit 5" in done.err


def test_inspect_shows_people_everything(server: Server) -> None:
    job_id = server.corvo("enqueue", "en-look", '{"to": "ada"}', "-o", "id").out.strip()
    told = server.on_terminal("inspect", job_id).out
    fields = server.corvo("inspect", job_id, "-o", "jsonl", "--fields", "state,payload.to").out

    assert f"id        {job_id}\n" in told
    assert 'payload:\n  {\n    "to": "ada"\n  }\n' in told
    assert fields == '{"state":"pending","payload.to":"ada"}\n'


def test_backoffs() -> None:
    assert backoff_of("none") == {"retry_backoff": "none"}
    assert backoff_of("linear:5s") == {"retry_backoff": "linear", "retry_base_delay": "5s"}
    with pytest.raises(BadClientOption):
        backoff_of("exp:")


def test_set_needs_objects() -> None:
    with pytest.raises(BadClientOption):
        with_set(msgspec.Raw(b"[1]"), ["a=b"])
    with pytest.raises(BadClientOption):
        with_set(None, ["a=b", "a.c=d"])
