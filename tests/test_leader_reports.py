"""Which replica of a shard leads, by what each of them reports."""

from corvo.leader_reports import Report, leading, named


def report(node: int, leader: int | None, term: int, *, is_open: bool = True) -> Report:
    made = Report(node)
    made.is_open = is_open
    made.heard(leader, term)
    return made


def test_the_replica_leads_that_reports_itself_in_the_highest_term() -> None:
    cut_off = report(1, 1, 4)
    follower = report(2, 3, 5)
    leader = report(3, 3, 5)

    assert leading([cut_off, follower, leader]) is leader


def test_a_replica_that_cannot_be_reached_does_not_lead_and_is_named() -> None:
    follower = report(2, 3, 5)
    away = report(3, 3, 5, is_open=False)

    assert leading([follower, away]) is None
    assert named([follower, away]) == 3


def test_a_report_is_forgotten_with_its_link() -> None:
    leader = report(3, 3, 5)

    leader.closed()

    assert not leader.leads
    assert named([leader]) is None


def test_a_refusal_is_believed_unless_a_later_report_came_meanwhile() -> None:
    leader = report(3, 3, 5)

    believed = [(leader.refused(term), leader.leads) for term in (4, 5, 5)]

    assert believed == [(False, True), (True, False), (False, False)]


def test_the_latest_report_names_the_leader() -> None:
    assert named([report(1, 1, 4), report(2, 3, 5), report(3, None, 6)]) == 3
    assert named([report(3, None, 6)]) is None
