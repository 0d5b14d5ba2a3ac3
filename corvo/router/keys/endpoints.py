"""Endpoints of API keys: create, list and delete; whether a key is required."""

import re
import secrets
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from corvo import clock
from corvo.model import DEFAULT_NAMESPACE, ApiKey
from corvo.protocol.ops.base import NAME_BYTES_MAX
from corvo.protocol.ops.keys import HOME, SCOPE_MAX, DeleteAPIKey, KeyDone, UpsertAPIKey
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.keyring import HEADERS, KEY_BITS, hash_key, make_key
from corvo.router.auth.rights import EVERYTHING, NODE
from corvo.router.http.bodies import Body, GivenTime, body_of, time_ns
from corvo.router.http.messages import (
    Problem,
    Request,
    Response,
    bad_field,
    encode_json,
    json_response,
)
from corvo.router.http.request_keys import request_key
from corvo.router.routes import Route
from corvo.times import format_time, format_time_or_none

CHOSEN_MIN: Final = 16
"""Characters of a key that was brought along; how hard it is to guess is for its maker to know."""
CHOSEN_MAX: Final = 256
_CHOSEN: Final = re.compile(f"[!-~]{{{CHOSEN_MIN},{CHOSEN_MAX}}}")
_NO_STORE: Final = [("cache-control", "no-store")]

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Pattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=NAME_BYTES_MAX,
        description="A queue's name, or the beginning of names with `*` behind it.",
    ),
]
Role = Literal["readonly", "producer", "worker", "operator", "admin"]
Namespace = Literal["default"]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


# What is asked and answered.


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is to be made, or, with a `key` that is known, changed."""

    name: KeyName
    key: Annotated[str, msgspec.Meta(min_length=CHOSEN_MIN, max_length=CHOSEN_MAX)] | None = None
    role: Role | None = None
    namespace: Namespace | None = None
    queue_scope: Annotated[list[Pattern], msgspec.Meta(max_length=SCOPE_MAX)] | Pattern | None = (
        None
    )
    expires_at: GivenTime | None = None
    enabled: bool | None = None


class MadeKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The only answer that ever has the key itself in it."""

    status: str
    api_key: str
    key_hash: str
    role: str
    warning: str = ""
    requests_without_key: int | msgspec.UnsetType = msgspec.UNSET
    """Of the last minute, if the key has closed an open server."""


class KeyView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as an admin sees it."""

    key_hash: str
    name: str
    namespace: str
    role: str
    enabled: bool
    created_at: str
    queue_scope: tuple[str, ...] = ()
    expires_at: str | None = None


class OldKey(msgspec.Struct, frozen=True):
    """Which key is to be deleted."""

    key_hash: Hash


class GoneKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key was deleted."""

    status: str
    warning: str = ""


class CallerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller of a request."""

    name: str
    role: str
    queue_scope: tuple[str, ...] = ()


class AuthStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a page has to know before somebody can log in."""

    admin_password_set: bool
    keys_required: bool
    caller: CallerView | None = None
    requests_without_key: int | msgspec.UnsetType = msgspec.UNSET
    """Of the last minute, on an open server."""


# What is done.


async def make(api: Api, request: Request) -> Response:
    """Make a key, and show it: it is not stored, and nobody can show it again."""
    new = body_of(request, _decode_new)
    key = _chosen(new.key) if new.key is not None else make_key(secrets.randbits(KEY_BITS))
    scope = new.queue_scope or []
    expires_ns = time_ns("expires_at", new.expires_at)
    if expires_ns and expires_ns <= clock.now_ns():
        raise bad_field("expires_at", "expires_at: expected a time in the future")
    op = UpsertAPIKey(
        by=request.caller.signature,
        key_hash=hash_key(key),
        name=new.name,
        role=new.role or "readonly",
        namespace=new.namespace or DEFAULT_NAMESPACE,
        queue_scope=(scope,) if isinstance(scope, str) else tuple(scope),
        enabled=True if new.enabled is None else new.enabled,
        expires_ns=expires_ns,
    )
    await api.keeper.read()
    was_open = api.keyring.is_open
    if op.role != "admin" and api.keyring.takes_early_keys:
        op = msgspec.structs.replace(op, is_early=True)
    new_key = msgspec.convert(op, ApiKey, from_attributes=True)
    _refuse_to_lock_out(api, {**api.keyring.keys, op.key_hash: new_key})
    answer = await api.shards[HOME].submit(request_key(request).on(op, "keys"))
    await _look_again(api)
    closes = was_open and not api.keyring.is_open
    recent = api.keyring.unkeyed.recent
    warning = _STILL_OPEN if api.keyring.takes_early_keys else ""
    made = MadeKey(
        status="ok",
        api_key=key,
        key_hash=op.key_hash,
        role=op.role,
        warning=f"{_CLOSED}{_just_refused(recent)}" if closes else warning,
        requests_without_key=recent if closes else msgspec.UNSET,
    )
    return json_response(made, reached={HOME: answer.index}, headers=_NO_STORE)


async def list_keys(api: Api, request: Request) -> Response:
    """All keys, the oldest first. None of them can be told from its hash."""
    await api.keeper.read()
    keys = sorted(api.keyring.keys.values(), key=lambda key: (key.created_ns, key.key_hash))
    return Response(body=encode_json([_view(key) for key in keys]) + b"\n")


