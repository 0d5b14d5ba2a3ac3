"""The reading at the end of a run."""

import msgspec

from chaos.drain import are_equal, replicas
from chaos.history import FinalReplica


def test_the_voters_of_each_shard_are_read_with_their_digests() -> None:
    voter = {"node": 1, "is_voter": True, "applied": 7, "digest": "0badcafe", "role": "leader"}
    status = {
        "cluster": {
            "nodes": [{"number": 1, "name": "a"}],
            "shards": [
                {"shard": 0, "replicas": [voter, {"node": 2, "is_voter": False}]},
                {"shard": 1, "replicas": [{"node": 3, "is_voter": True}]},
            ],
        }
    }

    assert replicas(msgspec.json.encode(status)) == {
        0: [FinalReplica("a", 0, 7, "0badcafe", "leader")],
        1: [FinalReplica("3", 1, 0)],
    }
    assert replicas(b"{}") == {}


def test_replicas_can_be_compared_if_all_have_a_digest_of_one_index() -> None:
    one, same = FinalReplica("a", 0, 7, "0badcafe"), FinalReplica("b", 0, 7, "0badcafe")

    assert are_equal([one])
    assert are_equal([one, same])
    assert are_equal([one, FinalReplica("b", 0, 7, "0000beef")])
    assert not are_equal([one, FinalReplica("b", 0, 8, "0badcafe")])
    assert not are_equal([one, FinalReplica("b", 0, 7)])
    assert not are_equal([])
