"""Which replica of a shard leads, by what each of them reports.

Every replica reports each change of its leader to all of its links. The replica that reports itself
in the highest term leads, also while another one is cut off from it and reports a former leader.
"""

from collections.abc import Iterable
from typing import TypeVar


class Report:
    """The last report of one replica, while there is a link to it."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.is_open = False
        """Whether there is a link to the replica."""
        self.leader: int | None = None
        self.term = 0

    @property
    def leads(self) -> bool:
        """Whether the replica reports itself, and can be reached."""
        return self.is_open and self.leader == self.node

    def heard(self, leader: int | None, term: int) -> None:
        """Take a new report."""
        self.leader, self.term = leader, term

    def closed(self) -> None:
        """Note that the link was lost: what the replica reports is not known any more."""
        self.is_open, self.leader = False, None

    def refused(self, term: int) -> bool:
        """Note that the replica has refused a request, since it does not lead.

        The request was sent when it led in that term. A report of a later term is newer, and stays.
        Returns whether the replica is no longer taken for the leader.
        """
        if not self.leads or self.term > term:
            return False
        self.leader = None
        return True


AnyReport = TypeVar("AnyReport", bound=Report)


def leading(reports: Iterable[AnyReport]) -> AnyReport | None:
    """The replica that leads; None while none is known."""
    return max(
        (report for report in reports if report.leads),
        key=lambda report: report.term,
        default=None,
    )


def named(reports: Iterable[Report]) -> int | None:
    """The node of the leader that the latest report names; there may be no link to it yet."""
    naming = [report for report in reports if report.leader is not None]
    latest = max(naming, key=lambda report: report.term, default=None)
    return latest.leader if latest is not None else None
