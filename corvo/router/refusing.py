"""What a lane answers by itself: requests that did not come in whole, or cannot be read."""

from corvo.router.door import Door
from corvo.router.http import Problem, Request, Response
from corvo.router.metrics import OTHER


def turn_away(door: Door, problem: Problem, request: Request) -> Response:
    """A problem as an answer, with what every answer has."""
    request.id = request.id or door.name(request.headers)
    response = door.refuse(problem, request)
    response.headers = [
        *response.headers,
        ("server-timing", "proc;dur=0.000"),
        ("x-request-id", request.id),
    ]
    door.api.metrics.observe(request.method, OTHER, response.status, 0.0)
    return response
