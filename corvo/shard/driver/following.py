"""Followers of a replica's feed: pages of changes, as fast as a follower asks for them.

Requests of a follower are answered in their order. A page is made in short steps, between which the
replica works. A follower at the end of the feed waits until an entry is applied, without cost.
"""

from typing import Final, assert_never

import trio

from corvo.errors import WireError
from corvo.kv.feed import Page, Walk
from corvo.link import Link, LinkLost
from corvo.protocol import wire
from corvo.shard.machine import Machine
from corvo.shard.pages import begin_page, begin_walk, end_page, end_walk, must_wait, seek
from corvo.shard.replica import Replica

REQUESTS_MAX: Final = 8
"""Largest number of waiting requests of one follower; it needs hardly more than one."""
UNSENDABLE_S: Final = 5.0
"""Time before a follower is disconnected whose answer is too large for a frame: it will repeat its
request, and the answer is made again each time."""


class AppliedSignal:
    """Wakes the tasks that wait for an entry to be applied."""

    def __init__(self) -> None:
        self._bell: trio.Event | None = None
        self._told = 0

    def notify(self, applied: int) -> None:
        """Wake them if the state has another index than the one at which they began to wait."""
        if self._bell is not None and applied != self._told:
            self._bell.set()
            self._bell = None

    async def wait(self, applied: int) -> None:
        """Wait until the state has another index than `applied`."""
        if self._bell is None:
            self._bell = trio.Event()
            self._told = applied
        await self._bell.wait()


async def serve_follower(link: Link, replica: Replica, signal: AppliedSignal) -> None:
    """Answer a follower until its link ends. Raises `LinkLost` and `WireError`."""
    asked, to_answer = trio.open_memory_channel[wire.FollowerRequest](REQUESTS_MAX)
    problem: LinkLost | WireError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer, link, replica, signal, to_answer)
        # The link is read while an answer waits; reading also keeps the link alive.
        try:
            while requests := await link.receive(wire.FROM_FOLLOWER):
                for request in requests:
                    asked.send_nowait(request)
        except trio.WouldBlock:
            problem = WireError(f"a follower asks for more than {REQUESTS_MAX} things at a time")
        except (LinkLost, WireError) as error:
            problem = error
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def _answer(
    link: Link,
    replica: Replica,
    signal: AppliedSignal,
    to_answer: "trio.MemoryReceiveChannel[wire.FollowerRequest]",
) -> None:
    async for request in to_answer:
        answer: wire.FollowerAnswer
        match request:
            case wire.Follow():
                answer = await _follow(replica, signal, request)
            case wire.Scan():
                answer = await _scan(replica, signal, request)
            case wire.Seek():
                answer = seek(replica.machine, request)
            case _:
                assert_never(request)
        # Nothing is raised here: a nursery would wrap the error in a group, and the caller that
        # serves the link needs the error itself.
        try:
            is_taken = link.send_many((answer,), at_once=True)
        except WireError as error:
            await trio.sleep(UNSENDABLE_S)
            link.close(f"the answer cannot be sent: {error}")
            return
        if not is_taken:
            link.close("too slow: answers were lost")
            return


async def _follow(
    replica: Replica, signal: AppliedSignal, request: wire.Follow
) -> wire.Changes | wire.Reset:
    """The changes after a place, once there are some."""
    while True:
        machine = replica.machine
        page = begin_page(replica, request)
        if page is None:
            await signal.wait(machine.applied)
        elif isinstance(page, wire.Reset):
            return page
        # A feed that was cut meanwhile has nothing for it, and a state that was replaced is closed.
        elif await is_made(replica, machine, page) and not page.is_overtaken:
            return end_page(machine, request, page)


async def _scan(replica: Replica, signal: AppliedSignal, request: wire.Scan) -> wire.Scanned:
    """A page of all documents, once they are as new as the follower needs them."""
    while True:
        machine = replica.machine
        if must_wait(replica, request):
            await signal.wait(machine.applied)
            continue
        walk = begin_walk(machine, request)
        if await is_made(replica, machine, walk):
            return end_walk(machine, request, walk)


async def is_made(replica: Replica, machine: Machine, answer: Page | Walk) -> bool:
    """Make an answer step by step; False if another state replaced this one."""
    while not answer.advance():
        await trio.lowlevel.checkpoint()
        if replica.machine is not machine:
            return False
    return True
