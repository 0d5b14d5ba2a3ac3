"""Clients, and who runs the cluster: adds, drains, removes, loses and replaces nodes."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from corvo.placement import shard_of_queue
from corvo.protocol import wire
from corvo.protocol.cluster import ClusterMap
from corvo.router.cluster.overview import ReplicaSeen, ShardSeen
from corvo.router.cluster.removal import refusal
from corvo.router.shards.links import ReplicaLink
from tests.shard.shapes import Fields, text
from tests.sim.chance import fork
from tests.sim.options import TICK_NS
from tests.sim.shards.words import NUMBERS

if TYPE_CHECKING:
    from tests.sim.clusters.machine import Machine
    from tests.sim.clusters.world import ClusterWorld

_TRIES_AGAIN: Final = frozenset({"unknown", "disk_full"})


class Caller:
    """Asks for ops at any node, again and again under one request key."""

    def __init__(self, world: "ClusterWorld", name: str) -> None:
        self.world = world
        self.random = fork(world.options.seed, name)
        self.waits = 0
        self._name = name
        self._keys = 0

    def later(self, ticks: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        self.world.later(int(ticks * TICK_NS) + 1, action)

    def call(self, shard: int, op: str, fields: Fields, then: Callable[[Fields], None]) -> None:
        """Ask for an op until it is known what became of it."""
        self._keys += 1
        self.waits += 1
        body = msgspec.json.encode({**fields, "request_key": f"{self._name}-{self._keys}"})
        self._attempt(shard, op, body, then)

    def _attempt(self, shard: int, op: str, body: bytes, then: Callable[[Fields], None]) -> None:
        again = partial(self._attempt, shard, op, body, then)

        def answered(answer: wire.Answer | None) -> None:
            self.world.counts["requests"] += 1
            if not isinstance(answer, wire.Reply) or answer.code in _TRIES_AGAIN:
                self.later(1 + 3 * self.random.random(), again)
            else:
                self.waits -= 1
                then(msgspec.json.decode(answer.body, type=Fields))

        machine = self.world.anybody(self.random)
        if machine is None or not machine.router.submit(shard, NUMBERS[op], body, answered):
            self.later(1 + 3 * self.random.random(), again)


class Clients(Caller):
    """Enqueue jobs, and move them from shard to shard."""

    def __init__(self, world: "ClusterWorld") -> None:
        super().__init__(world, "clients")
        shards = world.options.shards
        self.queues = [_queue_of(shard, shards) for shard in range(shards)]
        self.acknowledged: dict[str, int] = {}
        """Jobs, and the shards that they are thought to be in."""
        self._made = 0

    def begin(self) -> None:
        """Work until the end."""
        self.later(self.random.random(), self._next)

    def _next(self) -> None:
        if not self.world.is_chaos:
            return
        self.later(self.random.expovariate(1 / self.world.options.pace), self._next)
        if self.waits > 6:
            return
        if self.acknowledged and self.random.random() < 0.4:
            self._move()
        else:
            self._enqueue()

    def _enqueue(self) -> None:
        shard = self.random.randrange(self.world.options.shards)
        self._made += 1
        job_id = f"j{self._made}"
        job: Fields = {"queue": self.queues[shard], "id": job_id, "payload": self._made}

        def then(answer: Fields) -> None:
            if "code" not in answer:
                self.acknowledged[job_id] = shard

        self.call(shard, "Enqueue", {"jobs": [job]}, then)

    def _move(self) -> None:
        job_id = self.random.choice(list(self.acknowledged)[-20:])
        source = self.acknowledged[job_id]
        target = self.random.randrange(self.world.options.shards)

        def then(answer: Fields) -> None:
            if "code" not in answer and target != source:
                self.acknowledged[job_id] = target
                self.world.counts["moves"] += 1

        fields: Fields = {"job_ids": [job_id], "queue": self.queues[target]}
        self.call(source, "Move", fields, then)


def _queue_of(shard: int, shards: int) -> str:
    """The first queue of a shard."""
    number = 0
    while shard_of_queue(f"q{number}", shards) != shard:
        number += 1
    return f"q{number}"


class Operator(Caller):
    """One thing at a time where a node may be lost; anything else whenever."""

    def __init__(self, world: "ClusterWorld") -> None:
        super().__init__(world, "operator")
        self._replacing: Machine | None = None
        self._has_ended = False
        self._renamed = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was begun is still under way."""
        return self._replacing is None and not self.waits

    def begin(self) -> None:
        """Do something now and then."""
        self.later(20 * self.random.random(), self._next)

    def end(self) -> None:
        """Begin nothing new."""
        self._has_ended = True

    def _next(self) -> None:
        if self._has_ended:
            return
        self.later(self.random.expovariate(1 / 20), self._next)
        options = self.world.options
        acts = {"join": self._add, "drain": self._drain, "remove": self._remove, "lose": self._lose}
        on = [act for name, act in acts.items() if options.has(name)]
        if on:
            self.random.choice(on)()

    def _add(self) -> None:
        spare = [machine for machine in self.world.machines.values() if not machine.is_wanted]
        if spare and self._replacing is not spare[0]:
            spare[0].is_wanted = True
            spare[0].start()

    def _drain(self) -> None:
        known = self.world.newest_map
        draining = [node for node in known.nodes if node.is_draining]
        node = self.random.choice(draining or known.nodes)
        if not draining and len(known.nodes) <= known.replicas and self.random.random() < 0.7:
            return
        if self._replacing is not None:
            return
        fields: Fields = {"number": node.number, "is_draining": not node.is_draining}
        self.call(0, "DrainNode", fields, lambda _: None)

    # Removing.

    def _remove(self) -> None:
        """A node that is drained, or sometimes one that is not."""
        known = self.world.newest_map
        draining = [node for node in known.nodes if node.is_draining]
        node = self.random.choice(draining or known.nodes)
        machine = self.world.owner(node.number)
        if machine is None or self._replacing is not None or len(known.nodes) <= 3:
            return
        self._replacing = machine
        self._try_to_remove(machine, node.number, tries=1, force=self.random.random() < 0.3)

    def _try_to_remove(self, machine: "Machine", number: int, *, tries: int, force: bool) -> None:
        """By the rules of `corvo.router.cluster.removal`, as a router applies them."""
        asked = self.world.anybody(self.random)
        known, node = self.world.newest_map, self.world.newest_map.node(number)
        if node is None:
            self._removed(machine)
            return
        if asked is None or refusal(
            node, known, self._look(asked, known), own=asked.number, force=force
        ):
            self._again(machine, number, tries, force=force)
            return
        fields: Fields = {"number": number, "reason": "replaced", "base": known.version}

        def then(answer: Fields) -> None:
            if "code" not in answer or text(answer, "code") == "node_not_found":
                self._removed(machine)
            else:
                self._again(machine, number, tries, force=force)

        self.call(0, "RemoveNode", fields, then)

    def _again(self, machine: "Machine", number: int, tries: int, *, force: bool) -> None:
        if tries == 1 or (self._has_ended and machine.is_alive and not machine.refused):
            self._replacing = None
        else:
            self.later(
                10,
                partial(self._try_to_remove, machine, number, tries=tries - 1, force=force),
            )

    def _look(self, asked: "Machine", known: ClusterMap) -> list[ShardSeen]:
        """The replicas that a node can ask."""
        found = []
        for shard, place in enumerate(known.places):
            group = self.world.ledgers[shard].newest
            nodes = sorted({*place, *group.voters, *group.outgoing, *group.learners})
            seen = []
            for number in nodes:
                machine = self.world.owner(number)
                process = machine.processes.get(shard) if machine is not None else None
                is_up = (
                    machine is not None
                    and process is not None
                    and not machine.is_paused
                    and not self.world.is_cut(asked.id, machine.id)
                )
                link = ReplicaLink(number, is_up)
                numbers = process.numbers() if process is not None and is_up else "no answer"
                seen.append(ReplicaSeen(link, numbers))
            found.append(ShardSeen(shard, tuple(seen)))
        return found

    def _removed(self, machine: "Machine") -> None:
        """Its node is removed: it is replaced, and may come back with its old directory before."""
        self.world.counts["nodes removed"] += 1
        machine.may_be_refused = True
        if self.world.options.has("return") and machine.number and self.random.random() < 0.6:
            self.later(20 * self.random.random(), partial(self._restart_removed, machine))
        else:
            self.later(20 * self.random.random(), partial(self._replace, machine))

    def _restart_removed(self, machine: "Machine") -> None:
        machine.end(power_loss=False)
        machine.refused = ""
        machine.start()
        self.later(30, partial(self._replace, machine))

    def _replace(self, machine: "Machine") -> None:
        """An empty directory and another name: a new node."""
        machine.wipe()
        self._renamed += 1
        machine.name = f"n{machine.id}-{self._renamed}"
        machine.refused = ""
        machine.may_be_refused = False
        machine.is_wanted = True
        machine.start()
        self._replacing = None

    # Losing.

    def _lose(self) -> None:
        """A machine loses its disk, while every other one is whole."""
        # A group that is to have two replicas only must not lose one.
        if self._replacing is not None or self.waits or not self.world.is_whole():
            return
        machine = self.random.choice(
            [machine for machine in self.world.machines.values() if machine.is_serving]
        )
        self.world.counts["directories lost"] += 1
        self._replacing = machine
        number = machine.number
        machine.wipe()
        machine.is_wanted = False
        machine.may_be_refused = True
        if self.world.options.has("return"):
            self.later(10 * self.random.random(), partial(self._come_back_empty, machine, number))
        else:
            self.later(20, partial(self._give_up, machine, number))

    def _come_back_empty(self, machine: "Machine", number: int) -> None:
        """Under its old name, with an empty directory: it must be refused."""
        machine.is_wanted = True
        machine.start()
        self.later(15, partial(self._await_refusal, machine, number))

    def _await_refusal(self, machine: "Machine", number: int) -> None:
        if not machine.refused:
            # As a first node that reaches no other one, it starts, and every link is refused.
            machine.end(power_loss=False)
            machine.start()
            self.later(15, partial(self._await_refusal, machine, number))
            return
        self._give_up(machine, number)

    def _give_up(self, machine: "Machine", number: int) -> None:
        machine.is_wanted = False
        self._try_to_remove(machine, number, tries=10_000, force=True)
