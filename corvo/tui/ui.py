"""What keys do: places, selection, order, filter, questions. Pure: it returns what is to be done.

ui = Ui(delay_s=2.0)
for wish in ui.press("p"): ...
"""

import shlex
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from corvo.client.dashboard import Queue
from corvo.tui import keys
from corvo.tui.keys import Binding, action_of
from corvo.tui.looks import Look, number
from corvo.tui.model import SPANS, Data
from corvo.tui.pages import Page, Row, ordered
from corvo.tui.places import PARTS, Place, Seen
from corvo.tui.views import members_of, page_of

DELAYS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between two refreshes."""
_TEXT_MAX: Final = 200
_WHEEL: Final = {"wheel-up": "up", "wheel-down": "down"}
_WHEEL_ROWS: Final = 3
FILTER, COMMAND, LIMITS = "filter", "command", "limits"
"""Kinds of prompts."""


class Quit(msgspec.Struct, frozen=True):
    """End the program."""


class Redraw(msgspec.Struct, frozen=True):
    """Draw all of the screen again."""


class Ask(msgspec.Struct, frozen=True):
    """Ask the server now."""


class Change(msgspec.Struct, frozen=True):
    """Change something on the server."""

    action: str
    """`pause`, `resume`, `concurrency`, `throttle`, `retry`, `cancel` or `delete`."""
    queues: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    body: dict[str, int | str] = {}
    """What the action needs to know."""
    said: str = ""
    """What is now true, once it is done."""


class Copy(msgspec.Struct, frozen=True):
    """Put a text into the clipboard."""

    text: str


class Save(msgspec.Struct, frozen=True):
    """Save the picture."""


class Mouse(msgspec.Struct, frozen=True):
    """Take reports of the mouse, or none."""

    is_on: bool


Wish: TypeAlias = Quit | Redraw | Ask | Change | Copy | Save | Mouse


class Question(msgspec.Struct, frozen=True):
    """A question on the last line, and the change that a yes allows."""

    text: str
    change: Change


class Prompt(msgspec.Struct):
    """A text that is typed on the last line."""

    kind: str
    """`filter`, `command` or `limits`."""
    label: str
    text: str = ""
    about: str = ""
    """The queue, for limits."""


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
    marked: set[str] = set()
    """Keys of rows that a change applies to."""
    part: str = PARTS[0]
    """Of a job: what is shown of it."""


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
        self.prompt: Prompt | None = None
        self.help_top: int | None = None
        """The first line of the help that is shown; None: it is not open."""
        self.chosen: int | None = None
        """The column that is selected while columns are chosen; None: they are not."""
        self.hidden: dict[str, set[str]] = {}
        """By view, columns that are not shown."""
        self.zoom = 0
        self.span = SPANS[0]
        self.has_mouse = False
        self.frozen: Data | None = None
        """The data that is shown while the picture is stopped."""
        self.message = ""
        self._data = Data()
        self._height = 10
        self.width = 80
        self.count = 0
        """Rows that match the filter."""
        self.first_line = 0
        """The line of the screen with the first visible row."""
        self._is_read_only = is_read_only
        self._made_of: Data | None = None
        self._made_for: tuple[Place, Seen] | None = None
        self._made = Page(columns=(), rows=())

    @property
    def tab(self) -> Tab:
        """What is open."""
        return self.stack[-1]

    @property
    def data(self) -> Data:
        """What is shown."""
        return self.frozen or self._data

    @property
    def latest(self) -> Data:
        """The last data, also while the picture is stopped."""
        return self._data

    def show(self, data: Data) -> None:
        """Take new data."""
        self._data = data

    @property
    def wanted(self) -> Place | None:
        """The place whose own document is to be read with the summary."""
        place = self.tab.place
        return place if place.wanted else None

    @property
    def filter_text(self) -> str:
        """The filter, also while it is typed."""
        if self.prompt is not None and self.prompt.kind == FILTER:
            return self.prompt.text
        return self.tab.wanted

    # What is on the screen.

    def page(self) -> Page:
        """The open page, with the columns that were chosen."""
        page = self._whole_page()
        hidden = self.hidden.get(self.tab.place.view)
        if not hidden:
            return page
        return replace(page, columns=tuple(each for each in page.columns if each.key not in hidden))

    def _whole_page(self) -> Page:
        seen = Seen(self.look, self.span, self.tab.part, self.width)
        data, place = self.data, self.tab.place
        if data is not self._made_of or (place, seen) != self._made_for:
            # One page for a key and its frame: with 10,000 queues it takes a tenth of a second.
            self._made_of, self._made_for = data, (place, seen)
            self._made = page_of(data, place, seen)
        return self._made

    def rows(self, page: Page) -> list[Row]:
        """Its rows in their order."""
        tab = self.tab
        return ordered(page, self.filter_text, tab.sort, is_reversed=tab.is_reversed)

    def settle(self, page: Page, rows: list[Row], height: int) -> None:
        """Keep the selected row in sight, where the table has so many lines."""
        tab = self.tab
        self._height = max(1, height)
        self.count = len(rows)
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
        if self.prompt is not None:
            return self._type(self.prompt, key)
        if self.help_top is not None and key != "q":
            self._scroll_help(key)
            return []
        if self.chosen is not None and key != "q":
            self._choose(key, self.chosen)
            return []
        if key.startswith(keys.CLICK):
            self._click(int(key.removeprefix(keys.CLICK)))
            return []
        if key in _WHEEL:
            for _ in range(_WHEEL_ROWS):
                self._move(_WHEEL[key])
            return []
        binding = action_of(key, self.tab.place.view)
        return [] if binding is None else self._do(binding, key)

    def _answer(self, key: str) -> list[Wish]:
        question, self.question = self.question, None
        assert question is not None, "it was asked"
        if key in {"y", "Y"}:
            self.tab.marked.clear()
            return [question.change]
        self.message = "nothing was changed"
        return []

    def _type(self, prompt: Prompt, key: str) -> list[Wish]:
        if key == keys.ENTER:
            self.prompt = None
            return self._typed(prompt)
        if key == keys.ESCAPE:
            self.prompt = None
        elif key == keys.BACKSPACE:
            prompt.text = prompt.text[:-1]
        elif len(key) == 1 and len(prompt.text) < _TEXT_MAX:
            prompt.text += key
        if prompt.kind == FILTER:
            self.tab.index = 0  # where the selected row does not match
        return []

    def _typed(self, prompt: Prompt) -> list[Wish]:
        if prompt.kind == FILTER:
            self.tab.wanted = prompt.text
            return []
        if prompt.kind == LIMITS:
            return self._limit(prompt.about, prompt.text)
        return self._command(prompt.text)

    def _scroll_help(self, key: str) -> None:
        assert self.help_top is not None, "the help is open"
        step = {"j": 1, "down": 1, "k": -1, "up": -1, "pgdn": self._height, "pgup": -self._height}
        if key in step:
            self.help_top = max(0, self.help_top + step[key])
        else:
            self.help_top = None

    def _choose(self, key: str, chosen: int) -> None:
        columns = self._whole_page().columns
        hidden = self.hidden.setdefault(self.tab.place.view, set())
        if key in {"j", "down"}:
            self.chosen = min(chosen + 1, len(columns) - 1)
        elif key in {"k", "up"}:
            self.chosen = max(0, chosen - 1)
        elif key in {" ", "x"} and chosen > 0:  # a table without names says nothing
            hidden ^= {columns[chosen].key}
        elif key in {keys.ENTER, keys.ESCAPE, "c"}:
            self.chosen = None

    def columns(self) -> list[tuple[str, str, bool]]:
        """The columns to choose from: key, title, and whether it is shown."""
        hidden = self.hidden.get(self.tab.place.view, set())
        return [
            (each.key, each.title or each.key.upper(), each.key not in hidden)
            for each in self._whole_page().columns
        ]

    def _do(self, binding: Binding, key: str) -> list[Wish]:
        if binding.changes:
            return self._ask(binding)
        match binding.action:
            case "quit":
                return [Quit()]
            case "redraw":
                return [Redraw()]
            case "save":
                return [Save()]
            case "mouse":
                self.has_mouse = not self.has_mouse
                return [Mouse(self.has_mouse)]
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
            case "copy":
                return self._copy()
            case "copy_command":
                return self._copy_command()
        self._show(binding.action, key)
        return []

    def _show(self, action: str, key: str) -> None:
        """Actions that only change what is shown."""
        match action:
            case "part":
                self.tab.part, self.tab.top = PARTS[int(key) - 1], 0
            case "help":
                self.help_top = 0
            case "columns":
                self.chosen = 0 if self._whole_page().columns else None
            case "filter":
                self.prompt = Prompt(FILTER, "filter", self.tab.wanted)
            case "command":
                self.prompt = Prompt(COMMAND, COMMAND)
            case "freeze":
                self.frozen = self._data if self.frozen is None else None
            case "faster":
                self._pace(-1)
            case "slower":
                self._pace(1)
            case "zoom":
                self.zoom = (self.zoom + 1) % 3
            case "span":
                self.span = SPANS[(SPANS.index(self.span) + 1) % len(SPANS)]
            case "sort_next":
                self._sort(1)
            case "sort_previous":
                self._sort(-1)
            case "reverse":
                self.tab.is_reversed = not self.tab.is_reversed
            case "mark":
                self._mark()
            case "mark_all":
                every = {row.key for row in self.rows(self.page())}
                self.tab.marked = set() if self.tab.marked >= every else every
            case move:
                self._move(move)

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
        tab = self.tab
        if tab.marked:
            tab.marked = set()
        elif tab.wanted:
            tab.wanted = ""
        elif len(self.stack) > 1:
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

    def _click(self, line: int) -> None:
        page = self.page()
        rows, place = self.rows(page), self.tab.top + line - self.first_line
        if page.is_list and self.tab.top <= place < min(len(rows), self.tab.top + self._height):
            self.tab.index, self.tab.selected = place, rows[place].key

    def _mark(self) -> None:
        key = self._selected()
        if key:
            self.tab.marked = self.tab.marked ^ {key}
            self._move("down")

    def _selected(self) -> str:
        page = self.page()
        rows = self.rows(page)
        if not page.is_list or not rows:
            return ""
        self.settle(page, rows, self._height)
        return self.tab.selected

    def _subject(self) -> str:
        """What the open view or the selected row is about."""
        place = self.tab.place
        return place.about if place.view == keys.JOB else self._selected()

    def _copy(self) -> list[Wish]:
        subject = self._subject()
        self.message = f"copied {self.look.safe(subject)}" if subject else "no row is selected"
        return [Copy(subject)] if subject else []

    def _copy_command(self) -> list[Wish]:
        subject = self._subject()
        if not subject:
            self.message = "no row is selected"
            return []
        text = command_of(self.tab.place, subject)
        self.message = f"copied: {self.look.safe(text)}"
        return [Copy(text)]

    # Commands.

    def _command(self, text: str) -> list[Wish]:
        name, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        if name in keys.TABS and not rest:
            return self._go(Place(name))
        match name, rest:
            case "", _:
                return []
            case "q" | "quit", "":
                return [Quit()]
            case "q" | "queue", _ if rest:
                return self._to_queue(rest)
            case "job", _ if rest:
                self.stack.append(Tab(Place(keys.JOB, rest)))
                return [Ask()]
            case "sort", _ if rest:
                return self._sort_by(rest)
            case "filter", _:
                self.tab.wanted = rest
                return []
        self.message = f"unknown command {self.look.safe(name)!r}; known: {_COMMANDS}"
        return []

    def _to_queue(self, name: str) -> list[Wish]:
        """Open a queue; or show all whose names match, if it is a pattern."""
        if "*" in name:
            self.stack = [Tab(Place(keys.QUEUES), wanted=name)]
        else:
            self.stack = [Tab(Place(keys.QUEUES)), Tab(Place(keys.QUEUE, name))]
        return [Ask()]

    def _sort_by(self, text: str) -> list[Wish]:
        name, _, order = text.partition(":")
        column = next((each for each in self._whole_page().columns if each.key == name), None)
        if column is None or order not in {"", "asc", "desc"}:
            known = ", ".join(key for key, _, _ in self.columns())
            self.message = f"expected sort COLUMN[:asc|:desc], one of {known}"
            return []
        self.tab.sort = name
        self.tab.is_reversed = bool(order) and (order == "desc") is not column.is_descending
        return []

    # Changes.

    def _ask(self, binding: Binding) -> list[Wish]:
        if self._is_read_only:
            self.message = "refused: --read-only"
            return []
        place, marked = self.tab.place, sorted(self.tab.marked)
        subject = place.about if place.view == keys.QUEUE else self._subject()
        if binding.action == "pause_queue":
            is_many = marked and place.view == keys.QUEUES
            self._ask_pause(marked if is_many else [subject])
        elif binding.action == "limits":
            self._ask_limits(subject)
        else:
            self._ask_jobs(binding.action, marked or [self._subject()])
        return []

    def _queue(self, name: str) -> Queue | None:
        summary = self.data.summary
        known = summary.queues if summary is not None else []
        return next((each for each in known if each.name == name), None)

    def _ask_pause(self, names: list[str]) -> None:
        known = [own for own in map(self._queue, names) if own is not None]
        if not known:
            self.message = "no queue is selected"
            return
        is_resumed = all(own.paused for own in known)
        concerned = [own for own in known if own.paused is is_resumed]
        shown = (
            self.look.safe(concerned[0].name) if len(concerned) == 1 else f"{len(concerned)} queues"
        )
        are = "is" if len(concerned) == 1 else "are"
        pending = number(sum(own.counts.get("pending", 0) for own in concerned))
        active = number(sum(own.counts.get("active", 0) for own in concerned))
        queues = tuple(own.name for own in concerned)
        if is_resumed:
            text = f"Resume {shown}? Workers can fetch {pending} pending jobs."
            change = Change("resume", queues=queues, said=f"{shown} {are} resumed")
        else:
            text = f"Pause {shown}? {pending} pending stay, {active} active finish."
            change = Change("pause", queues=queues, said=f"{shown} {are} paused")
        self.question = Question(text, change)

    def _ask_limits(self, name: str) -> None:
        own = self._queue(name)
        if own is None:
            self.message = "no queue is selected"
            return
        label = f"limit of {self.look.safe(name)} (10 active jobs; 200/1m: a rate; 0: none)"
        now = f"{own.max_concurrency}" if own.max_concurrency else ""
        self.prompt = Prompt(LIMITS, label, now, name)

    def _limit(self, name: str, text: str) -> list[Wish]:
        shown, text = self.look.safe(name), text.strip()
        rate_text, slash, window = (part.strip() for part in text.partition("/"))
        if not rate_text.isdecimal() or (slash and not window):
            self.message = (
                f"{self.look.safe(text)!r} is invalid: expected a number, or one as 200/1m"
            )
        elif slash:
            self.question = Question(
                f"Start at most {rate_text} jobs of {shown} in {self.look.safe(window)}?",
                Change(
                    "throttle",
                    queues=(name,),
                    body={"rate": int(rate_text), "window": window},
                    said=f"{shown} starts at most {rate_text} jobs in {self.look.safe(window)}",
                ),
            )
        else:
            most = int(rate_text)
            bound = f"at most {number(most)} active jobs" if most else "any number of active jobs"
            self.question = Question(
                f"Allow {shown} {bound}?",
                Change(
                    "concurrency",
                    queues=(name,),
                    body={"max": most},
                    said=f"{shown} has {bound}",
                ),
            )
        return []

    def _ask_jobs(self, action: str, subjects: list[str]) -> None:
        if not any(subjects):
            self.message = "no row is selected"
            return
        ids, states = tuple(subjects), ""
        if self.tab.place.view == keys.ERRORS:
            members = [
                each for key in subjects for each in members_of(self.data, self.tab.place, key)
            ]
            ids = tuple(each.id for each in members)
            states = f" ({', '.join(sorted({each.state for each in members}))})"
        is_one = len(ids) == 1
        shown = self.look.safe(ids[0]) if is_one else f"{number(len(ids))} jobs{states}"
        meaning = {
            "retry": "pending, with all attempts",
            "cancel": "cancelled; workers are asked to stop active jobs",
            "delete": "removed for good",
        }[action]
        past = {"retry": "retried", "cancel": "cancelled", "delete": "deleted"}[action]
        becomes = "It becomes" if is_one else "They become"
        if action == "delete":
            becomes = "It is" if is_one else "They are"
        self.question = Question(
            f"{action.capitalize()} {shown}? {becomes} {meaning}.",
            Change(action, job_ids=ids, said=f"{shown} {'is' if is_one else 'are'} {past}"),
        )


_COMMANDS: Final = f"{', '.join(keys.TABS)}, queue NAME, job ID, sort COLUMN, filter TEXT, quit"


def command_of(place: Place, subject: str) -> str:
    """A command that shows in a shell what a row shows."""
    name = shlex.quote(subject)
    match place.view:
        case keys.QUEUES:
            return f"corvo queues {name}"
        case keys.WORKERS:
            return f"corvo search --worker-id {name}"
        case keys.ERRORS:
            # Without the numbers, which differ: each piece between them is in all errors.
            piece = max(subject.split("N"), key=len).strip()
            return f"corvo search --state dead,retrying --error-contains {shlex.quote(piece)}"
    return f"corvo inspect {name}"
