"""API keys in the state machine: in one shard, by their hashes, and announced when they change."""

from hashlib import sha256
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.kv.keys import prefix_end
from corvo.model import ROLES, ApiKey
from corvo.protocol import wire
from corvo.protocol.ops.base import Limits, Op, Rejected
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.keys import SCOPE_MAX, DeleteAPIKey, KeyDone, UpsertAPIKey
from corvo.protocol.queries import ApiKeys, ListKeys
from corvo.router.auth.keyring import make_key
from corvo.shard.ops import admit
from corvo.shard.ops import keys as key_ops
from corvo.shard.state.tables import API_KEYS
from tests.shard.replicas import Replicas
from tests.shard.shard import Shard

UPSERT: Final = 38
DELETE: Final = 39


def hash_of(name: str) -> str:
    return sha256(name.encode()).hexdigest()


def upsert(name: str, role: str = "worker", *, expires_ns: int = 0) -> UpsertAPIKey:
    return UpsertAPIKey(key_hash=hash_of(name), name=name, role=role, expires_ns=expires_ns)


def delete(name: str) -> DeleteAPIKey:
    return DeleteAPIKey(key_hash=hash_of(name))


def early(name: str, role: str = "worker") -> UpsertAPIKey:
    return replace(upsert(name, role), is_early=True)


def early_keys(shard: Shard) -> list[str]:
    return sorted(key.name for key in shard.documents(API_KEYS) if key.is_early)


# What is stored.


def test_a_key_of_an_open_server_is_early_until_one_closes_the_server_for_good() -> None:
    shard = Shard()
    shard.do(early("a"))
    shard.do(early("b"))
    shard.do(early("a", "operator"))
    before = early_keys(shard)

    shard.do(upsert("ann", "admin"))
    shard.do(delete("ann"))
    shard.do(early("c"))

    assert before == ["a", "b"]
    assert early_keys(shard) == []
    assert len(shard.documents(API_KEYS)) == 3
    shard.check_replay()


def test_an_early_key_that_is_deleted_is_not_counted_any_longer() -> None:
    shard = Shard()
    shard.do(early("a"))
    shard.do(early("b"))
    shard.do(delete("a"))

    shard.do(early("c"))

    assert early_keys(shard) == ["b", "c"]


def test_an_admins_key_is_never_early() -> None:
    shard = Shard()

    shard.do(early("ann", "admin"))

    assert early_keys(shard) == []


def test_a_key_is_stored_as_it_was_given_with_the_time_of_the_entry() -> None:
    shard = Shard()
    op = UpsertAPIKey(
        key_hash=hash_of("ci"),
        name="ci",
        role="worker",
        queue_scope=("mail", "sms-*"),
        enabled=False,
        expires_ns=9,
    )

    done = shard.do(op)

    assert done == KeyDone(hash_of("ci"), "created", 1)
    assert shard.documents(API_KEYS) == [
        ApiKey(
            key_hash=hash_of("ci"),
            name="ci",
            role="worker",
            queue_scope=("mail", "sms-*"),
            enabled=False,
            created_ns=shard.now_ns,
            expires_ns=9,
        )
    ]


def test_a_key_that_is_known_is_changed_and_keeps_the_time_at_which_it_was_made() -> None:
    shard = Shard()
    shard.do(upsert("ci"))
    made_ns = shard.now_ns
    shard.pass_time(5)

    done = shard.do(upsert("ci", "readonly"))

    assert done == KeyDone(hash_of("ci"), "updated", 1)
    [key] = shard.documents(API_KEYS)
    assert (key.role, key.created_ns) == ("readonly", made_ns)


def test_a_key_that_was_deleted_leaves_nothing_behind() -> None:
    shard = Shard()
    shard.do(upsert("one"))
    before = shard.store.content()
    shard.do(upsert("two"))

    done = shard.do(delete("two"))

    assert done == KeyDone(hash_of("two"), "deleted", 1)
    after = shard.store.content()
    of_each_entry = (b"m|applied", b"ev|")
    assert {key: value for key, value in after.items() if not key.startswith(of_each_entry)} == {
        key: value for key, value in before.items() if not key.startswith(of_each_entry)
    }


def test_a_key_that_is_not_there_cannot_be_deleted() -> None:
    shard = Shard()
    shard.do(upsert("one"))

    refused = shard.refused(delete("two"))

    assert refused.code == "key_not_found"
    assert shard.documents(API_KEYS)


def test_there_is_room_for_so_many_keys_and_those_that_are_there_can_still_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_ops, "KEYS_MAX", 2)
    shard = Shard()
    shard.entry(upsert("one"), upsert("two"))

    refused = shard.refused(upsert("three"))
    changed = shard.do(upsert("two", "admin"))
    shard.do(delete("one"))
    made = shard.do(upsert("three"))

    assert refused.code == "too_many_keys"
    assert changed == KeyDone(hash_of("two"), "updated", 2)
    assert made == KeyDone(hash_of("three"), "created", 2)


def test_only_one_shard_has_keys() -> None:
    shard = Shard(number=1)

    refused = shard.refused(upsert("one"))

    assert refused.code == "wrong_shard"
    assert shard.documents(API_KEYS) == []


NAMES: Final = ("one", "two", "three")
OPS: Final = st.one_of(
    st.builds(upsert, st.sampled_from(NAMES), st.sampled_from(ROLES)),
    st.builds(delete, st.sampled_from(NAMES)),
)


