"""The door and its keys: every route of the table, and keys made and revoked on a real shard."""

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from corvo.model import ROLES, ApiKey
from corvo.protocol.ops.keys import DeleteAPIKey, UpsertAPIKey
from corvo.protocol.queries import ApiKeys, ListKeys, Query
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.keeper import Keeper
from corvo.router.auth.keyring import (
    ALLOWED,
    UNCONFIRMED_S_MAX,
    UNKEYED_STEPS,
    Keyring,
    Unkeyed,
    hash_key,
    make_key,
)
from corvo.router.config import Limits, RouterConfig
from corvo.router.http.messages import Problem, Request, Response
from corvo.router.routes import Routes
from corvo.router.server.door import Door
from corvo.router.shards.links import Answer, Shards
from corvo.router.table import ROUTES
from corvo.telemetry import Level, Log, Style
from corvo.topology import topology_of
from tests.shard.processes import calling, config_in, running, submit
from tests.support.links import on_sockets

ADMIN_KEY: Final = "correct horse battery staple"
KEYS: Final = {role: make_key(number) for number, role in enumerate(ROLES)}
"""A key of each role."""
JSON = dict[str, object]


SILENT: Final = Log(lambda _: None, "router", Style(is_text=False), Level.ERROR)


def config(directory: Path, *, shards: int = 1, **changed: object) -> RouterConfig:
    """A router of one shard, which listens nowhere."""
    told = RouterConfig(
        cluster="rookery",
        node=1,
        shards=shards,
        sockets=dict(enumerate([str(directory / "s")] * shards)),
        listen=[0],
        limits=Limits(guess_delay_ms=0),
    )
    return replace(told, **changed)  # type: ignore[arg-type]


def on_bug(request: Request, error: BaseException) -> None:
    raise AssertionError(f"a bug at {request.path}") from error


# Every route of the table, with nothing behind it.


async def nothing(_api: Api, _request: Request) -> Response:
    return Response()


def door_with_keys(directory: Path) -> Door:
    """The whole table, and a key of each role."""
    api = Api(config(directory, admin_key=ADMIN_KEY))
    api.keyring.replace(
        [ApiKey(key_hash=hash_key(key), name=role, role=role) for role, key in KEYS.items()],
        now_s=trio.current_time(),
    )
    return Door(api, Routes(replace(row, endpoint=nothing) for row in ROUTES.rows), on_bug=on_bug)


async def status_of(door: Door, method: str, path: str, key: str = "") -> int:
    headers = {"x-api-key": key} if key else {}
    plain = path.replace("{", "").replace("}", "")
    answer = await door.answer(Request(method=method, path=plain, headers=headers))
    return answer.status


def test_there_are_routes_to_be_tried() -> None:
    assert len(ROUTES.rows) >= 5


def test_no_route_answers_without_a_key_but_those_that_say_so(tmp_path: Path) -> None:
    async def main() -> None:
        door = door_with_keys(tmp_path)
        for row in ROUTES.rows:
            answered = [
                await status_of(door, row.method, row.path),
                await status_of(door, row.method, row.path, make_key(99)),
            ]

            wanted = 200 if row.action is Action.OPEN else 401
            assert answered == [wanted] * 2, f"{row.method} {row.path}"

    trio.run(main)


def test_every_route_answers_the_roles_that_may_and_no_others(tmp_path: Path) -> None:
    async def main() -> None:
        door = door_with_keys(tmp_path)
        for row in ROUTES.rows:
            for role, key in (*KEYS.items(), ("admin", ADMIN_KEY)):
                answered = await status_of(door, row.method, row.path, key)

                wanted = 200 if row.action in ALLOWED[role] else 403
                assert answered == wanted, f"{role}: {row.method} {row.path}"

    trio.run(main)


OPEN_PATHS: Final = {
    "/",
    "/api/v1/auth/status",
    "/api/v1/info",
    "/docs",
    "/docs.css",
    "/healthz",
    "/livez",
    "/openapi.json",
    "/readyz",
    "/startupz",
}
"""Written out by hand, so that nothing is opened by a slip."""


