"""Jobs that move from shard to shard, whatever becomes of the messages in between."""

from collections.abc import Sequence
from typing import Final, get_args

import msgspec
import pytest
from msgspec.structs import replace

from corvo.model import STATES, Job, Outgoing, State
from corvo.protocol.ops.base import Limits, Rejected, encode_json
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Done, Hold, Move, Reject
from corvo.protocol.ops.queues import DeleteQueue
from corvo.protocol.ops.restore import apart
from corvo.protocol.ops.work import Ack, AckItem, Fail, FailItem
from corvo.shard.ops import NUMBERS, admit, transfer
from corvo.shard.ops.transfer import (
    DELIVERED_MAX,
    ID_TAKEN,
    Delivered,
    Receive,
    Received,
    ReceivedMany,
    ReceiveMany,
    Removed,
)
from corvo.shard.ops.upkeep import Lead, Promote, Reclaim, Sweep
from corvo.shard.state import outbox
from corvo.shard.state.outbox import EFFECT_BYTES_MAX, Arrival, Forget, Message
from corvo.shard.state.tables import queue_keys
from tests.shard.chaos import run
from tests.shard.cluster import QUEUES, SHARDS, Cluster, Name, home_of
from tests.shard.shard import MS

[[SMS, NOTE], [MAIL, VIDEO], [PUSH, BILL]] = QUEUES
A, B, C = 0, 1, 2
"""The shards; SMS and NOTE live in A, MAIL and VIDEO in B, PUSH and BILL in C."""

MANY: Final = 1_000
"""Random interleavings that are tried."""


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def put(cluster: Cluster, queue: str = SMS, **fields: object) -> Name:
    """A new job."""
    shard = home_of(queue)
    [job_id] = cluster.shards[shard].put(replace(NewJob(queue=queue), **fields))  # type: ignore[arg-type]
    return (shard, job_id)


def away(cluster: Cluster, queue: str, **fields: object) -> Name:
    """A job born in A that has landed in another shard."""
    name = put(cluster, SMS, **fields)
    cluster.move(name, queue)
    cluster.settle()
    assert cluster.where(name) == [home_of(queue)]
    return name


def codes(cluster: Cluster, name: Name) -> list[str]:
    """What each shard says to somebody who asks for a job by its id."""
    said = []
    for shard in cluster.shards:
        [result] = shard.do(Reject(job_ids=[name[1]])).results
        assert isinstance(result, Rejected)
        said.append(result.code if result.shard < 0 else f"{result.code} {result.shard}")
    return said


def test_the_queues_of_these_tests_live_where_they_are_said_to() -> None:
    assert [[home_of(queue) for queue in names] for names in QUEUES] == [[A, A], [B, B], [C, C]]


# One journey.


def test_a_job_that_leaves_is_gone_until_it_lands_and_then_in_the_other_shard(
    cluster: Cluster,
) -> None:
    name = put(cluster)

    result = cluster.move(name, MAIL)

    assert result == Done(name[1], "moved")
    assert cluster.where(name) == []
    assert codes(cluster, name) == ["job_moved 1", "job_not_found", "job_not_found"]
    cluster.check_conserved({name})
    cluster.settle()
    assert cluster.where(name) == [B]
    assert codes(cluster, name) == ["job_moved 1", "bad_state", "job_not_found"]
    assert [claim.job_id for claim in cluster.shards[B].fetch(MAIL)] == [name[1]]
    cluster.check_settled({name})


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
def test_nothing_of_a_job_that_has_left_stays_behind_but_its_address(
    cluster: Cluster, state: State
) -> None:
    name = in_state(cluster, state)
    shard = cluster.shards[A]

    cluster.move(name, MAIL)

    shard.check()
    left = {
        key[: key.index(b"|")]
        for key, _ in shard.store.scan(b"", b"\xff", limit=10_000)
        if name[1].encode() in key
    }
    assert left == {b"fw"}
    assert shard.counts(SMS) == {}
    assert SMS in shard.tx.touched


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
def test_a_job_lands_as_it_left_but_for_its_queue_place_and_lock(
    cluster: Cluster, state: State
) -> None:
    name = in_state(cluster, state)
    before, errors = cluster.shards[A].job(name[1]), cluster.shards[A].errors(name[1])

    cluster.move(name, MAIL)
    cluster.settle()

    shard = cluster.shards[B]
    after = shard.job(name[1])
    assert after == replace(
        before, queue=MAIL, order_ns=after.order_ns, trail=after.trail, born_in=A
    )
    assert shard.errors(name[1]) == errors
    assert after.trail[:-2] == before.trail
    assert [(event.what, event.by) for event in after.trail[-2:]] == [
        ("moved", "ann"),
        ("arrived", "ann"),
    ]
    assert shard.counts(MAIL) == {state: 1}
    assert MAIL in shard.tx.touched
    cluster.check_settled({name})


