"""What a router answers the routers of other nodes, also to requests that it cannot read."""

import msgspec
import pytest

from corvo.protocol import wire
from corvo.protocol.queries import MapFound
from corvo.protocol.routers import (
    GET_EVENTS,
    GET_NODE_MAP,
    GET_SEEN_WORKERS,
    REPORT_USE,
    ObservedEvents,
    SeenWorkers,
    Use,
    UsedTokens,
)
from corvo.router.auth.rates import Rates
from corvo.router.cluster.joining import _reply_to_router
from corvo.router.config import Limits
from corvo.router.http.messages import Problem
from tests.router.clusters import MAP, Cluster
from tests.router.nests import run


def test_questions_and_reports_are_answered() -> None:
    async def main() -> None:
        cluster = Cluster()
        vars(cluster.api)["rates"] = rates = Rates(Limits(write_rate=1, write_burst=1))
        report = msgspec.msgpack.encode(UsedTokens([Use("ann", 0, 1)]))

        workers = _reply_to_router(cluster.api, wire.Ask(1, GET_SEEN_WORKERS, b""))
        events = _reply_to_router(cluster.api, wire.Ask(2, GET_EVENTS, b""))
        found = _reply_to_router(cluster.api, wire.Ask(4, GET_NODE_MAP, b""))
        received = _reply_to_router(cluster.api, wire.Ask(3, REPORT_USE, report))

        assert msgspec.msgpack.decode(workers.body, type=SeenWorkers).workers == []
        assert msgspec.msgpack.decode(events.body, type=ObservedEvents).events == []
        assert msgspec.msgpack.decode(found.body, type=MapFound).map == MAP
        assert [(each.id, each.code) for each in (workers, events, received)] == [
            (1, ""),
            (2, ""),
            (3, ""),
        ]
        with pytest.raises(Problem):
            rates.charge("ann", is_write=True, now_s=lambda: 0.0)

    run(main)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (wire.Ask(7, 99, b""), "unknown_query"),
        (wire.Submit(7, REPORT_USE, b""), "unknown_query"),
        (wire.Ask(7, REPORT_USE, b""), "bad_request"),
        (wire.Ask(7, REPORT_USE, b"\x81\xa4uses\x91\x93\xa1\xff\x01\x01"), "bad_request"),
        (wire.Ask(7, REPORT_USE, b"\x81\xa4uses\x91\x93\xa1a\xff\x01"), "bad_request"),
    ],
)
def test_another_request_is_refused_and_ends_nothing(request_: wire.Request, code: str) -> None:
    async def main() -> None:
        reply = _reply_to_router(Cluster().api, request_)

        assert (reply.id, reply.code) == (7, code)

    run(main)
