"""The route table: every row there is. Both lanes and the OpenAPI document are made from it."""

from typing import Final

from corvo.router.endpoints import (
    bulk,
    docs,
    events,
    jobs,
    keys,
    node,
    producing,
    queues,
    searching,
    workers,
    working,
)
from corvo.router.routes import Routes

_ROWS: Final = (
    *producing.ROUTES,
    *working.ROUTES,
    *keys.ROUTES,
    *events.ROUTES,
    *node.ROUTES,
    *bulk.ROUTES,
    *jobs.ROUTES,
    *queues.ROUTES,
    *workers.ROUTES,
    *searching.ROUTES,
)

ROUTES: Final = Routes((*_ROWS, *docs.rows(_ROWS)))
