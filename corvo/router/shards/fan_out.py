"""Fan-out: the items of a request are sent to their shards, as one op for each shard.

    items -> shard of each -> one op for each shard -> an outcome for each item, in order

`send_to_job` sends an op on a single job. `FanOut` sends many items; its `begin` sends all of them
before anything is awaited, so that ops which are begun one after the other arrive in this order
and mostly share an entry of the shard's log. Ops on jobs follow a job that moves.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
import trio
from msgspec.structs import replace

from corvo.protocol.ops.base import ITEMS_MAX, Op, Rejected, encode_json
from corvo.router.http.messages import Problem
from corvo.router.http.problems import missing
from corvo.router.http.request_keys import NO_KEY, OwnedKey, earlier_key_of
from corvo.router.shards.addressing import Addresses, Search
from corvo.router.shards.links import Begun, Shards
from corvo.router.shards.outcomes import Outcome, read_results

R = TypeVar("R")
ItemT = TypeVar("ItemT", bound=msgspec.Struct)

_ELSEWHERE: Final = frozenset({"job_moved", "job_not_found"})
"""Rejections after which the job may be in another shard."""


# One job.


class Sent(NamedTuple):
    """The outcome of an op on one job, and the positions of the shards that answered."""

    outcome: Outcome | Rejected
    positions: dict[int, int]


async def send_to_job(
    shards: Shards, addresses: Addresses, job_id: str, op: Op, key: OwnedKey = NO_KEY
) -> Sent:
    """Send an op on one job to the shard that has the job. Raises `Problem`.

    Under a request key, a shard to which the job has moved is sent another key than the first: the
    job may come back to the first, which has stored that it had moved.
    """
    positions: dict[int, int] = {}
    search: Search | None = None
    shard = addresses.first(job_id)
    while shard >= 0:
        op = key.on(op, "jobs", 0 if search is None else FOLLOWING, job_id)
        answer = await shards[shard].submit(op)
        positions[shard] = answer.index
        [outcome] = read_results(answer.body)
        if not isinstance(outcome, Rejected):
            addresses.remember(job_id, shard)
            return Sent(outcome, positions)
        if outcome.code not in _ELSEWHERE:
            return Sent(outcome, positions)
        search = search or Search(addresses, job_id, shard)
        following = key.of("jobs", FOLLOWING, job_id)
        final = await search.go_on(shards, outcome, following)
        if final is not None:
            return Sent(final, positions)
        shard = search.shard
    return Sent(missing(job_id), positions)


FOLLOWING: Final = -1
"""In a request key: of a job that is followed to another shard, the first of a request. The second
has -2."""


# Many items.


About: TypeAlias = tuple[str, str]
"""What items are about: `queue` and its name, or the jobs of a request."""
NOTHING: Final[About] = "", ""


class Part(NamedTuple):
    """Items of a request that go to a shard in one op, by their places in the request."""

    shard: int
    places: list[int]
    subject: tuple[str, int, str] = "", 0, ""
    """What the items are about, and the number of the part: for the request key."""
    whole: str = ""
    """A digest of all items about the same thing, if the part has only some of them."""


def under_key(parts: Sequence[Part], about: About, whole: str) -> list[Part]:
    """Parts with all items about one thing in one shard, with what their keys are made of."""
    kind, named = about
    return [
        part._replace(subject=(kind, number, named), whole=whole)
        for number, part in enumerate(parts)
    ]


class _Begun(NamedTuple):
    """A part that was sent, and those that are sent after it."""

    part: Part
    begun: Begun
    rest: Sequence[Part] = ()


class FanOut(Generic[ItemT, R]):
    """Items of one kind, sent in as many ops as there must be."""

    def __init__(
        self,
        shards: Shards,
        addresses: Addresses,
        items: Sequence[ItemT | Rejected | Problem],
        body_bytes: int,
        *,
        key: OwnedKey = NO_KEY,
        by: str = "",
    ) -> None:
        """An item that cannot be sent is given as the reason, which is its outcome.

        `body_bytes` is the size of the request that all items came in, and `key` its request key.
        """
        self.items: Final = items
        self.outcomes: Final[list[R | Rejected | Problem]] = [
            item if isinstance(item, (Rejected, Problem)) else NOT_SENT for item in items
        ]
        self.positions: Final[dict[int, int]] = {}
        """By shard, for those that answered."""
        self._shards: Final = shards
        self._addresses: Final = addresses
        self._body_bytes: Final = body_bytes
        self.key: Final = key
        self._by: Final = by
        self._begun: list[_Begun] = []

    async def send(self) -> None:
        """Send all items, and wait for all answers."""
        self.begin()
        await self.finish()

    def begin(self) -> None:
        """Send all items that can be sent, without waiting for anything."""
        groups: dict[tuple[int, About], list[int]] = {}
        for place, item in enumerate(self.items):
            if isinstance(item, (Rejected, Problem)):
                continue
            shard = self._shard_of(item)
            if isinstance(shard, Rejected):
                self.outcomes[place] = shard
            else:
                about = self._about(item) if self.key.name else NOTHING
                groups.setdefault((shard, about), []).append(place)
        for (shard, about), places in groups.items():
            self._begin_group(shard, about, places)

    async def finish(self) -> None:
        """Wait for all answers."""
        begun, self._begun = self._begun, []
        if len(begun) == 1 or all(self._shards[each.part.shard].is_up for each in begun):
            for each in begun:
                await self._finish_all(each)
        elif begun:
            # Each that has to wait for a leader waits as long as any.
            await together([partial(self._finish_all, each) for each in begun])

    def _begin_group(self, shard: int, about: About, places: list[int]) -> None:
        """Send items that go to one shard, and are about one thing if there is a request key."""
        ranges = parts_of(self._items(places), self._body_bytes)
        parts = [Part(shard, places[some.start : some.stop]) for some in ranges]
        if not self.key.name:
            self._begun += [self._begin(part) for part in parts]
            return
        # In order: the first is refused if the key was used for another request.
        first, *rest = under_key(parts, about, self._whole(about, places, len(parts)))
        self._begun.append(self._begin(first)._replace(rest=rest))

    def _begin(self, part: Part) -> _Begun:
        op = self._op(self._items(part.places))
        if self.key.name:
            earlier = earlier_key_of(self.key.name, part.places, len(self.items))
            op = self.key.on(op, *part.subject, earlier=earlier)
            op = replace(op, part_of=part.whole) if part.whole else op
        return _Begun(part, self._shards[part.shard].begin(op))

    async def _finish_all(self, each: _Begun) -> None:
        """Wait for the answer to a part, and send those that come after it."""
        is_done = await self._finish(each)
        for part in each.rest:
            if not is_done:
                self._leave_out(part, after=each.part)
            else:
                is_done = await self._finish(self._begin(part))

    def _leave_out(self, part: Part, *, after: Part) -> None:
        """Note that a part is not sent, because one before it failed."""
        failed = self.outcomes[after.places[0]]
        if isinstance(failed, Problem) and not failed.retry_after_ms:
            for place in part.places:
                self.outcomes[place] = failed

    async def _finish(self, each: _Begun) -> bool:
        """Wait for the answer to a part. False if the whole part failed."""
        part = each.part
        try:
            answer = await self._shards[part.shard].finish(each.begun)
        except Problem as problem:
            self._fail(part, problem)
            return False
        self.positions[part.shard] = max(answer.index, self.positions.get(part.shard, 0))
        for place, outcome in zip(part.places, self._read(answer.body), strict=True):
            self._settle(place, part.shard, outcome)
        return True

    def _item(self, place: int) -> ItemT:
        item = self.items[place]
        assert not isinstance(item, (Rejected, Problem)), "only good items are sent"
        return item

    def _items(self, places: Sequence[int]) -> list[ItemT]:
        """Items that were found to be good, which `_item` would find out for each again."""
        items = self.items
        return cast("list[ItemT]", [items[place] for place in places])

    def _fail(self, part: Part, problem: Problem) -> None:
        """Note that a whole part failed."""
        for place in part.places:
            self._settle(place, part.shard, problem)

    def _settle(self, place: int, shard: int, outcome: R | Rejected | Problem) -> None:
        """Note the outcome of an item in `outcomes`; it is that of a shard."""
        raise NotImplementedError

    def _shard_of(self, item: ItemT) -> int | Rejected:
        """The shard to send an item to, or why there is none."""
        raise NotImplementedError

    def _about(self, item: ItemT) -> About:
        """What an item is about, for the request key."""
        raise NotImplementedError

    def _whole(self, about: About, places: Sequence[int], parts: int) -> str:
        """A digest of all items about one thing; empty if one part has all of them."""
        raise NotImplementedError

    def _op(self, items: list[ItemT]) -> Op:
        """The op on some items."""
        raise NotImplementedError

    def _read(self, body: bytes) -> Sequence[R | Rejected]:
        """The results in an answer, in order."""
        raise NotImplementedError


NOT_SENT: Final = Problem(
    503,
    "LEADER_UNAVAILABLE",
    "not sent, because an earlier part of the request failed",
    retry_after_ms=1_000,
)


# How many items one op may have.


def digest_of(items: Sequence[msgspec.Struct | str]) -> str:
    """A digest of items or names, in order."""
    return blake2b(encode_json(items), digest_size=16).hexdigest()


def parts_of(items: Sequence[msgspec.Struct], body_bytes: int) -> list[range]:
    """Places of items in order, as many together as fit into one op by number and by bytes.

    `body_bytes` is the size of the request that all items came in.
    """
    if body_bytes <= _PART_BYTES and len(items) <= ITEMS_MAX:
        return [range(len(items))] if items else []
    parts: list[range] = []
    begin, taken = 0, 0
    for place, item in enumerate(items):
        size = len(encode_json(item)) + 1
        if place > begin and (taken + size > _PART_BYTES or place - begin == ITEMS_MAX):
            parts.append(range(begin, place))
            begin, taken = place, 0
        taken += size
    if items:
        parts.append(range(begin, len(items)))
    return parts


_PART_BYTES: Final = 3 << 20
"""Three quarters of the limit of an op: the rest is for what stands around the items."""


async def together(tasks: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Run all of them at once; a single one needs no nursery. Raises the first `Problem` of any."""
    if len(tasks) == 1:
        await tasks[0]()
        return
    problems: list[Problem] = []

    async def note(task: Callable[[], Awaitable[object]]) -> None:
        try:
            await task()
        except Problem as problem:
            problems.append(problem)

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(note, task)
    if problems:
        raise problems[0]
