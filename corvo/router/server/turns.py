"""The share of one connection in the turns of the event loop.

What a client sends at once is handled in one go only up to a budget of events: requests of HTTP/1.1
that come together, frames, pieces of a body. Behind it the connection pauses, so that the requests
of others are not handled after all that one client can put into one read. A client that waits for
its answers spends nothing.

It is a pause and not a mere checkpoint: a connection that goes on in each turn of the loop would
have a part in each of the four or five turns that a request of others takes.
"""

from typing import Final

import trio

from corvo.router.http.connections import Connections

PAUSE_S: Final = 0.001
"""The shortest that `epoll` can wait."""


class Turns:
    """What one connection has spent of its turn."""

    __slots__ = ("_connections", "_spent")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._spent = 0

    async def spend(self, events: int = 1) -> None:
        """So many events were handled, and there are more of them.

        Pauses when that is enough, for as many turns as it was.
        """
        turns, self._spent = divmod(self._spent + events, self._connections.limits.turn_events_max)
        if turns:
            self._connections.pauses += 1
            await trio.sleep(turns * PAUSE_S)
