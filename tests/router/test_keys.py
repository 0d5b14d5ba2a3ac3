"""Who asks, and whether they may."""

import re
import zlib
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corvo.model import ROLES, ApiKey
from corvo.router.auth.actions import Action
from corvo.router.auth.keyring import (
    ALLOWED,
    KEY_BITS,
    UNCONFIRMED_S_MAX,
    Keyring,
    allow,
    allow_queue,
    credential,
    hash_key,
    make_key,
)
from corvo.router.caller import ANONYMOUS, Caller
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem, problem_response
from corvo.scopes import EVERYTHING, Scope, scope_of_stored

ROOT: Final = Path(__file__).parents[2]
NOW_NS: Final = 1_700_000_000_000_000_000
NOW_S: Final = 500.0
ADMIN_KEY: Final = "correct horse battery staple"
KEY: Final = make_key(7)
OTHER: Final = make_key(8)
WORKER: Final = ApiKey(key_hash=hash_key(KEY), name="ci", role="worker", queue_scope=("mail",))

CLOSED: Final = RouterConfig(
    cluster="rookery",
    node=1,
    shards=1,
    sockets=dict(enumerate(["s"])),
    listen=[3],
    admin_key=ADMIN_KEY,
)
OPEN: Final = replace(CLOSED, admin_key="", is_open=True)
"""On loopback, where no key is configured."""
OFF: Final = replace(OPEN, is_auth_off=True)
PUBLIC: Final = replace(CLOSED, admin_key="")
"""No admin key and not open: only what is in the list opens anything."""


def keyring(config: RouterConfig, *keys: ApiKey, read_s: float = NOW_S) -> Keyring:
    """One whose list was read."""
    made = Keyring(config)
    made.replace(keys, now_s=read_s)
    return made


def who(
    ring: Keyring,
    headers: dict[str, str] | None = None,
    *,
    now_ns: int = NOW_NS,
    now_s: float = NOW_S,
) -> Caller | tuple[int, str, str]:
    """Who it is, or the status, code and text of the refusal."""
    try:
        return ring.who(headers or {}, now_ns=lambda: now_ns, now_s=lambda: now_s)
    except Problem as problem:
        return problem.status, problem.code, problem.error


def with_key(key: str) -> dict[str, str]:
    return {"x-api-key": key}


MISSING: Final = (
    401,
    "UNAUTHORIZED",
    "missing API key: send it in the header X-API-Key, or as Authorization: Bearer KEY",
)
INVALID: Final = (401, "UNAUTHORIZED", "invalid API key")
EXPIRED: Final = (401, "UNAUTHORIZED", "expired API key")
UNKNOWN: Final = (
    503,
    "AUTH_UNAVAILABLE",
    "API keys cannot be checked: shard 0, which stores them, is unavailable",
)
ADMIN: Final = Caller(name="admin", role="admin", scope=EVERYTHING)
CI: Final = Caller(name="ci", role="worker", key_hash=hash_key(KEY), scope=Scope(("mail",)))


# Who it is.


def test_a_key_of_the_list_is_its_holder() -> None:
    assert who(keyring(CLOSED, WORKER), with_key(KEY)) == CI


def test_the_admin_key_is_the_administrator() -> None:
    assert who(keyring(CLOSED, WORKER), with_key(ADMIN_KEY)) == ADMIN


@pytest.mark.parametrize("config", [CLOSED, PUBLIC])
def test_without_a_key_nobody_is_let_in(config: RouterConfig) -> None:
    assert who(keyring(config)) == MISSING
    assert who(keyring(config, WORKER)) == MISSING


@pytest.mark.parametrize(
    "key",
    ["x", OTHER, KEY[:-1], KEY + "A", KEY.lower(), hash_key(KEY), ADMIN_KEY[:-1], "", " ", "ü"],
)
def test_a_key_that_is_none_lets_nobody_in(key: str) -> None:
    refused = who(keyring(CLOSED, WORKER), with_key(key))

    assert refused == (INVALID if key.strip() else MISSING)


def test_without_an_admin_key_the_empty_key_is_not_it() -> None:
    ring = keyring(PUBLIC, replace(WORKER, key_hash=hash_key("")))

    assert who(ring, with_key("")) == MISSING
    assert who(ring, {"authorization": "Bearer "}) == MISSING


