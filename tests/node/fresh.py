"""One client of a node that changes jobs and searches in turns, and knows what it must find."""

from random import Random
from typing import Final

import msgspec

from tests.node.http import Client

_QUEUES: Final = ("mail", "sms", "fax", "pager")
_STEPS: Final = 120


class Row(msgspec.Struct):
    """A job that was found."""

    id: str
    state: str


class Page(msgspec.Struct):
    """An answer to a search."""

    jobs: list[Row]
    as_of: dict[str, msgspec.Raw]
    is_behind: bool


class Texts(msgspec.Struct):
    """An answer to a search by words."""

    results: list[Row]
    is_behind: bool


class Summary(msgspec.Struct):
    """All queues at a glance."""

    totals: dict[str, int]
    is_behind: bool = False


class _Counted(msgspec.Struct):
    total: int
    is_exact: bool


class DryRun(msgspec.Struct):
    """What a bulk operation would act on."""

    dry_run: _Counted


class _Made(msgspec.Struct):
    job_id: str


class Searcher:
    """The client. It sends no header, and no parameter of consistency."""

    def __init__(self, client: Client, random: Random) -> None:
        self.behind = 0
        """Answers that said they may lack something."""
        self.reads = 0
        self._client = client
        self._random = random
        self._known: dict[str, tuple[str, str, str]] = {}
        """By id: queue, state, and the word of its payload."""

    async def run(self) -> None:
        """Change and search; an answer that is wrong and does not say so is an assertion."""
        # A bulk operation waits also for a mirror that has no links yet, as right after a start.
        await self._look_dry(0)
        for step in range(1, _STEPS):
            await self._change(step)
            if self._random.random() < 0.7:
                self.reads += 1
                self.behind += await self._random.choice(
                    [self._search, self._list, self._find_words, self._sum_up]
                )()
        await self._look_dry(_STEPS)

    async def _change(self, step: int) -> None:
        live = [name for name, (_, state, _) in self._known.items() if state == "pending"]
        kind = self._random.choice(["enqueue", "enqueue", "cancel", "delete"])
        if kind == "enqueue" or not live:
            queue, word = self._random.choice(_QUEUES), f"word{step}"
            body = msgspec.json.encode({"queue": queue, "payload": {"text": word}})
            answer = await self._client.ask("POST", "/api/v1/enqueue", body)
            assert answer.status == 201, answer.body
            self._known[answer.read(_Made).job_id] = queue, "pending", word
            return
        name = self._random.choice(live)
        if kind == "cancel":
            answer = await self._client.ask("POST", f"/api/v1/jobs/{name}/cancel")
            queue, _, word = self._known[name]
            self._known[name] = queue, "cancelled", word
        else:
            answer = await self._client.ask("DELETE", f"/api/v1/jobs/{name}")
            del self._known[name]
        assert answer.status == 200, answer.body

    def _in(self, queue: str | None, *states: str) -> dict[str, str]:
        return {
            name: state
            for name, (of, state, _) in self._known.items()
            if (queue is None or of == queue) and (not states or state in states)
        }

    async def _search(self) -> bool:
        queue = self._random.choice([None, *_QUEUES])
        body = msgspec.json.encode({"queue": queue, "limit": 1_000})
        answer = await self._client.ask("POST", "/api/v1/jobs/search", body)
        return self._check(answer.read(Page), self._in(queue))

    async def _list(self) -> bool:
        queue, state = self._random.choice(_QUEUES), self._random.choice(["pending", "cancelled"])
        path = f"/api/v1/jobs?queue={queue}&state={state}&limit=1000"
        answer = await self._client.ask("GET", path)
        return self._check(answer.read(Page), self._in(queue, state))

    def _check(self, page: Page, wanted: dict[str, str]) -> bool:
        found = {row.id: row.state for row in page.jobs}
        assert page.as_of
        assert page.is_behind or found == wanted
        return page.is_behind

    async def _find_words(self) -> bool:
        names = [*self._known]
        if not names:
            return False
        name = self._random.choice(names[-3:])
        _, state, word = self._known[name]
        answer = await self._client.ask("GET", f"/api/v1/search/fulltext?q={word}")
        found = answer.read(Texts)
        assert found.is_behind or [(row.id, row.state) for row in found.results] == [(name, state)]
        return found.is_behind

    async def _sum_up(self) -> bool:
        answer = await self._client.ask("GET", "/api/v1/summary")
        summary = answer.read(Summary)
        for state in ("pending", "cancelled"):
            wanted = len(self._in(None, state))
            assert summary.is_behind or summary.totals.get(state, 0) == wanted, state
        return summary.is_behind

    async def _look_dry(self, step: int) -> None:
        """A bulk operation acts on what its client just made."""
        await self._change(step)
        body = msgspec.json.encode(
            {"filter": {"state": ["pending"]}, "action": "cancel", "dry_run": True}
        )
        answer = await self._client.ask("POST", "/api/v1/jobs/bulk", body)
        told = answer.read(DryRun).dry_run
        assert not told.is_exact or told.total == len(self._in(None, "pending"))
