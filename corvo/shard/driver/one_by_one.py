"""Requests of a link that are answered one after the other, as fast as the other end asks."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from corvo.errors import WireError
from corvo.link import Link, LinkLost
from corvo.protocol import wire

REQUESTS_MAX: Final = 8
"""Largest number of waiting requests of one link; it needs hardly more than one."""
UNSENDABLE_S: Final = 5.0
"""Time before a link is closed whose answer is too large for a frame: the other end will repeat its
request, and the answer is made again each time."""

Asked = TypeVar("Asked")


async def serve_one_by_one(
    link: Link,
    group: "wire.Group[Asked]",
    answer: "Callable[[Asked], Awaitable[wire.AnyMessage]]",
) -> None:
    """Answer requests in their order until the link ends. Raises `LinkLost` and `WireError`."""
    asked, to_answer = trio.open_memory_channel[Asked](REQUESTS_MAX)
    problem: LinkLost | WireError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer_all, link, to_answer, answer)
        # The link is read while an answer waits; reading also keeps the link alive.
        try:
            while requests := await link.receive(group):
                for request in requests:
                    asked.send_nowait(request)
        except trio.WouldBlock:
            problem = WireError(f"{REQUESTS_MAX} requests of one link wait, and there is one more")
        except (LinkLost, WireError) as error:
            problem = error
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def _answer_all(
    link: Link,
    to_answer: "trio.MemoryReceiveChannel[Asked]",
    answer: "Callable[[Asked], Awaitable[wire.AnyMessage]]",
) -> None:
    async for request in to_answer:
        message = await answer(request)
        # Nothing is raised here: a nursery would wrap the error in a group, and the caller that
        # serves the link needs the error itself.
        try:
            is_taken = link.send_many((message,), at_once=True)
        except WireError as error:
            await trio.sleep(UNSENDABLE_S)
            link.close(f"the answer cannot be sent: {error}")
            return
        if not is_taken:
            link.close("too slow: answers were lost")
            return