def in_state(cluster: Cluster, state: State) -> Name:
    """A job in A with everything that a job can have."""
    shard = cluster.shards[A]
    later = shard.clock_ns + 3_600_000 * MS
    name = put(
        cluster,
        payload=msgspec.Raw(b'{"a": "\\u00fc"}'),
        checkpoint=msgspec.Raw(b"[ 1 ]"),
        tags={"colour": "grün"},
        unique_key="k",
        expire_after_ms=9_000_000,
        max_run_time_ms=50_000,
        scheduled_ns=later if state is State.SCHEDULED else 0,
    )
    [job_id] = name[1:]
    match state:
        case State.ACTIVE:
            shard.fetch(SMS)
        case State.COMPLETED:
            shard.fetch(SMS)
            shard.do(Ack(acks=[AckItem(job_id=job_id, result=msgspec.Raw(b"null"))]))
        case State.RETRYING | State.DEAD:
            shard.fetch(SMS)
            item = FailItem(job_id=job_id, error="nö", retryable=state is State.RETRYING)
            shard.do(Fail(fails=[item]))
        case State.HELD:
            shard.do(Hold(job_ids=[job_id], reason="wait"))
        case State.CANCELLED:
            shard.do(Cancel(job_ids=[job_id]))
        case _:
            pass
    assert shard.state(job_id) is state
    return name


def test_a_job_keeps_its_last_errors_and_their_numbers(cluster: Cluster) -> None:
    name = put(cluster, max_retries=100)
    shard = cluster.shards[A]
    for number in range(25):
        [claim] = shard.fetch(SMS)
        item = FailItem(job_id=claim.job_id, error=f"no {number}", retry_after_ms=0)
        shard.do(Fail(fails=[item]))
        shard.do(Promote(limit=10))
    errors = shard.errors(name[1])

    cluster.move(name, MAIL)
    cluster.settle()

    assert len(errors) == 20
    assert cluster.shards[B].errors(name[1]) == errors
    assert cluster.job(name).failures == 25
    cluster.check_settled({name})


def test_attempts_are_reset_on_landing(cluster: Cluster) -> None:
    name = in_state(cluster, State.DEAD)

    cluster.move(name, MAIL, reset_attempts=True)
    cluster.settle()

    job = cluster.job(name)
    assert (job.attempt, job.crashes, job.failures) == (0, 0, 1)


# Leases.


def test_an_active_job_is_acknowledged_where_it_has_come_to(cluster: Cluster) -> None:
    name = put(cluster)
    [claim] = cluster.shards[A].fetch(SMS)
    cluster.move(name, MAIL)
    cluster.settle()
    item = AckItem(job_id=name[1], lease_token=claim.lease_token, worker_id="w1")

    results = [cluster.shards[B].do(Ack(acks=[item])).results[0] for _ in range(2)]

    assert results[0] == results[1]
    assert cluster.job(name).state is State.COMPLETED


