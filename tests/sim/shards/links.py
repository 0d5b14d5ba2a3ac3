"""Connections of clients to hosts, and of hosts to another shard, as TCP makes them.

What is sent arrives once and in order, or the link breaks and both ends learn of it. A message
travels as the frame that it is in production.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from corvo.protocol import wire
from tests.sim.timeline import Timeline


class Server(Protocol):
    """The other end."""

    @property
    def replica(self) -> int:
        """Its number."""

    def link_began(self, link: "Link") -> None:
        """A client came."""

    def link_brought(self, link: "Link", message: wire.Request) -> None:
        """It asks for something."""

    def link_ended(self, link: "Link") -> None:
        """It is gone."""


class Listener(Protocol):
    """The client's end."""

    def heard(self, link: "Link", message: wire.Answer | wire.Push) -> None:
        """A message came."""

    def lost(self, link: "Link") -> None:
        """The link is broken; whatever was under way may or may not have arrived."""


class Link:
    """One connection."""

    def __init__(
        self,
        world: Timeline,
        listener: Listener,
        host: Server,
        random: Random,
        *,
        is_shard: bool = False,
    ) -> None:
        self.host = host
        self.is_shard = is_shard
        """Whether the client is another shard."""
        self.number = 0
        """The host's number for it, once it is accepted."""
        self.is_open = True
        """As far as the client knows."""
        self._world = world
        self._listener = listener
        self._random = random
        self._is_whole = True
        self._last = {"up": 0, "down": 0}
        self._travel("up", self._accepted)

    def send(self, message: wire.Request) -> None:
        """The client says something."""
        frame = wire.encode(message)
        self._world.note(frame)
        self._travel("up", partial(self._arrived, frame))

    def answer(self, message: wire.Answer | wire.Push) -> None:
        """The host says something."""
        frame = wire.encode(message)
        self._world.note(frame)
        self._travel("down", partial(self._heard, frame))

    def break_off(self) -> None:
        """It ends without a word, and what is under way is lost."""
        if self._is_whole:
            self._is_whole = False
            if self.number:
                self.host.link_ended(self)
            self._world.later(self._delay(), self._lost)

    def _lost(self) -> None:
        if self.is_open:
            self.is_open = False
            self._world.links.pop(self, None)
            self._listener.lost(self)

    def _delay(self) -> int:
        return int(self._world.options.latency_ns * (0.5 + self._random.random()))

    def _travel(self, way: str, arrive: Callable[[], None]) -> None:
        if self._is_whole:
            at = max(self._world.now + self._delay(), self._last[way] + 1)
            self._last[way] = at
            self._world.at(at, partial(self._arrive, arrive))

    def _arrive(self, arrive: Callable[[], None]) -> None:
        if self._is_whole:
            arrive()

    def _accepted(self) -> None:
        self.host.link_began(self)

    def _arrived(self, frame: bytes) -> None:
        for message in wire.FrameReader().receive(frame, wire.FROM_ROUTER):
            assert isinstance(message, wire.Request)
            self.host.link_brought(self, message)

    def _heard(self, frame: bytes) -> None:
        for message in wire.FrameReader().receive(frame, wire.TO_ROUTER):
            assert isinstance(message, wire.Answer | wire.Push)
            self._listener.heard(self, message)
