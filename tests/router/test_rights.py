"""Rights: every route declares where it names queues and jobs, and what is declared is checked."""

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from corvo.model import ApiKey
from corvo.router.actions import Action
from corvo.router.api import Api
from corvo.router.http import Request, Response
from corvo.router.rights import NODE, RESULT, Rights, in_body, job_in_path, queue_in_query
from corvo.router.routes import Route
from corvo.router.working import decode_ack
from tests.router.nests import Nest, run

KEYS: Final = {
    "evil": ApiKey(key_hash="", name="evil", role="operator", queue_scope=("evil*",)),
    "free": ApiKey(key_hash="", name="free", role="operator"),
}


async def nothing(_: Api, __: Request) -> Response:
    return Response()


ROW: Final = partial(Route, method="POST", endpoint=nothing, action=Action.WORK, summary="")


def test_a_route_that_does_not_declare_its_rights_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="rights"):
        ROW(path="/new")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("path", "rights"),
    [
        ("/jobs/{id}", NODE),
        ("/jobs/{id}", RESULT),
        ("/jobs/{id}", job_in_path("job_id")),
        ("/jobs", job_in_path("id")),
        ("/jobs", queue_in_query("queue")),
        ("/jobs", in_body(decode_ack)),
        ("/jobs", Rights(where=frozenset())),
    ],
)
def test_a_declaration_that_leaves_out_or_adds_a_part_of_the_route_is_refused(
    path: str, rights: Rights
) -> None:
    with pytest.raises(AssertionError):
        ROW(path=path, rights=rights)


# What a job that is enqueued names beside its queue.


@pytest.mark.parametrize(
    "names",
    [
        lambda job_id: {"depends_on": [job_id]},
        lambda job_id: {"chain_config": {"depends_on": [job_id]}},
        lambda _: {"chain": {"steps": [{"queue": "evil"}, {"queue": "mail"}]}},
        lambda _: {"chain_config": {"steps": [{"queue": "evil"}, {"queue": "mail"}]}},
    ],
)
def test_a_job_waits_for_no_job_and_leads_to_no_queue_that_its_maker_may_not_see(
    names: Callable[[str], dict[str, object]],
) -> None:
    async def main() -> None:
        nest = Nest(keys=KEYS)
        item = {"queue": "evil", **names(nest.put("mail"))}
        for path, body in (
            ("enqueue", item),
            ("enqueue/batch", {"jobs": [{"queue": "evil"}, item]}),
        ):
            refused = await nest.ask("POST", f"/api/v1/{path}", body, x_api_key="evil")
            allowed = await nest.ask("POST", f"/api/v1/{path}", body, x_api_key="free")

            assert (refused.status, allowed.status) == (403, 201), refused.body
            assert b"is not for queue 'mail'" in refused.body

    run(main)