def test_a_token_is_greater_than_those_of_the_shards_before(cluster: Cluster) -> None:
    name = put(cluster)
    for _ in range(100):
        cluster.shards[A].entry(Hold(job_ids=["nobody"]))
    [claim] = cluster.shards[A].fetch(SMS, lease_ms=1_000)
    cluster.move(name, MAIL)
    cluster.settle()
    cluster.shards[B].pass_time(2_000)
    cluster.shards[B].do(Reclaim(limit=10))

    [again] = cluster.shards[B].fetch(MAIL)

    assert again.lease_token > claim.lease_token > cluster.shards[B].tx.token


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 3_600_000])
def test_a_lease_has_as_much_left_on_landing_as_on_leaving_whatever_the_clocks_say(
    cluster: Cluster, ahead_ms: int
) -> None:
    cluster.shards[B].clock_ns += ahead_ms * MS
    name = put(cluster)
    [claim] = cluster.shards[A].fetch(SMS, lease_ms=60_000)
    cluster.shards[A].pass_time(20_000)
    cluster.move(name, MAIL)
    left_ns = claim.lease_expires_ns - cluster.shards[A].now_ns
    cluster.shards[B].pass_time(50_000)

    cluster.settle()

    expires_ns = cluster.job(name).lease_expires_ns
    assert expires_ns == max(claim.lease_expires_ns, cluster.shards[B].now_ns + left_ns)
    assert 39_000 * MS < left_ns <= 40_000 * MS


def test_a_lease_in_a_time_of_grace_has_the_grace_left(cluster: Cluster) -> None:
    name = put(cluster)
    cluster.shards[A].fetch(SMS, lease_ms=1_000)
    cluster.shards[A].do(Lead(grace_ms=30_000))
    cluster.shards[A].pass_time(2_000)
    cluster.move(name, MAIL)
    left_ns = cluster.shards[A].tx.grace.until_ns - cluster.shards[A].now_ns

    cluster.settle()

    assert cluster.job(name).lease_expires_ns == cluster.shards[B].now_ns + left_ns
    assert left_ns > 27_000 * MS


@pytest.mark.parametrize("grace_ms", [0, 30_000])
def test_a_lease_that_was_over_on_leaving_has_nothing_left(cluster: Cluster, grace_ms: int) -> None:
    cluster.shards[B].clock_ns += 3_600_000 * MS
    name = put(cluster)
    cluster.shards[A].fetch(SMS, lease_ms=1_000)
    cluster.shards[A].pass_time(1_000)
    cluster.shards[A].do(Hold(job_ids=["nobody"]))  # an entry in whose time the lease is over
    cluster.shards[A].do(Lead(grace_ms=grace_ms))
    cluster.move(name, MAIL)
    cluster.settle()

    cluster.shards[B].do(Reclaim(limit=10))

    job = cluster.job(name)
    assert (job.state, job.crashes) == (State.PENDING, 1)


# Unique locks.


def test_a_lock_is_free_where_the_job_was_and_taken_where_it_lands(cluster: Cluster) -> None:
    name = away(cluster, MAIL, unique_key="k")

    [made] = cluster.shards[A].put(NewJob(queue=SMS, unique_key="k"))
    [other] = cluster.shards[B].put(NewJob(queue=MAIL, unique_key="k"))

    assert made != name[1]
    assert other == name[1]
    cluster.check_settled({name, (A, made)})


def test_a_job_goes_on_without_its_lock_if_another_has_it_and_says_so(cluster: Cluster) -> None:
    holder = put(cluster, MAIL, unique_key="k")

    name = away(cluster, MAIL, unique_key="k")

    job = cluster.job(name)
    assert job.unique_until_ns == 0
    assert job.trail[-1].why == f"without its unique lock, which job {holder[1]} has"
    assert cluster.job(holder).unique_until_ns > 0
    cluster.check_settled({name, holder})


def test_a_lock_whose_time_is_over_on_landing_is_not_taken(cluster: Cluster) -> None:
    name = put(cluster, unique_key="k", unique_period_ms=1_000)
    cluster.move(name, MAIL)
    cluster.shards[B].pass_time(1_000)

    cluster.settle()

    assert cluster.job(name).unique_until_ns == 0
    assert cluster.shards[B].store.get(queue_keys(MAIL).unique + b"k") is None


def test_a_lock_is_taken_from_a_holder_whose_time_is_over(cluster: Cluster) -> None:
    holder = put(cluster, MAIL, unique_key="k", unique_period_ms=1_000)
    cluster.shards[B].pass_time(1_000)

    name = away(cluster, MAIL, unique_key="k")

    assert cluster.job(holder).unique_until_ns == 0
    assert cluster.job(name).unique_until_ns > 0
    cluster.check_settled({name, holder})


