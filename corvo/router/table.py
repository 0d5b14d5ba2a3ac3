"""The route table: every row there is. Both lanes and the OpenAPI document are made from it."""

from typing import Final

from corvo.router.endpoints import docs, jobs, keys, node, producing, queues, working
from corvo.router.routes import Routes

_ROWS: Final = (
    *producing.ROUTES,
    *working.ROUTES,
    *keys.ROUTES,
    *node.ROUTES,
    *jobs.ROUTES,
    *queues.ROUTES,
)

ROUTES: Final = Routes((*_ROWS, *docs.rows(_ROWS)))
