"""Finding jobs by their ids in all shards, also jobs that have moved."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from corvo.protocol.ops.base import ITEMS_MAX
from corvo.protocol.queries import Form, FoundJob, GetJobs, Jobs
from corvo.router.api import Api
from corvo.router.ask import ask_each
from corvo.router.auth import keyring
from corvo.router.caller import Caller
from corvo.router.http.messages import Problem
from corvo.router.http.problems import missing, problem_of
from corvo.router.jobs.bodies import read_jobs
from corvo.router.shards.addressing import HOPS_MAX, landed, moving
from corvo.router.shards.fan_out import together
from corvo.router.shards.links import Answer

ANSWER_BYTES_MAX: Final = 32 << 20
"""Of the jobs that one request may ask for."""


class Found(NamedTuple):
    """Jobs by their ids, the shards that have them, and how far the shards had come."""

    jobs: dict[str, FoundJob]
    shards: dict[str, int]
    positions: dict[int, int]


async def find_jobs(
    api: Api, caller: Caller, job_ids: Sequence[str], form: Form = Form.BODY
) -> Found:
    """Find jobs; those that do not exist, or are not in the caller's scope, are left out.

    Raises `Problem`.
    """
    found = await _find(api, caller, job_ids, form)
    jobs = found.jobs.items()
    seen = {job_id: job for job_id, job in jobs if caller.scope.covers(job.queue)}
    return found._replace(jobs=seen)


async def _find(api: Api, caller: Caller, job_ids: Sequence[str], form: Form) -> Found:
    """Find jobs of any queue; those that do not exist are left out. Raises `Problem`.

    A job that has moved is found by way of its home, which knows where it is. While it travels it
    is in neither shard, and is waited for.
    """
    search = _Search(api, caller, form)
    wanted = {job_id: api.addresses.candidates(job_id) for job_id in job_ids}
    pointers: dict[str, tuple[int, int]] = {}
    for _ in range(2 * HOPS_MAX):
        wanted = {job_id: shards for job_id, shards in wanted.items() if shards}
        if not wanted:
            return search.found
        answers = await search.ask(wanted)
        followed: dict[str, list[int]] = {}
        travelling: dict[str, tuple[int, int]] = {}
        for job_id, shards in wanted.items():
            if job_id in search.found.jobs:
                continue
            home = next((shard for shard in shards if job_id in answers[shard].moved), None)
            if home is not None:
                pointers[job_id] = home, answers[home].moved[job_id]
                followed[job_id] = [pointers[job_id][1]]
            elif job_id in pointers:
                travelling[job_id] = pointers.pop(job_id)
        if travelling and caller.here is not None:
            break  # replicas of several shards are not equally old: only leaders know more
        wanted = followed | await _landed(api, travelling)
    raise moving(next(iter(wanted)))


async def _landed(api: Api, pointers: Mapping[str, tuple[int, int]]) -> dict[str, list[int]]:
    """The shards of moved jobs, by their homes and the shards that those name."""
    shards: dict[str, list[int]] = {}

    async def land(job_id: str, home: int, shard: int) -> None:
        found = await landed(api.shards, job_id, home, shard)
        shards[job_id] = [found] if found >= 0 else []

    if pointers:
        await together([partial(land, job_id, *each) for job_id, each in pointers.items()])
    return shards


async def find_job(
    api: Api, caller: Caller, job_id: str, form: Form = Form.BODY
) -> tuple[FoundJob, int, dict[int, int]]:
    """A job, its shard and how far that was. Raises `Problem`, also outside the caller's scope."""
    found = await _find(api, caller, [job_id], form)
    job = found.jobs.get(job_id)
    if job is None:
        raise problem_of(missing(job_id))
    keyring.allow_job(caller, job_id, job.queue)
    shard = found.shards[job_id]
    return job, shard, {shard: found.positions[shard]}


class _Search:
    """What was found so far."""

    def __init__(self, api: Api, caller: Caller, form: Form) -> None:
        self.found: Final = Found({}, {}, {})
        self._api = api
        self._caller = caller
        self._form = form
        self._bytes = 0

    async def ask(self, wanted: dict[str, list[int]]) -> dict[int, Jobs]:
        """Ask each shard for the jobs that may be there; what each of them said at last."""
        by_shard: dict[int, list[str]] = {}
        for job_id, shards in wanted.items():
            for shard in shards:
                by_shard.setdefault(shard, []).append(job_id)
        heard: dict[int, Jobs] = {}
        while by_shard:
            questions = [
                (shard, GetJobs(job_ids=ids[:ITEMS_MAX], form=self._form))
                for shard, ids in by_shard.items()
            ]
            answers = await ask_each(self._api, self._caller, questions)
            for (shard, query), answer in zip(questions, answers, strict=True):
                seen = self._take(shard, answer)
                before = heard.get(shard)
                moved = {**before.moved, **seen.moved} if before is not None else seen.moved
                heard[shard] = Jobs(jobs=[], looked_at=seen.looked_at, moved=moved)
                assert 0 < seen.looked_at <= len(query.job_ids)
                by_shard[shard] = by_shard[shard][seen.looked_at :]
            by_shard = {shard: ids for shard, ids in by_shard.items() if ids}
        return heard

    def _take(self, shard: int, answer: Answer) -> Jobs:
        self._bytes += len(answer.body)
        if self._bytes > ANSWER_BYTES_MAX:
            raise Problem(
                413,
                "ANSWER_TOO_LARGE",
                f"these jobs have more than {ANSWER_BYTES_MAX} bytes: send fewer job_ids",
                field="job_ids",
            )
        seen = read_jobs(answer.body)
        reached = self.found.positions
        reached[shard] = max(answer.index, reached.get(shard, 0))
        for job in seen.jobs:
            if job.id not in self.found.jobs:
                self.found.jobs[job.id] = job
                self.found.shards[job.id] = shard
                self._api.addresses.remember(job.id, shard)
        return seen