# Further journeys.


def test_a_job_that_moves_on_is_found_from_its_home_all_the_way(cluster: Cluster) -> None:
    name = away(cluster, MAIL)

    cluster.move(name, PUSH)

    said = [codes(cluster, name)]
    while cluster.relay():
        said.append(codes(cluster, name))
        cluster.check_conserved({name})
    assert said[0] == ["job_moved 1", "job_not_found", "job_not_found"]
    assert said[-1] == ["job_moved 2", "job_not_found", "bad_state"]
    assert cluster.where(name) == [C]
    cluster.check_settled({name})


def test_a_job_that_comes_home_is_as_if_it_had_never_left(cluster: Cluster) -> None:
    name = away(cluster, MAIL)

    cluster.move(name, NOTE)
    cluster.settle()

    assert cluster.where(name) == [A]
    assert cluster.job(name).born_in == -1
    assert cluster.forward(name) is None
    cluster.check_settled({name})


def test_a_job_moves_between_queues_of_a_foreign_shard_without_a_message(cluster: Cluster) -> None:
    name = away(cluster, MAIL)

    cluster.move(name, VIDEO)

    assert cluster.where(name) == [B]
    assert cluster.job(name).queue == VIDEO
    cluster.check_settled({name})


def test_the_home_forgets_a_job_that_is_deleted_abroad(cluster: Cluster) -> None:
    name = away(cluster, MAIL)

    cluster.shards[B].do(Delete(job_ids=[name[1]]))

    assert codes(cluster, name)[A] == "job_moved 1"
    cluster.settle()
    assert codes(cluster, name) == ["job_not_found"] * 3
    cluster.check_settled(set())


def test_the_home_forgets_a_job_that_is_swept_abroad(cluster: Cluster) -> None:
    name = away(cluster, MAIL)
    cluster.shards[B].do(DeleteQueue(queue=MAIL))
    cluster.shards[B].do(Sweep(queue=MAIL, limit=10))

    cluster.settle()

    assert cluster.forward(name) is None
    cluster.check_settled(set())


# Ids that clients choose.


def test_a_job_whose_id_is_taken_where_it_goes_turns_back(cluster: Cluster) -> None:
    other = put(cluster, MAIL, id="order-7")
    name = put(cluster, SMS, id="order-7")
    cluster.shards[A].fetch(SMS)

    cluster.move(name, MAIL, reset_attempts=True)
    cluster.settle()

    assert cluster.where(name) == [A]
    job = cluster.job(name)
    assert (job.queue, job.state, job.born_in) == (SMS, State.ACTIVE, -1)
    assert job.attempt == 1, "it is as if it had never left"
    assert job.trail[-1].why == "its id is taken in another shard"
    assert cluster.where(other) == [B]
    cluster.check_settled({name, other})


def test_a_job_does_not_land_at_the_home_of_another_that_is_away_under_its_id(
    cluster: Cluster,
) -> None:
    other = put(cluster, MAIL, id="order-7")
    cluster.move(other, PUSH)
    cluster.settle()
    name = put(cluster, SMS, id="order-7")

    cluster.move(name, MAIL)
    cluster.settle()
    cluster.move(other, VIDEO)
    cluster.settle()

    assert (cluster.where(name), cluster.where(other)) == ([A], [B])
    cluster.check_settled({name, other})


def test_a_job_turns_back_to_a_third_shard(cluster: Cluster) -> None:
    name = away(cluster, MAIL, id="order-7")
    other = put(cluster, PUSH, id="order-7")

    cluster.move(name, PUSH)
    cluster.settle()

    assert cluster.where(name) == [B]
    assert cluster.job(name).queue == MAIL
    cluster.check_settled({name, other})


