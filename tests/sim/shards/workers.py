"""Who fetches, and what becomes of the jobs: done, failed, given back, or never heard of again.

A worker that finds nothing waits until it is told that there is work. It asks again by itself only
when its link broke or another replica leads, and rarely in some runs.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from tests.shard.shapes import Fields, number, rows, text
from tests.sim.options import MS, TICK_NS
from tests.sim.shards.callers import Caller

if TYPE_CHECKING:
    from tests.sim.shards.world import ShardWorld

_FATES: Final = (
    "ack", "ack", "ack", "ack", "ack", "late", "fail", "die", "release", "snooze", "vanish"
)  # fmt: skip

_SLOTS_MAX: Final = 16
"""Jobs that a worker takes at a time when everything is to be worked off."""


class Worker(Caller):
    """One of them."""

    def __init__(self, world: "ShardWorld", name: str) -> None:
        super().__init__(world, name)
        queues = list(world.clients.queues)
        self.random.shuffle(queues)
        # The first worker serves all queues, so that none is left alone.
        few = len(queues) if name == "w0" else self.random.randrange(1, len(queues) + 1)
        self._queues = queues[:few]
        self._slots = self.random.choice((1, 1, 2, 4))
        self._held = 0
        self._is_fetching = False
        self._was_told = False
        self._fetches = 0

    def begin(self) -> None:
        """Fetch, and go on fetching."""
        self.later(self.random.random(), self.fetch)
        if self.world.options.polls_every:
            self.later(self.world.options.polls_every, self._poll)

    def _poll(self) -> None:
        if not self.world.is_draining:
            self.later(self.world.options.polls_every, self._poll)
            self.fetch()

    def told(self, queues: tuple[str, ...]) -> None:
        """There may be work."""
        self._was_told = True
        self.fetch()

    def fetch(self) -> None:
        """Ask for as many jobs as there is room for."""
        slots = _SLOTS_MAX if self.world.is_draining else self._slots
        if self._is_fetching or self._held >= slots:
            return
        self._is_fetching = True
        self._was_told = False
        fields: Fields = {
            "queues": self._queues,
            "worker_id": self.name,
            "count": slots - self._held,
            "lease_ms": self.world.options.lease_ms,
        }
        is_keyed = self.world.options.keyed_fetches
        if is_keyed:
            self._fetches += 1
            fields["request_key"] = f"{self.name}-{self._fetches}"
        began = self.world.history.now()
        self.call("Fetch", fields, partial(self._fetched, began), again=is_keyed)

    def _fetched(self, began: int, answer: Fields | None) -> None:
        self._is_fetching = False
        if answer is None or "code" in answer:
            self.later(self.random.random(), self.fetch)
            return
        claims = rows(answer, "jobs")
        for claim in claims:
            self.world.history.delivered(text(claim, "job_id"), began)
            self._work(claim)
        if claims or self._was_told:
            self.fetch()

    # A job.

    def _work(self, claim: Fields) -> None:
        world, random = self.world, self.random
        self._held += 1
        world.clients.know(text(claim, "job_id"))
        lease = world.options.lease_ms * MS / TICK_NS
        fate = "ack" if world.is_draining else random.choice(_FATES)
        if fate == "vanish" and not world.options.has("vanish"):
            fate = "ack"
        if fate == "late" and not world.options.has("zombie"):
            fate = "fail"
        is_long = not world.is_draining and random.random() < 0.2
        ticks = lease * (0.3 + 2 * random.random()) if is_long else 3 * random.random()
        if is_long and fate != "vanish":
            self._beat(claim, ticks, every=lease / 3)
        match fate:
            case "vanish":
                self.later(lease, self._free)
            case "late":
                self.later(lease, self._free)
                late = lease * (0.9 + random.random())
                self.later(late, partial(self._say, claim, random.choice(("ack", "fail"))))
            case _:
                self.later(ticks, partial(self._finish, claim, fate))

    def _beat(self, claim: Fields, ticks: float, *, every: float) -> None:
        beats = int(ticks / every)
        if self.random.random() < 0.3:
            beats = 1
        for beat in range(1, beats + 1):
            self.later(beat * every, partial(self._say, claim, "heartbeat"))

    def _finish(self, claim: Fields, fate: str) -> None:
        self._say(claim, fate)
        if self.random.random() < 0.1:
            self._say(claim, self.random.choice((fate, "ack", "fail")))
        self._free()

    def _free(self) -> None:
        self._held -= 1
        self.fetch()

    def _say(self, claim: Fields, fate: str) -> None:
        random = self.random
        item: Fields = {"job_id": claim["job_id"]}
        if random.random() < 0.95:
            item["lease_token"] = number(claim, "lease_token")
        if random.random() < 0.5:
            item["worker_id"] = self.name
        match fate:
            case "ack":
                item["result"] = {"of": claim["lease_token"]}
                then = partial(self._acked, text(claim, "job_id"))
                # Without a token it would be said of whoever has the job by then.
                self.call("Ack", {"acks": [item]}, then, again="lease_token" in item)
                return
            case "fail" | "die":
                item |= {"error": "it broke", "retryable": fate == "fail"}
                if random.random() < 0.3:
                    item["retry_after_ms"] = random.choice((0, 400))
                words: Fields = {"fails": [item]}
            case "snooze":
                item["delay_ms"] = random.choice((0, 600))
                words = {"jobs": [item]}
            case "heartbeat":
                item["progress"] = {"beat": self.world.events}
                words = {"jobs": [item]}
            case _:
                words = {"jobs": [item]}
        op = "Fail" if fate == "die" else fate.capitalize()
        self.call(op, words, lambda _: None, again="lease_token" in item and op != "Heartbeat")

    def _acked(self, job_id: str, answer: Fields | None) -> None:
        if answer is None or "code" in answer:
            return
        [result] = rows(answer, "results")
        if "code" not in result:
            self.world.history.acked(job_id)
