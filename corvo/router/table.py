"""The route table: every row there is. Both lanes and the OpenAPI document are made from it."""

from typing import Final

from corvo.router.endpoints import keys, node, producing, working
from corvo.router.routes import Routes

ROUTES: Final = Routes((*producing.ROUTES, *working.ROUTES, *keys.ROUTES, *node.ROUTES))