def test_only_these_routes_are_open_to_everybody() -> None:
    opened = {row.path for row in ROUTES.rows if row.action is Action.OPEN}

    assert opened <= OPEN_PATHS


def test_only_an_admin_may_look_at_keys_or_change_them() -> None:
    about_keys = [row for row in ROUTES.rows if row.path.startswith("/api/v1/auth/keys")]

    assert len(about_keys) >= 4
    assert {row.action for row in about_keys} == {Action.ADMIN}


def test_what_changes_something_is_never_only_read() -> None:
    reads = {(row.method, row.path) for row in ROUTES.rows if row.action is Action.READ}

    assert {method for method, _ in reads} <= {"GET", "POST"}
    assert {path for method, path in reads if method == "POST"} <= {
        "/api/v1/jobs/bulk-get",
        "/api/v1/jobs/search",
        "/api/v1/schedules/preview",
    }


# A router and a shard.


class Client:
    """Somebody who asks a router, as a lane would."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._door = Door(api, ROUTES, on_bug=on_bug)

    async def ask(
        self,
        method: str,
        path: str,
        body: JSON | None = None,
        *,
        key: str = "",
        headers: dict[str, str] | None = None,
    ) -> Response:
        shown = {"x-api-key": key} if key else {}
        data = b"" if body is None else msgspec.json.encode(body)
        return await self._door.answer(
            Request(method=method, path=path, headers={**shown, **(headers or {})}, body=data)
        )

    async def make(self, shown: str = "", /, **fields: object) -> JSON:
        """Make a key; the answer."""
        return body_of(await self.ask("POST", "/api/v1/auth/keys", dict(fields), key=shown))

    async def names(self, key: str) -> list[object]:
        """The names of the keys there are."""
        answer = await self.ask("GET", "/api/v1/auth/keys", key=key)
        assert answer.status == 200, answer.body
        return [row["name"] for row in msgspec.json.decode(answer.body, type=list[JSON])]

    async def status(self, key: str = "") -> JSON:
        return body_of(await self.ask("GET", "/api/v1/auth/status", key=key))


def body_of(answer: Response) -> JSON:
    assert answer.status == 200, answer.body
    return msgspec.json.decode(answer.body, type=JSON)


@asynccontextmanager
async def routing(config: RouterConfig) -> AsyncIterator[Client]:
    """A router with its links and its keeper, and no lanes."""
    api = Api(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(api.shards.run)
        nursery.start_soon(api.keeper.run, SILENT)
        yield Client(api)
        nursery.cancel_scope.cancel()


@on_sockets
async def test_a_key_is_shown_once_and_opens_what_its_role_may(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
        answer = await ann.ask(
            "POST",
            "/api/v1/auth/keys",
            {
                "name": "board",
                "role": "readonly",
                "queue_scope": "mail-*",
                "expires_at": "2100-01-01T00:00:00Z",
            },
            key=ADMIN_KEY,
        )
        made = body_of(answer)
        key = str(made["api_key"])
        listed = await ann.ask("GET", "/api/v1/auth/keys", key=ADMIN_KEY)
        seen = await ann.status(key)
        refused = await ann.ask("GET", "/api/v1/auth/keys", key=key)

    assert re.fullmatch("sk_[0-9A-HJKMNP-TV-Z]{32}", key)
    assert made == {
        "status": "ok",
        "api_key": key,
        "key_hash": hash_key(key),
        "role": "readonly",
    }
    assert ("cache-control", "no-store") in answer.headers
    assert any(name == "corvo-seq" for name, _ in answer.headers)
    assert key.encode() not in listed.body
    [row] = msgspec.json.decode(listed.body, type=list[JSON])
    assert str(row.pop("created_at")).startswith("20")
    assert row == {
        "key_hash": hash_key(key),
        "name": "board",
        "namespace": "default",
        "role": "readonly",
        "enabled": True,
        "queue_scope": ["mail-*"],
        "expires_at": "2100-01-01T00:00:00Z",
    }
    assert seen == {
        "admin_password_set": True,
        "keys_required": True,
        "caller": {"name": "board", "role": "readonly", "queue_scope": ["mail-*"]},
    }
    assert refused.status == 403


@on_sockets
async def test_a_key_that_is_brought_along_is_taken_and_changed_by_bringing_it_again(
    tmp_path: Path,
) -> None:
    chosen = "a-key-of-another-server"
    async with running(config_in(tmp_path)), routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
        made = await ann.make(ADMIN_KEY, name="old", role="admin", key=chosen)
        before = await ann.names(chosen)
        await ann.make(ADMIN_KEY, name="new", role="admin", key=chosen, enabled=False)
        after = await ann.ask("GET", "/api/v1/auth/keys", key=chosen)
        names = await ann.names(ADMIN_KEY)

    assert made["api_key"] == chosen
    assert before == ["old"]
    assert after.status == 401
    assert names == ["new"]


@on_sockets
async def test_a_deleted_key_is_refused_by_the_next_request(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
        by_path = await ann.make(ADMIN_KEY, name="one", role="admin")
        by_body = await ann.make(ADMIN_KEY, name="two", role="admin")
        gone = [
            await ann.ask("DELETE", f"/api/v1/auth/keys/{by_path['key_hash']}", key=ADMIN_KEY),
            await ann.ask(
                "DELETE", "/api/v1/auth/keys", {"key_hash": by_body["key_hash"]}, key=ADMIN_KEY
            ),
        ]
        after = [
            await ann.ask("GET", "/api/v1/auth/keys", key=str(made["api_key"]))
            for made in (by_path, by_body)
        ]
        again = await ann.ask("DELETE", f"/api/v1/auth/keys/{by_path['key_hash']}", key=ADMIN_KEY)

    assert [body_of(answer) for answer in gone] == [{"status": "deleted"}] * 2
    assert [answer.status for answer in after] == [401, 401]
    assert again.status == 404


@on_sockets
async def test_a_key_that_is_revoked_elsewhere_is_refused_here_as_soon_as_the_shard_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The keeper does not look by itself.
    monkeypatch.setattr("corvo.router.auth.keeper.CONFIRM_S", math.inf)
    monkeypatch.setattr("corvo.router.auth.keyring.UNCONFIRMED_S_MAX", math.inf)
    shard = config_in(tmp_path)
    key = make_key(1)
    made = UpsertAPIKey(key_hash=hash_key(key), name="ci", role="admin")
    async with running(shard), calling(shard) as other:
        await submit(other, made)
        async with routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
            before = await ann.status(key)
            await submit(other, DeleteAPIKey(key_hash=hash_key(key)))
            while "caller" in await ann.status(key):
                await trio.lowlevel.checkpoint()

    assert before["caller"] == {"name": "ci", "role": "admin"}


@on_sockets
async def test_no_file_of_a_shard_has_a_key_in_it(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as child:
        async with routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
            made = await ann.make(ADMIN_KEY, name="ci", role="worker")
        await child.stop()
        said = await child.last_words()
    files = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    everything = b"".join([*files, said.encode()])

    assert hash_key(str(made["api_key"])).encode() in everything
    for secret in (str(made["api_key"]), ADMIN_KEY):
        assert secret.encode() not in everything


# An open server.


@on_sockets
async def test_the_first_key_closes_an_open_server_and_the_answer_says_so(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, is_open=True)) as ann:
        before = await ann.status()
        first = await ann.make(name="ann", role="admin")
        key = str(first["api_key"])
        after = await ann.status()
        second = await ann.make(key, name="ci", role="worker")
        refused = await ann.ask("POST", "/api/v1/auth/keys", {"name": "eve", "role": "admin"})

    assert before == {
        "admin_password_set": False,
        "keys_required": False,
        "caller": {"name": "anonymous", "role": "admin"},
        "requests_without_key": 1,
    }
    assert "every request needs an API key" in str(first["warning"])
    assert after == {"admin_password_set": False, "keys_required": True}
    assert "warning" not in second
    assert refused.status == 401


@on_sockets
async def test_the_keys_of_workers_come_first_and_the_closing_key_says_who_has_none(
    tmp_path: Path,
) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, is_open=True)) as ann:
        early = await ann.make(name="workers", role="worker")
        key = str(early["api_key"])
        body = {"queues": ["mail"], "wait_seconds": 0}
        for _ in range(3):
            await ann.ask("POST", "/api/v1/fetch", body)
        open_ = await ann.ask("POST", "/api/v1/fetch", body, key=key)
        status = await ann.status()
        admin = await ann.make(name="ann", role="admin")
        with_key = await ann.ask("POST", "/api/v1/fetch", body, key=key)
        without = await ann.ask("POST", "/api/v1/fetch", body)
        own = str(admin["api_key"])
        await ann.ask("DELETE", f"/api/v1/auth/keys/{early['key_hash']}", key=own)
        names = await ann.names(own)

    assert "still open" in str(early["warning"])
    assert "requests_without_key" not in early
    assert (open_.status, status["keys_required"]) == (204, False)
    # The three fetches, the creation of two keys, and the question for the status.
    assert (status["requests_without_key"], admin["requests_without_key"]) == (5, 6)
    assert "6 requests of the last minute had no API key" in str(admin["warning"])
    assert "X-API-Key" in str(admin["warning"])
    assert (with_key.status, without.status) == (204, 401)
    assert b"send it in the header X-API-Key" in without.body
    assert names == ["ann"]


@on_sockets
async def test_the_last_key_of_a_server_that_was_open_opens_it_and_the_answer_says_so(
    tmp_path: Path,
) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, is_open=True)) as ann:
        made = await ann.make(name="ann", role="admin")
        gone = body_of(
            await ann.ask(
                "DELETE", f"/api/v1/auth/keys/{made['key_hash']}", key=str(made["api_key"])
            )
        )
        seen = await ann.status()

    assert "every user of this machine" in str(gone["warning"])
    assert seen["keys_required"] is False


LOCKING: Final[tuple[JSON, ...]] = (
    {"name": "ci"},
    {"name": "ci", "role": "operator"},
    {"name": "ci", "role": "admin", "enabled": False},
    {"name": "ci", "role": "admin", "expires_at": "2100-01-01T00:00:00Z"},
)


@on_sockets
async def test_a_change_that_would_leave_nobody_to_change_anything_is_refused(
    tmp_path: Path,
) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, is_open=True)) as ann:
        first = [await ann.ask("POST", "/api/v1/auth/keys", body) for body in LOCKING]
        still_open = await ann.status()
        made = await ann.make(name="ann", role="admin")
        key = str(made["api_key"])
        await ann.make(key, name="ci", role="worker")
        last = [
            await ann.ask("POST", "/api/v1/auth/keys", {**body, "key": key}, key=key)
            for body in LOCKING
        ]
        last.append(await ann.ask("DELETE", f"/api/v1/auth/keys/{made['key_hash']}", key=key))
        names = await ann.names(key)

    assert [answer.status for answer in first] == [200, 200, 409, 409]
    assert still_open["keys_required"] is False
    assert [answer.status for answer in last] == [409] * 5
    assert b"WOULD_LOCK_OUT" in last[-1].body
    assert names == ["ci", "ci", "ann", "ci"]


@on_sockets
async def test_with_an_admin_key_or_without_authentication_nobody_is_locked_out(
    tmp_path: Path,
) -> None:
    async with running(config_in(tmp_path)):
        async with routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
            one = await ann.make(ADMIN_KEY, name="one")
        async with routing(config(tmp_path, is_open=True, is_auth_off=True)) as bob:
            two = await bob.make(name="two")
            seen = await bob.status()

    assert (one["role"], two["role"]) == ("readonly", "readonly")
    assert seen["keys_required"] is False


# What is refused.


REFUSED: Final[tuple[tuple[JSON, str], ...]] = (
    ({"name": None}, "name"),
    ({"name": ""}, "name"),
    ({"name": "a\nb"}, "name"),
    ({"role": "root"}, "role"),
    ({"namespace": "acme"}, "namespace"),
    ({"queue_scope": [""]}, "queue_scope[0]"),
    ({"queue_scope": "s*s"}, "queue_scope[0]"),
    ({"queue_scope": ["mail"], "role": "admin"}, "queue_scope"),
    ({"key": "short"}, "key"),
    ({"key": "sixteen letters or more"}, "key"),
    ({"key": "kéykéykéykéykéykéy"}, "key"),
    ({"expires_at": "tomorrow"}, "expires_at"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ({"enabled": "yes"}, "enabled"),
)


@on_sockets
async def test_a_key_that_cannot_be_is_refused_by_the_field(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
        for changed, field in REFUSED:
            body = {"name": "ci", "role": "worker", **changed}
            answer = await ann.ask("POST", "/api/v1/auth/keys", body, key=ADMIN_KEY)

            problem = msgspec.json.decode(answer.body, type=JSON)
            assert (answer.status, problem["code"]) == (400, "VALIDATION_ERROR"), answer.body
            assert problem["field"] == field
        hashless = await ann.ask("DELETE", "/api/v1/auth/keys/9f86", key=ADMIN_KEY)
        names = await ann.names(ADMIN_KEY)

    assert hashless.status == 400
    assert names == []


@on_sockets
async def test_a_request_that_is_repeated_under_its_key_makes_no_second_key(
    tmp_path: Path,
) -> None:
    async with running(config_in(tmp_path)), routing(config(tmp_path, admin_key=ADMIN_KEY)) as ann:
        asked: JSON = {"name": "ci", "role": "worker"}
        named = {"idempotency-key": "make-ci"}
        first = await ann.ask("POST", "/api/v1/auth/keys", asked, key=ADMIN_KEY, headers=named)
        second = await ann.ask("POST", "/api/v1/auth/keys", asked, key=ADMIN_KEY, headers=named)
        names = await ann.names(ADMIN_KEY)

    assert (first.status, second.status) == (200, 422)
    assert names == ["ci"]


# The keeper.


class Told:
    """A shard that answers with what it was given, page by page, or not at all."""

    def __init__(self) -> None:
        self.keys = [
            ApiKey(key_hash=f"{number:064x}", name=f"key {number}", role="worker")
            for number in range(5)
        ]
        self.asked = 0
        self.places: list[str] = []
        """Behind which key each page began."""
        self.is_there = True

    async def ask(self, query: Query) -> Answer:
        assert isinstance(query, ListKeys)
        await trio.lowlevel.checkpoint()
        self.asked += 1
        self.places.append(query.after)
        if not self.is_there:
            raise Problem(503, "LEADER_UNAVAILABLE", "nobody leads")
        behind = [key for key in self.keys if key.key_hash > query.after]
        page = behind[:2]
        more = page[-1].key_hash if len(behind) > 2 else ""
        return Answer(msgspec.json.encode(ApiKeys(page, more)), 7)


@asynccontextmanager
async def keeping(
    directory: Path, told: Told, log: Log = SILENT, *, is_open: bool = False
) -> AsyncIterator[tuple[Keyring, Keeper]]:
    """A keeper at work, whose shard is `told`."""
    made = config(directory, is_open=is_open)
    topology = topology_of(made)
    shards = Shards(made, topology, pushed=lambda _, __: None, came_up=lambda _: None)
    shards[0].ask = told.ask  # type: ignore[method-assign]  # the seam is narrow and this is a test
    keyring = Keyring(made)
    keeper = Keeper(keyring, shards)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, log)
        await trio.testing.wait_all_tasks_blocked()
        yield keyring, keeper
        nursery.cancel_scope.cancel()


def on_a_mock_clock(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_all_pages_are_read_and_those_who_wait_for_the_first_list_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told()
        async with keeping(tmp_path, told) as (keyring, keeper):
            began_s = trio.current_time()
            await keeper.wait(60)
            assert trio.current_time() == began_s
            assert [key.name for key in keyring.keys.values()] == [f"key {n}" for n in range(5)]
            assert told.asked == 3

    on_a_mock_clock(main)


def test_the_log_says_how_many_came_without_a_key_and_how_many_are_rejected(
    tmp_path: Path,
) -> None:
    def ask(keyring: Keyring) -> None:
        keyring.who({}, now_ns=lambda: 0, now_s=trio.current_time)

    async def main() -> None:
        lines: list[bytes] = []
        told = Told()
        told.keys = []
        log = Log(lines.append, "router", Style(is_text=False), Level.INFO)
        async with keeping(tmp_path, told, log, is_open=True) as (keyring, keeper):
            for _ in range(3):
                ask(keyring)
            await trio.sleep(15)
            ask(keyring)
            told.keys = [ApiKey(key_hash="0" * 64, name="ann", role="admin")]
            keeper.ring()
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(2):
                with pytest.raises(Problem):
                    ask(keyring)
            await trio.sleep(60)

        said = [msgspec.json.decode(line, type=dict[str, object]) for line in lines]
        header = "X-API-Key, or as Authorization: Bearer KEY"
        assert [(it["event"], it["header"]) for it in said] == [
            ("api_keys.required", header),
            ("api_keys.missing", header),
        ]
        assert (said[0]["requests"], said[1]["requests"]) == (4, 2)

    on_a_mock_clock(main)


def test_what_came_without_a_key_is_counted_for_a_minute() -> None:
    unkeyed = Unkeyed()
    unkeyed.seen = 5
    recent = []
    for _ in range(UNKEYED_STEPS + 1):
        assert unkeyed.step() == 0, "an open server refuses nobody"
        recent.append(unkeyed.recent)

    assert recent == [5] * UNKEYED_STEPS + [0]


def test_a_ring_has_the_list_read_at_once_also_while_it_is_being_read(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told()
        began_s = trio.current_time()
        async with keeping(tmp_path, told) as (keyring, keeper):
            keeper.ring()
            keeper.ring()
            await trio.lowlevel.checkpoint()  # the first page is under way
            told.keys = told.keys[:1]
            keeper.ring()
            await trio.testing.wait_all_tasks_blocked()

            assert [key.name for key in keyring.keys.values()] == ["key 0"]
            assert trio.current_time() == began_s

    on_a_mock_clock(main)


def test_two_who_read_at_once_read_one_after_the_other(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told()
        async with keeping(tmp_path, told) as (_, keeper):
            once = list(told.places)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keeper.read)
                nursery.start_soon(keeper.read)

            assert len(once) == 3
            assert told.places == once * 3

    on_a_mock_clock(main)


def test_without_a_ring_the_list_is_read_before_it_is_disbelieved(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told()
        async with keeping(tmp_path, told) as (keyring, _):
            told.keys = []
            await trio.sleep(UNCONFIRMED_S_MAX / 2)

            assert keyring.keys == {}

    on_a_mock_clock(main)


def test_a_shard_that_is_away_is_asked_again_and_the_list_stays_as_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told()
        async with keeping(tmp_path, told) as (keyring, keeper):
            told.is_there = False
            keeper.ring()
            await trio.sleep(UNCONFIRMED_S_MAX + 1)
            assert len(keyring.keys) == 5
            with pytest.raises(Problem) as refused:
                keyring.who({"x-api-key": "k"}, now_ns=lambda: 1, now_s=trio.current_time)
            assert refused.value.status == 503

            told.is_there = True
            await trio.sleep(2)
            with pytest.raises(Problem) as refused:
                keyring.who({"x-api-key": "k"}, now_ns=lambda: 1, now_s=trio.current_time)
            assert refused.value.status == 401

    on_a_mock_clock(main)


def test_a_new_link_to_the_shard_of_the_keys_has_them_read_anew(tmp_path: Path) -> None:
    api = Api(config(tmp_path, shards=2))

    api._came_up(1)
    after_another = api.keeper._bell.is_set()
    api._came_up(0)

    assert not after_another
    assert api.keeper._bell.is_set()


def test_nobody_waits_for_the_first_list_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told()
        told.is_there = False
        async with keeping(tmp_path, told) as (keyring, keeper):
            began_s = trio.current_time()
            await keeper.wait(3)

            assert trio.current_time() == began_s + 3
            assert not keyring.is_known

    on_a_mock_clock(main)
