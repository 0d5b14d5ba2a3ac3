"""Followers of a shard: what they have is what there is, and they hear of each thing once.

The dumb twin looks at all documents before and behind every entry. The long form, with more and
longer lives: `python -m tests.shard.test_feed --examples 2000`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Final, cast

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from corvo.kv import feed as feeds
from corvo.kv import keys
from corvo.kv.feed import FED, Page, Walk
from corvo.model import Job, State, Throughput
from corvo.protocol import wire
from corvo.protocol.ops.base import Op
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Cancel, Delete, Move, Reject, Retry
from corvo.protocol.ops.queues import (
    Clear,
    DeleteQueue,
    Drain,
    Pause,
    Resume,
    SetConcurrency,
    SetRetention,
)
from corvo.protocol.ops.work import Ack, AckItem, BeatItem, Fail, FailItem, Heartbeat
from corvo.shard.driver import following
from corvo.shard.machine import Machine
from corvo.shard.ops import NUMBERS
from corvo.shard.ops.upkeep import Purge, Sweep
from corvo.shard.pages import begin_page, begin_walk, end_page, end_walk
from corvo.shard.recount.recounting import TABLES
from corvo.shard.replica import Replica
from corvo.shard.state.entry import Stamp, encode
from corvo.shard.state.tables import JOBS
from tests.shard.cluster import Cluster
from tests.shard.followers import Follower, documents_of, words
from tests.shard.replaying import draws
from tests.shard.shard import START_NS, Shard
from tests.support.memory import MemoryStore

FEED_BYTES: Final = 12_000
"""Of these shards: some twenty entries."""
MINUTE_NS: Final = 60_000_000_000


class Alone:
    """What `begin_page` asks of a replica that has nobody beside it: all of its log is applied."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.node = self
        self.is_leader = True

    def statistics(self) -> SimpleNamespace:
        """How far the log goes."""
        return SimpleNamespace(last_index=self.machine.applied)


def alone(machine: Machine) -> Replica:
    return cast("Replica", Alone(machine))


def followed(machine: Machine, request: wire.Follow) -> wire.Changes | wire.Reset | None:
    """The answer to a follower, with nothing happening in between."""
    page = begin_page(alone(machine), request)
    if not isinstance(page, Page):
        return page
    while not page.advance():
        pass
    return end_page(machine, request, page)


def events_behind(shard: Shard, index: int) -> list[wire.Happening]:
    """What the feed has of everything behind a place."""
    digest = shard.tx.feed.digest_at(index)
    assert digest is not None
    changes = followed(shard.machine, wire.Follow(1, index, digest, wants_events=True))
    assert isinstance(changes, wire.Changes), changes
    return [event for each in changes.happenings for event in each.events]


# By hypothesis.


