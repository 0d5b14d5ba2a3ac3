"""The keyring: finds the caller of a request by its API key, and checks role and scope.

A key is a secret of its holder. What is stored, sent between processes and kept in memory is the
SHA-256 of it: with 130 bits of chance in a key there is nothing to try out, so a slow hash would
only cost time. What is compared with a secret is compared in constant time.

The keys live in shard 0. A `Keyring` holds the list that was read last, and a `Caller` made of it
is good for one request. Nothing here waits or looks at a clock: `now_ns` is the time of day, which
keys expire by; `now_s` only ever rises, and says how old the list is.
"""

import hmac
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import Final

from corvo.ids import queue_of_id
from corvo.model import ROLES, ApiKey
from corvo.router.auth.actions import Action
from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem
from corvo.router.http.problems import missing, problem_of
from corvo.scopes import EVERYTHING, scope_of_stored

UNCONFIRMED_S_MAX: Final = 30.0
"""How long a list goes on being believed while the shard that has it cannot be asked. A key that
was revoked may open doors for so long on a node that is cut off, and no longer."""

COOKIE: Final = "corvo_api_key"
PREFIX: Final = "sk_"
KEY_BITS: Final = 130
"""Of chance in a key: 26 letters."""

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's: no I, L, O, U
_LETTERS: Final = KEY_BITS // 5
_CHECK_LETTERS: Final = 6
_NOBODY: Final = "0" * 64

ALLOWED: Final[dict[str, frozenset[Action]]] = {
    "readonly": frozenset({Action.OPEN, Action.READ}),
    "producer": frozenset({Action.OPEN, Action.READ, Action.PRODUCE}),
    "worker": frozenset({Action.OPEN, Action.READ, Action.PRODUCE, Action.WORK}),
    "operator": frozenset(Action) - {Action.ADMIN},
    "admin": frozenset(Action),
}
"""What each role may do. A role that is not here, of a newer release, may do nothing."""

assert tuple(ALLOWED) == ROLES


HEADERS: Final = "X-API-Key, or as Authorization: Bearer KEY"
"""Where a request has its key; browsers also in a cookie."""
UNKEYED_STEPS: Final = 6


class Unkeyed:
    """Requests without an API key: of an open server, and just refused by one that was open."""

    def __init__(self) -> None:
        self.seen = 0
        """On the open server, since the last step."""
        self.refused = 0
        self._steps: deque[int] = deque(maxlen=UNKEYED_STEPS)
        self._has_closed = False

    @property
    def recent(self) -> int:
        """Requests without a key in the last steps, a minute, in which the server was open."""
        return self.seen + sum(self._steps)

    def close(self) -> None:
        """The server has closed: what comes now without a key is refused."""
        self.refused = 0
        self._has_closed = True

    def step(self) -> int:
        """Ten seconds are over. Returns the number of requests that were refused in them."""
        self._steps.append(self.seen)
        refused = self.refused if self._has_closed else 0
        self.seen = self.refused = 0
        return refused


