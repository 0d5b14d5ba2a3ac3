"""What clients asked and were told, judged by what was applied: no server is asked.

Every attempt has a name of its own, which the entry that carries it out holds (`by`).
"""

from typing import TYPE_CHECKING

from corvo.protocol import wire
from tests.shard.shapes import text
from tests.sim.failures import Violation

if TYPE_CHECKING:
    from tests.sim.shards.callers import Call
    from tests.sim.shards.world import ShardWorld


class History:
    """Of all clients of a run."""

    def __init__(self, world: "ShardWorld") -> None:
        self._world = world
        self._moment = 0
        self._asked: dict[str, str] = {}
        self._answers: dict[str, bytes] = {}  # by request key, the first good answer
        self._acked: dict[str, int] = {}  # job -> when its ack was confirmed
        self._anew: dict[str, None] = {}  # jobs that somebody wanted to begin anew, or deleted
        self.refused_tags: dict[str, None] = {}
        """Attempts of which somebody was told that they had no effect."""

    def now(self) -> int:
        """A moment, later than all before."""
        self._moment += 1
        return self._moment

    def asked(self, tag: str, op: str) -> None:
        """An attempt is made."""
        assert tag not in self._asked, "attempts have names of their own"
        self._asked[tag] = op
        self._world.counts["requests"] += 1

    def refused(self, tag: str) -> None:
        """Somebody was told that an attempt had no effect."""
        self.refused_tags[tag] = None
        if tag in self._world.book.answers:
            raise Violation("D6", f"{tag} was refused and is applied")
        self._world.counts["requests refused"] += 1

    def replied(self, call: "Call", tag: str, message: wire.Reply) -> None:
        """Somebody was answered."""
        world = self._world
        known = world.book.answers.get(tag)
        if known is None:
            self._replied_without_entry(call, tag, message)
            return
        if known != (message.index, message.code, message.body):
            raise Violation("D1", f"{tag} was told {message}, and the log says {known}")
        world.counts["requests answered"] += 1
        world.oracles.acknowledge(message.index)
        world.clients.replied(message.index)
        self._check_repeated(call, message)

    def _replied_without_entry(self, call: "Call", tag: str, message: wire.Reply) -> None:
        is_empty = call.op == "Fetch" and message.body == b'{"jobs":[]}'
        if not message.code and not is_empty:
            raise Violation("D1", f"{tag} was told {message}, and nothing was applied")
        self.refused_tags[tag] = None
        self._world.counts["fetches answered without an entry" if is_empty else "refused"] += 1

    def _check_repeated(self, call: "Call", message: wire.Reply) -> None:
        """Q1: the same request has one answer. A fetch gives again what is still held."""
        key = text(call.fields, "request_key")
        if not key or message.code or call.op == "Fetch" or self._world.book.is_forgotten(key):
            return
        first = self._answers.setdefault(key, message.body)
        if first != message.body:
            raise Violation("Q1", f"{key} was told {first!r} and {message.body!r}")

    def begun_anew(self, jobs: list[str]) -> None:
        """Somebody is about to want these jobs done once more, or gone."""
        self._anew |= dict.fromkeys(jobs)

    def acked(self, job_id: str) -> None:
        """Somebody was told that a job is done."""
        self._acked.setdefault(job_id, self.now())

    def delivered(self, job_id: str, began: int) -> None:
        """Somebody was given a job by a fetch that began at a moment."""
        # The id of a job that is gone may be chosen again.
        is_chosen = job_id.startswith("c") or "@" in job_id
        done = self._acked.get(job_id)
        if done is not None and done < began and job_id not in self._anew and not is_chosen:
            raise Violation("D3", f"{job_id} was acknowledged, and is given out again")
        self._world.counts["deliveries"] += 1
