"""Workers that sent requests to this router, and the state of each: alive, not fetching or gone.

A worker that finds no job leaves no trace in a shard's log, and a worker whose loop has stopped may
renew its leases for hours. Only the router sees the fetches that tell the two apart. Its sightings
are merged with the fetches that shards keep, and with the leases that the mirror knows.

- **alive**: a fetch of the worker waits now, or the last one is not older than `not_fetching_s`; or
  the worker holds as many jobs as at its last fetch, and so has no reason to fetch.
- **not fetching**: the worker renews leases or sends heartbeats, but its last fetch is older than
  `not_fetching_s`, though it has room: none of its jobs is left, or fewer than at its last fetch.
  A worker that took several jobs at once may finish all of them before it fetches again.
- **gone**: no request came for `GONE_S`, and the worker holds no lease.
- **unknown**: as gone, but this router has just started, or the mirror, which knows the leases, is
  unavailable.

A worker that is busy with as many jobs as it takes is always alive. No worker gets a job without a
fetch, so the most jobs that it was seen to have since its last fetch are those that it had then.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from corvo.model import Worker
from corvo.protocol.questions import Beat
from corvo.protocol.routers import SeenWorker

WORKERS_MAX: Final = 10_000
"""Number of workers that are kept; each takes some 300 bytes."""
NOT_FETCHING_S_MIN: Final = 180.0
GONE_S: Final = 300.0
KEPT_S: Final = 86_400
"""Time for which a worker is kept after its last request, as in the shards."""
_POLLS: Final = 3
"""Number of long polls that a worker may miss."""
STEP: Final = 500
"""Number of workers between two checkpoints of the loop: less than a millisecond."""
_BEGUN_S: Final = 15.0
"""Time beyond the longest poll within which every running worker has reached a restarted router."""
_S: Final = 1_000_000_000

WorkerState: TypeAlias = Literal["alive", "not_fetching", "gone", "unknown"]
ALIVE: Final = "alive"
NOT_FETCHING: Final = "not_fetching"
GONE: Final = "gone"
UNKNOWN: Final = "unknown"


class Sighting:
    """The requests of one worker to this router."""

    __slots__ = (
        "asked_ns",
        "asking",
        "beat_ns",
        "first_ns",
        "hostname",
        "most",
        "queues",
        "takes_many",
    )

    def __init__(self, now_ns: int) -> None:
        self.first_ns: Final = now_ns
        self.asked_ns = 0
        """Time at which its last fetch began or ended; 0 is never."""
        self.asking = 0
        """Number of its fetches that wait now."""
        self.beat_ns = 0
        """Time of its last heartbeat; 0 is never."""
        self.hostname = ""
        self.queues: Sequence[str] = ()
        self.most = 0
        """The largest number of jobs that it was seen to have since its last fetch."""
        self.takes_many = False
        """Whether its last fetch that found jobs found several."""

    @property
    def seen_ns(self) -> int:
        """Time of its last request."""
        return max(self.first_ns, self.asked_ns, self.beat_ns)


class Sightings:
    """The workers that sent requests lately, the one seen longest ago first."""

    def __init__(self, workers_max: int = WORKERS_MAX) -> None:
        self._workers_max = workers_max
        self._seen: dict[str, Sighting] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def asks(
        self, worker_id: str, hostname: str, queues: Sequence[str], now_ns: int
    ) -> Sighting | None:
        """A fetch of a worker begins. Returns None for a worker without a name."""
        if not worker_id:
            return None
        sighting = self._touch(worker_id, now_ns)
        sighting.hostname = hostname
        sighting.queues = queues
        sighting.asked_ns = now_ns
        sighting.asking += 1
        return sighting

    def has_asked(self, sighting: Sighting, claims: int, now_ns: int) -> None:
        """A fetch of it has ended."""
        sighting.asking -= 1
        sighting.asked_ns = now_ns
        sighting.most = claims
        if claims:
            sighting.takes_many = claims > 1

    def beats(self, worker_id: str, now_ns: int) -> None:
        """A worker has sent a heartbeat.

        A worker that has never fetched is not kept, because a heartbeat may have any name.
        """
        sighting = self._seen.get(worker_id)
        if sighting is not None:
            sighting.beat_ns = now_ns

    def has(self, worker_id: str, active: int, now_ns: int) -> None:
        """A worker was seen to have `active` jobs."""
        sighting = self._seen.get(worker_id) or self._touch(worker_id, now_ns)
        sighting.most = max(sighting.most, active)

    def all(self, now_ns: int) -> list[tuple[str, Sighting]]:
        """Every kept worker by its id, without those of long ago."""
        seen = self._seen
        while seen:
            worker_id, sighting = next(iter(seen.items()))
            if sighting.asking or now_ns - sighting.seen_ns < KEPT_S * _S:
                break
            del seen[worker_id]
        return list(seen.items())

    def shown(self, now_ns: int) -> Iterator[SeenWorker]:
        """The same for another router."""
        for worker_id, seen in self.all(now_ns):
            yield SeenWorker(
                worker_id,
                seen.hostname,
                tuple(seen.queues),
                seen.first_ns,
                seen.asked_ns,
                seen.beat_ns,
                seen.asking > 0,
                seen.most,
                seen.takes_many,
            )

    def _touch(self, worker_id: str, now_ns: int) -> Sighting:
        seen = self._seen
        sighting = seen.pop(worker_id, None) or Sighting(now_ns)
        seen[worker_id] = sighting
        if len(seen) > self._workers_max:
            del seen[next(iter(seen))]
        return sighting


class KnownWorker(msgspec.Struct, kw_only=True):
    """A worker, from all sources."""

    id: str
    hostname: str = ""
    queues: frozenset[str] = frozenset()
    started_ns: int = 0
    asked_ns: int = 0
    """Time of its last fetch."""
    beat_ns: int = 0
    """Time of its last heartbeat or renewal of a lease."""
    active: int = 0
    """Number of jobs that it has."""
    most: int = 0
    takes_many: bool = False
    is_asking: bool = False

    @property
    def seen_ns(self) -> int:
        """Time of its last request."""
        return max(self.asked_ns, self.beat_ns)

    def add(self, hostname: str, queues: Iterable[str], started_ns: int) -> None:
        """Add what one source knows."""
        self.hostname = hostname or self.hostname
        self.queues |= frozenset(queues)
        if started_ns:
            self.started_ns = min(self.started_ns or started_ns, started_ns)


def in_order(heard: Iterable[KnownWorker]) -> list[KnownWorker]:
    """Workers, the one seen last first."""
    return sorted(heard, key=lambda each: (-each.seen_ns, each.id))


def gather_by_steps(
    heard: dict[str, KnownWorker],
    workers: Iterable[Worker],
    beats: Iterable[Beat],
    sightings: Sightings,
    now_ns: int,
    elsewhere: Iterable[SeenWorker] = (),
) -> Iterator[None]:
    """Fill in what shards, mirror and routers know of workers; yield after each `STEP` of them.

    `elsewhere` is what the routers of other nodes have seen.

    A worker that fetches from queues of several shards is known to each of them, by the queues that
    are there. The numbers of jobs that the mirror knows are kept with the sightings.
    """
    by_time = sorted(workers, key=lambda worker: worker.seen_ns)  # the latest has the last word
    for count, worker in enumerate(by_time, start=1):
        known = _of(heard, worker.id)
        known.add(worker.hostname, worker.queues, worker.started_ns)
        known.asked_ns = max(known.asked_ns, worker.seen_ns)
        if count % STEP == 0:
            yield
    for count, beat in enumerate(beats, start=1):
        known = _of(heard, beat.worker_id)
        known.add(beat.hostname, beat.queues, 0)
        known.active = beat.active
        known.asked_ns = max(known.asked_ns, beat.started_ns)
        known.beat_ns = max(known.beat_ns, beat.beat_ns)
        sightings.has(beat.worker_id, beat.active, now_ns)
        if count % STEP == 0:
            yield
    for count, (worker_id, sighting) in enumerate(sightings.all(now_ns), start=1):
        known = _of(heard, worker_id)
        known.add(sighting.hostname, sighting.queues, sighting.first_ns)
        known.is_asking = sighting.asking > 0
        known.asked_ns = max(known.asked_ns, now_ns if known.is_asking else sighting.asked_ns)
        known.beat_ns = max(known.beat_ns, sighting.beat_ns)
        known.most, known.takes_many = sighting.most, sighting.takes_many
        if count % STEP == 0:
            yield
    for count, seen in enumerate(elsewhere, start=1):
        known = _of(heard, seen.id)
        known.add(seen.hostname, seen.queues, seen.first_ns)
        known.is_asking = known.is_asking or seen.is_asking
        known.asked_ns = max(known.asked_ns, now_ns if seen.is_asking else seen.asked_ns)
        known.beat_ns = max(known.beat_ns, seen.beat_ns)
        known.most = max(known.most, seen.most)
        known.takes_many = known.takes_many or seen.takes_many
        if count % STEP == 0:
            yield


def _of(heard: dict[str, KnownWorker], worker_id: str) -> KnownWorker:
    known = heard.get(worker_id)
    if known is None:
        known = heard[worker_id] = KnownWorker(id=worker_id)
    return known


class WorkerHealth:
    """Finds the state of a worker."""

    def __init__(self, *, wait_s_max: float, began_ns: int) -> None:
        """`wait_s_max`: longest wait of a fetch; `began_ns`: time at which this router began."""
        self.not_fetching_s: Final = max(NOT_FETCHING_S_MIN, _POLLS * wait_s_max)
        self._knows_ns: Final = began_ns + round((wait_s_max + _BEGUN_S) * _S)

    def state(
        self, heard: KnownWorker, now_ns: int, *, knows_jobs: bool, knows_all: bool = True
    ) -> WorkerState:
        """The state of a worker. `knows_jobs`: whether the mirror told which jobs workers hold.

        `knows_all`: whether every router of the cluster said which workers it has seen. Otherwise a
        worker may fetch from another node.
        """
        not_fetching_ns = round(self.not_fetching_s * _S)
        if now_ns - heard.asked_ns <= not_fetching_ns:  # a waiting fetch counts as one of now
            return ALIVE
        if heard.active or now_ns - heard.beat_ns <= not_fetching_ns:
            is_full = heard.active > 0 and (heard.takes_many or heard.active >= heard.most)
            return ALIVE if is_full or not (knows_jobs and knows_all) else NOT_FETCHING
        if now_ns - heard.seen_ns <= round(GONE_S * _S):
            return ALIVE
        knows = knows_jobs and knows_all
        return GONE if knows and self.knows(now_ns) else UNKNOWN

    def knows(self, now_ns: int) -> bool:
        """Whether every worker that fetches at this router has done so since it began."""
        return now_ns >= self._knows_ns
