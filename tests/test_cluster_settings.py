"""Settings of a node in a cluster: what combinations mean, and what is refused, with the reason."""

import pytest

from corvo.cluster_settings import PEER_BIND, is_local
from corvo.config import Config, ConfigRefused, Given, resolve

SECRET = "sixteen letters, or more"  # noqa: S105 -- of no cluster
LONE = {"peer_bind": "127.0.0.1:9400"}


def config(**given: str) -> Config:
    return resolve([Given(f"cluster.{name}", given[name], "the test") for name in given]).config


@pytest.mark.parametrize(
    ("given", "bind"),
    [
        ({}, ""),
        ({"node_id": "a", "replicas": "5", "secret": SECRET, "zone": "x"}, ""),
        ({"bootstrap": "on"}, PEER_BIND),
        ({"join": "127.0.0.1:9401"}, PEER_BIND),
        ({"initial_nodes": "a=127.0.0.1:1,b=localhost:2"}, PEER_BIND),
        ({"peer_bind": "[::1]:7"}, "[::1]:7"),
        ({"peer_bind": ":9400", "advertise": "a.example:9400", "secret": SECRET}, ":9400"),
        (
            {"discover": "dns", "discover_dns_name": "corvo", "advertise": "a:1", "secret": SECRET},
            PEER_BIND,
        ),
    ],
)
def test_a_node_is_of_a_cluster_when_a_setting_says_so(given: dict[str, str], bind: str) -> None:
    settings = config(**given).cluster

    assert settings.bind == bind
    assert settings.is_clustered == bool(bind)


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        ({"advertise": "a:1"}, "cluster.secret", "same value"),
        ({"peer_bind": "nowhere"}, "cluster.peer_bind", "expected HOST:PORT"),
        ({**LONE, "advertise": "nowhere"}, "cluster.advertise", "expected HOST:PORT"),
        ({"join": "a"}, "cluster.join", "expected HOST:PORT"),
        ({"initial_nodes": "a:1"}, "cluster.initial_nodes", "expected NAME=HOST:PORT"),
        (
            {"initial_nodes": "a=127.0.0.1:1,a=127.0.0.1:2"},
            "cluster.initial_nodes",
            "has a name twice",
        ),
        ({"bootstrap": "on", "join": "127.0.0.1:1"}, "cluster.bootstrap", "does one of these"),
        (
            {"bootstrap": "on", "initial_nodes": "a=127.0.0.1:1"},
            "cluster.initial_nodes",
            "remove one of the two",
        ),
        (
            {"discover": "dns", "discover_dns_name": "corvo:http", "secret": SECRET},
            "cluster.discover_dns_name",
            "is wrong: ",
        ),
        (
            {"discover": "dns", "secret": SECRET},
            "cluster.discover_dns_name",
            "belong together",
        ),
        ({"peer_bind": ":9400", "secret": SECRET}, "cluster.advertise", "cannot connect to"),
        ({"peer_bind": ":9400", "advertise": "127.0.0.1:9400"}, "cluster.secret", "same value"),
        ({"peer_bind": "10.0.0.1:9400"}, "cluster.secret", "same value"),
        ({"join": "10.0.0.1:9400"}, "cluster.secret", "same value"),
        ({**LONE, "secret": "short"}, "cluster.secret", "at least 16"),
        ({**LONE, "secret": SECRET, "secret_file": "f"}, "cluster.secret_file", "remove one"),
        ({**LONE, "tls_cert": "c", "tls_key": "k"}, "cluster.tls_cert", "all three or none"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(
    given: dict[str, str], name: str, reason: str
) -> None:
    with pytest.raises(ConfigRefused) as refused:
        config(**given)

    [problem] = refused.value.problems
    assert problem.startswith(f"{name} (")
    assert reason in problem
    assert SECRET not in problem


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("10.0.0.1:1", False),
        ("a.example:1", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_what_others_reach(address: str, local: bool) -> None:
    assert is_local(address) is local