def test_a_key_that_is_disabled_is_as_one_that_is_not_there() -> None:
    assert who(keyring(CLOSED, replace(WORKER, enabled=False)), with_key(KEY)) == INVALID


def test_a_key_is_good_until_the_moment_at_which_it_expires() -> None:
    ring = keyring(CLOSED, replace(WORKER, expires_ns=NOW_NS))

    assert who(ring, with_key(KEY), now_ns=NOW_NS - 1) == CI
    assert who(ring, with_key(KEY), now_ns=NOW_NS) == EXPIRED


def test_a_key_that_was_revoked_is_of_no_use_once_the_list_was_read_again() -> None:
    ring = keyring(CLOSED, WORKER)
    before = who(ring, with_key(KEY))

    ring.replace([], now_s=NOW_S)

    assert before == CI
    assert who(ring, with_key(KEY)) == INVALID


def test_a_refusal_says_how_to_show_a_key() -> None:
    with pytest.raises(Problem) as refused:
        keyring(CLOSED).who({}, now_ns=lambda: NOW_NS, now_s=lambda: NOW_S)

    assert ("www-authenticate", "Bearer") in problem_response(refused.value).headers


# Open servers.


def test_an_open_server_lets_anybody_do_anything_until_there_is_a_key() -> None:
    ring = keyring(OPEN)
    before = who(ring)

    ring.replace([WORKER], now_s=NOW_S)

    assert before == ANONYMOUS
    assert who(ring) == MISSING
    assert who(ring, with_key(OTHER)) == INVALID
    assert who(ring, with_key(KEY)) == CI


@pytest.mark.parametrize("changed", [{"enabled": False}, {"expires_ns": 1}])
def test_an_open_server_does_not_open_again_because_its_last_key_is_of_no_use(
    changed: dict[str, object],
) -> None:
    assert who(keyring(OPEN, replace(WORKER, **changed))) == MISSING  # type: ignore[arg-type]


def test_an_open_server_opens_again_when_its_last_key_is_deleted() -> None:
    ring = keyring(OPEN, WORKER)

    ring.replace([], now_s=NOW_S)

    assert who(ring) == ANONYMOUS


def test_an_open_server_that_has_just_started_does_not_know_yet_that_it_is_open() -> None:
    ring = Keyring(OPEN)

    assert not ring.is_known
    assert who(ring) == UNKNOWN
    assert who(ring, with_key(KEY)) == UNKNOWN


def test_an_open_server_without_a_key_stays_open_while_the_keys_cannot_be_read() -> None:
    assert who(keyring(OPEN), now_s=NOW_S + 3_600) == ANONYMOUS


def test_with_authentication_off_nobody_is_asked_whatever_keys_there_are() -> None:
    assert who(keyring(OFF, WORKER)) == ANONYMOUS
    assert who(Keyring(OFF)) == ANONYMOUS


def test_an_admin_key_closes_a_server_that_would_be_open() -> None:
    ring = keyring(replace(OPEN, admin_key=ADMIN_KEY))

    assert who(ring) == MISSING
    assert who(ring, with_key(ADMIN_KEY)) == ADMIN


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({"host": "localhost:8080"}, True),
        ({"host": "LOCALHOST."}, True),
        ({"host": "corvo.localhost:8080"}, True),
        ({"host": "127.0.0.1:8080"}, True),
        ({"host": "[::1]:8080"}, True),
        ({"host": "[::1]"}, True),
        ({"host": "evil.example:8080"}, False),
        ({"host": "localhost.evil.example"}, False),
        ({"host": "notlocalhost"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"origin": "http://localhost:8080"}, True),
        ({"origin": "http://localhost:3000"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "https://board.example"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost:8080"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://board.example"}, True),
        ({"sec-fetch-site": "same-origin", "host": "evil.example"}, False),
    ],
)
def test_an_open_server_is_not_open_to_pages_from_elsewhere(
    headers: dict[str, str], is_let_in: bool
) -> None:
    ring = keyring(replace(OPEN, cors_origins=["https://board.example"]))
    sent = {"host": "localhost:8080", **headers}

    seen = who(ring, sent)

    assert (seen == ANONYMOUS) == is_let_in
    assert is_let_in or (isinstance(seen, tuple) and seen[:2] == (403, "FORBIDDEN"))
    assert who(keyring(OFF), sent) == ANONYMOUS