class Following(RuleBasedStateMachine):
    """One shard that much happens to, and a follower that asks when it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(0)
        self.shard = Shard(number=1, shards=2)
        self.log: list[bytes] = self.shard.log
        self.reopen(self.shard.store)
        self.draws = draws(self.shard, self.random)
        self.told: dict[int, wire.Happenings] = {}
        """By entry, what happened: read from the feed as soon as it was there."""
        self.follower = Follower()
        self.saved = Follower()
        self.page: tuple[wire.Follow, Page] | None = None
        self.walk: tuple[wire.Scan, Walk] | None = None
        self.checkpoint: dict[bytes, bytes] = {}

    def reopen(self, store: MemoryStore) -> None:
        """Another machine, on what is stored: pages that were under way are given up."""
        self.shard.store = store
        self.shard.machine = Machine(
            store, shard=1, shards=2, feed_bytes_max=FEED_BYTES, cache_bytes_max=1 << 20
        )
        self.page = self.walk = None

    # What happens to the shard.

    @rule(seed=st.integers(0, 1 << 32), entries=st.integers(1, 12))
    def apply(self, seed: int, entries: int) -> None:
        random = self.random
        random.seed(seed)
        for _ in range(entries):
            self.shard.dice = random.getrandbits(32)
            self.shard.pass_time(random.choice((0, 1, 40, 900, 15_000, 70_000)))
            ops = [random.choice(self.draws)() for _ in range(random.randrange(1, 7))]
            self.entry(ops)

    def entry(self, ops: list[Op]) -> None:
        shard = self.shard
        before = {job.id: job for job in shard.documents(JOBS)}
        fed = documents_of(shard.store)
        records = [(NUMBERS[type(op)], msgspec.json.encode(op)) for op in ops]
        shard.apply(encode(Stamp(shard.clock_ns, shard.dice), records))
        index = shard.machine.applied
        row, _ = shard.tx.feed.row(index)
        events = msgspec.msgpack.decode(row.events, type=tuple[wire.Happening, ...])
        self.told[index] = wire.Happenings(index, row.now_ns, events)
        # What changed is named; what is named besides came and went.
        after = documents_of(shard.store)
        changed = {key for key in fed.keys() | after.keys() if fed.get(key) != after.get(key)}
        assert changed <= set(row.keys)
        assert len(set(row.keys)) == len(row.keys)
        jobs = {job.id: job for job in shard.documents(JOBS)}
        check_events(before, jobs, events, now_ns=row.now_ns)

    @rule(
        how=st.sampled_from(
            ("skip", "start anew", "checkpoint", "restore", "snapshot", "snapshot", "old version")
        ),
        keeps_feed=st.booleans(),
    )
    def disturb(self, how: str, keeps_feed: bool) -> None:
        match how:
            case "skip":
                self.skip()
            case "start anew":
                self.reopen(self.shard.store)
            case "checkpoint":
                self.checkpoint = self.shard.store.content()
            case "restore":
                self.restore_the_checkpoint()
            case "snapshot":
                self.install_a_snapshot(keeps_feed=keeps_feed)
            case _:
                self.work_with_a_version_that_knows_no_feed()

    def skip(self) -> None:
        self.shard.machine.skip(index=self.shard.machine.applied + 1, term=1)

    def restore_the_checkpoint(self) -> None:
        """The log behind it is lost as well: what comes from here on is another."""
        self.reopen(MemoryStore(self.checkpoint))
        applied = self.shard.machine.applied
        self.told = {index: told for index, told in self.told.items() if index <= applied}

    def install_a_snapshot(self, *, keeps_feed: bool) -> None:
        """The same state in another store; of a version that knows no feed, it has none."""
        content = self.shard.store.content()
        if not keeps_feed:
            content = {
                key: data for key, data in content.items() if not key.startswith((b"ev|", b"evc|"))
            }
        self.shard.store.close()
        self.reopen(MemoryStore(content))

    def work_with_a_version_that_knows_no_feed(self) -> None:
        """It applies entries, and leaves what it finds of a feed as it is."""
        store = self.shard.store
        before = {
            key: data for key, data in store.content().items() if key.startswith((b"ev|", b"evc|"))
        }
        self.entry([Enqueue(jobs=[NewJob(queue="mail")])])
        after = dict.fromkeys(key for key in store.content() if key.startswith((b"ev|", b"evc|")))
        store.write({**after, **before})
        self.reopen(store)

    # What the follower does.

    @rule(keys_max=st.sampled_from((1, 2, 5, 1_000)))
    def begin_to_follow(self, keys_max: int) -> None:
        self.walk = None  # what is asked first is answered first
        request = self.follower.follow(keys_max=keys_max)
        page = begin_page(alone(self.shard.machine), request)
        self.page = None
        if isinstance(page, wire.Reset):
            self.follower.hear(page)
        elif page is not None:
            self.page = request, page

    @rule(steps=st.sampled_from((1, 2, 1_000)))
    def go_on_with_the_page(self, steps: int) -> None:
        for _ in range(steps):
            if self.page is None:
                return
            request, page = self.page
            if page.advance():
                if not page.is_overtaken:
                    self.follower.hear(end_page(self.shard.machine, request, page))
                self.page = None

    @rule(keys_max=st.sampled_from((1, 3, 1_000)))
    def go_on_with_the_pass(self, keys_max: int) -> None:
        """One thing at a time: a page that was under way is given up."""
        if self.follower.passed is None:
            return
        self.page = None
        if self.walk is None:
            request = self.follower.scan(keys_max=keys_max)
            self.walk = request, begin_walk(self.shard.machine, request)
        request, walk = self.walk
        if walk.advance():
            self.follower.hear(end_walk(self.shard.machine, request, walk))
            self.walk = None

    @rule(is_saved=st.booleans())
    def save_the_follower_or_go_back(self, is_saved: bool) -> None:
        if is_saved:
            self.saved = self.follower.copy()
        else:
            self.follower = self.saved.copy()
            self.page = self.walk = None

    @rule()
    def forget_a_part(self) -> None:
        """As a follower does that starts anew within an entry that comes in parts."""
        self.follower.more = b""
        self.page = None

    @rule(keys_max=st.sampled_from((1, 4, 1_000)))
    def catch_up(self, keys_max: int) -> None:
        self.page = self.walk = None
        follower, machine = self.follower, self.shard.machine
        for _ in range(10_000):
            answer = followed(machine, follower.follow(keys_max=keys_max))
            if answer is not None:
                follower.hear(answer)
            if follower.passed is not None:
                request = follower.scan(keys_max=keys_max)
                walk = begin_walk(machine, request)
                while not walk.advance():
                    pass
                follower.hear(end_walk(machine, request, walk))
            elif answer is None:
                break
        assert follower.index == machine.applied
        assert follower.digest == machine.digest
        assert follower.is_exact
        assert follower.documents == documents_of(self.shard.store)

    @invariant()
    def has_heard_of_everything_once(self) -> None:
        follower = self.follower
        known = self.shard.tx.feed.digest_at(follower.index)
        if known != follower.digest:
            return  # of another log, which it will be told
        due = [
            told
            for index, told in sorted(self.told.items())
            if follower.since < index <= follower.index and told.events
        ]
        assert due == follower.happenings

    def teardown(self) -> None:
        self.catch_up(1_000)


def check_events(
    before: dict[str, Job],
    after: dict[str, Job],
    events: tuple[wire.Happening, ...],
    *,
    now_ns: int,
) -> None:
    """The twin: what the trails of all jobs have that they had not before."""
    of_trails: dict[str, list[str]] = {}
    gone: dict[str, None] = {}
    for event in events:
        if event.what in {"deleted", "purged"} or (event.what == "moved" and not event.state):
            gone[event.job_id] = None
        elif event.job_id and event.what != "progress":
            of_trails.setdefault(event.job_id, []).append(event.what)
            gone.pop(event.job_id, None)
    for job_id, job in after.items():
        new = [event.what for event in job.trail if event.at_ns == now_ns]
        if new:
            assert of_trails.get(job_id, [])[-len(new) :] == new, job
        else:
            assert job_id not in of_trails
            assert job_id in before
    assert before.keys() - after.keys() <= gone.keys()
    assert not gone.keys() & after.keys()


@contextmanager
def small_pages() -> Iterator[None]:
    """Pages come in parts, and are made in many steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "PAGE_BYTES", 8_000)
        patch.setattr(feeds, "PART_BYTES", 2_500)
        patch.setattr(feeds, "STEP_DOCUMENTS", 30)
        patch.setattr(feeds, "STEP_BYTES", 1_500)
        patch.setattr(feeds, "CUT_ROWS", 2)
        yield


