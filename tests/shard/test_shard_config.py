"""What a process is told: every mistake is named by its key."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.shard.config import BadConfig, Peer, ShardConfig, read_config

LEAST: dict[str, object] = {
    "cluster": "rookery",
    "node": 1,
    "shard": 0,
    "shards": 1,
    "data_dir": "data",
    "socket": "s",
}


def line(**changed: object) -> bytes:
    return msgspec.json.encode({**LEAST, **changed}) + b"\n"


def test_what_must_be_given_is_enough() -> None:
    config = read_config(line())

    assert config == ShardConfig(
        cluster="rookery", node=1, shard=0, shards=1, data_dir="data", socket="s"
    )


def test_peers_are_read() -> None:
    config = read_config(line(port=9400, peers=[{"node": 2, "host": "b", "port": 9400}]))

    assert config.peers == [Peer(2, "b", 9400)]


@pytest.mark.parametrize("key", sorted(LEAST))
def test_what_is_missing_is_named(key: str) -> None:
    given = {name: value for name, value in LEAST.items() if name != key}

    with pytest.raises(BadConfig, match=f"`{key}`"):
        read_config(msgspec.json.encode(given))


PEER = {"node": 2, "host": "b", "port": 1}


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("node", {"node": 0}),
        ("node", {"node": "one"}),
        ("shard", {"shard": -1}),
        ("shard", {"shard": 1}),
        ("cluster", {"cluster": ""}),
        ("colour", {"colour": "red"}),
        ("port", {"peers": [PEER]}),
        ("port", {"port": 70_000}),
        ("peers", {"port": 1, "peers": [PEER, PEER]}),
        ("peers", {"port": 1, "peers": [{**PEER, "node": 1}]}),
        ("voters", {"voters": [2]}),
        ("voters", {"voters": [1, 1]}),
        ("tick_ms", {"tick_ms": 0}),
        ("election_ticks", {"election_ticks": 1}),
        ("segment_bytes", {"segment_bytes": 1}),
        ("checkpoint_entries", {"checkpoint_entries": 0}),
        ("keep_entries", {"keep_entries": -1}),
        ("socket", {"socket": "s" * 108}),
        ("op_bytes_max", {"limits": {"op_bytes_max": 5 << 20}}),
    ],
)
def test_what_cannot_work_is_named(key: str, changed: dict[str, object]) -> None:
    with pytest.raises(BadConfig, match=key):
        read_config(line(**changed))


@given(data=st.binary(max_size=80))
def test_anything_else_is_a_bad_config(data: bytes) -> None:
    with pytest.raises(BadConfig):
        read_config(data)
