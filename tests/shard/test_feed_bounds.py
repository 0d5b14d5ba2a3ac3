"""How much an answer to a follower may have: the most that there can be fits into a frame."""

from typing import cast

import msgspec
import trio

from corvo.errors import WireError
from corvo.kv import feed as feeds
from corvo.link import Link
from corvo.protocol import wire
from corvo.protocol.ops.base import ITEMS_MAX
from corvo.protocol.ops.enqueue import Enqueue, NewJob
from corvo.protocol.ops.jobs import Cancel
from corvo.protocol.ops.work import AckItem
from corvo.shard.config import OP_BYTES_MAX
from corvo.shard.driver import following, one_by_one
from corvo.shard.driver.process import send_all
from corvo.shard.gathering import ENTRY_BYTES_MAX
from corvo.shard.state.tables import JOBS
from tests.shard.shard import Shard
from tests.shard.test_feed import alone, events_behind, followed
from tests.support.links import jumping, link_and_raw


def test_texts_for_people_are_cut_short_in_events() -> None:
    shard = Shard()
    text = "\N{GRINNING FACE}" * 1_000
    shard.do(Enqueue(jobs=[NewJob(queue="mail", kind=text)], by=text))
    [job_id] = [job.id for job in shard.documents(JOBS)]
    at = shard.machine.applied

    shard.do(Cancel(job_ids=[job_id], why=text, by=text))

    [event] = events_behind(shard, at)
    assert (event.kind, event.by, event.why) == (text[:200], text[:200], text[:200])
    assert event.what == "cancelled"
    assert shard.tx.feed.digest_at(at + 1) == shard.machine.digest


def test_only_the_texts_of_an_event_are_cut() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))
    told: list[feeds.Told] = [("died", "a", "mail", "k" * 300, "dead", 1, "w", "x")]

    events = told_of_entry(shard, told)

    assert [(event.what, event.kind) for event in events] == [("died", "k" * 200)]


def told_of_entry(
    shard: Shard, told: list[feeds.Told], documents: dict[bytes, bytes | None] | None = None
) -> tuple[wire.Happening, ...]:
    """What a follower hears of an entry in which just this happened, in a frame."""
    changes = answered(shard, told, documents or {}, wants_documents=documents is not None)
    assert isinstance(changes, wire.Changes), changes
    assert len(wire.encode(changes)) > 0
    return changes.happenings[-1].events


def answered(
    shard: Shard,
    told: list[feeds.Told],
    documents: dict[bytes, bytes | None],
    *,
    wants_documents: bool,
) -> wire.Changes | wire.Reset | None:
    tx = shard.tx
    at, digest = shard.machine.applied, shard.machine.digest
    tx.begin(index=at + 1, term=1, stamp_ns=0)
    tx.told += told
    for key, data in documents.items():
        tx.note(key)
        tx.writes[key] = data
    tx.commit()
    request = wire.Follow(1, at, digest, wants_documents=wants_documents, wants_events=True)
    return followed(shard.machine, request)


def test_all_events_that_ops_of_one_entry_can_name_jobs_for_fit_into_a_frame() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))
    text = "\N{GRINNING FACE}" * 4_096
    job_id = "s00_job_" + "0" * 26
    least = len(msgspec.json.encode(AckItem(job_id=job_id, lease_token=1)))
    count = ENTRY_BYTES_MAX // least
    told: list[feeds.Told] = [
        ("asked_to_stop", job_id, "q" * 255, text, "completed", 99_999, text, text)
    ] * count

    events = told_of_entry(shard, told)

    assert len(events) == count > 10_000
    assert {event.job_id for event in events} == {job_id}


def test_as_much_progress_as_an_op_may_bring_fits_into_a_frame_with_large_documents() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))
    text = "\N{GRINNING FACE}" * 4_096
    progress = b"1" * (OP_BYTES_MAX // ITEMS_MAX)
    told: list[feeds.Told] = [
        ("progress", "i" * 128, "q" * 255, text, "active", 99_999, text, text, progress)
    ] * ITEMS_MAX

    events = told_of_entry(shard, told, {b"j|a": b"x" * (8 << 20)})

    assert [event.data for event in events] == [progress] * ITEMS_MAX


def test_events_that_are_too_many_to_be_told_are_said_to_be_gone() -> None:
    shard = Shard()
    shard.put(NewJob(queue="mail"))
    told: list[feeds.Told] = [
        ("started", "s00_job_" + "0" * 26, "q" * 255, "", "active", 1, "w", "")
    ] * (512 * 512)

    answer = answered(shard, told, {}, wants_documents=False)

    machine = shard.machine
    applied, digest = machine.applied, machine.digest
    assert answer == wire.Reset(1, applied, digest, machine.now_ns, applied, digest)


class Strict:
    """A link that takes no answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed: list[tuple[str, float]] = []
        self._over = trio.Event()

    async def receive(self, _: object) -> list[wire.FollowerRequest]:
        """The follower's only request, and then its goodbye."""
        self.asked += 1
        if self.asked > 1:
            await self._over.wait()
            return []
        return [wire.Scan(1)]

    def send_many(self, _: object, *, at_once: bool) -> bool:
        """As for any message that is too large."""
        assert at_once
        raise WireError("a message of many bytes")

    def close(self, reason: str) -> None:
        """The follower leaves then."""
        self.closed.append((reason, trio.current_time()))
        self._over.set()


@jumping
async def test_a_follower_whose_answer_is_too_large_is_shown_out_after_a_while() -> None:
    link = Strict()
    began = trio.current_time()

    await following.serve_follower(
        cast("Link", link), alone(Shard().machine), following.AppliedSignal()
    )

    [(reason, at)] = link.closed
    assert "a message of many bytes" in reason
    assert at - began == one_by_one.UNSENDABLE_S


@jumping
async def test_a_message_that_is_too_large_ends_its_own_link_alone() -> None:
    async with link_and_raw() as (link, raw):
        send_all(link, [wire.WorkAvailable(("q" * 255,) * 70_000)])
        [goodbye] = await raw.hear(1)

        is_open = link.is_open
        await raw.say(wire.Goodbye("then I leave"))

    assert isinstance(goodbye, wire.Goodbye)
    assert "a message of" in goodbye.reason
    assert not is_open