def lives(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=True,
    )


def test_a_follower_has_what_there_is_whatever_happens() -> None:
    with small_pages():
        run_state_machine_as_test(Following, settings=lives(40, 30))


# What happened, in words.


def test_what_happens_to_a_job_is_told_in_the_words_of_its_trail() -> None:
    shard = Shard()
    begin = shard.machine.applied
    [first, second] = shard.put(NewJob(queue="mail", kind="welcome"), NewJob(queue="mail"))
    [claim] = shard.fetch(worker="w1")
    shard.do(
        Fail(fails=[FailItem(job_id=first, lease_token=claim.lease_token, error="no")], by="ann")
    )
    shard.do(Cancel(job_ids=[second], why="too late", by="bob"))

    events = events_behind(shard, begin)

    assert events == [
        wire.Happening("queue.created", queue="mail"),
        wire.Happening("enqueued", first, "mail", "welcome", "pending"),
        wire.Happening("enqueued", second, "mail", "", "pending"),
        wire.Happening("started", first, "mail", "welcome", "active", 1, "w1"),
        wire.Happening("failed", first, "mail", "welcome", "retrying", 1, "ann", "no"),
        wire.Happening("cancelled", second, "mail", "", "cancelled", 0, "bob", "too late"),
    ]


def test_several_things_that_one_entry_did_are_told_in_their_order() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    begin = shard.machine.applied

    shard.entry(
        Cancel(job_ids=[job_id]),
        Retry(job_ids=[job_id]),
        Pause(queue="mail"),
        Move(job_ids=[job_id], queue="q4"),
        Delete(job_ids=[job_id], by="ann"),
    )

    assert [(event.what, event.queue, event.state) for event in events_behind(shard, begin)] == [
        ("cancelled", "mail", "cancelled"),
        ("retried", "mail", "pending"),
        ("queue.paused", "mail", ""),
        ("queue.created", "q4", ""),
        ("moved", "q4", "pending"),
        ("deleted", "q4", ""),
    ]