def test_an_open_server_is_open_to_all_pages_if_they_are_named_so() -> None:
    ring = keyring(replace(OPEN, cors_origins=["*"]))

    assert who(ring, {"host": "localhost", "origin": "https://any.example"}) == ANONYMOUS


# A list that is old.


def test_a_list_is_believed_for_so_long_and_no_longer() -> None:
    ring = keyring(CLOSED, WORKER)
    end_s = NOW_S + UNCONFIRMED_S_MAX

    assert who(ring, with_key(KEY), now_s=end_s) == CI
    assert who(ring, with_key(KEY), now_s=end_s + 0.001) == UNKNOWN
    assert who(ring, with_key(OTHER), now_s=end_s + 0.001) == UNKNOWN

    ring.replace([WORKER], now_s=end_s)

    assert who(ring, with_key(KEY), now_s=end_s + 0.001) == CI


def test_the_admin_key_needs_no_list() -> None:
    assert who(Keyring(CLOSED), with_key(ADMIN_KEY)) == ADMIN
    assert who(keyring(CLOSED), with_key(ADMIN_KEY), now_s=NOW_S + 3_600) == ADMIN


def test_without_a_key_nothing_depends_on_the_list() -> None:
    assert who(Keyring(CLOSED)) == MISSING
    assert who(keyring(PUBLIC), now_s=NOW_S + 3_600) == MISSING


# Where a key is shown.


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({}, ""),
        ({"x-api-key": " k1 "}, "k1"),
        ({"authorization": "Bearer k2"}, "k2"),
        ({"authorization": "bearer  k2 "}, "k2"),
        ({"authorization": "Basic k2"}, ""),
        ({"authorization": "k2"}, ""),
        ({"cookie": "a=b; corvo_api_key=k3; c=d"}, "k3"),
        ({"cookie": 'corvo_api_key="k3"'}, "k3"),
        ({"cookie": "corvo_api_key"}, ""),
        ({"cookie": "xcorvo_api_key=k3"}, ""),
        ({"x-api-key": "k1", "authorization": "Bearer k2", "cookie": "corvo_api_key=k3"}, "k1"),
        ({"authorization": "Bearer k2", "cookie": "corvo_api_key=k3"}, "k2"),
        ({"x-api-key": "", "authorization": "Basic x", "cookie": "corvo_api_key=k3"}, "k3"),
    ],
)
def test_the_first_place_with_a_key_counts(headers: dict[str, str], shown: str) -> None:
    assert credential(headers) == shown


@pytest.mark.parametrize(
    ("headers", "counts"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "https://corvo.example:8080"}, True),
        ({"origin": "https://corvo.example"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
    ],
)
def test_a_cookie_counts_only_for_our_own_pages(headers: dict[str, str], counts: bool) -> None:
    sent = {"cookie": "corvo_api_key=k3", "host": "corvo.example:8080", **headers}

    assert credential(sent) == ("k3" if counts else "")
    assert credential({**sent, "authorization": "Bearer k2"}) == "k2"


@given(
    headers=st.dictionaries(
        st.sampled_from(["x-api-key", "authorization", "cookie", "origin", "sec-fetch-site"]),
        st.text()
        | st.sampled_from(["Bearer", "corvo_api_key=;", "Bearer \ud800", f"Bearer {KEY} "]),
    )
)
def test_whatever_is_shown_the_answer_is_a_holder_or_a_refusal(headers: dict[str, str]) -> None:
    seen = who(keyring(CLOSED, WORKER), headers)

    assert seen in (CI, MISSING, INVALID)


# What they may.


def test_every_role_may_do_what_it_is_for_and_nothing_else() -> None:
    may = {
        role: "".join(
            "x" if may_do(Caller(name="k", role=role), action) else "-" for action in Action
        )
        for role in (*ROLES, "of a newer release")
    }

    assert [action.value for action in Action] == [
        "open",
        "read",
        "produce",
        "work",
        "operate",
        "admin",
    ]
    assert may == {
        "readonly": "xx----",
        "producer": "xxx---",
        "worker": "xxxx--",
        "operator": "xxxxx-",
        "admin": "xxxxxx",
        "of a newer release": "x-----",
    }


