"""API keys over HTTP."""

from collections.abc import Mapping
from typing import Final

import msgspec

from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.connections import Answer

KEYS: Final = "/api/v1/auth/keys"
STATUS: Final = "/api/v1/auth/status"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its secret."""

    key_hash: str
    name: str = ""
    role: str = ""
    queue_scope: list[str] = []
    enabled: bool = True
    created_at: str = ""
    expires_at: str | None = None


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """A new API key. Its secret is only in this answer."""

    api_key: str = ""
    key_hash: str = ""
    role: str = ""
    warning: str = ""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The API key of a request."""

    name: str = ""
    role: str = ""


class AuthStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether API keys are needed, and which one was sent."""

    keys_required: bool
    caller: Caller | None = None


def get_keys(client: Client) -> list[msgspec.Raw]:
    """All API keys."""
    return read(client.get(KEYS), list[msgspec.Raw])


def get_status(client: Client) -> Answer:
    """An `AuthStatus`."""
    return client.get(STATUS)


def create(client: Client, body: Mapping[str, object]) -> Answer:
    """Create an API key; a `Created`. It is not repeated: a secret is shown once."""
    return client.change("POST", KEYS, body)


def delete(client: Client, key_hash: str) -> Answer:
    """Delete an API key."""
    return client.change("DELETE", f"{KEYS}/{segment(key_hash)}", request_key=new_request_key())
