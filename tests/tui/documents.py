"""Fixed documents of a server, for frames and keys: a cluster with one node away."""

from typing import Final, TypeVar

import msgspec

from corvo.client.cluster import Events, Status
from corvo.client.dashboard import Job, Jobs, Minutes, Summary, Timeline, Worker
from corvo.tui import keys
from corvo.tui.model import Data, Detail, Document, Rate, together
from corvo.tui.places import Place

AT: Final = "2026-11-18T10:42:07.25Z"
EVIL: Final = "evil\x1b[31m\x07\u202e\u0301 queue"
WIDE: Final = "発注.確認"
T = TypeVar("T")


def _read(document: object, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


_COUNTS: Final = {"pending": 0, "active": 0, "scheduled": 0, "retrying": 0, "held": 0, "dead": 0}


def _queue(name: str, ago: str = "", **more: object) -> dict[str, object]:
    counts = {state: more.pop(state, count) for state, count in _COUNTS.items()}
    oldest = {"oldest_pending_at": ago} if ago else {}
    zeros = {f"{kind}_1m": 0 for kind in ("enqueued", "completed", "failed")}
    return {"name": name, "paused": False, "counts": counts, "workers": 3} | zeros | oldest | more


QUEUES: Final = [
    _queue(
        "emails.bulk", "2026-11-18T10:41:00Z", pending=1_203, active=5, scheduled=12, retrying=9
    ),
    _queue("sync.users", "2026-11-18T08:42:00Z", pending=902, paused=True),
    _queue("reports.gen", "2026-11-18T10:28:05Z", pending=88, held=2, dead=1, workers=0),
    _queue(
        "emails.send",
        "2026-11-18T10:41:55Z",
        pending=42,
        active=10,
        retrying=31,
        dead=315,
        max_concurrency=10,
    ),
    _queue("agents.research", active=8, retrying=1, held=4),
    _queue(WIDE, "2026-11-18T10:42:00Z", pending=1_234_567),
    _queue(EVIL, pending=1),
    _queue("draining", active=1, paused=True, draining=True),
]
SUMMARY: Final = _read(
    {
        "at": AT,
        "minute": "2026-11-18T10:42:00Z",
        "queues": QUEUES,
        "totals": {"pending": 1_236_803, "active": 24, "dead": 316},
        "workers": {"alive": 41, "not_fetching": 1},
        "shards": [
            {"shard": 0, "status": "up", "leader": 1, "term": 12, "mirror": "following"},
            {"shard": 1, "status": "up", "leader": 2, "term": 9, "mirror": "following"},
            {"shard": 2, "status": "away", "term": 14, "mirror": "catching up"},
        ],
        "cluster": {
            "node": 1,
            "replicas": 3,
            "can_lose": 0,
            "nodes": [
                {"number": 1, "name": "corvo-0", "state": "active", "is_reachable": True},
                {"number": 2, "name": "corvo-1", "state": "active", "is_reachable": True},
                {"number": 3, "name": "corvo-2", "state": "active", "is_reachable": False},
            ],
        },
        "source": "mirror",
    },
    Summary,
)
_RATES: Final = {
    "emails.bulk": Rate(18.0, 17.9, 0.02),
    "sync.users": Rate(3.0, 0.0, 0.0),
    "reports.gen": Rate(0.4, 0.0, 0.0),
    "emails.send": Rate(124.0, 121.8, 3.0),
    "agents.research": Rate(0.1, 0.1, 0.0),
    WIDE: Rate(1_204.0, 1_198.0, 0.0),
    EVIL: Rate(0.0, 0.0, 0.1),
    "draining": Rate(),
}
_MINUTES: Final = {
    name: Minutes(
        enqueued=[place * step % 9 for place in range(15)],
        completed=[place * step % 7 for place in range(15)],
        failed=[1 if place == 14 else 0 for place in range(15)],
    )
    for step, name in enumerate(_RATES, start=1)
}


def _job(number: int, state: str, error: str = "", **more: object) -> dict[str, object]:
    return {
        "id": f"s01_job_01HX7Y2K3M{number:04}",
        "queue": "emails.send",
        "state": state,
        "attempt": 2,
        "max_retries": 5,
        "payload": {"to": "ada@example.org", "text": "こんにちは"},
        "created_at": "2026-11-18T10:00:00Z",
        "changed_at": "2026-11-18T10:41:00Z",
        "last_error": error,
        "tags": {"tenant": "acme"},
        **more,
    }


_RUNNING: Final = _job(
    1,
    "active",
    worker_id="w-a1b2",
    hostname="pod-xyz-1",
    started_at="2026-11-18T10:41:23Z",
    lease_expires_at="2026-11-18T10:42:18Z",
    unique_key="send-42",
    errors=[{"attempt": 1, "error": "SMTPServerDisconnected\nmail.py:88\x1b[2J"}],
)
JOBS: Final = _read(
    {
        "jobs": [
            _RUNNING,
            _job(2, "retrying", "TimeoutError: no answer within 31 s", failed_at=AT),
            _job(3, "retrying", "TimeoutError: no answer within 7 s", failed_at=AT),
            _job(
                4, "dead", f"\x9b31m wide {WIDE} " + "x" * 300, finished_at="2026-11-18T09:42:07Z"
            ),
            _job(5, "dead", "", queue=EVIL, finished_at="2026-11-16T10:42:07Z"),
        ],
        "total": 1_300,
        "total_is_exact": False,
    },
    Jobs,
)
_TIMELINE: Final = _read(
    {
        "moments": [
            {"at": "2026-11-18T10:00:00Z", "what": "enqueued", "by": "shop", "ms": 124},
            {"at": "2026-11-18T10:00:00.124Z", "what": "started", "by": "w-d4e5", "ms": 4_177},
            {
                "at": "2026-11-18T10:00:04.301Z",
                "what": "failed",
                "by": "w-d4e5",
                "why": "SMTPServerDisconnected",
                "ms": 10_000,
            },
            {"at": "2026-11-18T10:41:23Z", "what": "started", "by": "w-a1b2"},
        ],
        "phases_ms": {"queued": 124},
    },
    Timeline,
)
_WORKERS: Final = _read(
    [
        {
            "id": "w-a1b2",
            "hostname": "pod-xyz-1",
            "queue_names": ["emails.bulk", "emails.send"],
            "last_heartbeat": "2026-11-18T10:42:05Z",
            "started_at": "2026-11-18T06:20:00Z",
            "state": "alive",
            "waiting": True,
            "active": 7,
        },
        {
            "id": "w-g7h8",
            "hostname": "pod-abc-1",
            "queue_names": ["reports.gen", EVIL],
            "last_heartbeat": "2026-11-18T10:40:00Z",
            "started_at": "2026-11-16T06:20:00Z",
            "state": "not_fetching",
            "active": 1,
        },
        {"id": WIDE, "queue_names": [], "state": "gone"},
    ],
    list[Worker],
)


def _replica(node: int, **more: object) -> dict[str, object]:
    return {"node": node, "is_reachable": node != 3, "is_voter": True, **more}


_STATUS: Final = _read(
    {
        "status": "unavailable",
        "shards": 3,
        "cluster": {
            "status": "unavailable",
            "replicas": 3,
            "nodes": [
                {"number": 1, "name": "corvo-0", "version": "1.4.2", "is_reachable": True},
                {"number": 2, "name": "corvo-1", "version": "1.4.2", "is_reachable": True},
                {"number": 3, "name": "corvo-2", "version": "1.4.1", "is_reachable": False},
            ],
            "shards": [
                {
                    "shard": shard,
                    "status": status,
                    "term": term,
                    "placed_on": [1, 2, 3],
                    "replicas": [_replica(1, lag=0), _replica(2, lag=12_345), _replica(3)],
                    **leader,
                }
                for shard, status, term, leader in (
                    (0, "up", 12, {"leader": 1}),
                    (1, "up", 9, {"leader": 2}),
                    (2, "unavailable", 14, {}),
                )
            ],
            "reasons": ["node 3 (corvo-2): unreachable: connection refused"],
        },
    },
    Status,
)
_EVENTS: Final = _read(
    {
        "events": [
            {"seq": 1, "type": "leader_elected", "at": AT, "text": "corvo-0 leads shard 0"},
            {"seq": 2, "type": "node_unreachable", "at": AT, "text": "corvo-2 cannot be reached"},
        ],
        "since": AT,
        "missing_nodes": [3],
    },
    Events,
)
JOB: Final = _read(_RUNNING, Job)
PLACES: Final = {
    view: Place(view, {"queue": "emails.send", "job": JOB.id}.get(view, ""))
    for view in (keys.QUEUE, keys.JOB, *keys.TABS)
}
_DOCUMENTS: Final[dict[str, Document]] = {
    keys.QUEUE: JOBS,
    keys.WORKERS: _WORKERS,
    keys.SHARDS: _STATUS,
    keys.ERRORS: JOBS,
    keys.JOBS: JOBS,
    keys.JOB: (JOB, _TIMELINE),
    keys.EVENTS: _EVENTS,
}
DATA: Final = Data(
    summary=SUMMARY,
    rates=_RATES,
    minutes=_MINUTES,
    all_minutes=together(_MINUTES.values()),
    details={PLACES[view].wanted: Detail(document) for view, document in _DOCUMENTS.items()},
    server="127.0.0.1:8080",
)
