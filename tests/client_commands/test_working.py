"""`corvo fetch`, `ack`, `fail`, `heartbeat`, `wait` and `explain`, against a real server."""

import msgspec

from tests.client.scripted import CLOSE, scripted
from tests.client_commands.running import Server


class Leased(msgspec.Struct):
    job_id: str
    lease_token: int


class Job(msgspec.Struct):
    id: str
    state: str
    result: msgspec.Raw = msgspec.Raw(b"null")
    last_error: str = ""


def fetched(server: Server, queue: str, count: int = 1) -> list[Leased]:
    return server.corvo("fetch", queue, "--count", str(count)).lines(Leased)


def inspected(server: Server, job_id: str) -> Job:
    return server.corvo("inspect", job_id, "-o", "json").json(Job)


def test_a_job_is_fetched_renewed_and_completed(server: Server) -> None:
    server.enqueue("wo-one")

    [job] = fetched(server, "wo-one")
    words = (job.job_id, "--lease-token", str(job.lease_token))
    renewed = server.corvo("heartbeat", *words, "--progress", '{"current": 1}')
    done = server.corvo("ack", *words, "--result", '{"pages": 12}')
    late = server.corvo("heartbeat", *words)

    assert renewed.out.startswith(f"{job.job_id}: ok 2")
    assert done.out == f"{job.job_id} is completed\n"
    assert (inspected(server, job.job_id).state, late.code) == ("completed", 0)


def test_jobs_of_a_pipe_are_completed_with_their_tokens(server: Server) -> None:
    server.enqueue("wo-many", 3)

    jobs = server.corvo("fetch", "wo-many", "--count", "5").out
    jobs = jobs.replace("}\n", ',"checkpoint":{"page":4},"result":[1]}\n')
    done = server.corvo("ack", "-", "-o", "id", given=jobs)
    again = server.corvo("fail", "-", "-o", "json", given=jobs)

    assert len(done.out.split()) == 3
    assert bytes(inspected(server, done.out.split()[0]).result).split() == [b"[", b"1", b"]"]
    assert (again.code, again.json(dict[str, int])) == (5, {"failed": 0, "refused": 3})


def test_a_wrong_token_is_a_conflict(server: Server) -> None:
    server.enqueue("wo-token")
    [job] = fetched(server, "wo-token")

    ack = server.corvo("ack", job.job_id, "--lease-token", "1")
    heartbeat = server.corvo("heartbeat", job.job_id, "--lease-token", "1")

    assert (ack.code, heartbeat.code) == (5, 9)
    assert "LEASE_LOST, exit 5" in ack.err
    assert "stop working on these jobs" in heartbeat.err


def test_a_failed_attempt_has_its_reason(server: Server) -> None:
    server.enqueue("wo-fail")
    [job] = fetched(server, "wo-fail")

    done = server.corvo("fail", job.job_id, "--error", "no such mailbox", "--no-retry")

    assert done.out == f"{job.job_id} is dead\n"
    assert inspected(server, job.job_id).last_error == "no such mailbox"


def test_no_job_is_an_exit_code(server: Server) -> None:
    done = server.corvo("fetch", "wo-none")

    assert (done.code, done.out, done.err) == (8, "", "no job is available\n")


def test_a_fetch_without_an_answer_can_be_repeated() -> None:
    with scripted(CLOSE) as silent:
        done = Server(silent.url).corvo("fetch", "a", "-o", "table")

    assert done.code == 6
    assert "  fetch again: the server takes back jobs whose connection has ended\n" in done.err
    assert "may have taken effect" not in done.err


def test_wait_has_an_exit_code_for_each_end(server: Server) -> None:
    ids = server.enqueue("wo-wait", 2)
    jobs = fetched(server, "wo-wait", 2)
    late = server.corvo("wait", *ids, "--within", "1ms")
    server.corvo("ack", jobs[0].job_id)
    server.corvo("fail", jobs[1].job_id, "--error", "boom", "--no-retry")

    done = server.corvo("wait", jobs[0].job_id, "-o", "id")
    dead = server.corvo("wait", *ids, CORVO_OUTPUT="table")
    none = server.corvo("wait", "wo-none~1")
    piped = server.corvo("wait", "-", given=f"{jobs[0].job_id}\n")

    assert (late.code, done.code, dead.code, none.code, piped.code) == (8, 0, 9, 3, 0)
    assert done.out == f"{jobs[0].job_id}\n"
    assert f"job {jobs[1].job_id} is dead: boom\n" in dead.err
    assert f"try again:   corvo retry {jobs[1].job_id}" in dead.err


def test_explain_says_why_a_job_does_not_start(server: Server) -> None:
    [job_id] = server.enqueue("wo-why", 1, "--delay", "1h")

    text = server.corvo("explain", job_id)
    told = server.corvo("explain", job_id, "-o", "json").json(dict[str, object])
    none = server.corvo("explain", "wo-none~1")

    assert text.out.startswith(f"{job_id} is scheduled: ")
    assert told["code"]
    assert none.code == 3
