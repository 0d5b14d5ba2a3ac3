"""What a process is told: every mistake is named by its key."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol.cluster import ClusterNode, first_map
from corvo.shard.config import BadConfig, ShardConfig, read_config

LEAST: dict[str, object] = {
    "cluster": "rookery",
    "node": 1,
    "shard": 0,
    "shards": 1,
    "data_dir": "data",
    "sockets": {"0": "s"},
}


def line(**changed: object) -> bytes:
    return msgspec.json.encode({**LEAST, **changed}) + b"\n"


def test_what_must_be_given_is_enough() -> None:
    config = read_config(line())

    assert config == ShardConfig(
        cluster="rookery", node=1, shard=0, shards=1, data_dir="data", sockets={0: "s"}
    )


@pytest.mark.parametrize("key", sorted(LEAST))
def test_what_is_missing_is_named(key: str) -> None:
    given = {name: value for name, value in LEAST.items() if name != key}

    with pytest.raises(BadConfig, match=f"`{key}`"):
        read_config(msgspec.json.encode(given))


ONE = ClusterNode(number=1, name="crow")
TWO = ClusterNode(number=2, name="raven")


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("node", {"node": 0}),
        ("node", {"node": "one"}),
        ("shard", {"shard": -1}),
        ("shard", {"shard": 1}),
        ("cluster", {"cluster": ""}),
        ("colour", {"colour": "red"}),
        ("sockets", {"sockets": {}}),
        ("sockets", {"sockets": {"1": "s"}}),
        ("map", {"map": msgspec.to_builtins(first_map([ONE], shards=2, replicas=3))}),
        ("voters", {"voters": [2]}),
        ("voters", {"voters": [1, 1]}),
        ("tick_ms", {"tick_ms": 0}),
        ("election_ticks", {"election_ticks": 1}),
        ("segment_bytes", {"segment_bytes": 1}),
        ("checkpoint_entries", {"checkpoint_entries": 0}),
        ("keep_entries", {"keep_entries": -1}),
        ("sockets", {"sockets": {"0": "s" * 108}}),
        ("peer_socket", {"peer_socket": "s" * 108}),
        ("op_bytes_max", {"limits": {"op_bytes_max": 5 << 20}}),
    ],
)
def test_what_cannot_work_is_named(key: str, changed: dict[str, object]) -> None:
    with pytest.raises(BadConfig, match=key):
        read_config(line(**changed))


def config_of(**changed: object) -> ShardConfig:
    return read_config(line(**changed))


def test_nodes_that_start_with_the_same_first_map_agree_on_the_first_voters() -> None:
    first = msgspec.to_builtins(first_map([ONE, TWO], shards=1, replicas=3))

    found = [config_of(node=node, map=first) for node in (1, 2)]

    assert [config.first_voters for config in found] == [[1, 2], [1, 2]]
    assert not any(config.is_alone for config in found)


def test_a_node_that_never_had_others_is_the_first_voter_whatever_became_of_its_map() -> None:
    first = first_map([TWO], shards=1, replicas=3)
    stored = msgspec.to_builtins(msgspec.structs.replace(first, version=5))

    config = config_of(node=2, map=stored)

    assert config.is_alone
    assert config.first_voters == [2]
    assert config_of().first_voters == [1]


def test_a_replica_of_a_shard_that_may_be_older_waits_to_be_added() -> None:
    first = first_map([ONE, TWO], shards=1, replicas=1)
    stored = msgspec.structs.replace(first, version=5)

    told = [
        config_of(node=2, map=msgspec.to_builtins(first)),  # shard 0 is placed on node 1
        config_of(node=1, map=msgspec.to_builtins(stored)),
        config_of(node=2, map=msgspec.to_builtins(stored), is_new_member=True),
        config_of(node=1, is_new_member=True),
        config_of(node=1, is_new_member=True, voters=[1, 2]),
    ]

    assert [config.first_voters for config in told] == [[]] * len(told)
    assert not any(config.is_alone for config in told)
    assert config_of(node=1, map=msgspec.to_builtins(stored), voters=[1]).first_voters == [1]


@given(data=st.binary(max_size=80))
def test_anything_else_is_a_bad_config(data: bytes) -> None:
    with pytest.raises(BadConfig):
        read_config(data)