@pytest.mark.parametrize("state", [State.PENDING, State.ACTIVE, State.COMPLETED])
def test_a_job_that_finds_no_place_stays_at_home_until_it_is_moved(
    cluster: Cluster, state: State
) -> None:
    name = away(cluster, MAIL, id="order-7")
    if state is not State.PENDING:
        cluster.shards[B].fetch(MAIL)
    if state is State.COMPLETED:
        cluster.shards[B].do(Ack(acks=[AckItem(job_id=name[1])]))
    there = put(cluster, PUSH, id="order-7")
    cluster.move(name, PUSH)
    here = put(cluster, MAIL, id="order-7")

    cluster.settle()

    assert cluster.where(name) == [A]
    job = cluster.job(name)
    assert job.trail[-1].why == ID_TAKEN
    assert (job.state, job.hold_reason, job.lease_expires_ns) == (
        (State.COMPLETED, "", 0) if state is State.COMPLETED else (State.HELD, ID_TAKEN, 0)
    )
    cluster.check_settled({name, here, there})
    told = 1 if state is State.COMPLETED else 0  # its home hears of its end
    assert sum(map(len, cluster.taken.values())) == 6 + told, "it does not try for ever"
    cluster.shards[B].do(Delete(job_ids=["order-7"]))
    cluster.move(name, MAIL)
    cluster.settle()
    assert cluster.where(name) == [B]
    cluster.check_settled({name, there})


def test_an_id_is_not_given_again_while_its_job_is_away(cluster: Cluster) -> None:
    name = away(cluster, MAIL, id="order-7")

    again = cluster.shards[A].put(NewJob(queue=SMS, id="order-7"))

    assert again == [name[1]]
    assert cluster.where(name) == [B]
    cluster.check_settled({name})


def test_a_job_takes_the_place_of_one_of_its_id_that_is_being_swept(cluster: Cluster) -> None:
    put(cluster, MAIL, id="order-7", unique_key="k")
    cluster.shards[B].fetch(MAIL)
    cluster.shards[B].do(Fail(fails=[FailItem(job_id="order-7", error="no")]))
    cluster.shards[B].do(DeleteQueue(queue=MAIL))

    name = away(cluster, MAIL, id="order-7", unique_key="k")

    assert cluster.job(name).unique_until_ns > 0
    cluster.check_settled({name})


# Messages.


def read(row: Outgoing) -> Receive:
    """An effect as the op that takes it."""
    return msgspec.json.decode(row.body, type=Receive)


def test_a_message_is_taken_once_however_often_it_comes(cluster: Cluster) -> None:
    name = put(cluster)
    cluster.move(name, MAIL)
    [row] = cluster.outbox(cluster.shards[A])

    results = [cluster.shards[B].do(read(row)) for _ in range(3)]

    assert results == [Received(A, 1, "taken"), Received(A, 1, "known"), Received(A, 1, "known")]
    cluster.check_conserved({name})


def test_a_message_that_comes_too_early_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    first, second = put(cluster), put(cluster)
    cluster.move(first, MAIL)
    cluster.move(second, MAIL)
    rows = cluster.outbox(cluster.shards[A])

    early = cluster.shards[B].do(read(rows[1]))

    assert isinstance(early, Rejected)
    assert (early.code, early.shard) == ("out_of_order", A)
    assert cluster.where(second) == []
    results = [cluster.shards[B].do(read(row)) for row in rows]
    assert results == [Received(A, 1, "taken"), Received(A, 2, "taken")]
    cluster.check_conserved({first, second})


def many(rows: Sequence[Outgoing]) -> ReceiveMany:
    """Effects as one op."""
    return ReceiveMany(effects=[read(row) for row in rows])


def test_of_many_messages_those_are_taken_that_were_not_taken_before(cluster: Cluster) -> None:
    names = [put(cluster) for _ in range(4)]
    for name in names:
        cluster.move(name, MAIL)
    rows = cluster.outbox(cluster.shards[A])

    results = [cluster.shards[B].do(many(some)) for some in (rows[:2], rows[:3], rows[1:], rows)]

    assert results == [
        ReceivedMany(A, 2, 2),
        ReceivedMany(A, 3, 1),
        ReceivedMany(A, 4, 1),
        ReceivedMany(A, 4, 0),
    ]
    cluster.check_conserved({*names})


