# The part of croniter that is used here; croniter itself has no types.

from datetime import datetime

class CroniterError(ValueError): ...
class CroniterBadCronError(CroniterError): ...
class CroniterBadDateError(CroniterError): ...

class croniter:  # noqa: N801 -- that is its name
    def __init__(
        self,
        expr_format: str,
        start_time: datetime,
        *,
        second_at_beginning: bool = False,
        implement_cron_bug: bool = False,
        max_years_between_matches: int | None = None,
    ) -> None: ...
    def get_next(self, ret_type: type[datetime]) -> datetime: ...
    @classmethod
    def expand(
        cls, expr_format: str, *, second_at_beginning: bool = False
    ) -> tuple[list[list[int | str]], dict[int, set[int | str]]]: ...
