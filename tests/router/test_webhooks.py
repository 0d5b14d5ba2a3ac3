"""Webhooks that come in: bodies that would have to be changed, and signatures that do not fit."""

import hmac
from hashlib import sha256
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo import clock
from corvo.router.enqueue.bodies import webhook_payload
from corvo.router.enqueue.signatures import check_signature, secrets_of
from corvo.router.http.messages import Problem, Response
from tests.router.nests import Nest, problem, run

SECRET: Final = "It's a Secret to Everybody"  # noqa: S105 -- GitHub's own example, with its signature
BODY: Final = b"Hello, World!"
SIGNATURE: Final = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
NOW_NS: Final = 1_771_581_600_000_000_000
NOW_S: Final = NOW_NS // 1_000_000_000
SECRETS: Final = (f"mail={SECRET}", "pay=new secret of 20 c", "pay=old secret of 20 c")


def hub(body: bytes, secret: str = SECRET) -> str:
    return f"sha256={hmac.new(secret.encode(), body, sha256).hexdigest()}"


def stripe(body: bytes, secret: str = SECRET, at_s: int = NOW_S) -> str:
    signed = hmac.new(secret.encode(), f"{at_s}.".encode() + body, sha256).hexdigest()
    return f"t={at_s},v1={signed}"


async def send(nest: Nest, queue: str, body: bytes, **headers: str) -> Response:
    return await nest.ask("POST", f"/api/v1/webhooks/{queue}", body, query=None, **headers)


# Bodies.


@pytest.mark.parametrize("body", [b"\xff", b'"\xff"', b'{"a":"\xc3"}', b"a\xed\xa0\x80"])
def test_bytes_that_are_not_utf_8_are_refused_and_not_changed(body: bytes) -> None:
    async def main() -> None:
        nest = Nest()

        answer = await send(nest, "mail", body)
        left = await nest.ask("GET", "/api/v1/queues")

        assert problem(answer)[:2] == (400, "PARSE_ERROR")
        assert b"not UTF-8" in answer.body
        assert left.body == b"[]\n"

    run(main)


def test_json_that_is_nested_too_deeply_is_refused_and_not_made_a_text() -> None:
    with pytest.raises(Problem, match="nested too deeply"):
        webhook_payload(b"[" * 100_000 + b"]" * 100_000)


@given(st.binary(max_size=40))
def test_a_payload_says_what_the_body_says(body: bytes) -> None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        with pytest.raises(Problem):
            webhook_payload(body)
        return

    payload = bytes(webhook_payload(body))

    if not body.strip():
        assert payload == b"{}"
    elif payload != body.strip():
        assert msgspec.json.decode(payload) == text


# Signatures.


def test_the_example_of_github_fits() -> None:
    assert hub(BODY) == SIGNATURE


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "signature_missing"),
        ({"x_hub_signature": "sha1=0"}, "signature_missing"),
        ({"x_hub_signature_256": hub(b"other")}, "signature_mismatch"),
        ({"x_hub_signature_256": hub(BODY, "another secret, long")}, "signature_mismatch"),
        ({"x_hub_signature_256": hub(BODY).removeprefix("sha256=")}, "signature_mismatch"),
        ({"x_hub_signature_256": ""}, "signature_mismatch"),
        ({"x_hub_signature_256": "sha256=é"}, "signature_mismatch"),
        ({"x_hub_signature_256": f"{hub(BODY)}, {hub(BODY)}"}, "signature_mismatch"),
        ({"x_hub_signature_256": hub(BODY), "stripe_signature": "t=1"}, "signature_mismatch"),
        ({"stripe_signature": stripe(b"other")}, "signature_mismatch"),
        ({"stripe_signature": stripe(BODY).replace("t=", "t=1,t=")}, "signature_mismatch"),
        ({"stripe_signature": stripe(BODY).replace("v1=", "v0=")}, "signature_mismatch"),
        ({"stripe_signature": ""}, "signature_mismatch"),
        ({"stripe_signature": f"t={'9' * 5_000},v1=0"}, "signature_mismatch"),
        ({"stripe_signature": stripe(BODY, at_s=1)}, "signature_expired"),
    ],
)
def test_a_queue_with_a_secret_refuses_what_is_not_signed_with_it(
    headers: dict[str, str], reason: str
) -> None:
    async def main() -> None:
        nest = Nest(webhook_secrets=SECRETS)

        answer = await send(nest, "mail", BODY, **headers)
        left = await nest.ask("GET", "/api/v1/queues")

        assert problem(answer)[:3] == (403, "BAD_SIGNATURE", reason)
        assert SECRET.encode() not in answer.body
        assert left.body == b"[]\n"

    run(main)


def test_a_signature_that_fits_is_taken_by_either_name_and_with_either_secret() -> None:
    async def main() -> None:
        nest = Nest(webhook_secrets=SECRETS)
        now_s = clock.now_ns() // 1_000_000_000
        body = b'{"a": "\xc3\xa9"}'

        taken = [
            await send(nest, "mail", body, x_hub_signature_256=hub(body)),
            await send(nest, "mail", body, stripe_signature=stripe(body, at_s=now_s)),
            await send(nest, "pay", body, x_hub_signature_256=hub(body, "new secret of 20 c")),
            await send(nest, "pay", body, x_hub_signature_256=hub(body, "old secret of 20 c")),
        ]

        assert [answer.status for answer in taken] == [201] * 4

    run(main)


def test_the_queue_is_that_of_the_path_however_it_is_written() -> None:
    async def main() -> None:
        nest = Nest(webhook_secrets=SECRETS)

        assert (await send(nest, "%6Dail", BODY)).status == 403

    run(main)


def test_without_a_secret_a_signature_is_not_looked_at() -> None:
    async def main() -> None:
        nest = Nest(webhook_secrets=SECRETS)

        assert (await send(nest, "sms", BODY, x_hub_signature_256="sha256=0")).status == 201

    run(main)


@pytest.mark.parametrize("ahead_s", [-300, 0, 300])
def test_a_signature_with_a_time_holds_for_five_minutes(ahead_s: int) -> None:
    headers = {"stripe-signature": stripe(BODY, at_s=NOW_S + ahead_s)}

    check_signature(headers, BODY, secrets_of("mail", SECRETS), NOW_NS)


@pytest.mark.parametrize("ahead_s", [-301, 301])
def test_a_signature_with_another_time_has_expired(ahead_s: int) -> None:
    headers = {"stripe-signature": stripe(BODY, at_s=NOW_S + ahead_s)}

    with pytest.raises(Problem) as refused:
        check_signature(headers, BODY, secrets_of("mail", SECRETS), NOW_NS)

    assert refused.value.reason == "signature_expired"


@given(st.binary(max_size=40), st.text(max_size=80))
def test_no_text_is_a_signature_but_the_one(body: bytes, header: str) -> None:
    for name in ("x-hub-signature-256", "stripe-signature"):
        with pytest.raises(Problem):
            check_signature({name: header}, body, secrets_of("mail", SECRETS), NOW_NS)
