"""Agents: jobs that loop. An ack ends such a job, continues it, or holds it for a person."""

from typing import Final, TypedDict, Unpack

from msgspec.structs import replace

from corvo.kv.tables import Held
from corvo.model import Agent, EventType, Job, Settled, State
from corvo.protocol.reasons import STOPPED
from corvo.shard.state import lifecycle
from corvo.shard.state.tx import Tx

MAX_ITERATIONS: Final = "max_iterations"
MAX_COST: Final = "max_cost"
"""Reason of a job that is held because it would loop beyond its limit."""
_COST_MAX: Final = 1 << 62


class Output(TypedDict):
    """What the worker sent at the end of an iteration."""

    result: bytes
    checkpoint: bytes


def spend(agent: Agent, cost_micros: int) -> Agent:
    """An agent after a run that cost something."""
    return replace(agent, total_cost_micros=min(agent.total_cost_micros + cost_micros, _COST_MAX))


def go_on(tx: Tx, found: Held[Job], agent: Agent, **output: Unpack[Output]) -> Job:
    """An iteration is done and the next one may begin, unless that is beyond a limit.

    It begins with all attempts: a finished iteration uses up none.
    """
    job = found.document
    agent = replace(agent, iteration=agent.iteration + 1)
    if job.cancel_requested:
        return _cancel(tx, found, agent, **output)
    over = _limit_passed(agent)
    if over:
        return hold(tx, found, agent, reason=over, **output)
    return lifecycle.make_pending(
        tx,
        found,
        what=EventType.CONTINUED,
        attempt=0,
        crashes=0,
        agent=agent,
        settled=Settled(job.lease_token, "ack", State.PENDING),
        **output,
    )


def hold(tx: Tx, found: Held[Job], agent: Agent, *, reason: str, **output: Unpack[Output]) -> Job:
    """An iteration is done, and a person decides whether there is another."""
    job = found.document
    if job.cancel_requested:
        return _cancel(tx, found, agent, **output)
    return lifecycle.hold(
        tx,
        found,
        reason=reason,
        settled=Settled(job.lease_token, "ack", State.HELD),
        attempt=0,
        crashes=0,
        agent=agent,
        **output,
    )


def _cancel(tx: Tx, found: Held[Job], agent: Agent, **output: Unpack[Output]) -> Job:
    """The worker gives back a job that was asked to stop: the job is cancelled."""
    return lifecycle.finish(
        tx,
        found,
        State.CANCELLED,
        what=EventType.CANCELLED,
        why=STOPPED,
        agent=agent,
        settled=Settled(found.document.lease_token, "ack", State.CANCELLED),
        **output,
    )


def _limit_passed(agent: Agent) -> str:
    if 0 < agent.max_iterations < agent.iteration:
        return MAX_ITERATIONS
    if 0 < agent.max_cost_micros < agent.total_cost_micros:
        return MAX_COST
    return ""
