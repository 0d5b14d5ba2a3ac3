"""Questions that one replica answers from its own state, and how old it says that this may be."""

import msgspec
import pytest

from corvo.protocol import wire
from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.queries import HERE, NUMBERS, AskHere, Explain, GetJobs, GetQueue, Here, Jobs
from tests.shard.replicas import Replicas, refusal

JOB_ID = "mail~one"
JOB = NewJob(queue="mail", id=JOB_ID)


def asked_here(group: Replicas, of: int, number: int, body: bytes) -> wire.Reply:
    query = AskHere(number=number, query=msgspec.Raw(body))
    request = group.ask(query, to=of)
    group.work(of)
    answer = group.answer(request, of=of)
    assert isinstance(answer, wire.Reply)
    return answer


def read_here(group: Replicas, of: int) -> tuple[list[str], int | None]:
    """The jobs that a replica has, and the time since its leader was heard."""
    body = encode_json(GetJobs(job_ids=[JOB_ID]))
    reply = asked_here(group, of, NUMBERS[GetJobs], body)
    assert not reply.code, reply.body
    assert reply.index == group.replicas[of].machine.applied
    here = msgspec.json.decode(reply.body, type=Here)
    found = msgspec.json.decode(here.answer, type=Jobs)
    return [job.id for job in found.jobs], here.contact_ms


def test_a_follower_answers_and_says_how_long_its_leader_was_silent() -> None:
    group = Replicas(3)
    group.put(JOB)

    fresh = read_here(group, 2)
    group.pass_time(700)
    older = read_here(group, 2)
    group.tick(3)
    group.settle()
    again = read_here(group, 2)

    assert fresh == ([JOB_ID], 0)
    assert older == ([JOB_ID], 700)
    assert again == ([JOB_ID], 0)
    assert read_here(group, 1) == ([JOB_ID], 0)


def test_a_replica_that_is_cut_off_answers_from_what_it_had() -> None:
    group = Replicas(3)
    group.cut_off[3] = None
    group.put(JOB)
    group.pass_time(5_000)

    cut_off = read_here(group, 3)

    assert cut_off == ([], 5_000)
    assert read_here(group, 2)[0] == [JOB_ID]


def test_a_candidate_and_its_votes_are_no_contact_with_a_leader() -> None:
    group = Replicas(3)
    group.put(JOB)
    group.cut_off.update({1: None, 3: None})
    for _ in range(8):
        group.pass_time(1_000)
        group.tick(5, 2)
        group.work(2)

    assert read_here(group, 2) == ([JOB_ID], 8_000)


def test_a_replica_without_a_state_refuses() -> None:
    group = Replicas(1, leads=False)
    body = encode_json(GetJobs(job_ids=[JOB_ID]))

    refused = refusal(asked_here(group, 1, NUMBERS[GetJobs], body))

    assert refused.code == "no_state"


def test_a_refusal_of_the_question_is_passed_on() -> None:
    group = Replicas()
    reply = asked_here(group, 1, NUMBERS[Explain], encode_json(Explain(job_id=JOB_ID)))

    assert reply.code == "job_not_found"


@pytest.mark.parametrize(
    ("number", "body", "code"),
    [
        (NUMBERS[GetQueue], b'{"queue":"mail"}', "unknown_query"),
        (NUMBERS[AskHere], b"{}", "unknown_query"),
        (999, b"{}", "unknown_query"),
        (NUMBERS[GetJobs], b'{"job_ids":1}', "bad_request"),
        (NUMBERS[GetJobs], b'{"job_ids":[],"more":1}', "bad_request"),
    ],
)
def test_other_questions_are_refused(number: int, body: bytes, code: str) -> None:
    group = Replicas()

    assert asked_here(group, 1, number, body).code == code
    assert NUMBERS[AskHere] not in HERE
