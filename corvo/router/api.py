"""`Api`: shards, mirror, long polls, API keys and rate limits, for every endpoint."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec
import trio

from corvo import child, clock
from corvo.clock_offsets import Clocks
from corvo.protocol import wire
from corvo.protocol.ops.keys import HOME
from corvo.protocol.queries import Query
from corvo.protocol.questions import Consistency, Freshness
from corvo.router.auth import keyring
from corvo.router.auth.actions import Action
from corvo.router.auth.guesses import Guesses
from corvo.router.auth.keeper import Keeper
from corvo.router.auth.keyring import Keyring
from corvo.router.auth.rates import Rates, client_of, site_of
from corvo.router.auth.rights import Rights
from corvo.router.auth.sharing import RateSharing
from corvo.router.caller import Caller
from corvo.router.config import RouterConfig
from corvo.router.feeds.hub import Hub
from corvo.router.history import History, Observed
from corvo.router.http.messages import Problem, Request
from corvo.router.metrics import Metrics
from corvo.router.shards.addressing import Addresses
from corvo.router.shards.copies import Backups
from corvo.router.shards.links import Answer, Shards
from corvo.router.shards.long_poll import Fetching
from corvo.router.shards.map_keeper import MapKeeper
from corvo.router.shards.mirror import Mirror
from corvo.router.shards.peers import PeerRouters
from corvo.router.shards.present import PresentPositions
from corvo.router.shards.queues import queues_of, queues_of_batches
from corvo.router.summary import Summaries
from corvo.router.tracing.tracer import tracer_of
from corvo.router.worker_health import WorkerHealth
from corvo.scopes import Scope
from corvo.time_zones import tz_version
from corvo.topology import topology_of

R = TypeVar("R")
_CATCH_UP_S: Final = 1.0
"""How long a read waits for a shard to come to where the client has been."""
_READS: Final = frozenset({Action.READ, Action.OPEN})


class Api:
    """One of these is handed to every endpoint."""

    def __init__(self, config: RouterConfig) -> None:
        self.config: Final = config
        self.limits: Final = config.limits
        self.metrics: Final = Metrics()
        self.addresses: Final = Addresses(config.shards)
        self.topology: Final = topology_of(config)
        self.tracer: Final = tracer_of(config)
        """None if traces are off."""
        self.shards: Final = Shards(
            config,
            self.topology,
            tracer=self.tracer,
            pushed=self._pushed,
            came_up=self._came_up,
            changed=self._note_change,
        )
        self.cluster_changed = trio.Event()
        """Set when a shard has another leader, or a replica can or cannot be reached."""
        self.history: Final = History(Observed(self.topology.map), clock.now_ns(), node=config.node)
        self.fetching: Final = Fetching(config, self.shards)
        self.mirror = Mirror(config)
        self.present: Final = PresentPositions(self.shards)
        self.hub: Final = Hub(config, self.topology)
        self.summaries: Final = Summaries()
        self.sightings: Final = self.fetching.sightings
        self.peers: Final = PeerRouters(config, self.topology)
        self.clocks = Clocks(tz_versions={config.node: tz_version()})
        """The wall clocks of the other nodes, and the time zone data of all."""
        self.worker_health = WorkerHealth(
            wait_s_max=config.limits.fetch_wait_s_max, began_ns=clock.now_ns()
        )
        self.keyring: Final = Keyring(config)
        self.keeper: Final = Keeper(self.keyring, self.shards)
        self.map_keeper: Final = MapKeeper(
            config, self.shards, self.topology, child.tell, self.peers.read_maps
        )
        self.rates: Final = Rates(config.limits)
        self.rate_sharing: Final = RateSharing(self.rates, self.peers)
        self.guesses: Final = Guesses(config.limits.guess_delay_ms / 1_000, secrets.token_bytes())
        self.backups: Final = Backups(config, self.shards, self.topology)
        self.streams = 0
        """How many are open."""
        self.watchers = 0
        """Clients that watch a bulk operation."""
        self.bulks_waited_for: Final[set[str]] = set()
        """Jobs that are small bulk operations, which have not begun and clients wait for."""
        self.warnings: list[str] = []
        """Warnings of `/readyz`, and from when on they are collected again."""
        self.warnings_due = 0.0
        self.is_leaving = False
        """Whether this router stops soon: `/readyz` says so, and all else is as before."""
        self.stopping: Final = trio.Event()
        """Set when this router has been told to leave: `/readyz` says so, and streams end."""

        read = self.metrics.read
        read("corvo_fetch_waiters", lambda: self.fetching.parked)
        read("corvo_claims_given_back_total", lambda: self.fetching.given_back)
        read("corvo_lifecycle_streams_open", lambda: self.streams)
        read("corvo_event_listeners", lambda: self.hub.listeners)
        if self.tracer is not None:
            exporter = self.tracer.exporter
            read("corvo_trace_spans_exported_total", lambda: exporter.exported)
            read("corvo_trace_spans_dropped_total", lambda: exporter.dropped)
        read("corvo_wrong_api_keys_total", lambda: self.guesses.total)
        read("corvo_wrong_api_keys_waiting", lambda: self.guesses.waiting)

    # What shards tell.

    def _pushed(self, _: int, push: wire.Push) -> None:
        match push:
            case wire.WorkAvailable():
                self.fetching.pushed(push)
            case wire.KeysChanged():
                self.keeper.ring()
            case wire.MapChanged():
                self.map_keeper.ring()
            case wire.Leading():
                pass  # `came_up` tells of it

    def _came_up(self, shard: int) -> None:
        self.fetching.came_up(shard)
        if shard == HOME:
            self.keeper.ring()
            self.map_keeper.ring()

    def _note_change(self) -> None:
        self.cluster_changed.set()
        self.cluster_changed = trio.Event()

    def stop(self) -> None:
        """Long polls end with nothing, and nothing waits any more."""
        self.stopping.set()
        self.fetching.stop()
        self.hub.stop()

    # Who may what.

    async def who(self, request: Request) -> Caller:
        """The caller of a request, by the key that it shows. Raises `Problem`."""
        headers = request.headers
        if not (self.keyring.is_known or self.keyring.needs_no_list(headers)):
            # This router has just started, and the list of keys has not been read yet.
            await self.keeper.wait(self.limits.leader_wait_ms / 1_000)
        try:
            caller = self.keyring.who(headers, now_ns=clock.now_ns, now_s=trio.current_time)
        except Problem as problem:
            if problem.status == 401 and keyring.credential(headers):
                await self._wait_for_wrong_key(request)
            raise
        if not self.rates.has_limits:
            return caller
        return msgspec.structs.replace(caller, rate_id=client_of(caller, request.peer))

    async def _wait_for_wrong_key(self, request: Request) -> None:
        guesses = self.guesses
        delay_s = guesses.wrong(site_of(request.peer), trio.current_time())
        if delay_s:
            guesses.waiting += 1
            try:
                await trio.sleep(delay_s)
            finally:
                guesses.waiting -= 1

    async def reader(self, request: Request) -> Caller:
        """The caller of a stream that is under way, if its key may still read. Raises `Problem`."""
        caller = await self.who(request)
        keyring.allow(caller, Action.READ)
        return caller

    def admit(self, caller: Caller, action: Action) -> None:
        """Check the caller's role for an action, and its rate. Raises `Problem`."""
        keyring.allow(caller, action)
        if self.rates.has_limits:
            self.charge(caller, action, items=1)

    def charge(self, caller: Caller, action: Action, *, items: int, charged: int = 0) -> None:
        """Take what a request costs its client; `charged` was taken before. Raises `Problem`."""
        self.rates.charge(
            caller.rate_id,
            is_write=action not in _READS,
            now_s=trio.current_time,
            items=items,
            charged=charged,
        )

    async def authorise(self, request: Request, rights: Rights) -> None:
        """Check that the caller's scope has what a request names. Raises `Problem`.

        This is the one place where the declarations of the route table are checked.
        """
        caller = request.caller
        if caller.scope.has_everything:
            return
        if rights.needs_everything:
            raise keyring.needs_everything(caller)
        await self.allow(
            caller,
            rights.queues_of(request),
            rights.jobs_of(request),
            rights.batches_of(request),
        )

    async def allow(
        self,
        caller: Caller,
        queues: Iterable[str],
        job_ids: Sequence[str],
        batch_ids: Sequence[str] = (),
    ) -> None:
        """Check that the scope has queues, and those of jobs and batches. Raises `Problem`.

        For a scope with every queue no shard is asked.
        """
        if caller.scope.has_everything:
            return
        for queue in queues:
            keyring.allow_queue(caller, queue)
        if job_ids:
            for job_id, queue in sorted(await queues_of(self.shards, self.addresses, job_ids)):
                keyring.allow_job(caller, job_id, queue)
        if batch_ids:
            found = await queues_of_batches(self.shards, batch_ids)
            for batch_id in batch_ids:
                keyring.allow_batch(caller, batch_id, found.get(batch_id, ""))

    # Shards.

    async def ask(self, shard: int, query: Query, caller: Caller) -> Answer:
        """Ask a shard, once it has come to the caller's `min_seq`. Raises `Problem`.

        A leader answers from all that was ever acknowledged, so it only has to catch up when the
        position is of a log that is not there any more.
        """
        answer = await self._ask(shard, query, caller)
        wanted = caller.min_seq.get(shard, 0)
        until = trio.current_time() + _CATCH_UP_S
        while answer.index < wanted:
            if trio.current_time() >= until:
                why = "it is still recovering, or its data was restored from an older copy"
                if caller.here is not None:
                    why = "the replica that was asked is behind its leader"
                raise Problem(
                    503,
                    "NOT_CAUGHT_UP",
                    f"shard {shard} is at position {answer.index}, and {wanted} was requested: "
                    f"{why}",
                    retry_after_ms=1_000,
                )
            await trio.sleep(_CATCH_UP_S / 20)
            answer = await self._ask(shard, query, caller)
        return answer

    async def _ask(self, shard: int, query: Query, caller: Caller) -> Answer:
        if caller.here is None:
            return await self.shards[shard].ask(query)
        found = await self.shards[shard].ask_here(query)
        caller.here.note(found.contact_ms)
        return found.answer

    async def freshness(
        self, caller: Caller, consistency: Consistency | None, shards: Iterable[int]
    ) -> Freshness | None:
        """How new the mirror's answer to a caller should be; None if it is answered as it is.

        A caller that names a position by itself waits for that position, and for no other unless
        it says so.
        """
        wait_ms = self.limits.search_wait_ms
        waits = consistency == "wait" or (consistency is None and not caller.min_seq)
        if not (waits and wait_ms and self.mirror.is_there):
            return None
        return await self.present.read(shards, wait_ms / 1_000)

    def shards_of(self, scope: Scope, queue: str | None = None) -> list[int]:
        """The shards that may have jobs of a queue, or of any queue of a scope."""
        names = scope.names if queue is None else (queue,)
        is_open = queue is None and scope.has_everything
        if is_open or any(name.endswith("*") for name in scope.names if queue is None):
            return [*range(len(self.shards))]
        return sorted({self.shards.of_queue(name).number for name in names})
