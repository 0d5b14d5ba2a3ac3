"""The route table: every row there is. Both lanes and the OpenAPI document are made from it."""

from typing import Final

from corvo.router.routes import Routes

ROUTES: Final = Routes(())
