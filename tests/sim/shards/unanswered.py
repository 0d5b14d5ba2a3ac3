"""Requests that a replica has neither answered nor put into its log.

A replica that does not lead cannot do anything for such a request, so it must refuse it at once.
Otherwise the client waits until it loses patience and does not know whether its request had an
effect. Clients ask again, so their answers and the log do not show the difference: this rule does.
"""

from collections.abc import Iterable

from corvo.protocol import wire
from tests.sim.failures import Violation


class Unanswered:
    """Of one life of one replica's process."""

    def __init__(self, replica: int) -> None:
        self._replica = replica
        self._requests: dict[tuple[int, int], tuple[int, bytes]] = {}
        """By link and request: the op and its JSON. Every attempt of a client has its own name."""

    def asked(self, link: int, message: wire.Submit) -> None:
        """A client asks for an op."""
        self._requests[link, message.id] = (message.op, message.body)

    def answered(self, link: int, message: wire.Answer | wire.Push) -> None:
        """A client is answered, or told something that it has not asked for."""
        if isinstance(message, wire.Reply | wire.NotLeader | wire.Busy):
            self._requests.pop((link, message.id), None)

    def proposed(self, ops: Iterable[tuple[int, bytes]]) -> None:
        """These ops are in the log of the replica: their answer waits for what becomes of them."""
        known = {*ops}
        self._requests = {name: op for name, op in self._requests.items() if op not in known}

    def left(self, link: int) -> None:
        """A link ended: nobody waits for answers there."""
        self._requests = {name: op for name, op in self._requests.items() if name[0] != link}

    def check(self, *, leads: bool) -> None:
        """The replica has done everything that it has to do now."""
        if self._requests and not leads:
            raise Violation(
                "unanswered",
                f"replica {self._replica} does not lead, and has neither answered nor proposed"
                f" {self._requests}",
            )