def test_events_have_the_words_of_the_trail() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail", max_retries=1))
    [claim] = shard.fetch()
    begin = shard.machine.applied

    shard.do(Fail(fails=[FailItem(job_id=job_id, lease_token=claim.lease_token, error="no")]))

    assert [(event.what, event.why) for event in events_behind(shard, begin)] == [
        ("died", "no attempts left")
    ]
    assert shard.trail(job_id)[-1] == "died"


def test_progress_is_told_when_it_changed() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    [claim] = shard.fetch()
    begin = shard.machine.applied

    for progress in (b"1", b"1", b'{"done":2}'):
        raw = msgspec.Raw(progress)
        item = BeatItem(job_id=job_id, lease_token=claim.lease_token, progress=raw)
        shard.do(Heartbeat(jobs=[item], by="w1"))
    shard.do(Heartbeat(jobs=[BeatItem(job_id=job_id, lease_token=claim.lease_token)]))

    assert [(event.what, event.data, event.by) for event in events_behind(shard, begin)] == [
        ("progress", b"1", "w1"),
        ("progress", b'{"done":2}', "w1"),
    ]


def test_a_job_that_its_retention_is_over_for_is_purged() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    shard.do(Cancel(job_ids=[job_id]))
    shard.pass_time(10_000)
    begin = shard.machine.applied

    shard.do(Purge(queue="mail", keep_ms=1_000, limit=10))

    assert [(event.what, event.job_id) for event in events_behind(shard, begin)] == [
        ("purged", job_id)
    ]


def test_a_queue_that_is_deleted_is_told_of_before_its_jobs_are_gone() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    begin = shard.machine.applied

    shard.do(DeleteQueue(queue="mail", by="ann"))
    told = words_of(events_behind(shard, begin))
    shard.do(Sweep(queue="mail", limit=10))

    events = events_behind(shard, begin)
    assert told == ["queue.deleted"]
    assert [(event.what, event.by, event.why) for event in events] == [
        ("queue.deleted", "ann", ""),
        ("deleted", "", "cleared, or deleted with its queue"),
    ]
    assert events[1].job_id == job_id


def test_what_is_set_for_a_queue_is_told() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))
    begin = shard.machine.applied

    for op in (
        Pause(queue="mail"),
        Pause(queue="mail"),
        Resume(queue="mail"),
        Drain(queue="mail"),
        SetConcurrency(queue="mail", max=3),
        SetConcurrency(queue="mail", max=3),
        SetRetention(queue="mail", retention_ms=1_000),
        Clear(queue="mail"),
        Resume(queue="mail"),
    ):
        shard.do(op)

    assert words_of(events_behind(shard, begin)) == [
        "queue.paused",
        "queue.resumed",
        "queue.draining",
        "queue.changed",
        "queue.changed",
        "queue.cleared",
        "queue.resumed",
    ]


def test_an_op_that_is_refused_is_not_told_of() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    begin = shard.machine.applied

    shard.do(Reject(job_ids=[job_id]))
    shard.do(Ack(acks=[AckItem(job_id=job_id)]))

    assert events_behind(shard, begin) == []
    assert shard.tx.feed.row(shard.machine.applied)[0].keys == ()


