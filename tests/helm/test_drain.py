"""The program of preStop: which answers of the node it waits for."""

import importlib.util
from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from tests.helm.values_reference import CHART

Status: TypeAlias = dict[str, object]

_SOUND: Final = {"is_reachable": True, "is_voter": True, "lag": 0}


def why_not(status: Status, name: str) -> str:
    """What the program says of a status."""
    spec = importlib.util.spec_from_file_location("drain", CHART / "files" / "drain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[Status, str], str] = module.why_not
    return found(status, name)


def status(*replicas: dict[str, object]) -> Status:
    """The status of a cluster with one shard, whose replicas are on the first nodes."""
    numbered = [{**_SOUND, "node": number, **one} for number, one in enumerate(replicas, start=1)]
    nodes = [{"number": number, "name": f"jobs-{number - 1}"} for number in range(1, 6)]
    return {"cluster": {"nodes": nodes, "shards": [{"shard": 0, "replicas": numbered}]}}


@pytest.mark.parametrize(
    ("fault", "is_waited_for"),
    [
        ({}, False),
        ({"is_reachable": False}, True),
        ({"is_repairing": True}, True),
        ({"lag": 5_000}, True),
    ],
    ids=str,
)
def test_a_node_waits_while_the_others_are_no_majority(
    fault: dict[str, object], *, is_waited_for: bool
) -> None:
    said = why_not(status({}, {}, fault), "jobs-0")

    assert said == ("shard 0 has 1 of 2 other voters" if is_waited_for else "")


def test_a_learner_does_not_count() -> None:
    assert why_not(status({}, {}, {"lag": 9_999}, {"is_voter": False}), "jobs-0") != ""


def test_a_node_does_not_wait_where_waiting_cannot_help() -> None:
    alone = status({})
    of_two = status({}, {"is_reachable": False})
    elsewhere = status({"is_reachable": False}, {"is_reachable": False}, {})

    assert why_not(alone, "jobs-0") == ""
    assert why_not(of_two, "jobs-0") == ""
    assert why_not(elsewhere, "jobs-4") == ""
    assert why_not({"status": "healthy", "shards": 1}, "") == ""
