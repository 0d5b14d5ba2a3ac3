"""Keys: out of bytes, and what they do."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.tui import keys
from corvo.tui.frame import frame
from corvo.tui.keys import BINDINGS, Keys, action_of, bindings_of
from corvo.tui.model import Data
from corvo.tui.places import PARTS, Place, Seen
from corvo.tui.ui import (
    Ask,
    Change,
    Copy,
    Mouse,
    Question,
    Quit,
    Redraw,
    Save,
    Tab,
    Ui,
    Wish,
)
from corvo.tui.views import page_of
from tests.tui.documents import DATA, EVIL, JOB, PLACES, SUMMARY


def ui_of(view: str = keys.QUEUES, data: Data = DATA) -> Ui:
    ui = Ui(view=view)
    ui.show(data)
    ui.settle(ui.page(), ui.rows(ui.page()), 5)
    return ui


def press(ui: Ui, *pressed: str) -> list[Wish]:
    return [wish for key in pressed for wish in ui.press(key)]


def wanted(ui: Ui) -> Place | None:
    return ui.wanted


def help_top(ui: Ui) -> int | None:
    return ui.help_top


def question(ui: Ui) -> Question | None:
    return ui.question


# Out of bytes.

TYPED: Final = {
    b"\x1b[A": ["up"],
    b"\x1bOB": ["down"],
    b"\x1b[5~\x1b[6~": ["pgup", "pgdn"],
    b"jk\r\x7f\t": ["j", "k", "enter", "backspace", "tab"],
    "ä発".encode(): ["ä", "発"],
    b"\x1b[1;5C": [],
    b"\x00\x01": [],
    b"\xff": [],
    b"\x1bq": ["esc", "q"],
    b"\x1b[<0;12;34M": ["click:33"],
    b"\x1b[<0;12;34m\x1b[<64;1;1M\x1b[<65;1;1M\x1b[<2;1;1M": ["wheel-up", "wheel-down"],
    b"\x1b[<0;12M": [],
}


@pytest.mark.parametrize("data", TYPED)
def test_bytes_are_keys_also_when_they_arrive_one_by_one(data: bytes) -> None:
    at_once = Keys()
    slowly = Keys()

    assert at_once.feed(data) + at_once.close() == TYPED[data]
    one_by_one = [key for byte in data for key in slowly.feed(bytes([byte]))]
    assert one_by_one + slowly.close() == TYPED[data]


def test_an_escape_character_alone_is_a_key_once_nothing_follows() -> None:
    found = Keys()

    assert found.feed(b"\x1b") == []
    assert found.is_open
    assert found.close() == ["esc"]
    assert not found.is_open


@given(st.lists(st.binary(max_size=12), max_size=8))
def test_no_bytes_stop_the_keys(pieces: list[bytes]) -> None:
    found = Keys()
    for piece in pieces:
        found.feed(piece)
    found.close()

    assert found.feed(b"q")[-1:] == ["q"]


# The table.


def test_no_key_has_two_actions_in_a_view() -> None:
    for view in (*keys.TABS, keys.QUEUE, keys.JOB):
        bound = [key for binding in bindings_of(view) for key in binding.keys]
        assert len(bound) == len(set(bound)), view


def test_every_action_does_something() -> None:
    for binding in BINDINGS:
        for view in sorted(binding.views) or keys.TABS:
            for key in binding.keys:
                ui = ui_of(view) if view in keys.TABS else ui_of()
                if view not in keys.TABS:
                    ui.stack[-1].place = PLACES[view]
                assert action_of(" " if key == "space" else key, view) is binding
                ui.press(" " if key == "space" else key)


# Moving.


def test_moving_stops_at_both_ends_and_a_row_stays_selected_when_others_move() -> None:
    ui = ui_of()
    first = ui.tab.selected

    press(ui, "k", "up")
    assert ui.tab.selected == first
    press(ui, "j", "down")
    chosen = ui.tab.selected
    assert ui.tab.index == 2
    press(ui, "R")
    page = ui.page()
    ui.settle(page, ui.rows(page), 5)
    assert ui.tab.selected == chosen
    assert ui.tab.index == len(page.rows) - 3
    press(ui, "G", "pgdn")
    assert ui.tab.index == len(page.rows) - 1
    press(ui, "g")
    assert ui.tab.index == 0


def test_a_queue_that_is_gone_leaves_the_selection_where_it_was() -> None:
    ui = ui_of()
    press(ui, "j")
    gone = ui.tab.selected
    left = [queue for queue in SUMMARY.queues if queue.name != gone]

    ui.show(replace(DATA, summary=replace(SUMMARY, queues=left)))
    ui.settle(ui.page(), ui.rows(ui.page()), 5)

    assert ui.tab.selected != gone
    assert ui.tab.index == 1


def test_rows_are_filtered_while_they_are_typed_and_a_mark_excludes() -> None:
    ui = ui_of()

    def names() -> list[str]:
        return [row.key for row in ui.rows(ui.page())]

    press(ui, "/", *"emailx", "backspace")
    assert sorted(names()) == ["emails.bulk", "emails.send"]
    press(ui, "enter")
    assert ui.tab.wanted == "email"
    press(ui, "esc")
    assert len(names()) == len(SUMMARY.queues)
    press(ui, "/", *"!email", "enter")
    assert len(names()) == len(SUMMARY.queues) - 2
    press(ui, "/", *"x", "esc")
    assert ui.tab.wanted == "!email"
    press(ui, "/", *["backspace"] * 9, *"*.s*nd", "enter")
    assert names() == ["emails.send"]


def test_s_sorts_by_each_column_in_turn_and_back() -> None:
    ui = ui_of()
    columns = [column.key for column in ui.page().columns]

    press(ui, "s")
    assert ui.tab.sort == columns[columns.index("pending") + 1]
    press(ui, "<", "<")
    assert ui.tab.sort == columns[columns.index("pending") - 1]
    for _ in columns:
        press(ui, ">")
        assert len(ui.rows(ui.page())) == len(SUMMARY.queues)


def test_enter_opens_and_escape_goes_back() -> None:
    ui = ui_of()
    name = ui.tab.selected

    assert press(ui, "enter") == [Ask()]
    assert ui.tab.place == Place(keys.QUEUE, name)
    assert ui.wanted == ui.tab.place
    assert press(ui, "esc") == [Ask()]
    assert ui.tab.place == Place(keys.QUEUES)
    assert wanted(ui) is None
    assert press(ui, "esc") == []


def test_an_error_opens_its_newest_job() -> None:
    ui = ui_of(keys.ERRORS)
    [group] = [row.key for row in ui.page().rows if "Timeout" in row.key]
    ui.tab.selected = group

    press(ui, "enter")

    assert ui.tab.place == Place(keys.JOB, "s01_job_01HX7Y2K3M0002")


def test_numbers_and_tab_choose_views() -> None:
    ui = ui_of()
    for number, view in enumerate(keys.TABS, start=1):
        assert press(ui, str(number)) == [Ask()]
        assert ui.tab.place.view == view
    press(ui, "tab")
    assert ui.tab.place.view == keys.TABS[0]
    press(ui, "shift-tab")
    assert ui.tab.place.view == keys.TABS[-1]


def test_a_stopped_picture_keeps_its_data_and_continues_with_the_latest() -> None:
    ui = ui_of()
    press(ui, " ")
    ui.show(Data())
    assert ui.data is DATA

    press(ui, " ")
    assert ui.data.summary is None


def test_the_delay_has_steps() -> None:
    ui = ui_of()
    press(ui, "+")
    assert ui.delay_s == 1.0
    press(ui, *"-" * 9)
    assert ui.delay_s == 60.0
    press(ui, *"+" * 9)
    assert ui.delay_s == 0.5


def test_help_scrolls_closes_with_any_other_key_and_q_ends() -> None:
    ui = ui_of()
    press(ui, "?", "j", "down", "k")
    assert help_top(ui) == 1
    press(ui, "x")
    assert help_top(ui) is None
    assert press(ui, "?", "q") == [Quit()]
    assert press(ui_of(), "ctrl-l") == [Redraw()]


# Changing.


def test_pausing_asks_with_consequences_and_only_a_yes_does_it() -> None:
    ui = ui_of()
    ui.tab.selected = "emails.send"

    assert press(ui, "p") == []
    assert ui.question is not None
    assert ui.question.text == "Pause emails.send? 42 pending stay, 10 active finish."
    assert press(ui, "enter") == []
    assert question(ui) is None
    assert ui.message == "nothing was changed"
    assert press(ui, "p", "y") == [
        Change("pause", queues=("emails.send",), said="emails.send is paused")
    ]


def test_a_paused_queue_is_resumed() -> None:
    ui = ui_of()
    ui.tab.selected = "sync.users"

    [change] = press(ui, "p", "y")

    assert change == Change("resume", queues=("sync.users",), said="sync.users is resumed")


def test_the_queue_of_an_open_view_is_paused() -> None:
    ui = ui_of()
    ui.stack[-1].place = PLACES[keys.QUEUE]

    [change] = press(ui, "p", "y")

    assert isinstance(change, Change)
    assert (change.action, change.queues) == ("pause", ("emails.send",))


@pytest.mark.parametrize(("key", "action"), [("r", "retry"), ("C", "cancel"), ("D", "delete")])
@pytest.mark.parametrize("view", [keys.JOB, keys.JOBS, keys.QUEUE])
def test_jobs_are_changed_where_they_are_shown(view: str, key: str, action: str) -> None:
    ui = ui_of()
    ui.stack[-1].place = PLACES[view]
    if view != keys.JOB:
        ui.tab.selected = JOB.id

    [change] = press(ui, key, "y")

    assert isinstance(change, Change)
    assert (change.action, change.job_ids) == (action, (JOB.id,))


def test_all_jobs_of_an_error_are_retried_after_their_number_was_shown() -> None:
    ui = ui_of(keys.ERRORS)
    ui.tab.selected = next(row.key for row in ui.page().rows if "Timeout" in row.key)

    press(ui, "r")
    assert ui.question is not None
    assert ui.question.text == "Retry 2 jobs (retrying)? They become pending, with all attempts."
    [change] = press(ui, "y")

    assert isinstance(change, Change)
    assert len(change.job_ids) == 2


def test_read_only_refuses_every_change() -> None:
    for binding in BINDINGS:
        for view in sorted(binding.views) if binding.changes else ():
            ui = Ui(is_read_only=True)
            ui.show(DATA)
            ui.stack[-1].place = PLACES[view]
            assert press(ui, binding.keys[0]) == []
            assert (ui.question, ui.prompt) == (None, None)
            assert ui.message == "refused: --read-only"


def test_a_change_applies_to_all_marked_rows() -> None:
    ui = ui_of()
    ui.tab.selected = "emails.bulk"
    press(ui, "x")
    assert ui.tab.selected != "emails.bulk"
    ui.tab.selected = "sync.users"
    press(ui, "x")
    ui.tab.selected = "emails.send"
    press(ui, "x", "p")

    assert question(ui) is not None
    assert ui.question is not None
    assert ui.question.text == "Pause 2 queues? 1,245 pending stay, 15 active finish."
    [change] = press(ui, "y")
    assert change == Change(
        "pause", queues=("emails.bulk", "emails.send"), said="2 queues are paused"
    )
    assert ui.tab.marked == set()


def test_marks_are_set_on_all_rows_that_match_and_go_with_escape() -> None:
    ui = ui_of(keys.JOBS)
    press(ui, "/", *"timeout", "enter", "a")
    assert len(ui.tab.marked) == 2

    [change] = press(ui, "D", "y")
    assert isinstance(change, Change)
    assert (change.action, len(change.job_ids), change.said) == ("delete", 2, "2 jobs are deleted")
    press(ui, "a", "a")
    assert ui.tab.marked == set()
    press(ui, "a", "esc")
    assert (ui.tab.marked, ui.tab.wanted) == (set(), "timeout")


LIMITS: Final = {
    "25": Change(
        "concurrency",
        queues=("emails.send",),
        body={"max": 25},
        said="emails.send has at most 25 active jobs",
    ),
    "0": Change(
        "concurrency",
        queues=("emails.send",),
        body={"max": 0},
        said="emails.send has any number of active jobs",
    ),
    " 200 / 1m ": Change(
        "throttle",
        queues=("emails.send",),
        body={"rate": 200, "window": "1m"},
        said="emails.send starts at most 200 jobs in 1m",
    ),
}


@pytest.mark.parametrize("typed", LIMITS)
def test_limits_are_typed_and_asked_for(typed: str) -> None:
    ui = ui_of()
    ui.tab.selected = "emails.send"
    press(ui, "L")
    assert ui.prompt is not None
    assert ui.prompt.text == "10"

    assert press(ui, "backspace", "backspace", *typed, "enter", "y") == [LIMITS[typed]]


@pytest.mark.parametrize("typed", ["", "many", "-1", "200/", "/1m"])
def test_a_limit_that_is_no_number_is_refused(typed: str) -> None:
    ui = ui_of()
    ui.tab.selected = "emails.send"

    assert press(ui, "L", "backspace", "backspace", *typed, "enter") == []
    assert question(ui) is None
    assert "is invalid: expected a number, or one as 200/1m" in ui.message


COMMANDS: Final = {
    "workers": Place(keys.WORKERS),
    "queue emails.send": Place(keys.QUEUE, "emails.send"),
    "q a b": Place(keys.QUEUE, "a b"),
    " job x1 ": Place(keys.JOB, "x1"),
}


@pytest.mark.parametrize("typed", COMMANDS)
def test_a_command_opens_a_place(typed: str) -> None:
    ui = ui_of()

    assert press(ui, ":", *typed, "enter") == [Ask()]
    assert ui.tab.place == COMMANDS[typed]


def test_commands_sort_filter_and_end() -> None:
    ui = ui_of()
    press(ui, ":", *"sort dead:asc", "enter")
    assert (ui.tab.sort, ui.tab.is_reversed) == ("dead", True)
    press(ui, ":", *"filter mails", "enter")
    assert ui.tab.wanted == "mails"
    press(ui, ":", *"queue emails.*", "enter")
    assert (ui.tab.place, ui.tab.wanted) == (Place(keys.QUEUES), "emails.*")
    assert press(ui, ":", "enter") == []
    assert press(ui, ":", "x", "esc") == []
    assert press(ui, ":", *"quit", "enter") == [Quit()]
    for typed in ("nonsense", "sort nothing", "sort name:up", "queue", "job"):
        assert press(ui, ":", *typed, "enter") == []
        assert ui.message, typed


def test_columns_are_chosen_but_the_first_one_stays() -> None:
    ui = ui_of()
    press(ui, "c", " ", "j", " ", "enter")
    assert [column.key for column in ui.page().columns][:2] == ["name", "pending"]
    assert [shown for _, _, shown in ui.columns()][:3] == [True, False, True]
    press(ui, "c", "down", "x", "up", "esc")
    assert [column.key for column in ui.page().columns][1] == "state"
    assert press(ui, "c", "q") == [Quit()]


def test_a_sorted_column_that_is_hidden_leaves_the_rows_where_they_are() -> None:
    ui = ui_of()
    press(ui, ":", *"sort dead", "enter", "c", *"j" * 7, " ", "enter")

    assert "dead" not in [column.key for column in ui.page().columns]
    assert len(ui.rows(ui.page())) == len(SUMMARY.queues)


def test_what_a_row_is_about_can_be_copied_with_a_command_that_shows_it() -> None:
    ui = ui_of()
    ui.tab.selected = EVIL
    assert press(ui, "y", "Y") == [Copy(EVIL), Copy(f"corvo queues '{EVIL}'")]
    ui = ui_of()
    ui.stack.append(Tab(PLACES[keys.JOB]))
    assert press(ui, "y", "Y") == [Copy(JOB.id), Copy(f"corvo inspect {JOB.id}")]
    ui = ui_of(keys.ERRORS)
    ui.tab.selected = next(row.key for row in ui.page().rows if "Timeout" in row.key)
    assert press(ui, "Y") == [
        Copy("corvo search --state dead,retrying --error-contains 'TimeoutError: no answer within'")
    ]
    assert press(ui_of(data=Data()), "y", "Y") == []


def test_parts_of_a_job_have_numbers() -> None:
    ui = ui_of()
    ui.stack.append(Tab(PLACES[keys.JOB]))
    for number, part in enumerate(PARTS, start=1):
        press(ui, f"{number}")
        assert ui.tab.part == part
        page = ui.page()
        assert not page.is_list
        assert len(ui.rows(page)) == len(page.rows)
    press(ui, "2", "s", "R", "G", "g")
    [name] = [row for row in ui.page().rows if "ada@example.org" in f"{row.written['text']}"]
    assert name.written["text"] == '  "to": "ada@example.org",'


def test_bars_show_other_times_and_panels_other_sizes() -> None:
    ui = ui_of()
    spans = [ui.span]
    zooms = [ui.zoom]
    for _ in range(3):
        press(ui, "w", "z")
        spans.append(ui.span)
        zooms.append(ui.zoom)
    assert spans == ["15 m", "1 h", "1 m", "15 m"]
    assert zooms == [0, 1, 2, 0]


def test_the_mouse_is_off_until_it_is_switched_on_and_then_selects_rows() -> None:
    ui = ui_of()
    lines = frame(ui, 80, 24)
    line = next(n for n, each in enumerate(lines) if "emails.send" in each.plain)

    assert press(ui, "M") == [Mouse(True)]
    press(ui, f"click:{line}")
    assert ui.tab.selected == "emails.send"
    for nowhere in ("click:0", "click:23", "click:20"):
        press(ui, nowhere)
        assert ui.tab.selected == "emails.send"
    at = ui.tab.index
    press(ui, "wheel-up")
    assert ui.tab.index == at - 3
    press(ui, "wheel-down")
    assert ui.tab.index == at
    assert press(ui, "M") == [Mouse(False)]


def test_the_picture_can_be_saved() -> None:
    assert press(ui_of(), "S") == [Save()]


def test_every_view_has_a_page_without_any_data() -> None:
    for place in PLACES.values():
        assert list(page_of(Data(), place, Seen()).rows) == []