def words_of(events: list[wire.Happening]) -> list[str]:
    return [event.what for event in events]


# Where nothing can be followed.


def test_a_follower_with_nothing_begins_at_the_beginning() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))

    answer = followed(shard.machine, wire.Follow(1, 0, 0, wants_events=True))

    assert isinstance(answer, wire.Changes)
    assert words([*answer.happenings]) == ["queue.created", "enqueued"]
    assert dict(answer.pairs) == documents_of(shard.store)


def test_a_follower_of_another_log_is_told_where_this_one_stands() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))

    answer = followed(shard.machine, wire.Follow(7, 1, 12345))

    assert answer == wire.Reset(7, 1, shard.machine.digest, shard.machine.now_ns, 0, 0)


def test_a_follower_with_documents_of_a_future_that_was_lost_is_told_so() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))
    known = shard.machine.digest
    shard.put(NewJob(queue="mail"))
    ours = wire.Follow(1, 1, known, through=2, through_digest=shard.machine.digest)
    other = wire.Follow(1, 1, known, through=2, through_digest=known)
    beyond = wire.Follow(1, 1, known, through=3, through_digest=known)

    answers = [followed(shard.machine, request) for request in (ours, other, beyond)]

    assert [type(answer) for answer in answers] == [wire.Changes, wire.Reset, wire.Reset]


def test_a_follower_beyond_the_log_of_a_leader_is_told_so() -> None:
    shard = Shard()

    assert isinstance(followed(shard.machine, wire.Follow(1, 9, 0)), wire.Reset)


def test_a_follower_beyond_what_a_replica_has_waits_for_it() -> None:
    shard = Shard()
    replica = Alone(shard.machine)
    replica.is_leader = False

    assert begin_page(cast("Replica", replica), wire.Follow(1, 9, 0)) is None


def test_a_follower_at_the_end_waits() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))

    assert followed(shard.machine, wire.Follow(1, 1, shard.machine.digest)) is None


@pytest.mark.parametrize("after", [-1, 1 << 63])
@pytest.mark.parametrize("keys_max", [-1, 0])
def test_what_makes_no_sense_does_no_harm(after: int, keys_max: int) -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))

    odd = followed(shard.machine, wire.Follow(1, after, 0, keys_max=keys_max))
    even = followed(shard.machine, wire.Follow(1, 0, 0, keys_max=keys_max))
    walk = begin_walk(shard.machine, wire.Scan(1, b"", keys_max))
    while not walk.advance():
        pass

    assert isinstance(odd, wire.Reset)
    assert isinstance(even, wire.Changes)
    assert len(end_walk(shard.machine, wire.Scan(1), walk).pairs) == 1


def test_a_page_of_a_state_that_was_replaced_is_given_up() -> None:
    shard = Shard()
    replica = Alone(shard.machine)

    class Slow:
        """An answer that takes a step more, in which a snapshot is installed."""

        def advance(self) -> bool:
            """One step."""
            assert replica.machine is shard.machine, "what was replaced is closed"
            replica.machine = Shard().machine
            return False

    async def run() -> bool:
        slow = cast("Page", Slow())
        return await following.is_made(cast("Replica", replica), shard.machine, slow)

    assert not trio.run(run)


# Throughput.


def throughput(shard: Shard) -> dict[tuple[str, int], Throughput]:
    """All rows, by queue and minute since the tests' time began."""
    rows = [
        msgspec.msgpack.decode(data, type=Throughput) for _, data in shard.rows(keys.THROUGHPUT)
    ]
    begin = START_NS // MINUTE_NS
    return {(row.queue, row.minute - begin): row for row in rows}


def counted(row: Throughput) -> tuple[int, ...]:
    return row.enqueued, row.started, row.completed, row.failed, row.dead, row.cancelled


def test_what_went_on_in_a_queue_is_counted_by_the_minute() -> None:
    shard = Shard()
    ids = shard.put(*[NewJob(queue="mail", max_retries=1)] * 5, NewJob(queue="images"))
    done, failing, *_ = shard.fetch(count=2)
    shard.do(Ack(acks=[AckItem(job_id=done.job_id, lease_token=done.lease_token)]))
    item = FailItem(job_id=failing.job_id, lease_token=failing.lease_token, error="no")
    shard.do(Fail(fails=[item]))
    shard.do(Cancel(job_ids=[ids[2]]))

    rows = throughput(shard)

    assert {where: counted(row) for where, row in rows.items()} == {
        ("mail", 0): (5, 2, 1, 1, 1, 1),
        ("images", 0): (1, 0, 0, 0, 0, 0),
    }


