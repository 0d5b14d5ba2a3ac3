"""Damage to single keys of the states of a whole directory: each family of keys, and across shards.

The keys were made by a server. What no check can see is listed in `BLIND`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from corvo.kv import keys
from corvo.kv.keys import SPACES
from corvo.kv.tables import Meta
from corvo.model import Job, State
from corvo.shard.recount.recounting import DERIVED
from corvo.shard.state.tables import BATCHES, JOBS
from corvo.verify.report import DAMAGED
from tests.verify.filling import HERE, THERE
from tests.verify.looking import change, damage_of, keys_of, verified

BLIND: Final = {
    keys.RATE_LIMIT: "a fetch more is allowed within one window; nothing else counts them",
    keys.THROUGHPUT: "counts for dashboards; nothing else has them",
    keys.QUEUE_CURSOR: "a hint where a scan begins; without it, it begins earlier",
}
"""Keys that can be lost without a trace."""
ABSENT: Final = {
    keys.BUDGET: "planned",
    keys.PROVIDER: "planned",
    keys.QUEUE_PROVIDER: "planned",
    keys.OUTBOX: "all effects are confirmed when a server stops",
}
"""Keys that a stopped server does not have."""
SEEN: Final = [space for space in SPACES if space not in BLIND and space not in ABSENT]


def _first(directory: Path, space: keys.Space) -> tuple[int, bytes, bytes]:
    """The shard, the key and the value of the first key of a space."""
    for shard in (0, 1):
        for key, value in keys_of(directory, shard, space.prefix):
            return shard, key, value
    raise AssertionError(f"there is no {space.name}")


@pytest.mark.parametrize("space", SEEN, ids=lambda space: space.name)
def test_a_key_that_is_lost_is_found(copy: Path, space: keys.Space) -> None:
    shard, key, _ = _first(copy, space)
    change(copy, shard, {key: None})

    report = verified(copy)

    assert report.status == DAMAGED
    assert all(finding.action for finding in damage_of(report))


def test_every_family_of_keys_is_tried(whole: Path, copy: Path) -> None:
    del whole
    for space in (*SEEN, *BLIND):
        _first(copy, space)
    for space in ABSENT:
        assert not keys_of(copy, 0, space.prefix)


@pytest.mark.parametrize("space", DERIVED, ids=lambda space: space.name)
def test_an_index_key_of_no_document_is_found_and_named(copy: Path, space: keys.Space) -> None:
    shard, key, value = _first(copy, space)
    change(copy, shard, {key + b"x": value})

    found = damage_of(verified(copy))

    assert any(f"{space.name} " in each.where and "x" in each.where for each in found), found


@pytest.mark.parametrize("space", DERIVED, ids=lambda space: space.name)
def test_an_index_key_that_is_lost_is_named_with_its_document(
    copy: Path, space: keys.Space
) -> None:
    shard, key, _ = _first(copy, space)
    change(copy, shard, {key: None})

    found = damage_of(verified(copy))

    assert any(
        f"shard-{shard}/state, {space.name} " in each.where and "is missing" in each.problem
        for each in found
    ), found


def _encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _meta_value(name: str, value: object) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for shard in (0, 1):
            if keys_of(directory, shard, keys.META.build(name)):
                change(directory, shard, {keys.META.build(name): _encode(value)})

    return damage


def _put(space: keys.Space, value: bytes) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        shard, key, _ = _first(directory, space)
        change(directory, shard, {key: value})

    return damage


def _batch(directory: Path) -> None:
    shard, key, value = _first(directory, keys.BATCH)
    batch = BATCHES.decode(value)
    wrong = replace(batch, succeeded=batch.succeeded + 1, total=batch.total + 1)
    change(directory, shard, {key: BATCHES.encode(wrong)})


def _job(changed: Callable[[Job], Job]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        shard, key, value = next(
            (shard, key, value)
            for shard in (0, 1)
            for key, value in keys_of(directory, shard, keys.JOB.prefix)
            if JOBS.decode(value).state is State.ACTIVE
        )
        change(directory, shard, {key: JOBS.encode(changed(JOBS.decode(value)))})

    return damage


def _feed_row(directory: Path) -> None:
    rows = keys_of(directory, 0, keys.EVENT.prefix)
    change(directory, 0, {rows[2][0]: rows[1][1]})


VALUES: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "counts of a queue": (_put(keys.COUNTS, _encode([99])), "counts "),
    "counts that are none": (_put(keys.COUNTS, b"\xc1"), "counts "),
    "end of a lease": (_put(keys.ACTIVE, bytes(8)), "active "),
    "holder of a lock": (_put(keys.UNIQUE, b"absent|" + bytes(8)), "unique lock "),
    "document of a queue": (_put(keys.QUEUE_CONFIG, b"{"), "queue "),
    "document of a job": (_put(keys.JOB, b"\xc1"), "job "),
    "document of another job": (_job(lambda it: replace(it, id="other")), "job "),
    "state of a job": (_job(lambda it: replace(it, state=State.PENDING)), "pending, normal"),
    "payload of a job": (_job(lambda it: replace(it, payload=b"{")), "job "),
    "queue of a job": (_job(lambda it: replace(it, queue="elsewhere")), "counts "),
    "priority of a job": (
        _job(lambda it: replace(it, state=State.PENDING, priority=0)),
        "pending, urgent",
    ),
    "batch of a job": (_job(lambda it: replace(it, batch_id="s01_batch_x", born_in=-1)), "batch"),
    "error of a job": (_put(keys.JOB_ERROR, b"{"), "job error "),
    "counts of a batch": (_put(keys.BATCH, b'{"id":"s01_batch_x","total":3}'), "batch "),
    "members of a batch": (_batch, "batch "),
    "worker": (_put(keys.WORKER, b"{"), "worker "),
    "schedule": (_put(keys.SCHEDULE, b"{"), "schedule "),
    "request": (_put(keys.REQUEST, b"\xc1"), "request key "),
    "API key": (_put(keys.API_KEY, b"{"), "API key "),
    "ending": (_put(keys.ENDING, b"\xc1"), "ending "),
    "forwarding address": (_put(keys.FORWARD, b"\xc1"), "forwarding address "),
    "throughput": (_put(keys.THROUGHPUT, b"\xc1"), "throughput "),
    "cursor": (_put(keys.QUEUE_CURSOR, b"qa|other\0"), "cursor "),
    "inbox": (_put(keys.INBOX, (10**6).to_bytes(8, "big")), "effects of shard "),
    "row of the feed": (_feed_row, "event log "),
    "begin of the feed": (_put(keys.EVENT_CURSOR, b"\xc1"), "event log's begin "),
    "number of request keys": (_meta_value("requests", 5_000), "meta "),
    "number of jobs that are missing": (_meta_value("missing", 9), "meta "),
    "number of schedules": (_meta_value("schedules", 9), "meta "),
    "number of API keys": (_meta_value("api_keys", 9), "meta "),
    "numbers of effects": (_meta_value("outbox", {0: (9, 1), 1: (9, 1)}), "outbox "),
    "applied": (_meta_value("applied", Meta(5_000, 1, 1 << 62, 7)), "shard-0/state"),
    "applied that cannot be read": (_put(keys.META, b"\xc1"), "shard-0/state"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_wrong_is_found_and_named(copy: Path, name: str) -> None:
    damage, where = VALUES[name]
    damage(copy)

    found = damage_of(verified(copy))

    assert any(where in each.where for each in found), found


def test_a_key_of_no_kind_is_found(copy: Path) -> None:
    change(copy, 0, {b"zz|x": b"1", b"bg|a\0b": b"1", b"m|strange": b"1"})

    found = {each.where.partition(", ")[2]: each.problem for each in damage_of(verified(copy))}

    assert found.keys() == {"unknown zz|x", "budget bg|a\\x00b", "meta m|strange"}


def test_a_job_whose_home_does_not_know_where_it_is_is_found(copy: Path) -> None:
    shard, key, _ = _first(copy, keys.FORWARD)
    change(copy, shard, {key: None})

    found = damage_of(verified(copy))

    assert any("leads nowhere" in each.problem for each in found), found


def test_a_job_that_is_lost_on_its_way_is_found(copy: Path) -> None:
    _, key, _ = _first(copy, keys.FORWARD)
    job_id = key.removeprefix(keys.FORWARD.prefix)
    shard = next(shard for shard in (0, 1) if keys_of(copy, shard, keys.JOB.prefix + job_id))
    change(copy, shard, {keys.JOB.prefix + job_id: None})

    found = damage_of(verified(copy))

    assert any("does not have the job" in each.problem for each in found), found


def test_the_queues_are_of_two_shards(copy: Path) -> None:
    found = [
        {key.split(b"\0")[0] for key, _ in keys_of(copy, shard, keys.QUEUE_APPEND.prefix)}
        for shard in (0, 1)
    ]

    assert sorted(
        (f"qa|{HERE}".encode() in one, f"qa|{THERE}".encode() in one) for one in found
    ) == [
        (False, True),
        (True, False),
    ]
