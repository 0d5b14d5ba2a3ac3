"""What the driver does for the steered clock: log lines, and a note for the next process.

    <data_dir>/clock    the boot of the machine, and what the clock showed more than elapsed time

The note is for a process that starts after one that ended without being asked to: within one boot
the clock continues, however wrong the wall clock is by then. A process that was asked to stop
leaves no note, and the next one believes the wall clock again: an operator can have it believed.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from corvo.sealed import seal, unseal
from corvo.steered_clock import SHARE, UNSET_NS, Course, Notice, SteeredClock
from corvo.telemetry import Level, Log, Value

_MOVED_NS: Final = 1_000_000_000
"""A change of the offset that is noted."""
_DAY_NS: Final = 86_400 * 1_000_000_000
_PERCENT: Final = 100 // SHARE

NAME: Final = "clock"


class Noted(msgspec.Struct, frozen=True):
    """The content of the note."""

    boot: str
    offset_ns: int


class ClockNote:
    """The note in a shard's directory. It is not made durable: it is for this boot alone."""

    def __init__(self, path: Path, *, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._noted_ns: int | None = None

    def read(self) -> int | None:
        """The offset of the clock at the end of the process before, if it is from this boot."""
        try:
            noted = unseal(self._path.read_bytes(), Noted)
        except (OSError, msgspec.DecodeError, UnicodeError):
            return None
        return noted.offset_ns if noted.boot == self._boot else None

    def keep(self, clock: SteeredClock) -> None:
        """Note the offset of the clock, if it has changed."""
        offset_ns, noted_ns = clock.offset_ns, self._noted_ns
        if offset_ns is None:
            return
        if noted_ns is not None and abs(offset_ns - noted_ns) < _MOVED_NS:
            return
        self._noted_ns = offset_ns
        fresh = self._path.with_suffix(".new")
        with suppress(OSError):  # a full disk, or the like: others find out what it is
            fresh.write_bytes(seal(msgspec.json.encode(Noted(self._boot, offset_ns))))
            fresh.replace(self._path)

    def remove(self) -> None:
        """This process was asked to stop."""
        self._path.unlink(missing_ok=True)


def log_notice(log: Log, notice: Notice) -> None:
    """Log a notice of the clock."""
    level, event, fields = describe(notice)
    write = {Level.INFO: log.info, Level.WARNING: log.warning}[level]
    write(event, **fields)


def describe(notice: Notice) -> tuple[Level, str, dict[str, Value]]:
    """A notice as a log line."""
    fields: dict[str, Value] = {}
    if notice.since_last_ns is not None:
        fields["since_last_entry_s"] = _seconds(notice.since_last_ns)
    if notice.course is Course.IN_STEP:
        if notice.since_last_ns is None:
            return Level.INFO, "clock.in_step", fields
        is_long = notice.since_last_ns >= _DAY_NS
        means = "the wall clock is believed; what was due in this time is due now"
        return Level.WARNING if is_long else Level.INFO, "clock.started", {**fields, "means": means}
    fields["wall_ahead_s"] = _seconds(notice.ahead_ns)
    match notice.course:
        case Course.FASTER:
            fields |= {
                "pace": f"{_PERCENT} % faster",
                "agree_in_s": _seconds(notice.ahead_ns * SHARE),
                "means": f"leases and delays end up to {_PERCENT} % early, and times that clients"
                " gave come late by the difference, until both agree",
                "do": "nothing; or, if the wall clock is right, restart the node to have it"
                " believed at once",
            }
        case Course.SLOWER:
            fields |= {
                "pace": f"{_PERCENT} % slower",
                "agree_in_s": _seconds(-notice.ahead_ns * SHARE),
                "means": f"leases and delays end up to {_PERCENT} % late, and times that clients"
                " gave come early by the difference, until both agree",
                "do": "set the wall clock if it is wrong",
            }
        case _:
            return Level.WARNING, "clock.ignored", {**fields, **_ignored(notice)}
    return Level.WARNING, "clock.off", fields


def _ignored(notice: Notice) -> dict[str, Value]:
    if notice.shown_ns + notice.ahead_ns < UNSET_NS:
        means, do = "the wall clock was never set", "set the wall clock"
    else:
        means = "times that clients gave come late by the difference"
        do = "set the wall clock; if it is right, restart the node"
        if notice.since_last_ns is not None:
            do = "set the wall clock; if it is right, raise shard.clock_ahead_max_ms and restart"
    return {"pace": "that of elapsed time", "means": means, "do": do}


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 3)