def test_many_messages_that_come_too_early_are_refused_and_change_nothing(
    cluster: Cluster,
) -> None:
    names = [put(cluster) for _ in range(3)]
    for name in names:
        cluster.move(name, MAIL)
    rows = cluster.outbox(cluster.shards[A])

    early = cluster.shards[B].do(many(rows[1:]))

    assert isinstance(early, Rejected)
    assert (early.code, early.shard) == ("out_of_order", A)
    assert early.error == "effect 2 of shard 0 is not the next one: send 1"
    assert [cluster.where(name) for name in names] == [[], [], []]
    assert cluster.shards[B].do(many(rows)) == ReceivedMany(A, 3, 3)


def test_many_messages_do_what_each_by_itself_does(cluster: Cluster) -> None:
    """Also where the first dooms a job that is being swept, and the second brings its id again."""
    twin = Cluster()
    for each in (cluster, twin):
        first = put(each, SMS)
        put(each, MAIL, id="x", depends_on=(first[1],))
        each.settle()
        each.shards[B].do(DeleteQueue(queue=MAIL))
        each.shards[A].do(Cancel(job_ids=[first[1]]))
        each.move(put(each, SMS, id="x"), VIDEO)
        each.move(put(each, NOTE, payload=msgspec.Raw(b"1")), VIDEO)
    rows = cluster.outbox(cluster.shards[A])

    cluster.shards[B].entry(many(rows))
    twin.shards[B].entry(*(read(row) for row in rows))

    assert len(rows) == 3
    assert cluster.shards[B].store.content() == twin.shards[B].store.content()
    assert cluster.shards[B].job("x").queue == VIDEO
    cluster.shards[B].check()


def test_many_messages_are_of_one_shard_and_follow_one_another() -> None:
    def receive(source: int, seq: int, request_key: str = "") -> Receive:
        return Receive(source=source, seq=seq, effect=Forget("x"), request_key=request_key)

    refused = [
        ReceiveMany(effects=effects).check(Limits())
        for effects in (
            [receive(A, 1), receive(A, 3)],
            [receive(A, 2), receive(A, 1)],
            [receive(A, 1), receive(A, 1)],
            [receive(A, 1), receive(C, 2)],
            [receive(A, 1), receive(A, 2, request_key="k")],
        )
    ]

    fields = [each.field for each in refused if each is not None]
    assert fields == ["effects"] * 4 + ["request_key"]
    assert ReceiveMany(effects=[receive(A, 7), receive(A, 8)]).check(Limits()) is None


def test_a_message_from_nowhere_is_refused(cluster: Cluster) -> None:
    for source in (A, SHARDS):
        refused = cluster.shards[A].refused(Receive(source=source, seq=1, effect=Forget("x")))

        assert (refused.code, refused.field) == ("bad_request", "source")


def test_the_tags_of_effects_never_change() -> None:
    """They are in stored effects, and in the log."""
    tags = [each.__struct_config__.tag for each in get_args(outbox.Consequence)]

    assert tags == [
        *("forget", "became", "tally", "birth", "watch", "told"),
        *("schedule", "schedule_landed"),
    ]
    assert outbox.Arrival.__struct_config__.tag == "arrival"


def test_an_effect_is_kept_until_it_is_said_to_be_taken(cluster: Cluster) -> None:
    names = [put(cluster) for _ in range(3)]
    for name in names:
        cluster.move(name, MAIL)
    shard = cluster.shards[A]
    rows = cluster.outbox(shard)

    removed = [shard.do(Delivered(shard=B, seq=seq)) for seq in (2, 1, 2)]

    assert [row.seq for row in rows] == [1, 2, 3]
    assert removed == [Removed(2, more=False), Removed(0, more=False), Removed(0, more=False)]
    assert cluster.outbox(shard) == rows[2:]
    assert outbox.outgoing(shard.tx, B, 3) == rows[2]
    assert outbox.numbers(shard.tx) == {B: (3, 2)}