class Keyring:
    """All keys that open something here."""

    def __init__(self, config: RouterConfig) -> None:
        self._admin = hash_key(config.admin_key) if config.admin_key else ""
        self._is_auth_off = config.is_open and config.is_auth_off
        self._origins = frozenset(config.cors_origins)
        self._may_be_open = config.is_open and not config.admin_key
        self._keys: dict[str, ApiKey] = {}
        self._confirmed_s: float | None = None
        # Each request asks for these two, and only a list that was read changes them.
        self.is_known = False
        """Whether a list was ever read: before that nobody knows which keys there are."""
        self.is_open = self._is_auth_off
        """Whether nobody is asked for a key.

        An open server closes with its first key that is not early, whatever becomes of that later,
        and opens again only when the last one is deleted.
        """
        self.unkeyed: Final = Unkeyed()

    @property
    def has_admin_key(self) -> bool:
        """Whether the operator has set a key that is in no list."""
        return bool(self._admin)

    @property
    def keys(self) -> dict[str, ApiKey]:
        """Those of the list, as it was read last, by their hashes. Not to be changed."""
        return self._keys

    def locks_out(self, keys: Iterable[ApiKey]) -> bool:
        """Whether nobody could change anything any more if these were the keys.

        A key that expires does not count: it would only come later.
        """
        if self._admin or self._is_auth_off:
            return False
        roles = [key.role for key in keys if key.enabled and not key.expires_ns]
        return "admin" not in roles

    def replace(self, keys: Iterable[ApiKey], *, now_s: float) -> None:
        """A list was read; `now_s` is when it was asked for."""
        self._keys = {key.key_hash: key for key in keys}
        self._confirmed_s = now_s
        self.is_known = True
        was_open = self.is_open
        self.is_open = self.would_be_open(self._keys.values())
        if was_open and not self.is_open:
            self.unkeyed.close()

    @property
    def takes_early_keys(self) -> bool:
        """Whether keys can be created now that do not close the server."""
        return self.is_open and not self._is_auth_off

    def would_be_open(self, keys: Iterable[ApiKey]) -> bool:
        """Whether requests would need no key if these were the keys."""
        return self._is_auth_off or (self._may_be_open and all(key.is_early for key in keys))

    def needs_no_list(self, headers: Mapping[str, str]) -> bool:
        """Whether a request can be judged before it is known which keys there are."""
        if self._is_auth_off:
            return True
        return bool(self._admin) and hmac.compare_digest(hash_key(credential(headers)), self._admin)

    def who(
        self, headers: Mapping[str, str], *, now_ns: Callable[[], int], now_s: Callable[[], float]
    ) -> Caller:
        """The caller of a request, by its headers. Raises `Problem`.

        The clocks are read for a key only: an open server has no use for the time.
        """
        if self.is_open:
            if not self._is_auth_off:
                self._check_page(headers)
                if "x-api-key" not in headers and "authorization" not in headers:
                    self.unkeyed.seen += 1
            return ANONYMOUS
        presented = credential(headers)
        if not presented:
            if self._may_be_open:
                self._check_age(now_s())  # there may be no key at all
            self.unkeyed.refused += 1
            raise _unauthorized(f"missing API key: send it in the header {HEADERS}")
        return self.holder(presented, now_ns=now_ns(), now_s=now_s())

    def holder(self, presented: str, *, now_ns: int, now_s: float) -> Caller:
        """Whose key this is. Raises `Problem`."""
        key_hash = hash_key(presented)
        if self._admin and hmac.compare_digest(key_hash, self._admin):
            return _ADMIN
        self._check_age(now_s)
        key = self._keys.get(key_hash)
        is_known = hmac.compare_digest(key_hash, _NOBODY if key is None else key.key_hash)
        if key is None or not is_known or not key.enabled:
            raise _unauthorized("invalid API key")
        if key.expires_ns and now_ns >= key.expires_ns:
            raise _unauthorized("expired API key")
        return Caller(
            name=key.name,
            role=key.role,
            key_hash=key.key_hash,
            scope=scope_of_stored(key.queue_scope),
            namespace=key.namespace,
        )

    def _check_page(self, headers: Mapping[str, str]) -> None:
        """Refuse what a page of somebody else makes a browser of this machine ask.

        To the browser an open server is one like any other, and whoever sits at it may read
        anything. So pages from elsewhere are refused, and names that anybody could have pointed
        here: a name of this machine, or an address, is what its user would write.
        """
        origin = headers.get("origin", "")
        is_elsewhere = _is_from_elsewhere(headers)
        if is_elsewhere and not ("*" in self._origins or origin in self._origins):
            raise _strange_page(f"a page of {origin or 'another site'} asks")
        if not _is_of_this_machine(headers.get("host", "")):
            raise _strange_page(f"it is asked for as {headers['host'][:200]!r}")

    def _check_age(self, now_s: float) -> None:
        if self._confirmed_s is None or now_s - self._confirmed_s > UNCONFIRMED_S_MAX:
            raise Problem(
                503,
                "AUTH_UNAVAILABLE",
                "API keys cannot be checked: shard 0, which stores them, is unavailable",
                retry_after_ms=1_000,
            )


_ADMIN: Final = Caller(name="admin", role="admin", scope=EVERYTHING)


def _strange_page(what: str) -> Problem:
    return Problem(
        403,
        "FORBIDDEN",
        f"{what}, and the server is open to its own machine only: set an admin key, or add the"
        " page to cors_origins",
    )


