"""A worker whose server is killed, and which is stopped, does every job, and none twice."""

from pathlib import Path

from tests.client_commands import killing


def test_every_job_is_done_once_through_kills_and_a_stop(tmp_path: Path) -> None:
    seen = killing.run(tmp_path, kills=2, stops=1, jobs=24, work_s=0.05)

    assert seen.wrongs == []
    assert (seen.jobs, seen.kills, seen.stops) == (48, 2, 1)