def test_the_entrys_own_time_decides_which_minute_it_is() -> None:
    shard = Shard()
    shard.clock_ns = (START_NS // MINUTE_NS + 1) * MINUTE_NS - 1
    shard.put(NewJob(queue="mail"))

    shard.put(NewJob(queue="mail"))

    assert sorted(where for where in throughput(shard)) == [("mail", 0), ("mail", 1)]


def test_a_minute_takes_the_place_of_the_one_an_hour_and_some_before() -> None:
    shard = Shard()
    for _ in range(70):
        shard.put(NewJob(queue="mail"))
        shard.pass_time(60_000)

    rows = throughput(shard)

    assert sorted(minute for _, minute in rows) == [*range(6, 70)]
    assert {row.enqueued for row in rows.values()} == {1}


def test_an_attempt_that_failed_and_may_be_tried_again_is_no_death() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    [claim] = shard.fetch()
    shard.do(Fail(fails=[FailItem(job_id=job_id, lease_token=claim.lease_token, error="no")]))

    [row] = throughput(shard).values()

    assert counted(row) == (1, 1, 0, 1, 0, 0)


def test_a_job_that_moves_is_not_enqueued_again() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))

    shard.do(Move(job_ids=[job_id], queue="q4"))

    assert [queue for queue, _ in throughput(shard)] == ["mail"]


def test_a_job_that_comes_from_another_shard_is_not_enqueued_again() -> None:
    cluster = Cluster()
    home, target = cluster.shards[0], cluster.shards[1]
    [job_id] = home.put(NewJob(queue="sms"))

    cluster.move((0, job_id), "mail")
    cluster.settle()

    assert target.counts("mail") == {State.PENDING: 1}
    assert throughput(target) == {}
    assert words_of(events_behind(home, 1)) == ["moved"]
    assert words_of(events_behind(target, 0)) == ["queue.created", "arrived"]


def test_what_went_on_in_a_queue_that_is_gone_is_forgotten() -> None:
    shard = Shard()
    [job_id] = shard.put(NewJob(queue="mail"))
    begin = shard.machine.applied

    shard.entry(Cancel(job_ids=[job_id]), DeleteQueue(queue="mail"), Sweep(queue="mail", limit=10))

    assert throughput(shard) == {}
    assert shard.rows(keys.QUEUE_CONFIG) == []
    assert b"tp|mail\0" in {key[:8] for key in shard.tx.feed.row(begin + 1)[0].keys}


def test_a_queue_that_begins_anew_in_the_entry_that_removed_it_counts_from_then_on() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"), NewJob(queue="mail"))

    shard.entry(
        DeleteQueue(queue="mail"),
        Sweep(queue="mail", limit=10),
        Enqueue(jobs=[NewJob(queue="mail")]),
    )

    [row] = throughput(shard).values()
    assert counted(row) == (1, 0, 0, 0, 0, 0)


def test_more_queues_than_are_kept_in_memory_change_no_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corvo.shard.state.throughput.ROWS_MAX", 1)
    shard = Shard()

    for _ in range(3):
        shard.put(*[NewJob(queue=f"q{n}") for n in range(5)])

    assert {row.enqueued for row in throughput(shard).values()} == {3}
    shard.check_replay()


def main(arguments: list[str]) -> int:
    """The long form."""
    [flag, examples] = arguments
    assert flag == "--examples"
    with small_pages():
        run_state_machine_as_test(Following, settings=lives(int(examples), 80))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


def test_a_full_pass_tells_of_every_table_whose_changes_are_told() -> None:
    told = {table.prefix for table in TABLES if table.is_fed}

    assert told <= {*FED}
    assert {*FED} - told == {
        space.prefix for space in (keys.JOB_ERROR, keys.COUNTS, keys.THROUGHPUT)
    }
