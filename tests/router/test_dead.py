"""Dead jobs of all shards as one list, page by page, the newest first."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corvo.model import State
from corvo.protocol.ops.enqueue import NewJob
from corvo.protocol.ops.queues import Pause
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.queries import Dead, FoundJob, ListDead
from corvo.router.http.params import Place
from corvo.router.jobs import endpoints
from corvo.router.jobs.bodies import DeadJobs, dead_entries
from corvo.router.newest import Newest, Source
from tests.router.nests import Nest, die, fail, problem, queue_of, run

A, B, C = (queue_of(number) for number in range(3))
ALSO_A: Final = queue_of(0, 1)
"""Queues of shard 0, 1, 2, and of shard 0 again."""


def test_dead_jobs_of_all_shards_come_newest_first_with_their_last_error() -> None:
    async def main() -> None:
        nest = Nest()
        died = []
        for number, queue in enumerate((B, A, C, ALSO_A, A)):
            for shard in nest.shards:
                shard.machine.pass_time(1_000)
            died.append(die(nest, queue, f"error {number}"))
        nest.put(A)

        whole = await nest.read(DeadJobs, "/api/v1/dead")
        of_a = await nest.read(DeadJobs, "/api/v1/dead", query={"queue": A})
        none = await nest.read(DeadJobs, "/api/v1/dead", query={"queue": "nobody"})

        assert [job.id for job in whole.jobs] == died[::-1]
        assert [job.last_error for job in whole.jobs] == [f"error {n}" for n in range(4, -1, -1)]
        assert (whole.total, whole.has_more, whole.cursor) == (5, False, "")
        assert [job.id for job in of_a.jobs] == [died[4], died[1]]
        assert of_a.total == 2
        assert none == DeadJobs(jobs=[], total=0, has_more=False)

    run(main)


def test_dead_jobs_are_listed_page_by_page() -> None:
    async def main() -> None:
        nest = Nest()
        died = []
        for number in range(7):
            for shard in nest.shards:
                shard.machine.pass_time(1_000)
            died.append(die(nest, (A, B, C)[number % 3]))

        found, query, pages = [], {"limit": "3"}, 0
        while True:
            page = await nest.read(DeadJobs, "/api/v1/dead", query=query)
            found += [job.id for job in page.jobs]
            pages += 1
            if not page.has_more:
                break
            query = {"limit": "3", "cursor": page.cursor}

        assert found == died[::-1]
        assert pages == 3
        assert page.cursor == ""

    run(main)


def cursor(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": ""}, "limit"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"cursor": "ÿ"}, "cursor"),
        ({"cursor": "eA"}, "cursor"),
        ({"cursor": cursor("1:a" + "x" * 384)}, "cursor"),
        ({"cursor": cursor("x:a")}, "cursor"),
        ({"cursor": cursor("1" * 20 + ":a")}, "cursor"),
        ({"cursor": cursor("9" * 19 + ":a")}, "cursor"),
        ({"cursor": cursor("0:a")}, "cursor"),
        ({"cursor": cursor("1:" + "a" * 1_000)}, "cursor"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\0b"}, "queue"),
        ({"queue": "x" * 256}, "queue"),
    ],
)
def test_a_list_of_dead_jobs_is_asked_for_in_the_right_words(
    query: dict[str, str], field: str
) -> None:
    async def main() -> None:
        answer = await Nest().ask("GET", "/api/v1/dead", query=query)

        status, code, _, named = problem(answer)
        assert (status, code, named) == (400, "VALIDATION_ERROR", field)

    run(main)


def test_a_page_goes_on_where_a_shard_had_to_stop() -> None:
    async def main() -> None:
        nest = Nest()
        dead = die(nest, A)
        for _ in range(3):
            nest[A].put(*[NewJob(queue=A) for _ in range(500)])
            nest[A].pass_time(1)
            claims = nest[A].fetch(A, count=500)
            nest[A].do(Ack(acks=[AckItem(job_id=claim.job_id) for claim in claims]))

        page = await nest.read(DeadJobs, "/api/v1/dead")

        assert [job.id for job in page.jobs] == [dead]
        questions = [each for each in nest.shards[0].questions if isinstance(each, ListDead)]
        assert len(questions) == 2

    run(main)


def test_a_page_of_large_jobs_ends_early() -> None:
    async def main() -> None:
        nest = Nest()
        payload = msgspec.Raw(msgspec.json.encode("x" * 1_000_000))
        died = []
        for queue in (A, B, C) * 6:
            for shard in nest.shards:
                shard.machine.pass_time(1_000)
            job_id = nest.put(queue, payload=payload)
            fail(nest, queue, job_id, dies=True)
            died.append(job_id)

        found: list[str] = []
        sizes, query = [], {"limit": "1000"}
        while True:
            page = await nest.read(DeadJobs, "/api/v1/dead", query=query)
            found += [job.id for job in page.jobs]
            sizes.append(len(page.jobs))
            if not page.has_more:
                break
            query["cursor"] = page.cursor

        assert found == died[::-1]
        assert max(sizes) == 9, "8 MiB and not a job more than needed"
        asked = [each for each in nest.shards[0].questions if isinstance(each, ListDead)]
        assert len(asked) <= 2 * len(sizes), "what is long enough asks no more"

    run(main)


def test_dead_jobs_are_found_behind_a_thousand_queues_without_any() -> None:
    async def main() -> None:
        nest = Nest(shards=1)
        for number in range(1_000):
            nest["q"].do(Pause(queue=f"a{number:04d}"))
        died = die(nest, "z")

        page = await nest.read(DeadJobs, "/api/v1/dead")

        assert [job.id for job in page.jobs] == [died]

    run(main)


def test_more_queues_than_one_page_can_be_made_of_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "SOURCES_MAX", 1)

    async def main() -> None:
        nest = Nest()
        died = die(nest, A)
        die(nest, B)

        whole = await nest.ask("GET", "/api/v1/dead")
        one = await nest.read(DeadJobs, "/api/v1/dead", query={"queue": A})

        assert problem(whole) == (400, "TOO_MANY_QUEUES", "", "queue")
        assert [job.id for job in one.jobs] == [died]

    run(main)


# The merging of lists.


def job_of(place: Place) -> FoundJob:
    """A dead job, as far as a list looks at it."""
    return FoundJob(place.job_id, "q", State.DEAD, place.at_ns, msgspec.Raw(b"{}"))


places = st.builds(Place, st.integers(1, 12), st.sampled_from(["a", "b", "ä", "\U0001f426"]))


@given(
    lists=st.lists(st.lists(places, unique=True, min_size=2, max_size=8), min_size=2, max_size=4),
    limit=st.integers(1, 5),
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    rounds=st.integers(1, 3),
)
@settings(max_examples=300, deadline=None)
def test_pages_of_many_lists_are_pages_of_the_whole_list(
    lists: list[list[Place]], limit: int, steps: list[int], rounds: int
) -> None:
    numbered = [
        [Place(place.at_ns, f"{place.job_id}{number}") for place in each]
        for number, each in enumerate(lists)
    ]
    by_age: Callable[[Place], tuple[int, bytes]] = lambda place: (  # noqa: E731 -- used four times
        place.at_ns,
        place.job_id.encode(),
    )
    ordered = [sorted(each, key=by_age, reverse=True) for each in numbered]
    whole = sorted((place for each in ordered for place in each), key=by_age, reverse=True)
    walked = iter(steps * 1_000)

    shown: list[Place] = []
    after: Place | None = None
    for _ in range(200):
        sources = [Source(number, after) for number in range(len(ordered))]
        newest = Newest[FoundJob](sources, limit)
        for _ in range(rounds):
            asked = newest.next()
            for source in asked:
                rest = [
                    place
                    for place in ordered[source.shard]
                    if source.before is None or by_age(place) < by_age(source.before)
                ]
                step = min(next(walked), limit)
                found, is_end = rest[:step], step >= len(rest)
                dead = Dead(jobs=[job_of(place) for place in found])
                newest.hear(source, dead_entries(dead), None if is_end else found[-1])
        jobs, after = newest.page()
        assert len(jobs) <= limit
        shown += [Place(job.finished_ns, job.id) for job in jobs]
        if after is None:
            break

    assert after is None, "the pages come to an end"
    assert shown == whole
