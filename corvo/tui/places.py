"""Places: a view and what it is about; and how a page is looked at."""

from typing import Final

import msgspec

from corvo.tui import keys
from corvo.tui.looks import Look
from corvo.tui.model import QUARTER

EVENTS, PAYLOAD, RESULT, ERRORS, PROGRESS = "events", "payload", "result", "errors", "progress"
PARTS: Final = (EVENTS, PAYLOAD, RESULT, ERRORS, PROGRESS)
"""Parts of a job that are shown one at a time."""


class Place(msgspec.Struct, frozen=True):
    """A view, and what it is about: a queue, a job, or a filter of jobs."""

    view: str
    about: str = ""
    worker: str = ""

    @property
    def wanted(self) -> str:
        """The document beside the summary that it needs; empty if none."""
        if self.view == keys.QUEUES:
            return ""
        return f"{self.view}:{self.about}:{self.worker}"


class Seen(msgspec.Struct, frozen=True):
    """How a page is looked at."""

    look: Look = Look()
    span: str = QUARTER
    """The time that bars show."""
    part: str = EVENTS
    """Of a job: what is shown of it."""
    width: int = 80
