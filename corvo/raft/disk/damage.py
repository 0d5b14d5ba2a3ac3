"""Findings of damage: file, offset, index, problem and fix."""

from typing import Final

from corvo.raft.errors import LogDamaged

QUARANTINE: Final = "nothing was changed: quarantine this replica"
REPLACE: Final = "nothing was changed: replace this replica under a new id, its vote is not known"


def damaged(
    file: str, offset: int, index: int, problem: str, *, action: str = QUARANTINE
) -> LogDamaged:
    """The error for bytes that are not what was written."""
    return LogDamaged(file=file, offset=offset, index=index, problem=problem, action=action)