@given(entries=st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=6))
def test_whatever_is_done_the_keys_are_those_of_a_dictionary(
    entries: list[list[UpsertAPIKey | DeleteAPIKey]],
) -> None:
    shard = Shard()
    twin: dict[str, str] = {}

    for ops in entries:
        for op, answer in zip(ops, shard.entry(*ops), strict=True):
            known = twin.pop(op.key_hash, None)
            if isinstance(op, UpsertAPIKey):
                twin[op.key_hash] = op.role
            assert bool(answer.code) == (isinstance(op, DeleteAPIKey) and known is None)
            if not answer.code:
                assert msgspec.json.decode(answer.body, type=KeyDone).keys == len(twin)

    assert {key.key_hash: key.role for key in shard.documents(API_KEYS)} == twin
    assert shard.tx.number(key_ops._COUNT_KEY) == len(twin)
    shard.check_replay()


# What is refused at the door.


def refused_field(number: int, body: dict[str, object]) -> str:
    refused = admit(number, msgspec.json.encode(body), Limits())
    assert isinstance(refused, Rejected)
    assert refused.code == "bad_request"
    return refused.field


GOOD: Final[dict[str, object]] = {"key_hash": "0" * 64, "name": "ci", "role": "worker"}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"key_hash": "sk_" + "A" * 61}, "key_hash"),
        ({"key_hash": "0" * 63}, "key_hash"),
        ({"key_hash": "A" * 64}, "key_hash"),
        ({"key_hash": "0" * 64 + "\n"}, "key_hash"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"role": "root"}, "role"),
        ({"role": ""}, "role"),
        ({"namespace": "acme"}, "namespace"),
        ({"queue_scope": [""]}, "queue_scope[0]"),
        ({"queue_scope": ["mail", "s*s"]}, "queue_scope[1]"),
        ({"queue_scope": ["mail\n"]}, "queue_scope[0]"),
        ({"queue_scope": ["q"] * (SCOPE_MAX + 1)}, "queue_scope"),
        ({"queue_scope": ["mail"], "role": "admin"}, "queue_scope"),
        ({"expires_ns": -1}, "expires_ns"),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_the_field(
    changed: dict[str, object], field: str
) -> None:
    assert isinstance(admit(UPSERT, msgspec.json.encode(GOOD), Limits()), Op)

    assert refused_field(UPSERT, GOOD | changed) == field


def test_a_hash_that_is_none_cannot_be_deleted() -> None:
    assert refused_field(DELETE, {"key_hash": "ak|"}) == "key_hash"


# Who is told.


def keys_of(group: Replicas, query: ListKeys, *, to: int = 1) -> ApiKeys:
    request = group.ask(query, to=to)
    group.settle()
    answer = group.answer(request, of=to)
    assert isinstance(answer, wire.Reply)
    assert not answer.code
    return msgspec.json.decode(answer.body, type=ApiKeys)


def news_of(group: Replicas, number: int) -> list[tuple[int, wire.KeysChanged]]:
    return [
        (client, message)
        for client, message in group.heard[number]
        if isinstance(message, wire.KeysChanged)
    ]


def test_keys_are_listed_page_by_page() -> None:
    group = Replicas()
    for number in range(5):
        group.do(upsert(f"key {number}"))

    pages = [keys_of(group, ListKeys(limit=2))]
    while pages[-1].after:
        pages.append(keys_of(group, ListKeys(limit=2, after=pages[-1].after)))

    assert [len(page.keys) for page in pages] == [2, 2, 1]
    listed = [key.key_hash for page in pages for key in page.keys]
    assert listed == sorted(hash_of(f"key {number}") for number in range(5))


def test_every_router_of_every_replica_is_told_before_the_answer_and_no_shard_is() -> None:
    group = Replicas(3)
    for replica in group.replicas.values():
        replica.joined(2)
        replica.joined(3, is_shard=True)

    request = group.submit(upsert("ci"))
    group.settle()

    index = group.replicas[1].machine.applied
    for number in group.voters:
        assert news_of(group, number) == [(client, wire.KeysChanged(index)) for client in (1, 2)]
    kinds = [type(message) for client, message in group.heard[1] if client == 1]
    assert wire.KeysChanged in kinds[: kinds.index(wire.Reply)]
    assert isinstance(group.answer(request), wire.Reply)


def test_nobody_is_told_of_what_changed_nothing() -> None:
    group = Replicas()

    group.do(delete("ci"))
    group.do(upsert("ci"))
    before = news_of(group, 1)
    group.put(NewJob(queue="mail"))

    assert len(before) == 1
    assert news_of(group, 1) == before


def test_a_replica_that_was_given_a_snapshot_says_that_keys_may_have_changed() -> None:
    group = Replicas(3)
    group.cut_off[3] = None
    group.do(upsert("ci"))
    group.make_snapshot(1)
    group.cut_off.clear()

    group.tick(3, 1)

    assert group.replicas[3].machine.digest == group.replicas[1].machine.digest
    assert [client for client, _ in news_of(group, 3)] == [1]


def test_a_leader_that_follows_no_more_has_the_keys() -> None:
    group = Replicas(3)
    group.do(upsert("ci"))

    group.elect(2, 3)

    assert [key.name for key in keys_of(group, ListKeys(), to=2).keys] == ["ci"]


def test_no_key_is_in_a_store_or_a_log() -> None:
    secret = make_key(7)
    group = Replicas()

    group.do(UpsertAPIKey(key_hash=hash_of(secret), name="ci", role="admin"))

    store = group.states[1].store
    rows = store.scan(b"\0", prefix_end(b"\xfe"), limit=1_000)
    stored = b"".join(key + value for key, value in rows)
    logged = b"".join(entry.data for entry in group.entries(1))
    assert hash_of(secret).encode() in stored
    assert hash_of(secret).encode() in logged
    assert secret.encode() not in stored + logged
