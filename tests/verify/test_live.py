"""What a check of a running cluster makes of the answers of the API."""

from collections.abc import Mapping

import msgspec

from corvo.client.calls import Client
from corvo.client.connections import Answer
from corvo.verify.live import verify_cluster
from corvo.verify.report import DAMAGED, INCOMPLETE, WHOLE, Report
from tests.verify.looking import damage_of, notes_of, unchecked_of


class Canned(Client):
    """Answers by path; a list is answered in its order, and its last answer again and again."""

    def __init__(self, answers: Mapping[str, list[object]], place: str) -> None:
        super().__init__(["127.0.0.1:9"], sleep=lambda _: None)
        self._answers = {path: list(each) for path, each in answers.items()}
        self._place = place

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Answer:
        return self._answer(path)

    def query(self, path: str, body: object, *, min_seq: str = "") -> Answer:
        return self._answer(path)

    def _answer(self, path: str) -> Answer:
        answers = self._answers[path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return Answer(200, {"corvo-seq": self._place}, msgspec.json.encode(answer))


def replica(node: int, applied: int, digest: str, **fields: object) -> dict[str, object]:
    return {
        "node": node,
        "is_reachable": True,
        "is_voter": True,
        "role": "follower",
        "applied": applied,
        "digest": digest,
        **fields,
    }


def status_of(*replicas: dict[str, object], **fields: object) -> dict[str, object]:
    shard = {
        "shard": 0,
        "status": "healthy",
        "leader": 1,
        "term": 1,
        "placed_on": [each["node"] for each in replicas],
        "replicas": replicas,
        **fields,
    }
    nodes = [{"number": each["node"], "name": f"n{each['node']}"} for each in replicas]
    cluster = {"map_version": 3, "nodes": nodes, "shards": [shard]}
    return {"status": "healthy", "shards": 1, "cluster": cluster}


MAIL = {"name": "mail", "pending": 1}
JOB = {"id": "a", "queue": "mail", "state": "pending"}
AT_7 = {"s0": {"index": 7, "is_whole": True}}


def page_of(*found: dict[str, str], **fields: object) -> dict[str, object]:
    return {"jobs": list(found), "total": len(found), "as_of": AT_7, **fields}


def checked(
    *statuses: dict[str, object],
    queues: list[object] | None = None,
    pages: list[object] | None = None,
) -> Report:
    answers: dict[str, list[object]] = {
        "/api/v1/cluster/status": list(statuses),
        "/api/v1/queues": queues or [[MAIL]],
        "/api/v1/jobs/search": pages or [page_of(JOB)],
    }
    return verify_cluster(lambda _: Canned(answers, "s0=7"), "q1:8080", lambda _: None)


HEALTHY = status_of(replica(1, 7, "ab"), replica(2, 7, "ab"))


def test_equal_digests_and_counts_are_whole() -> None:
    report = checked(HEALTHY)

    assert (report.status, notes_of(report)) == (WHOLE, [])
    by_name = {part.name: part.checked for part in report.parts}
    assert by_name["replicas"] == ["2 digests"]
    assert by_name["queues and mirror"] == ["1 queue and 1 job at s0=7"]


def test_different_digests_at_one_position_are_damage() -> None:
    report = checked(status_of(replica(1, 7, "ab"), replica(2, 7, "cd")))

    assert report.status == DAMAGED
    [found] = damage_of(report)
    assert (found.where, found.problem) == (
        "shard 0",
        "replicas differ at entry 7: node 1 has ab, node 2 has cd",
    )
    assert "corvo verify DIR" in found.action


def test_replicas_that_meet_later_are_compared_then() -> None:
    apart = status_of(replica(1, 7, "ab"), replica(2, 6, "99"))

    report = checked(apart, apart, HEALTHY)

    assert report.status == WHOLE


def test_replicas_that_never_meet_are_not_checked() -> None:
    report = checked(status_of(replica(1, 7, "ab"), replica(2, 6, "99")))

    assert report.status == INCOMPLETE
    assert "2 replicas were never at the same entry" in unchecked_of(report)[0].problem


def test_a_version_without_digests_is_noted() -> None:
    plain = [
        {name: value for name, value in replica(node, 7, "").items() if name != "digest"}
        for node in (1, 2)
    ]

    report = checked(status_of(*plain))

    assert report.status == WHOLE
    assert [each.where for each in notes_of(report)] == ["digests"]


def test_a_counter_that_differs_from_a_recount_is_damage() -> None:
    report = checked(HEALTHY, queues=[[{**MAIL, "pending": 2, "dead": 1}]])

    assert [f"{each.where}: {each.problem}" for each in damage_of(report)] == [
        "queue mail: 2 pending by the shard's counts, and 1 by its jobs in the mirror",
        "queue mail: 1 dead by the shard's counts, and 0 by its jobs in the mirror",
    ]


def test_a_mirror_with_more_jobs_than_the_shards_is_damage() -> None:
    report = checked(HEALTHY, pages=[page_of(JOB, {**JOB, "queue": "other"})])

    [found] = damage_of(report)
    assert found.where == "queue other"


def test_counts_that_change_meanwhile_are_read_again() -> None:
    report = checked(HEALTHY, queues=[[{**MAIL, "pending": 2}], [MAIL]])

    assert report.status == WHOLE


def test_a_mirror_that_stays_behind_is_not_judged() -> None:
    behind = page_of(is_behind=True)
    older = page_of(JOB, as_of={"s0": {"index": 6, "is_whole": True}})

    for page, words in ((behind, "the mirror is behind"), (older, "the mirror is at s0=6")):
        report = checked(HEALTHY, pages=[page])

        assert (report.status, damage_of(report)) == (INCOMPLETE, [])
        assert words in unchecked_of(report)[0].problem


def test_faults_of_shards_and_replicas_are_told() -> None:
    sick = status_of(
        replica(1, 7, "ab", is_repairing=True),
        replica(2, 7, "ab", is_reachable=False, reason="no link"),
        placed_on=[1, 2, 3],
        leader=msgspec.UNSET,
        reason="2 of 3 votes are needed",
    )
    del sick["cluster"]["shards"][0]["leader"]  # type: ignore[index]  # it is a dictionary

    report = checked(sick)

    assert report.status == INCOMPLETE
    assert [f"{each.where}: {each.problem}" for each in unchecked_of(report)] == [
        "shard 0: it has no leader: 2 of 3 votes are needed",
        "shard 0: its replicas are on nodes [1, 2], and belong on [1, 2, 3]",
        "shard 0 on node 1: it is under repair, and does not vote",
        "shard 0 on node 2: it cannot be reached: no link",
    ]
