"""Signatures of webhooks: HMAC-SHA256 over the bytes of a body, with the secret of its queue.

| header | from | signed |
|---|---|---|
| `X-Hub-Signature-256: sha256=HEX` | GitHub, Gitea, Forgejo | the body |
| `Stripe-Signature: t=SECONDS,v1=HEX` | Stripe | `SECONDS.` and the body |

A queue without a secret takes any signature, for there is nothing to compare it with. Nothing here
looks at a clock. Signatures are compared in constant time.
"""

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from corvo.router.http.messages import Problem

TOLERANCE_S: Final = 300
"""How old, or how far ahead of our clock, a signature with a time may be: Stripe's own bound."""
_NS: Final = 1_000_000_000
_HUB: Final = "x-hub-signature-256"
_STRIPE: Final = "stripe-signature"
_SECONDS: Final = re.compile("[0-9]{1,12}")


def secrets_of(queue: str, settings: Sequence[str]) -> list[bytes]:
    """The secrets of a queue, out of `QUEUE=SECRET`: several while one takes another's place."""
    pairs = [one.partition("=") for one in settings]
    return [secret.encode() for name, _, secret in pairs if name == queue]


def check_signature(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes], now_ns: int
) -> None:
    """Raise `Problem` unless every signature of a request fits one of the secrets."""
    if not secrets:
        return
    signed = [(name, _SCHEMES[name]) for name in _SCHEMES if name in headers]
    if not signed:
        raise _refused(
            "signature_missing",
            "this queue takes only signed webhooks: send X-Hub-Signature-256 or Stripe-Signature",
            _HUB,
        )
    for name, check in signed:
        check(headers[name], body, secrets, now_ns)


def _check_hub(header: str, body: bytes, secrets: Sequence[bytes], _: int) -> None:
    if not any(_is_same(f"sha256={_digest(secret, body)}", header.strip()) for secret in secrets):
        raise _mismatch(_HUB)


def _check_stripe(header: str, body: bytes, secrets: Sequence[bytes], now_ns: int) -> None:
    pairs = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1 or not _SECONDS.fullmatch(times[0]):
        raise _refused(
            "signature_mismatch",
            f"{_STRIPE}: expected t=SECONDS,v1=HEX with one time",
            _STRIPE,
        )
    wanted = [_digest(secret, f"{times[0]}.".encode() + body) for secret in secrets]
    given = [value for name, _, value in pairs if name == "v1"]
    if not any(_is_same(one, other) for one in wanted for other in given):
        raise _mismatch(_STRIPE)
    if abs(now_ns // _NS - int(times[0])) > TOLERANCE_S:
        raise _refused(
            "signature_expired",
            f"{_STRIPE}: signed more than {TOLERANCE_S} seconds from now: check both clocks",
            _STRIPE,
        )


def _digest(secret: bytes, data: bytes) -> str:
    return hmac.new(secret, data, sha256).hexdigest()


def _is_same(digest: str, given: str) -> bool:
    return hmac.compare_digest(digest.encode(), given.encode(errors="surrogatepass"))


def _mismatch(name: str) -> Problem:
    return _refused(
        "signature_mismatch",
        f"{name}: does not fit the body and the secret of this queue (webhooks.secrets)",
        name,
    )


def _refused(reason: str, error: str, field: str) -> Problem:
    return Problem(403, "BAD_SIGNATURE", error, reason=reason, field=field)


_SCHEMES: Final[dict[str, Callable[[str, bytes, Sequence[bytes], int], None]]] = {
    _HUB: _check_hub,
    _STRIPE: _check_stripe,
}