async def delete(api: Api, request: Request) -> Response:
    """Delete the key that the body names."""
    old = body_of(request, _decode_old)
    return await _delete(api, request, old.key_hash)


async def delete_by_path(api: Api, request: Request) -> Response:
    """Delete the key that the path names."""
    return await _delete(api, request, request.params["key_hash"])


async def _delete(api: Api, request: Request, key_hash: str) -> Response:
    op = DeleteAPIKey(by=request.caller.signature, key_hash=key_hash)
    await api.keeper.read()
    left = {**api.keyring.keys}
    left.pop(key_hash, None)
    _refuse_to_lock_out(api, left)
    was_open = api.keyring.is_open
    answer = await api.shards[HOME].submit(request_key(request).on(op, "keys"))
    await _look_again(api)
    opens = api.keyring.is_open and not was_open
    gone = GoneKey(status=_decode_done(answer.body).status, warning=_OPENED if opens else "")
    return json_response(gone, reached={HOME: answer.index})


async def status(api: Api, request: Request) -> Response:
    """Whether a key is needed, and whose it is that came with the question."""
    shown: CallerView | None = None
    with suppress(Problem):
        caller = await api.who(request)
        shown = CallerView(name=caller.name, role=caller.role, queue_scope=caller.scope.stored())
    return json_response(
        AuthStatus(
            admin_password_set=api.keyring.has_admin_key,
            keys_required=not api.keyring.is_open,
            caller=shown,
            requests_without_key=(
                api.keyring.unkeyed.recent if api.keyring.takes_early_keys else msgspec.UNSET
            ),
        ),
        headers=_NO_STORE,
    )


# How.

_CLOSED: Final = (
    "the server was open to every user of its machine; from now on every request needs an API"
    " key. Store this one: it is not shown again"
)
_STILL_OPEN: Final = (
    "the server is still open to every user of its machine: give this key to its clients, and then"
    " create a key of the role admin, from which on every request needs an API key"
)


def _just_refused(recent: int) -> str:
    if not recent:
        return ""
    return (
        f". {recent} requests of the last minute had no API key, and are rejected from now on: send"
        f" one in the header {HEADERS}"
    )


_OPENED: Final = "this was the last API key: from now on every user of this machine has full access"


def _refuse_to_lock_out(api: Api, keys: dict[str, ApiKey]) -> None:
    """Refuse a change behind which no admin would be left.

    Others may come in at once, so this is a help and no promise: whoever is locked out starts the
    server with an admin key.
    """
    if api.keyring.would_be_open(keys.values()):
        return
    if api.keyring.locks_out(keys.values()):
        raise Problem(
            409,
            "WOULD_LOCK_OUT",
            "refused: at least one enabled key of role admin without expiry must remain, to manage"
            " API keys; keep one, or start the server with an admin key",
        )


async def _look_again(api: Api) -> None:
    """Have what was changed hold here at once; elsewhere it does a moment later."""
    with suppress(Problem):  # it was done, and the keeper goes on trying
        await api.keeper.read()


def _chosen(key: str) -> str:
    if not _CHOSEN.fullmatch(key):
        raise bad_field(
            "key",
            f"key: expected {CHOSEN_MIN} to {CHOSEN_MAX} visible ASCII characters without spaces",
        )
    return key


def _view(key: ApiKey) -> KeyView:
    return KeyView(
        key_hash=key.key_hash,
        name=key.name,
        namespace=key.namespace,
        role=key.role,
        enabled=key.enabled,
        created_at=format_time(key.created_ns),
        queue_scope=key.queue_scope,
        expires_at=format_time_or_none(key.expires_ns),
    )


_decode_new: Final = Body(NewKey)
_decode_old: Final = Body(OldKey)
_decode_done: Final = msgspec.json.Decoder(KeyDone).decode

_row: Final = partial(Route, tag="Keys", action=Action.ADMIN, rights=EVERYTHING)

ROUTES: Final[tuple[Route, ...]] = (
    _row(
        method="POST",
        path="/api/v1/auth/keys",
        endpoint=make,
        summary="Create an API key. The secret is only in this answer.",
        description="Creates an API key. The secret is only in this answer.",
        takes=NewKey,
        takes_example={"name": "mailer", "role": "worker", "queue_scope": ["mail*"]},
        gives={200: MadeKey},
        problems=(409,),
    ),
    _row(
        method="GET",
        path="/api/v1/auth/keys",
        endpoint=list_keys,
        summary="List API keys.",
        description="Lists all API keys without their secrets.",
        gives={200: list[KeyView]},
    ),
    _row(
        method="DELETE",
        path="/api/v1/auth/keys",
        endpoint=delete,
        summary="Delete an API key (hash in the body).",
        description="Deletes an API key, by the hash in the body.",
        takes=OldKey,
        gives={200: GoneKey},
        problems=(404, 409),
    ),
    _row(
        method="DELETE",
        path="/api/v1/auth/keys/{key_hash}",
        endpoint=delete_by_path,
        summary="Delete an API key.",
        description="Deletes an API key, by the hash in the path.",
        gives={200: GoneKey},
        problems=(404, 409),
    ),
    _row(
        method="GET",
        path="/api/v1/auth/status",
        endpoint=status,
        action=Action.OPEN,
        rights=NODE,
        summary="Read whether an API key is needed, and which one was sent.",
        description="Says whether requests need an API key, and which one this request had.",
        gives={200: AuthStatus},
    ),
)
