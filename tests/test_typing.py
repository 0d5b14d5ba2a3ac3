"""Mistakes in `replace` that mypy must find.

Each line with a `type: ignore` is wrong. mypy reports an ignore that it does not need, so `make
check` fails when mypy no longer finds the mistake.
"""

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import EventType, Job, State
from corvo.protocol.ops.enqueue import NewJob
from corvo.shard.state import lifecycle
from corvo.shard.state.lifecycle import RunChanges
from corvo.shard.state.tables import JOBS
from tests.shard.shard import Shard

JOB = Job(id="a", queue="mail", state=State.PENDING, payload=b"{}", created_ns=1, order_ns=1)


def test_a_misspelt_field_is_found() -> None:
    with pytest.raises(TypeError):
        replace(JOB, prioritty=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        msgspec.structs.replace(JOB, prioritty=1)  # type: ignore[call-arg]


def test_a_value_of_another_type_is_found() -> None:
    replace(JOB, state="dead")  # type: ignore[arg-type]
    replace(JOB, waits_for=["b"])  # type: ignore[arg-type]


def test_what_an_op_adds_to_a_change_of_state_is_checked() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    found = JOBS.find(shard.tx, job_id)
    assert found is not None

    with pytest.raises(TypeError):
        lifecycle.hold(shard.tx, found, reason="", crashs=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        lifecycle.make_pending(shard.tx, found, what=EventType.RETRIED, held_ns=1)  # type: ignore[call-arg]
    RunChanges(result="{}")  # type: ignore[typeddict-item]