def test_effects_for_each_shard_are_numbered_by_themselves(cluster: Cluster) -> None:
    for queue in (MAIL, PUSH, MAIL):
        cluster.move(put(cluster), queue)
    shard = cluster.shards[A]

    rows = [(row.shard, row.seq) for row in cluster.outbox(shard)]

    assert rows == [(B, 1), (B, 2), (C, 1)]
    assert outbox.numbers(shard.tx) == {B: (2, 0), C: (1, 0)}
    assert [outbox.last_given(shard.tx, target) for target in (B, C)] == [2, 1]


def test_more_than_a_bounded_number_of_rows_is_removed_the_next_time(cluster: Cluster) -> None:
    shard = cluster.shards[A]
    for count in (DELIVERED_MAX, 5):
        ids = shard.put(*[NewJob(queue=SMS)] * count)
        shard.do(Move(job_ids=ids, queue=MAIL))

    removed = [shard.do(Delivered(shard=B, seq=DELIVERED_MAX + 5)) for _ in range(2)]

    assert removed == [Removed(DELIVERED_MAX, more=True), Removed(5, more=False)]
    assert cluster.outbox(shard) == []


def test_nobody_takes_what_was_not_given(cluster: Cluster) -> None:
    refused = cluster.shards[A].refused(Delivered(shard=B, seq=1))

    assert refused.code == "out_of_order"


@pytest.mark.parametrize(("spare", "status"), [(0, "moved"), (-1, "too_large")])
def test_a_job_that_is_too_large_to_travel_is_not_moved(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, spare: int, status: str
) -> None:
    name = in_state(cluster, State.DEAD)
    cluster.move(name, MAIL)
    [row] = cluster.outbox(cluster.shards[A])
    size = len(encode_json(read(row).effect))
    again = Cluster()
    in_state(again, State.DEAD)
    before = again.job(name)
    monkeypatch.setattr(transfer, "EFFECT_BYTES_MAX", size + spare)

    result = again.move(name, MAIL)

    assert (result.code if isinstance(result, Rejected) else result.status) == status
    assert again.where(name) == ([A] if spare else [])
    if spare:
        assert again.job(name) == before
        again.check_settled({name})


def test_a_job_with_as_much_as_it_may_have_travels_through_the_door(cluster: Cluster) -> None:
    text = msgspec.Raw(b'"' + b"x" * (Limits().payload_bytes_max - 2) + b'"')
    name = put(cluster, payload=text, checkpoint=text)
    cluster.shards[A].fetch(SMS)
    cluster.shards[A].do(Ack(acks=[AckItem(job_id=name[1], result=text)]))

    cluster.move(name, MAIL)

    [row] = cluster.outbox(cluster.shards[A])
    assert 3 * Limits().payload_bytes_max < len(row.body) < Limits().op_bytes_max
    cluster.settle()
    job = cluster.job(name)
    assert job.payload == job.checkpoint == job.result == bytes(text)


def test_only_shards_bring_effects_and_say_that_they_are_delivered() -> None:
    receive = msgspec.json.encode(Receive(source=A, seq=1, effect=Forget("x")))
    delivered = msgspec.json.encode(Delivered(shard=B, seq=1))
    many = b'{"effects":[%b]}' % receive

    let_in = admit(NUMBERS[Receive], receive, Limits(), private=True)
    refused = [
        admit(NUMBERS[Receive], receive, Limits()),
        admit(NUMBERS[ReceiveMany], many, Limits()),
        admit(NUMBERS[Delivered], delivered, Limits()),
    ]

    assert let_in == Receive(source=A, seq=1, effect=Forget("x"))
    assert all(isinstance(each, Rejected) and each.code == "forbidden" for each in refused)


def test_an_effect_has_no_request_key() -> None:
    refused = Receive(source=A, seq=1, effect=Forget("x"), request_key="k").check(Limits())

    assert refused is not None
    assert refused.field == "request_key"


def test_the_door_lets_the_largest_effect_in() -> None:
    effect = msgspec.Raw(b'"' + b"x" * (EFFECT_BYTES_MAX - 2) + b'"')

    message = Message(source=99, seq=(1 << 53) - 1, effect=effect, by="x" * 4_096)

    assert len(msgspec.json.encode(message)) < Limits().op_bytes_max


