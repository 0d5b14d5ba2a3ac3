"""Agents: jobs that loop until they are done, or somebody has to look."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.model import Agent, State
from corvo.protocol.ops.base import Limits, Rejected
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Approve, Cancel
from corvo.protocol.ops.work import Ack, Acked, AckItem, Fail, FailItem, Usage
from corvo.protocol.ops.workflow import AgentStatus, Chain, NewAgent, Step
from corvo.shard.ops import NUMBERS, admit
from tests.shard.shard import Shard

AGENT: Final = NewJob(queue="mail", agent=NewAgent())


@pytest.fixture
def shard() -> Shard:
    return Shard(shards=1)


def put(shard: Shard, **limits: int) -> str:
    [job_id] = shard.put(NewJob(queue="mail", agent=replace(NewAgent(), **limits)))
    return job_id


def ack(
    shard: Shard, status: AgentStatus | None, cost: int = 0, **fields: object
) -> Acked | Rejected:
    """Fetch the next job, and say how it goes on."""
    [claim] = shard.fetch()
    item = AckItem(
        job_id=claim.job_id,
        lease_token=claim.lease_token,
        agent_status=status,
        usage=Usage(cost_micros=cost),
    )
    [result] = shard.do(Ack(acks=[replace(item, **fields)])).results  # type: ignore[arg-type]
    return result


def agent(shard: Shard, job_id: str) -> Agent:
    it = shard.job(job_id).agent
    assert it is not None
    return it


def test_an_agents_job_that_continues_is_behind_the_others_with_all_its_attempts(
    shard: Shard,
) -> None:
    job = put(shard)
    [other] = shard.put(NewJob(queue="mail"))

    result = ack(
        shard,
        AgentStatus.CONTINUE,
        cost=7,
        checkpoint=msgspec.Raw(b'"half"'),
        result=msgspec.Raw(b"1"),
    )

    assert result == Acked(job, "pending")
    after = shard.job(job)
    assert (after.state, after.attempt, after.checkpoint) == (State.PENDING, 0, b'"half"')
    assert after.agent == Agent(iteration=2, total_cost_micros=7)
    claims = shard.fetch(count=2)
    assert [claim.job_id for claim in claims] == [other, job]
    assert claims[1].agent is not None
    assert claims[1].agent.iteration == 2
    shard.check()
    shard.check_replay()


def test_many_iterations_leave_an_agent_its_attempts(shard: Shard) -> None:
    [job] = shard.put(replace(AGENT, max_retries=2))
    for _ in range(10):
        ack(shard, AgentStatus.CONTINUE)
    shard.fetch()

    [result] = shard.do(Fail(fails=[FailItem(job_id=job)])).results

    assert not isinstance(result, Rejected)
    assert result.status == "retrying"


@pytest.mark.parametrize("status", [None, AgentStatus.DONE])
def test_an_agents_job_without_another_word_is_completed(
    shard: Shard, status: AgentStatus | None
) -> None:
    job = put(shard)

    result = ack(shard, status, cost=5)

    assert result == Acked(job, "completed")
    assert agent(shard, job) == Agent(iteration=1, total_cost_micros=5)


def test_an_agents_job_is_held_for_as_long_as_nobody_approves(shard: Shard) -> None:
    job = put(shard)

    result = ack(shard, AgentStatus.HOLD, hold_reason="may I?", cost=3)

    assert result == Acked(job, "held")
    held = shard.job(job)
    assert (held.state, held.hold_reason) == (State.HELD, "may I?")
    assert agent(shard, job) == Agent(iteration=1, total_cost_micros=3)
    shard.do(Approve(job_ids=[job]))
    assert [(claim.job_id, claim.attempt) for claim in shard.fetch()] == [(job, 1)]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_iterations": 2}, "max_iterations"), ({"max_cost_micros": 15}, "max_cost")],
    ids=["iterations", "cost"],
)
def test_an_agent_beyond_its_limit_is_held(
    shard: Shard, limits: dict[str, int], reason: str
) -> None:
    job = put(shard, **limits)

    within = ack(shard, AgentStatus.CONTINUE, cost=10)
    beyond = ack(shard, AgentStatus.CONTINUE, cost=10)

    assert (within, beyond) == (Acked(job, "pending"), Acked(job, "held"))
    assert shard.job(job).hold_reason == reason


def test_at_its_limits_exactly_an_agent_goes_on(shard: Shard) -> None:
    put(shard, max_iterations=2, max_cost_micros=10)

    result = ack(shard, AgentStatus.CONTINUE, cost=10)

    assert isinstance(result, Acked)
    assert result.status == "pending"


@pytest.mark.parametrize("status", AgentStatus)
def test_the_word_is_refused_for_other_jobs_and_others_of_the_op_are_done(
    shard: Shard, status: AgentStatus
) -> None:
    plain, looping = *shard.put(NewJob(queue="mail")), put(shard)
    shard.fetch(count=2)
    items = [AckItem(job_id=job, agent_status=status) for job in (plain, looping)]

    refused, done = shard.do(Ack(acks=items)).results

    assert isinstance(refused, Rejected)
    assert (refused.code, refused.job_id) == ("not_an_agent", plain)
    assert shard.state(plain) is State.ACTIVE
    assert isinstance(done, Acked)


@pytest.mark.parametrize("status", [AgentStatus.CONTINUE, AgentStatus.HOLD])
def test_the_same_word_again_answers_the_same_and_does_nothing(
    shard: Shard, status: AgentStatus
) -> None:
    job = put(shard)
    [claim] = shard.fetch()
    item = AckItem(job_id=job, lease_token=claim.lease_token, agent_status=status)

    [first] = shard.do(Ack(acks=[item])).results
    before = shard.job(job)
    [second] = shard.do(Ack(acks=[item])).results

    assert first == second
    assert shard.job(job) == before


@pytest.mark.parametrize("status", [AgentStatus.CONTINUE, AgentStatus.HOLD])
def test_an_agent_that_was_asked_to_stop_stops_between_iterations(
    shard: Shard, status: AgentStatus
) -> None:
    job = put(shard, max_iterations=1)
    [claim] = shard.fetch()
    shard.do(Cancel(job_ids=[job]))

    item = AckItem(job_id=job, lease_token=claim.lease_token, agent_status=status)
    results = [shard.do(Ack(acks=[item])).results for _ in range(2)]

    assert results == [[Acked(job, "cancelled")]] * 2
    assert shard.job(job).trail[-1].why == "asked to stop"


def test_a_chain_goes_on_when_its_agent_is_done_and_not_before(shard: Shard) -> None:
    chain = Chain(steps=[Step("mail"), Step("next")])
    shard.put(replace(AGENT, chain=chain))

    ack(shard, AgentStatus.CONTINUE)
    before = shard.counts("next")
    ack(shard, AgentStatus.DONE)

    assert before == {}
    assert shard.counts("next") == {State.PENDING: 1}


@given(st.lists(st.integers(0, 2**53 - 1), max_size=8))
def test_the_cost_is_the_sum_of_what_was_said(costs: list[int]) -> None:
    shard = Shard(shards=1)
    job = put(shard)

    for cost in costs:
        ack(shard, AgentStatus.CONTINUE, cost=cost)

    assert agent(shard, job) == Agent(iteration=len(costs) + 1, total_cost_micros=sum(costs))
    shard.check()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"jobs":[{"queue":"q","agent":{"max_iterations":-1}}]}', "agent.max_iterations"),
        (b'{"jobs":[{"queue":"q","agent":{"max_cost_micros":9007199254740992}}]}', "max_cost"),
    ],
)
def test_what_is_wrong_with_an_agent_is_named_at_the_door(body: bytes, field: str) -> None:
    refused = admit(NUMBERS[Enqueue], body, Limits())

    assert isinstance(refused, Rejected)
    assert (refused.code, field in refused.field) == ("bad_request", True)


@pytest.mark.parametrize("word", ["maybe", "", "CONTINUE"])
def test_an_unknown_word_is_refused_at_the_door(word: str) -> None:
    body = msgspec.json.encode({"acks": [{"job_id": "j", "agent_status": word}]})

    refused = admit(NUMBERS[Ack], body, Limits())

    assert isinstance(refused, Rejected)
    assert refused.code == "bad_request"
