"""Small histories with a schedule: each second it creates a job, and any line can lie."""

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from chaos.history import Args, FinalSchedule, JobRow, OpType, Record, Res, Schedule
from chaos.model import PENDING
from tests.chaos.story import WALL, Story

NAME: Final = "q~s"
EACH_SECOND: Final = Schedule(
    id=NAME, cron="* * * * * *", mark="s", missed="one", missed_after_ms=5_000
)


def due_text(ms: int) -> str:
    """The due time so long after the beginning, as it is in the id of a job."""
    moment = datetime.fromtimestamp(WALL // 10**9 + ms // 1_000, UTC)
    fraction = f".{ms % 1_000:03}" if ms % 1_000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


class Timetable(Story):
    """A history with one schedule, which is created at 100 ms."""

    def __init__(self, spec: Schedule = EACH_SECOND, *, event: bool = True) -> None:
        super().__init__()
        self.fired = 0
        self.is_there, self.is_paused = True, False
        self.sent("create_schedule", 100, spec, event="schedule.created" if event else "")

    def sent(
        self, f: str, at: int, spec: Schedule | None = None, *, event: str = "",
        kind: OpType = "ok", op_id: str = "", number: int = 1, same: bool = False,
        name: str = NAME,
    ) -> None:  # fmt: skip
        """A request about the schedule, and its event."""
        if event:
            self.event(event, name, at, same=same)
            self.is_there = event != "schedule.deleted"
            self.is_paused = event == "schedule.paused"
        args = Args(schedule=spec) if spec is not None else Args(id=name)
        code = "REJECTED" if kind == "fail" else ""
        self.op(
            f, at, args, Res(status="ok"), kind=kind, client="o", op_id=op_id, number=number,
            code=code,
        )  # fmt: skip

    def fire(self, *seconds: float, at: int, missed: bool = False, same: bool = False) -> None:
        """One entry creates the jobs of due times, so many seconds after the beginning."""
        if missed:
            self.event("schedule.skipped", NAME, at, why="missed", same=same)
        for place, second in enumerate(seconds):
            job = f"{NAME}@{due_text(round(second * 1_000))}"
            self.create(job, at, same=same or missed or place > 0)

    def create(self, job: str, at: int, *, same: bool = False) -> None:
        """A job of the schedule."""
        self.event("enqueued", job, at, PENDING, by=f"schedule {NAME}", same=same)
        self.rows[job] = JobRow(job_id=job, queue="q", state=PENDING, mark="s")
        self.fired += 1

    def by_hand(self, at: int, *, event: bool = True, kind: OpType = "ok", op_id: str = "") -> None:
        """A job now, as an operator asks."""
        if event:
            self.create(f"{NAME}@now-{due_text(at)}", at)
        self.sent("run_schedule", at, kind=kind, op_id=op_id)

    def busy(self, first: int, last: int, step: int = 100) -> None:
        """The shard works: jobs come meanwhile."""
        for at in range(first, last, step):
            self.enqueue(f"b{at}", at)

    def ending(self) -> list[Record]:
        """What is read at the end, with the schedule."""
        found = super().ending()
        if self.is_there:
            found.append(FinalSchedule("n1", NAME, paused=self.is_paused, fired=self.fired))
        return found


def late(spec: Schedule, *seconds: float, missed: bool = True) -> list[Record]:
    """Three seconds fire in time, the next ten while there is no leader, and then these."""
    story = Timetable(replace(spec, missed_after_ms=3_000))
    for second in (1, 2, 3):
        story.fire(second, at=1_000 * second + 2)
    story.fire(*seconds, at=13_500, missed=missed)
    return story.records()
