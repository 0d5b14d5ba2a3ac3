"""The client: which failures are repeated, where, and that no change is sent twice by chance."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec
import pytest

from corvo.client import repeats
from corvo.client.calls import Client, new_request_key, read, segment
from corvo.client.errors import (
    NOT_APPLIED,
    UNKNOWN,
    BadClientOption,
    ClientError,
    RequestFailed,
    Unreachable,
)
from corvo.trace_context import TraceContext
from tests.client.scripted import CLOSE, answer, problem, scripted


class Body(msgspec.Struct):
    """An answer."""

    number: int = 0


OK = answer(200, {"number": 7, "unknown": "ignored"})


@pytest.fixture
def absent() -> Iterator[str]:
    """An address at which no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def hanging(*, takes: bool) -> Iterator[str]:
    """An address that takes connections and does not answer, or does not even take them."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()[:2]
        if takes:
            listener.listen(16)
        for _ in range(0 if takes else 3):  # more than the queue of the listener has room for
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(address)
        yield f"{address[0]}:{address[1]}"


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address has little time while others are untried. Slower ones are asked again later."""
    monkeypatch.setattr(repeats, "QUICK_CONNECT_S", 0.5)
    monkeypatch.setattr(repeats, "QUICK_ANSWER_S", 0.5)


def client_of(*servers: str, timeout_s: float = 30.0) -> tuple[Client, list[float]]:
    """A client, and how long it has paused."""
    pauses: list[float] = []
    return Client(servers, api_key="secret", timeout_s=timeout_s, sleep=pauses.append), pauses


def test_requests_share_a_connection_and_carry_the_api_key() -> None:
    with scripted(OK, answer(201, {"number": 8})) as server:
        client, _ = client_of(server.url)
        with client:
            first = read(client.get("/a", {"limit": 3, "q": "x y"}), Body)
            second = client.change("POST", "/b", {"queue": "mail"}, request_key="k")

    assert (first.number, second.status) == (7, 201)
    assert server.connections == 1
    assert [(one.method, one.path) for one in server.asked] == [
        ("GET", "/a?limit=3&q=x+y"),
        ("POST", "/b"),
    ]
    assert server.asked[0].headers["x-api-key"] == "secret"
    assert "idempotency-key" not in server.asked[0].headers
    assert server.asked[1].headers["idempotency-key"] == "k"
    assert server.asked[1].body == b'{"queue":"mail"}'


@pytest.mark.parametrize(
    ("trace", "headers"),
    [
        (None, (None, None)),
        (TraceContext("00-7-1-01"), ("00-7-1-01", None)),
        (TraceContext("00-7-1-01", "a=b"), ("00-7-1-01", "a=b")),
    ],
)
def test_requests_carry_the_trace_that_they_are_part_of(
    trace: TraceContext | None, headers: tuple[str | None, str | None]
) -> None:
    with scripted(OK) as server, Client([server.url], trace=trace) as client:
        client.get("/a")

    [asked] = server.asked
    assert (asked.headers.get("traceparent"), asked.headers.get("tracestate")) == headers


def test_an_address_that_does_not_answer_is_left_for_the_next_one(absent: str) -> None:
    with scripted(OK, OK) as server:
        client, pauses = client_of(absent, server.url)
        with client:
            # Not even a change without a request key was sent to the first address.
            client.change("POST", "/a", {})
            client.get("/b")

    assert [one.path for one in server.asked] == ["/a", "/b"]
    assert server.connections == 1
    assert not pauses


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("takes", [True, False])
def test_an_address_that_hangs_is_left_for_the_next_one(*, takes: bool) -> None:
    with hanging(takes=takes) as stuck, scripted(*[OK] * 6) as server:
        client, _ = client_of(stuck, server.url)
        with client:
            assert read(client.get("/a"), Body).number == 7
            client.change("POST", "/b", {}, request_key="k")

    assert {one.path for one in server.asked} == {"/a", "/b"}


@pytest.mark.usefixtures("short_limits")
def test_a_change_that_was_lost_is_not_repeated_but_the_next_request_goes_elsewhere() -> None:
    with hanging(takes=True) as stuck, scripted(*[OK] * 6) as server:
        client, _ = client_of(stuck, server.url)
        with client:
            with pytest.raises(Unreachable) as lost:
                client.change("POST", "/a", {})
            assert lost.value.outcome == UNKNOWN
            client.get("/b")

    assert {one.path for one in server.asked} == {"/b"}


