"""What keys do: places, selection, order, filter, questions. Pure: it returns what is to be done.

ui = Ui(delay_s=2.0)
for wish in ui.press("p"): ...
"""

from typing import Final, TypeAlias

import msgspec

from corvo.tui import keys
from corvo.tui.keys import Binding, action_of
from corvo.tui.looks import Look, number
from corvo.tui.model import Data
from corvo.tui.pages import Page, Row, ordered
from corvo.tui.views import Place, members_of, page_of

DELAYS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between two refreshes."""
_TEXT_MAX: Final = 200


class Quit(msgspec.Struct, frozen=True):
    """End the program."""


class Redraw(msgspec.Struct, frozen=True):
    """Draw all of the screen again."""


class Ask(msgspec.Struct, frozen=True):
    """Ask the server now."""


class Change(msgspec.Struct, frozen=True):
    """Change something on the server."""

    action: str
    """`pause`, `resume`, `retry`, `cancel` or `delete`."""
    queue: str = ""
    job_ids: tuple[str, ...] = ()
    said: str = ""
    """What is now true, once it is done."""


Wish: TypeAlias = Quit | Redraw | Ask | Change


class Question(msgspec.Struct, frozen=True):
    """A question on the last line, and the change that a yes allows."""

    text: str
    change: Change


class Tab(msgspec.Struct):
    """A place, and how it is looked at."""

    place: Place
    selected: str = ""
    """The key of the selected row; a row stays selected when others move."""
    index: int = 0
    """Its number, in case it is not there any more."""
    top: int = 0
    """The number of the first visible row."""
    wanted: str = ""
    """The filter."""
    sort: str = ""
    is_reversed: bool = False


class Ui:
    """The state of the keyboard's side."""

    def __init__(
        self,
        *,
        view: str = keys.QUEUES,
        delay_s: float = 2.0,
        look: Look | None = None,
        sort: str = "",
        is_reversed: bool = False,
        wanted: str = "",
        is_read_only: bool = False,
    ) -> None:
        self.look: Final = look or Look()
        self.delay_s = delay_s
        self.stack = [Tab(Place(view), wanted=wanted, sort=sort, is_reversed=is_reversed)]
        self.question: Question | None = None
        self.typed: str | None = None
        """The filter while it is typed."""
        self.is_help = False
        self.is_zoomed = False
        self.frozen: Data | None = None
        """The data that is shown while the picture is stopped."""
        self.message = ""
        self._data = Data()
        self._height = 10
        self._is_read_only = is_read_only

    @property
    def tab(self) -> Tab:
        """What is open."""
        return self.stack[-1]

    @property
    def data(self) -> Data:
        """What is shown."""
        return self.frozen or self._data

    def show(self, data: Data) -> None:
        """Take new data."""
        self._data = data

    @property
    def wanted(self) -> Place | None:
        """The place whose own document is to be read with the summary."""
        place = self.tab.place
        return place if place.wanted else None

    # What is on the screen.

    def page(self) -> Page:
        """The open page."""
        return page_of(self.data, self.tab.place, self.look)

    def rows(self, page: Page) -> list[Row]:
        """Its rows in their order."""
        tab = self.tab
        wanted = tab.wanted if self.typed is None else self.typed
        return ordered(page, wanted, tab.sort, is_reversed=tab.is_reversed)

    def settle(self, page: Page, rows: list[Row], height: int) -> None:
        """Keep the selected row in sight, where the table has so many lines."""
        tab = self.tab
        self._height = max(1, height)
        place = next((n for n, row in enumerate(rows) if row.key == tab.selected), None)
        if place is None:
            place = min(tab.index, max(0, len(rows) - 1))
            tab.selected = rows[place].key if rows and page.is_list else ""
        tab.index = place
        if not page.is_list:
            tab.top = max(0, min(tab.top, len(rows) - self._height))
            return
        tab.top = max(0, min(tab.top, place, len(rows) - self._height))
        if place >= tab.top + self._height:
            tab.top = place - self._height + 1

    # Keys.

    def press(self, key: str) -> list[Wish]:
        """What follows from a key."""
        self.message = ""
        if self.question is not None:
            return self._answer(key)
        if self.typed is not None:
            self._type(key)
            return []
        if self.is_help and key != "q":
            self.is_help = False
            return []
        binding = action_of(key, self.tab.place.view)
        return [] if binding is None else self._do(binding, key)

    def _answer(self, key: str) -> list[Wish]:
        question, self.question = self.question, None
        assert question is not None, "it was asked"
        if key in {"y", "Y"}:
            return [question.change]
        self.message = "nothing was changed"
        return []

    def _type(self, key: str) -> None:
        assert self.typed is not None, "a filter is typed"
        if key == keys.ENTER:
            self.tab.wanted, self.typed = self.typed, None
        elif key == keys.ESCAPE:
            self.typed = None
        elif key == keys.BACKSPACE:
            self.typed = self.typed[:-1]
        elif len(key) == 1 and len(self.typed) < _TEXT_MAX:
            self.typed += key

    def _do(self, binding: Binding, key: str) -> list[Wish]:
        if binding.changes:
            return self._ask(binding)
        match binding.action:
            case "quit":
                return [Quit()]
            case "redraw":
                return [Redraw()]
            case "tab":
                return self._go(Place(keys.TABS[int(key) - 1]))
            case "next_tab":
                return self._turn(1)
            case "previous_tab":
                return self._turn(-1)
            case "open":
                return self._open()
            case "back":
                return self._back()
            case "help":
                self.is_help = True
            case "filter":
                self.typed = self.tab.wanted
            case "freeze":
                self.frozen = self._data if self.frozen is None else None
            case "faster":
                self._pace(-1)
            case "slower":
                self._pace(1)
            case "zoom":
                self.is_zoomed = not self.is_zoomed
            case "sort_next":
                self._sort(1)
            case "sort_previous":
                self._sort(-1)
            case "reverse":
                self.tab.is_reversed = not self.tab.is_reversed
            case move:
                self._move(move)
        return []

    def _go(self, place: Place) -> list[Wish]:
        self.stack = [Tab(place)]
        return [Ask()]

    def _turn(self, step: int) -> list[Wish]:
        view = self.stack[0].place.view
        number_of = keys.TABS.index(view) if view in keys.TABS else 0
        return self._go(Place(keys.TABS[(number_of + step) % len(keys.TABS)]))

    def _open(self) -> list[Wish]:
        place, key = self.tab.place, self._selected()
        if not key:
            return []
        match place.view:
            case keys.QUEUES:
                following = Place(keys.QUEUE, key)
            case keys.WORKERS:
                following = Place(keys.JOBS, worker=key)
            case keys.ERRORS:
                members = members_of(self.data, place, key)
                following = Place(keys.JOB, members[0].id) if members else place
            case _:
                following = Place(keys.JOB, key)
        self.stack.append(Tab(following))
        return [Ask()]

    def _back(self) -> list[Wish]:
        if self.tab.wanted:
            self.tab.wanted = ""
            return []
        if len(self.stack) > 1:
            self.stack.pop()
            return [Ask()]
        return []

    def _pace(self, step: int) -> None:
        slower = [each for each in DELAYS if each > self.delay_s]
        faster = [each for each in DELAYS if each < self.delay_s]
        if step > 0 and slower:
            self.delay_s = slower[0]
        elif step < 0 and faster:
            self.delay_s = faster[-1]

    def _sort(self, step: int) -> None:
        page = self.page()
        if not page.columns:
            return
        names = [column.key for column in page.columns]
        now = self.tab.sort or page.sort
        place = names.index(now) if now in names else -1 if step > 0 else 0
        self.tab.sort = names[(place + step) % len(names)]
        self.tab.is_reversed = False

    def _move(self, move: str) -> None:
        tab, page = self.tab, self.page()
        rows = self.rows(page)
        step = {
            "down": 1,
            "up": -1,
            "page_down": self._height,
            "page_up": -self._height,
            "first": -len(rows),
            "last": len(rows),
        }[move]
        if not page.is_list:
            tab.top = max(0, min(tab.top + step, len(rows) - self._height))
        elif rows:
            self.settle(page, rows, self._height)
            tab.index = max(0, min(tab.index + step, len(rows) - 1))
            tab.selected = rows[tab.index].key

    def _selected(self) -> str:
        page = self.page()
        rows = self.rows(page)
        if not page.is_list or not rows:
            return ""
        self.settle(page, rows, self._height)
        return self.tab.selected

    # Changes.

    def _ask(self, binding: Binding) -> list[Wish]:
        if self._is_read_only:
            self.message = "refused: --read-only"
            return []
        place = self.tab.place
        subject = place.about if place.view == keys.JOB else self._selected()
        if binding.action == "pause_queue":
            self._ask_pause(place.about if place.view == keys.QUEUE else subject)
        elif not subject:
            self.message = "no row is selected"
        elif place.view == keys.ERRORS:
            members = members_of(self.data, place, subject)
            ids = tuple(each.id for each in members)
            states = ", ".join(sorted({each.state for each in members}))
            self.question = Question(
                f"Retry {number(len(ids))} jobs ({states}) with all attempts?",
                Change("retry", job_ids=ids, said=f"{number(len(ids))} jobs are being retried"),
            )
        else:
            self._ask_job(binding.action, subject)
        return []

    def _ask_pause(self, name: str) -> None:
        summary = self.data.summary
        known = summary.queues if summary is not None else []
        own = next((each for each in known if each.name == name), None)
        if own is None:
            self.message = "no queue is selected"
            return
        shown = self.look.safe(name)
        pending, active = own.counts.get("pending", 0), own.counts.get("active", 0)
        if own.paused:
            text = f"Resume {shown}? Workers can fetch its {number(pending)} pending jobs."
            change = Change("resume", queue=name, said=f"{shown} is resumed")
        else:
            text = f"Pause {shown}? {number(pending)} pending stay, {number(active)} active finish."
            change = Change("pause", queue=name, said=f"{shown} is paused")
        self.question = Question(text, change)

    def _ask_job(self, action: str, job_id: str) -> None:
        meaning = {
            "retry": "It becomes pending with all attempts.",
            "cancel": "An active job is asked to stop.",
            "delete": "It is removed for good.",
        }[action]
        shown = self.look.safe(job_id)
        past = {"retry": "retried", "cancel": "cancelled", "delete": "deleted"}[action]
        self.question = Question(
            f"{action.capitalize()} {shown}? {meaning}",
            Change(action, job_ids=(job_id,), said=f"{shown} is {past}"),
        )
