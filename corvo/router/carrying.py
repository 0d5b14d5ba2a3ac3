"""Carrying a frame of a stream out: its parts brought to the shards, and their answers to its own.

All parts are sent, in order, before any answer is waited for. So what goes to one shard goes there
in one piece, its acks come before its fetch, and mostly they share an entry of the shard's log.

Each item is by itself: one that cannot be done is answered with its problem, and holds up no other.
Only what makes a whole frame suspect refuses all of it, and then nothing was done.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec
import trio

from corvo import clock
from corvo.ids import shard_of
from corvo.placement import shard_of_queue
from corvo.router import keys
from corvo.router.actions import Action
from corvo.router.addressing import missing, together
from corvo.router.api import Api
from corvo.router.fetching import Fetched
from corvo.router.frames import BeatResult, FetchPart, Frame, Reply
from corvo.router.http import Principal, Problem, ProblemBody, Request, problem_body
from corvo.router.positions import render
from corvo.router.problems import problem_of
from corvo.router.producing import LIMITS, EnqueueItem, batched, new_job, queues_of
from corvo.router.shards import Answer, Begun
from corvo.router.words import key_of, signature
from corvo.router.working import (
    AckEntry,
    BeatEntry,
    FailEntry,
    Outcome,
    ack_item,
    beat_answer,
    beat_item,
    fail_item,
    fetched_job,
    item_answer,
    parts_of,
    read_results,
)
from corvo.shard.ops.base import Json, Op, Rejected
from corvo.shard.ops.checks import bad_json
from corvo.shard.ops.enqueue import Enqueue, Enqueued, EnqueueResults, NewJob
from corvo.shard.ops.work import Ack, AckItem, BeatItem, Claim, Fail, FailItem, Fetch, Heartbeat, Word
from corvo.shard.ops.workflow import bad_batch_id

_ITEMS_AT_A_TIME: Final = 250
"""Items that are read before others have their turn: some milliseconds."""

ItemT = TypeVar("ItemT", bound=msgspec.Struct)
WordT = TypeVar("WordT", bound=Word)
EntryT = TypeVar("EntryT")
Make = Callable[[list[ItemT], str], Op]
"""The op on some items, under a request key."""

_decode_enqueued: Final = msgspec.json.Decoder(EnqueueResults).decode


class Carrier:
    """One frame."""

    def __init__(self, api: Api, request: Request, frame: Frame, size: int) -> None:
        self.api: Final = api
        self.frame: Final = frame
        self.positions: dict[int, int] = {}
        """How far the shards had come that answered."""
        self.claims: list[Claim] = []
        """What is the client's once it has the answer."""
        self._principal: Principal = request.principal
        self._request = request
        self._size = size
        self._by = signature(request.principal)

    async def carry(self, begun: Callable[[], None]) -> Reply:
        """Do it. Raises `Problem` when nothing of it was done.

        `begun` is called when everything was sent: what is sent behind it is done behind it.
        """
        frame = self.frame
        await self._admit()
        acks = _Words(self, "acks", await self._read(frame.acks, _read_ack), self._acks)
        fails = _Words(self, "fails", await self._read(frame.fails, _read_fail), self._fails)
        beats = _Words(self, "beats", await self._read(frame.heartbeats, _read_beat), self._beats)
        now_ns = clock.now_ns()
        births = _Births(
            self, await self._read(frame.enqueues, partial(_read_new, now_ns=now_ns)), self._births
        )
        # From here on nobody else has a turn until all is sent, the fetch included.
        for part in (acks, fails, beats, births):
            part.begin()
        begun()
        ...