def test_an_attempt_leaves_time_for_the_other_addresses() -> None:
    def allowed(
        left_s: float, addresses: int, tried: int = 0, finished: int = 0
    ) -> tuple[float, float]:
        return repeats.limits(left_s, addresses=addresses, tried=tried, finished=finished)

    assert allowed(30, 1) == (3, 30)
    assert [allowed(30, 3, tried) for tried in range(3)] == [(1.5, 5)] * 3
    assert [allowed(15, 3, tried, 1) for tried in range(3)] == [(3, 5), (3, 7.5), (3, 15)]
    assert allowed(0.3, 3) == pytest.approx((0.1, 0.1))
    assert repeats.limits(40, addresses=2, tried=0, finished=0, wait_s=10) == (1.5, 15)


def test_a_wait_of_the_server_comes_on_top_of_the_time_limit() -> None:
    with hanging(takes=True) as stuck:
        client, _ = client_of(stuck, timeout_s=0.1)
        with client, pytest.raises(Unreachable, match=r"no answer within 0\.3") as failed:
            client.change("POST", "/a", {}, wait_s=0.25)

    assert failed.value.hints[:2] == (
        "the change may have taken effect; check before you repeat it",
        "a server that is starting, or busy, answers later:   --timeout 5m",
    )


def test_a_read_is_repeated_after_a_lost_connection() -> None:
    with scripted(CLOSE) as broken, scripted(OK) as server:
        client, _ = client_of(broken.url, server.url)
        with client:
            assert read(client.get("/a"), Body).number == 7

    assert (len(broken.asked), len(server.asked)) == (1, 1)


def test_a_change_is_repeated_after_a_lost_connection_only_under_a_request_key() -> None:
    with scripted(CLOSE, OK) as server:
        client, _ = client_of(server.url)
        with client:
            with pytest.raises(Unreachable) as lost:
                client.change("POST", "/a", {})
            assert (lost.value.code, lost.value.outcome) == ("OUTCOME_UNKNOWN", UNKNOWN)
    assert len(server.asked) == 1

    with scripted(CLOSE, OK) as server:
        client, _ = client_of(server.url)
        with client:
            client.change("POST", "/a", {}, request_key="k")
    assert [one.headers["idempotency-key"] for one in server.asked] == ["k", "k"]


def test_a_cut_answer_counts_as_a_lost_connection() -> None:
    with scripted(OK[:-3] + CLOSE, OK) as server, scripted(OK) as other:
        client, _ = client_of(server.url, other.url, timeout_s=0.5)
        with client, pytest.raises(Unreachable, match="no answer within"):
            client.change("POST", "/a", {})  # the rest never comes
    assert len(other.asked) == 0

    with scripted(answer(200, {}, closes=True)[:-1]) as server, scripted(OK) as other:
        client, _ = client_of(server.url, other.url)
        with client, pytest.raises(Unreachable, match="in the middle of the answer"):
            client.change("POST", "/a", {})


def test_an_idle_connection_that_was_closed_is_opened_again_before_a_request() -> None:
    # Without looking first, the change would be lost, and its outcome unknown.
    with scripted(answer(200, {}), OK) as server:
        client, _ = client_of(server.url)
        with client:
            client.get("/a")
            server._steps.insert(0, CLOSE)
            opened = client._connections[0]._http
            assert opened is not None
            # The request of another client is not in the script: this end closes.
            opened.sock.sendall(b"GET /b HTTP/1.1\r\n\r\n")
            assert server.closed.wait(10)
            client.change("POST", "/c", {})

    assert [one.path for one in server.asked] == ["/a", "/b", "/c"]
    assert server.connections == 2


def test_an_error_that_was_not_applied_is_repeated_at_the_next_node_and_after_a_pause() -> None:
    busy = problem(503, "LEADER_UNAVAILABLE", retry_after_ms=700)
    with scripted(busy, OK) as one, scripted(busy) as two:
        client, pauses = client_of(one.url, two.url)
        with client:
            client.change("POST", "/a", {})

    assert (len(one.asked), len(two.asked)) == (2, 1)
    assert pauses == [0.7]