def _unauthorized(error: str) -> Problem:
    return Problem(401, "UNAUTHORIZED", error)


# What a request has with it.


def credential(headers: Mapping[str, str]) -> str:
    """The key that a request shows; empty for none."""
    key = headers.get("x-api-key", "").strip()
    if key:
        return key
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    token = token.strip()
    if token and scheme.lower() == "bearer":
        return token
    cookies = headers.get("cookie")
    return _cookie(cookies) if cookies and not _is_from_elsewhere(headers) else ""


def _cookie(cookies: str) -> str:
    for pair in cookies.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value.strip().strip('"')
    return ""


def _is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a browser asks for a page that is not ours. What is no browser says nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


@lru_cache(maxsize=64)
def _is_of_this_machine(host: str) -> bool:
    """Whether a host is one that nobody else can point to this machine: no name but its own."""
    name = host.rpartition(":")[0] if re.search(":[0-9]*$", host) else host
    name = name.removesuffix(".").lower()
    if not name or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


# What they may.


def allow(caller: Caller, action: Action) -> None:
    """Raise `Problem` unless the role does for an action."""
    if action in ALLOWED.get(caller.role, _NOTHING):
        return
    enough = [role for role, actions in ALLOWED.items() if action in actions]
    if not enough:  # pragma: no cover -- the last role may do everything
        raise AssertionError(action)
    raise Problem(
        403,
        "FORBIDDEN",
        f"insufficient role permissions: this takes {_either(enough)}, and the key"
        f" {caller.name!r} is {caller.role}",
    )


_NOTHING: Final = frozenset[Action]((Action.OPEN,))


def allow_queue(caller: Caller, queue: str) -> None:
    """Raise `Problem` unless the caller's scope has a queue."""
    if not caller.scope.covers(queue):
        raise _no_access(caller, f"queue {queue!r}")


def allow_job(caller: Caller, job_id: str, queue: str) -> None:
    """Raise `Problem` unless the caller's scope has a job's queue, whose name stays unsaid.

    An id that a client chose can be guessed. So for a caller without its queue, a job that exists
    is like one that does not.
    """
    if caller.scope.covers(queue):
        return
    named = queue_of_id(job_id)
    if named and not caller.scope.covers(named):
        raise problem_of(missing(job_id))
    raise _no_access(caller, f"the queue of job {job_id!r}")


def allow_batch(caller: Caller, batch_id: str, queue: str) -> None:
    """Raise `Problem` unless the caller's scope has a batch's queue.

    The queue of a batch that does not exist is empty: the answer is the same.
    """
    if not (queue and caller.scope.covers(queue)):
        raise no_batch(batch_id, field="batch_id")


def no_batch(batch_id: str, *, field: str = "") -> Problem:
    """The problem of a batch that does not exist, or is not in the caller's scope."""
    error = f"batch {batch_id!r} not found"
    return Problem(404, "NOT_FOUND", error, reason="batch_not_found", field=field)


def _no_access(caller: Caller, what: str) -> Problem:
    names = ", ".join(caller.scope.names)
    error = f"API key {caller.name!r} has no access to {what}, only to {names}"
    return Problem(403, "FORBIDDEN", error, field="queue")


def needs_everything(caller: Caller) -> Problem:
    """The refusal of a request that takes a scope with every queue."""
    return _no_access(caller, "all queues, which this request takes")


def _either(roles: list[str]) -> str:
    *others, last = roles
    return f"{', '.join(others)} or {last}" if others else last


# Keys.


def make_key(chance: int) -> str:
    """A new key, of `KEY_BITS` bits of randomness, with a checksum."""
    assert 0 <= chance < 1 << KEY_BITS
    body = PREFIX + _letters(chance, _LETTERS)
    return body + _letters(zlib.crc32(body.encode()), _CHECK_LETTERS)


def hash_key(key: str) -> str:
    """What is stored of a key."""
    return sha256(key.strip().encode(errors="surrogatepass")).hexdigest()


def _letters(number: int, count: int) -> str:
    letters = []
    for _ in range(count):
        number, low = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[low])
    return "".join(reversed(letters))
