"""What producers say of a chain: its steps and handlers, whose fields are those of a job."""

from typing import Final

import pytest
from msgspec.structs import replace

from corvo.protocol.ops.base import encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.workflow import Chain, Step
from corvo.router.enqueue.bodies import StepBody, new_jobs, queues_of
from corvo.router.http.messages import Problem
from tests.router.test_producing import SAMPLES, STEPS, item_of, raw, said

CHAIN: Final = [Step("mail"), Step("bill", raw(b'{"a":1}'))]


@pytest.mark.parametrize(
    ("chain", "wanted"),
    [
        ({}, Chain(steps=CHAIN)),
        (
            {"on_failure": {"queue": "sorry", "payload": None}, "on_exit": None},
            Chain(steps=CHAIN, on_failure=Step("sorry")),
        ),
        ({"on_failure": "sorry"}, Chain(steps=CHAIN, on_failure=Step("sorry"))),
        ({"on_failure": "stop"}, Chain(steps=CHAIN)),
        ({"on_failure": "continue"}, Chain(steps=CHAIN)),
        ({"on_failure": ""}, Chain(steps=CHAIN)),
        ({"on_exit": {"queue": "end"}}, Chain(steps=CHAIN, on_exit=Step("end"))),
        ({"cancel_is_failure": None}, Chain(steps=CHAIN)),
        ({"cancel_is_failure": True}, Chain(steps=CHAIN)),
        ({"cancel_is_failure": False}, Chain(steps=CHAIN, cancel_is_failure=False)),
    ],
)
def test_a_chain_is_read_as_each_of_the_clients_writes_it(
    chain: dict[str, object], wanted: Chain
) -> None:
    if wanted.cancel_is_failure is None:
        wanted = replace(wanted, cancel_is_failure=True)
    job = encode_json(NewJob(queue="mail", chain=wanted))
    chain = {"steps": STEPS, **chain}
    assert encode_json(said(chain=chain)) == encode_json(said(chain_config=chain)) == job


@pytest.mark.parametrize("name", ["chain", "chain_config"])
def test_the_payload_of_the_first_step_is_that_of_the_job(name: str) -> None:
    steps = [{"queue": "mail", "payload": {"a": 1}}, {"queue": "bill"}]
    there = Chain(steps=[Step("mail"), Step("bill")], cancel_is_failure=True)
    wanted = NewJob(queue="mail", payload=raw(b'{"a":1}'), chain=there)

    assert encode_json(said(**{name: {"steps": steps}})) == encode_json(wanted)
    # Some client libraries send it in both places.
    assert said(**{name: {"steps": steps}, "payload": {"a": 1}}) == said(**{name: {"steps": steps}})
    for payload in ({"a": 2}, {}, None):
        with pytest.raises(Problem, match="send only") as caught:
            said(**{name: {"steps": steps}, "payload": payload})
        assert (caught.value.status, caught.value.field) == (400, f"{name}.steps[0].payload")


OF_STEPS: Final = [name for name in StepBody.__struct_fields__ if name != "queue"]
OTHERS: Final[dict[type, object]] = {int: 2, bool: False, dict: {}}
WORDS: Final = {"1m": "2m", "linear": "fixed", "welcome": "farewell"}
"""By the word or the type of a sample, another value of the same field."""


@pytest.mark.parametrize("place", ["steps", "on_failure", "on_exit"])
@pytest.mark.parametrize("field", OF_STEPS)
def test_a_step_takes_every_field_as_a_job_does(place: str, field: str) -> None:
    alone = encode_json(said(**{field: SAMPLES[field]}))
    step = {"queue": "mail", field: SAMPLES[field]}
    bare = {"queue": "mail"}
    chain = {"steps": [bare, step]} if place == "steps" else {"steps": [bare, bare], place: step}

    made = said(chain=chain).chain

    assert made is not None
    there = made.steps[1] if place == "steps" else getattr(made, place)
    assert encode_json(there) == alone


@pytest.mark.parametrize("field", OF_STEPS)
def test_each_field_of_the_first_step_is_one_of_the_job_and_two_values_are_refused(
    field: str,
) -> None:
    sample = SAMPLES[field]
    steps = [{"queue": "mail", field: SAMPLES[field]}, {"queue": "bill"}]
    bare = Chain(steps=[Step("mail"), Step("bill")], cancel_is_failure=True)

    assert said(chain={"steps": steps}) == replace(said(**{field: SAMPLES[field]}), chain=bare)
    assert said(chain={"steps": steps}, **{field: SAMPLES[field]}) == said(chain={"steps": steps})
    with pytest.raises(Problem) as caught:
        said(chain={"steps": steps}, **{field: WORDS.get(str(sample)) or OTHERS[type(sample)]})
    assert caught.value.field == f"chain.steps[0].{field}"


@pytest.mark.parametrize("place", ["steps[1]", "on_failure", "on_exit"])
def test_what_a_step_says_wrongly_is_refused_with_its_place(place: str) -> None:
    bad = {"queue": "bill", "max_run_time": "1s", "max_run_time_ms": 2}
    chain: dict[str, object] = {"steps": STEPS, place: bad}
    if place == "steps[1]":
        chain = {"steps": [STEPS[0], bad]}

    with pytest.raises(Problem) as caught:
        new_jobs([item_of(queue="mail"), item_of(queue="mail", chain=chain)])

    assert caught.value.field == f"jobs[1].chain.{place}.max_run_time"


def test_a_step_of_a_chain_that_has_begun_is_refused_and_the_first_is_not() -> None:
    assert said(chain_config={"steps": STEPS}, chain_step=0).chain is not None


def test_a_job_names_the_queues_of_all_that_may_come_of_it() -> None:
    chain = {"steps": STEPS, "on_failure": "sorry", "on_exit": "end"}

    assert queues_of(said(chain=chain)) == ["mail", "mail", "bill", "sorry", "end"]