def test_an_unknown_outcome_is_repeated_only_under_a_request_key() -> None:
    unknown = problem(503, "OUTCOME_UNKNOWN", UNKNOWN)
    with scripted(unknown, OK) as server:
        client, _ = client_of(server.url)
        with client, pytest.raises(RequestFailed) as failed:
            client.change("POST", "/a", {})
    assert (failed.value.code, failed.value.outcome) == ("OUTCOME_UNKNOWN", UNKNOWN)
    assert len(server.asked) == 1

    with scripted(unknown, OK) as server:
        client, _ = client_of(server.url)
        with client:
            client.change("POST", "/a", {}, request_key="k")
    assert len(server.asked) == 2


def test_a_change_that_may_have_been_applied_is_not_reported_as_not_applied() -> None:
    busy = problem(503, "LEADER_UNAVAILABLE")
    with scripted(CLOSE, busy, busy) as server:
        client, _ = client_of(server.url)
        with client, pytest.raises(RequestFailed) as failed:
            client.change("POST", "/a", {}, request_key="k")

    assert failed.value.outcome == UNKNOWN


def test_a_client_that_asks_too_often_waits_and_does_not_go_elsewhere() -> None:
    slow = problem(429, "RATE_LIMITED", retry_after_ms=1_500)
    with scripted(slow, OK) as one, scripted(OK) as two:
        client, pauses = client_of(one.url, two.url)
        with client:
            client.get("/a")

    assert (len(one.asked), len(two.asked)) == (2, 0)
    assert pauses == [1.5]


@pytest.mark.parametrize(
    "step",
    [
        problem(404, "NOT_FOUND", reason="node_not_found"),
        problem(409, "NO_MAJORITY"),
        problem(503, "OVER_BUDGET"),
        problem(503, "NOT_READY"),
    ],
)
def test_other_errors_are_final(step: bytes) -> None:
    with scripted(step) as server:
        client, pauses = client_of(server.url)
        with client, pytest.raises(RequestFailed) as failed:
            client.get("/a")

    assert len(server.asked) == 1
    assert not pauses
    assert str(failed.value) == failed.value.code.lower()


def test_all_addresses_are_tried_three_times(absent: str) -> None:
    client, pauses = client_of(absent)
    with client, pytest.raises(Unreachable) as failed:
        client.change("POST", "/a", {})

    assert pauses == [0.2, 0.4]
    assert (failed.value.code, failed.value.outcome) == ("UNREACHABLE", NOT_APPLIED)
    assert failed.value.message == f"no answer from http://{absent} (connection refused)"


def test_the_time_limit_holds_for_all_attempts_together() -> None:
    busy = problem(503, "LEADER_UNAVAILABLE", retry_after_ms=5_000)
    with scripted(busy, OK) as server:
        client, pauses = client_of(server.url, timeout_s=2)
        with client, pytest.raises(RequestFailed):
            client.get("/a")

    assert not pauses


def test_an_answer_of_something_else_says_so() -> None:
    page, garbage = answer(502, b"<html>"), b"no this port is for other nodes\n"
    moved = answer(301, b"", "Location: https://elsewhere.example/a")
    with scripted(page, page, page) as server:
        client, _ = client_of(server.url)
        with client, pytest.raises(RequestFailed, match="answered 502") as failed:
            client.get("/a")
        assert failed.value.code == "HTTP_502"
    with scripted(garbage, CLOSE, CLOSE) as server:
        client, _ = client_of(server.url)
        with client, pytest.raises(Unreachable):
            client.get("/a")
    with scripted(moved) as server:
        client, _ = client_of(server.url)
        with client, pytest.raises(RequestFailed, match="redirects to https://elsewhere"):
            client.get("/a")
    with scripted(answer(200, [1])) as server:
        client, _ = client_of(server.url)
        with client, pytest.raises(ClientError, match="cannot be read"):
            read(client.get("/a"), Body)


def test_a_prefix_comes_before_each_path() -> None:
    with scripted(OK) as server:
        client, _ = client_of(f"{server.url}/ops/corvo/")
        with client:
            client.get(f"/api/{segment('a/b c')}")

    assert server.asked[0].path == "/ops/corvo/api/a%2Fb%20c"


def test_bad_options_are_rejected_before_anything_is_sent() -> None:
    with pytest.raises(BadClientOption, match="printable ASCII"):
        Client(["a:1"], api_key="two\nlines")
    with pytest.raises(BadClientOption, match="above 0"):
        Client(["a:1"], timeout_s=0)
    assert new_request_key() != new_request_key()
