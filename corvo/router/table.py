"""The route table: the rows of all packages. Both lanes and OpenAPI are made from it."""

from typing import Final

from corvo.router.backups import endpoints as backups
from corvo.router.batches import endpoints as batches
from corvo.router.bulk import endpoints as bulk
from corvo.router.cluster import endpoints as cluster
from corvo.router.enqueue import endpoints as producing
from corvo.router.events import endpoints as events
from corvo.router.jobs import endpoints as jobs
from corvo.router.keys import endpoints as keys
from corvo.router.leases import endpoints as working
from corvo.router.node import endpoints as node
from corvo.router.openapi import endpoints as docs
from corvo.router.queues import endpoints as queues
from corvo.router.routes import Routes
from corvo.router.schedules import endpoints as schedules
from corvo.router.search import endpoints as searching
from corvo.router.workers import endpoints as workers

_ROWS: Final = (
    *producing.ROUTES,
    *working.ROUTES,
    *keys.ROUTES,
    *events.ROUTES,
    *node.ROUTES,
    *backups.ROUTES,
    *cluster.ROUTES,
    *bulk.ROUTES,
    *jobs.ROUTES,
    *batches.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *workers.ROUTES,
    *searching.ROUTES,
)

ROUTES: Final = Routes((*_ROWS, *docs.rows(_ROWS)))