def may_do(caller: Caller, action: Action) -> bool:
    try:
        allow(caller, action)
    except Problem as problem:
        if (problem.status, problem.code) != (403, "FORBIDDEN"):
            raise
        return False
    return True


def test_every_role_has_its_actions() -> None:
    assert tuple(ALLOWED) == ROLES


def test_a_refusal_says_which_roles_would_do() -> None:
    with pytest.raises(Problem) as refused:
        allow(Caller(name="board", role="readonly"), Action.WORK)

    assert refused.value.error == (
        "insufficient role permissions: this takes worker, operator or admin, and the key 'board'"
        " is readonly"
    )


# Queues.


@pytest.mark.parametrize(
    ("scope", "queue", "is_for"),
    [
        ((), "mail", True),
        (("mail",), "mail", True),
        (("mail",), "mail2", False),
        (("mail",), "mai", False),
        (("mail",), "Mail", False),
        (("mail*",), "mail", True),
        (("mail*",), "mail2", True),
        (("mail*",), "mai", False),
        (("*",), "mail", True),
        (("sms", "mail-*"), "mail-eu", True),
        (("sms", "mail-*"), "sms-eu", False),
        (("mail.",), "mailx", False),
    ],
)
def test_a_key_is_for_the_queues_of_its_scope(
    scope: tuple[str, ...], queue: str, is_for: bool
) -> None:
    caller = Caller(name="k", role="worker", key_hash="9f", scope=scope_of_stored(scope))

    assert caller.scope.covers(queue) == is_for
    if is_for:
        allow_queue(caller, queue)
        return
    with pytest.raises(Problem) as refused:
        allow_queue(caller, queue)
    problem = refused.value
    assert (problem.status, problem.code, problem.field) == (403, "FORBIDDEN", "queue")
    assert all(pattern in problem.error for pattern in scope)


# Keys.


@given(chance=st.integers(0, (1 << KEY_BITS) - 1))
def test_a_key_can_be_known_by_its_looks(chance: int) -> None:
    key = make_key(chance)

    assert re.fullmatch("sk_[0-9A-HJKMNP-TV-Z]{32}", key)
    assert is_key(key)


def is_key(text: str) -> bool:
    """Whether the last six letters are the checksum of the others."""
    found = re.fullmatch("(sk_[0-9A-HJKMNP-TV-Z]{26})([0-9A-HJKMNP-TV-Z]{6})", text)
    letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    number = 0
    for letter in found[2] if found is not None else "":
        number = number << 5 | letters.index(letter)
    return found is not None and number == zlib.crc32(found[1].encode()) % (1 << 30)


@given(chance=st.integers(0, (1 << KEY_BITS) - 1), place=st.integers(0, 34), letter=st.characters())
def test_a_key_with_one_letter_wrong_is_none(chance: int, place: int, letter: str) -> None:
    key = make_key(chance)

    wrong = key[:place] + letter + key[place + 1 :]

    assert is_key(wrong) == (wrong == key)


@given(chances=st.lists(st.integers(0, (1 << KEY_BITS) - 1), unique=True))
def test_no_two_keys_are_equal(chances: list[int]) -> None:
    assert len({make_key(chance) for chance in chances}) == len(chances)


def test_what_is_stored_of_a_key_is_the_sha_256_of_it_without_spaces_around() -> None:
    # printf sk_test | sha256sum
    expected = "12b2820cf1639904311da5771de1e5bb65c77073fdc7c555df395942df42896b"

    assert hash_key("sk_test") == expected
    assert hash_key("  sk_test\n") == expected


# How it is compared.


def test_no_secret_is_compared_but_in_constant_time() -> None:
    code = (ROOT / "corvo/router/auth/keyring.py").read_text()

    compared = re.findall(r"^.*(?:==|!=).*$", code, re.MULTILINE)

    assert code.count("hmac.compare_digest(") == 3
    secrets = r"key_hash|presented|_admin|admin_key|hash_key"
    assert [line for line in compared if re.search(secrets, line)] == []
