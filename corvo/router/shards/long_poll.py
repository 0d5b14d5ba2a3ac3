"""Long polls: a fetch asks the shards of its queues, and is parked while they have no job.

A claim is never left lying: a client that goes away while the shard decides gets its claim given
back, and the attempt is not counted. For that the asking itself is not cut short when the client
goes; it takes milliseconds, and only behind it is it looked who is still there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import trio
from msgspec.structs import replace

from corvo import clock
from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.ops.work import Claim, Claims, Fetch, Release, ReleaseItem
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem, overloaded
from corvo.router.http.request_keys import derived
from corvo.router.shards.addressing import knows
from corvo.router.shards.links import Shards
from corvo.router.shards.waiting import WaitingFetches
from corvo.router.worker_health import Sighting, Sightings
from corvo.scopes import is_reserved

_GIVE_BACK_S: Final = 5.0
"""How long claims of a vanished client are tried to be given back; behind it their leases do."""
_decode_claims: Final = msgspec.json.Decoder(Claims).decode


class Fetched(NamedTuple):
    """The claims of a fetch, and how far the shards were that gave them."""

    claims: list[Claim]
    positions: dict[int, int]


class Fetching:
    """All long polls of this router."""

    def __init__(self, config: RouterConfig, shards: Shards) -> None:
        self._limits = config.limits
        self._shards = shards
        self._shard_count = config.shards
        self._waiting = WaitingFetches()
        self._is_stopping = False
        self.sightings: Final = Sightings()
        """Who asks for work."""
        self._own_parked = 0
        self.given_back = 0
        """Claims whose client had gone."""

    @property
    def parked(self) -> int:
        """Fetches of clients that wait."""
        return max(0, self._waiting.parked_count - self._own_parked)

    # Notifications.

    def pushed(self, push: wire.WorkAvailable) -> None:
        """Wake fetches: queues may have jobs."""
        for queue in push.queues:
            self._waiting.notify(queue)

    def came_up(self, shard: int) -> None:
        """Let fetches ask again: a new leader, or a new link, does not know that they wait."""
        self._waiting.recheck(lambda queue: shard_of_queue(queue, self._shard_count) == shard)

    def stop(self) -> None:
        """Answer all waiting fetches with no jobs; none waits from now on."""
        self._is_stopping = True
        self._waiting.recheck(lambda _: True)

    # What clients ask.

    async def fetch(self, fetch: Fetch, wait_s: float, *, is_own: bool = False) -> Fetched:
        """Claim jobs, and wait for them if there are none. Raises `Problem`.

        When the caller is cancelled, what was claimed for it is given back. `is_own` is whether it
        is this router that wants to have them.
        """
        deadline = trio.current_time() + wait_s
        wakeup = _Wakeup()
        waiting = self._waiting.begin(fetch.queues, wakeup.set)
        found = False
        sighting: Sighting | None = None
        count = 0
        try:
            while True:
                fetched = await self._ask(fetch)
                if sighting is None:  # by now it is known to be a fetch that may be made
                    sighting = self.sightings.asks(
                        fetch.worker_id, fetch.hostname, fetch.queues, clock.now_ns()
                    )
                if fetched.claims:
                    found = True
                    count = len(fetched.claims)
                    return fetched
                if self._waiting.park(waiting):
                    self._own_parked += is_own
                    try:
                        await self._sleep(wakeup, deadline)
                    finally:
                        self._own_parked -= is_own
                    if self._waiting.is_parked(waiting):
                        return fetched
                elif self._is_stopping or trio.current_time() >= deadline:
                    return fetched
        finally:
            self._waiting.end(waiting, found=found)
            if sighting is not None:
                self.sightings.has_asked(sighting, count, clock.now_ns())

    async def _sleep(self, wakeup: "_Wakeup", deadline: float) -> None:
        if self._is_stopping or trio.current_time() >= deadline:
            return
        if self.parked > self._limits.parked_max:
            raise overloaded(
                f"{self._limits.parked_max} fetches wait already, the limit (limits.parked_max): "
                "try again later"
            )
        with trio.move_on_at(deadline):
            await wakeup.wait()

    async def _ask(self, fetch: Fetch) -> Fetched:
        """Ask the shards in the order of the queues for what is still missing."""
        fetched = Fetched([], {})
        try:
            await self._ask_in_order(fetch, fetched)
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            await self.give_back(fetched.claims)
            raise
        return fetched

    async def _ask_in_order(self, fetch: Fetch, fetched: Fetched) -> None:
        runs = self._runs(fetch.queues)
        if fetch.request_key and len(runs) > 1:
            await self._ask_one(fetch, fetched, runs)
            return
        for shard, queues in runs:
            op = fetch
            if len(queues) < len(fetch.queues) or fetched.claims:
                op = replace(fetch, queues=queues, count=fetch.count - len(fetched.claims))
            try:
                answer = await self._shards[shard].submit(op, shield=True)
            except Problem:
                if fetched.claims:
                    return  # what others gave is worth more than to hear that this one is away
                raise
            fetched.claims.extend(_decode_claims(answer.body).jobs)
            fetched.positions[shard] = answer.index
            if len(fetched.claims) == fetch.count:
                return

    async def _ask_one(
        self, fetch: Fetch, fetched: Fetched, runs: Sequence[tuple[int, list[str]]]
    ) -> None:
        """Ask shards under a request key: one shard gives all jobs, and gives the same again.

        If several gave some, and one of them has none any more, it would give others the second
        time.
        """
        ops = [
            (
                shard,
                replace(
                    fetch,
                    queues=queues,
                    request_key=derived(fetch.request_key, number),
                    earlier_key="",
                ),
            )
            for number, (shard, queues) in enumerate(runs)
        ]
        for shard, op in ops:
            if await knows(self._shards[shard], op.request_key):
                ops = [(shard, op)]
                break
        for shard, op in ops:
            answer = await self._shards[shard].submit(op, shield=True)
            fetched.claims.extend(_decode_claims(answer.body).jobs)
            fetched.positions[shard] = answer.index
            if fetched.claims:
                return

    def _runs(self, queues: Sequence[str]) -> list[tuple[int, list[str]]]:
        """The queues in their order, those together that follow each other in one shard."""
        runs: list[tuple[int, list[str]]] = []
        for queue in queues:
            shard = shard_of_queue(queue, self._shard_count)
            if runs and runs[-1][0] == shard:
                runs[-1][1].append(queue)
            else:
                runs.append((shard, [queue]))
        return runs

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """Release claims that nobody took: they are where they were, and no attempt is counted."""
        if not claims:
            return
        by_shard: dict[int, list[ReleaseItem]] = {}
        for claim in claims:
            item = ReleaseItem(
                job_id=claim.job_id,
                lease_token=claim.lease_token,
                is_own=is_reserved(claim.queue),
                why="the client disconnected before the answer",
            )
            by_shard.setdefault(shard_of_queue(claim.queue, self._shard_count), []).append(item)
        with trio.move_on_after(_GIVE_BACK_S, shield=True):
            async with trio.open_nursery() as nursery:
                for shard, items in by_shard.items():
                    nursery.start_soon(self._release, shard, items)

    async def _release(self, shard: int, items: list[ReleaseItem]) -> None:
        try:
            await self._shards[shard].submit(Release(jobs=items, by="router"))
        except Problem:
            return  # the leases will end by themselves
        self.given_back += len(items)


class _Wakeup:
    """Wakes one fetch, as often as needed."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def set(self) -> None:
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        self._event = trio.Event()
        await self._event.wait()
        self._event = None