def test_a_message_is_the_op_that_takes_it() -> None:
    job, json = apart(Job(**REQUIRED))  # type: ignore[arg-type]
    errors = [msgspec.Raw(b'{"a":1}')]
    effect = Arrival(job=job, json=json, queue=MAIL, errors=errors)
    raw = msgspec.Raw(encode_json(effect))

    read = msgspec.json.decode(
        msgspec.json.encode(Message(source=A, seq=7, effect=raw, by="ann")), type=Receive
    )

    assert read == Receive(source=A, seq=7, effect=effect, by="ann")
    assert isinstance(read.effect, Arrival)
    assert read.effect.whole() == Job(**REQUIRED)  # type: ignore[arg-type]


REQUIRED: Final = {
    "id": "x",
    "queue": SMS,
    "state": State.PENDING,
    "payload": b'{"a" : [1, 2.50]}',
    "result": b"null",
    "progress": b"1",
    "checkpoint": b'"\xc3\xbc"',
    "chain": b"[]",
    "created_ns": 1,
    "order_ns": 2,
}


def test_what_is_on_its_way_survives_a_restart(cluster: Cluster) -> None:
    name = put(cluster)
    cluster.move(name, MAIL)

    for shard in cluster.shards:
        shard.reopen()
    cluster.settle()
    for shard in cluster.shards:
        shard.reopen()

    assert cluster.where(name) == [B]
    cluster.check_settled({name})
    for shard in cluster.shards:
        shard.check_replay()


# Whatever happens in between.


@pytest.mark.parametrize("start", range(0, MANY, 100))
def test_a_job_is_live_in_one_shard_or_on_its_way_whatever_becomes_of_the_messages(
    start: int,
) -> None:
    taken = [
        len(numbers)
        for seed in range(start, start + 100)
        for numbers in run(seed, Cluster()).cluster.taken.values()
    ]

    assert sum(taken) > 300, "something moved"


def test_replicas_of_shards_that_sent_and_received_come_to_the_same_state() -> None:
    for seed in range(5):
        for shard in run(seed, Cluster()).cluster.shards:
            shard.check_replay()


# A home that has lost entries, as its operator has accepted.


def to_home(effect: outbox.Effect, seq: int = 1) -> Receive:
    return Receive(source=B, seq=seq, effect=effect)


def test_effects_on_a_home_that_has_forgotten_their_job_are_taken(cluster: Cluster) -> None:
    home = cluster.shards[A]
    effects: list[outbox.Effect] = [
        outbox.JobEnded("s00_job_gone", "completed", 1, "s00_batch_gone"),
        outbox.JobEnded("s00_job_gone", "dead", -1),
        Forget("s00_job_gone", "s00_batch_gone"),
        outbox.Tally("s00_batch_gone", "completed"),
        outbox.Watch("s00_job_gone"),
        outbox.WatchAnswer("s01_job_gone", "completed"),
    ]

    for seq, effect in enumerate(effects, start=1):
        home.do(to_home(effect, seq))

    assert outbox.last_taken(home.tx, B) == len(effects)
    home.check()


@pytest.mark.parametrize("queue", [SMS, MAIL])
def test_a_job_comes_back_to_a_home_that_has_forgotten_it(cluster: Cluster, queue: str) -> None:
    name = put(cluster)
    before = cluster.shards[A].job(name[1])
    bare, json = apart(replace(before, born_in=A))
    fresh = Cluster()
    arrival = Arrival(job=bare, json=json, queue=queue)

    fresh.shards[A].do(to_home(arrival))
    fresh.settle()

    assert fresh.where(name) == [home_of(queue)]
    for shard in fresh.shards:
        shard.check()


def test_a_job_that_comes_back_takes_the_place_of_its_older_self(cluster: Cluster) -> None:
    name = put(cluster)
    home = cluster.shards[A]
    bare, json = apart(replace(home.job(name[1]), born_in=A, attempt=3))

    home.do(to_home(Arrival(job=bare, json=json, queue=SMS)))

    assert home.job(name[1]).attempt == 3
    assert home.counts(SMS) == {State.PENDING: 1}
    home.check()
