"""Pages of a search: each follows the one before, and waits for no more than the first."""

import msgspec

from corvo.client.calls import Client
from corvo.client.jobs import pages
from tests.client.scripted import answer, problem, scripted


def test_later_pages_have_at_least_the_positions_of_the_first() -> None:
    first = answer(200, {"jobs": [1, 2], "cursor": "c1"}, "Corvo-Seq: s0=7,s1=9")
    second = answer(200, {"jobs": [3], "cursor": "c2"}, "Corvo-Seq: s0=8,s1=9")
    last = answer(200, {"jobs": []})
    with scripted(first, second, last) as server, Client([server.url]) as client:
        found = [len(page.jobs) for page in pages(client, {"state": "dead"})]

    assert found == [2, 1, 0]
    assert [one.headers.get("corvo-min-seq") for one in server.asked] == [
        None,
        "s0=7,s1=9",
        "s0=7,s1=9",
    ]
    bodies = [msgspec.json.decode(one.body, type=dict[str, object]) for one in server.asked]
    assert [body.get("cursor") for body in bodies] == [None, "c1", "c2"]


def test_a_first_page_waits_for_what_was_written_before_and_not_for_more() -> None:
    behind = answer(200, {"jobs": [1], "is_behind": True}, "Corvo-Seq: s0=7")
    present = answer(200, [], "Corvo-Seq: s0=9")
    late = problem(503, "NOT_CAUGHT_UP")
    part = answer(200, {"jobs": [1], "as_of": {"s0": {"index": 9, "is_whole": False}}})
    whole = answer(200, {"jobs": [1, 2], "as_of": {"s0": {"index": 9}}}, "Corvo-Seq: s0=9")
    with scripted(behind, present, late, part, whole) as server:
        client = Client([server.url], sleep=lambda _: None)
        with client:
            [page] = pages(client, {}, is_patient=lambda: True)

    assert (len(page.jobs), page.is_behind) == (2, False)
    assert server.asked[1].path == "/api/v1/queues?limit=1"
    assert [one.headers.get("corvo-min-seq") for one in server.asked[2:]] == ["s0=9"] * 3


def test_a_wait_for_the_mirror_ends() -> None:
    behind = answer(200, {"jobs": [1], "is_behind": True})
    patience = iter([True, True, False])
    with scripted(behind, problem(403, "FORBIDDEN"), behind) as server:
        client = Client([server.url], sleep=lambda _: None)
        with client:
            [page] = pages(client, {}, is_patient=lambda: next(patience))

    assert page.is_behind
    assert "corvo-min-seq" not in server.asked[2].headers
