"""The config: which source wins, how values are written, and what is refused in which words."""

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.config import (
    DEFAULT,
    KEYS,
    Address,
    Config,
    ConfigRefused,
    Given,
    Key,
    addresses,
    given_by_environment,
    given_by_file,
    read_value,
    resolve,
)


def setting(**values: object) -> Config:
    """The config when a source sets these."""
    return resolve([Given(name, value, "the test") for name, value in values.items()]).config


def refusal(*given: Given) -> str:
    """All that is said when these are refused."""
    with pytest.raises(ConfigRefused) as caught:
        resolve(given)
    return "\n".join(caught.value.problems)


# ---- Sources.


def test_without_any_source_everything_is_at_its_default() -> None:
    resolved = resolve([])

    assert resolved.config == Config()
    assert {row.source for row in resolved.rows()} == {DEFAULT}


def test_each_source_beats_the_one_before() -> None:
    file = given_by_file(
        'bind = "127.0.0.1:1"\nshards = 4\n[limits]\nidle_ms = "1s"\n', "corvo.toml"
    )
    environment = given_by_environment({"CORVO_BIND": "127.0.0.1:2", "CORVO_LIMITS__IDLE_MS": "2s"})
    flags = [Given("bind", "127.0.0.1:3", "--bind")]

    resolved = resolve([*file, *environment, *flags])

    assert resolved.config.bind == "127.0.0.1:3"
    assert resolved.config.limits.idle_ms == 2_000
    assert resolved.config.shards == 4
    assert resolved.sources == {
        "bind": "--bind",
        "limits.idle_ms": "CORVO_LIMITS__IDLE_MS",
        "shards": "corvo.toml",
    }


def test_a_key_that_is_given_its_default_counts_as_given() -> None:
    resolved = resolve([Given("shards", "2", "--shards")])

    assert resolved.is_given("shards")
    assert not resolved.is_given("retention")


_SHOWN: Final = {
    "accept_loss": "shard-1:1042",
    "cluster.advertise": "127.0.0.1:9400",
    "cluster.initial_nodes": "a=127.0.0.1:9400",
    "cluster.join": "127.0.0.1:9401",
    "cluster.peer_bind": "127.0.0.1:9400",
    "webhooks.secrets": "mail=sixteen letters and more",
}
"""Values of settings that do not take any text."""


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_key_can_be_set_in_every_source(key: Key) -> None:
    shown = key.show(key.default) or _SHOWN.get(key.name, "given")
    as_text = msgspec.json.encode(shown).decode()
    group, _, field = key.name.rpartition(".")
    text = f"[{group}]\n{field} = {as_text}" if group else f"{field} = {as_text}"
    for_both = [Given("tls_cert", "a", "x"), Given("tls_key", "b", "x")]

    for source in (
        given_by_file(text, "corvo.toml"),
        given_by_environment({key.variable: shown}),
        [Given(key.name, shown, f"--set {key.name}")],
    ):
        assert resolve([*for_both, *source]).is_given(key.name)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert given_by_environment({"CORVO_ADMIN_KEY": "", "CORVO_SHARDS": ""}) == []


@pytest.mark.parametrize(
    "variable",
    [
        "CORVO_CONFIG",
        "CORVO_URL",
        "CORVO_API_KEY",
        "CORVO_SERVICE_HOST",
        "CORVO_SERVICE_PORT",
        "CORVO_SERVICE_PORT_HTTP",
        "CORVO_PORT",
        "CORVO_PORT_8080_TCP",
        "CORVO_PORT_8080_TCP_ADDR",
        "CORVO_HEADLESS_SERVICE_HOST",
        "PATH",
    ],
)
def test_a_variable_that_is_not_for_the_node_is_left_alone(variable: str) -> None:
    assert given_by_environment({variable: "tcp://10.0.0.1:8080"}) == []


def test_no_key_looks_like_a_variable_that_is_left_alone() -> None:
    for key in KEYS.values():
        assert given_by_environment({key.variable: "x"}), key.name


def test_the_password_of_the_original_is_the_admin_key() -> None:
    by_password = given_by_environment({"CORVO_ADMIN_PASSWORD": "nest"})
    by_both = given_by_environment({"CORVO_ADMIN_PASSWORD": "nest", "CORVO_ADMIN_KEY": "nest"})

    assert resolve(by_password).config.admin_key == "nest"
    assert resolve(by_both).config.admin_key == "nest"


def test_two_different_admin_keys_are_refused_without_showing_them() -> None:
    told = refusal(
        *given_by_environment({"CORVO_ADMIN_PASSWORD": "rook", "CORVO_ADMIN_KEY": "raven"})
    )

    assert (
        told == "admin_key: CORVO_ADMIN_KEY and CORVO_ADMIN_PASSWORD differ: set only one of them"
    )


# ---- Values.


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("168h", 604_800_000),
        ("7d", 604_800_000),
        ("30s", 30_000),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("250", 250),
        (250, 250),
        ("1_000", 1_000),
        (" 5m ", 300_000),
    ],
)
def test_a_duration_is_written_as_in_go_or_as_a_number(written: object, ms: int) -> None:
    assert setting(retention=written).retention_ms == ms


@pytest.mark.parametrize(
    ("written", "size"),
    [("2MiB", 2 << 20), ("64KiB", 65_536), ("1.5KiB", 1_536), (99, 99), ("99", 99)],
)
def test_a_size_is_written_with_a_unit_or_as_bytes(written: object, size: int) -> None:
    assert read_value(KEYS["limits.header_bytes_max"], written) == size


@given(st.integers(0, (1 << 53) - 1))
def test_what_is_shown_is_read_back_as_the_same(number: int) -> None:
    for name in ("retention", "shard.ballast_bytes", "limits.read_rate"):
        assert read_value(KEYS[name], KEYS[name].show(number)) == number


@given(st.text(max_size=60))
def test_whatever_is_written_is_a_value_or_none(text: str) -> None:
    for key in KEYS.values():
        value = read_value(key, text)
        assert value is None or isinstance(value, int | str | tuple)


def test_a_list_is_an_array_or_texts_with_commas() -> None:
    wanted = ("https://a.example", "https://b.example")

    assert setting(cors_origins="https://a.example, https://b.example").cors_origins == wanted
    assert setting(cors_origins=list(wanted)).cors_origins == wanted


@pytest.mark.parametrize(
    ("bind", "found"),
    [
        ("127.0.0.1:8080", [Address("127.0.0.1", 8080)]),
        (":8080", [Address("", 8080)]),
        ("*:8080", [Address("", 8080)]),
        ("[::1]:0", [Address("::1", 0)]),
        ("localhost:1, [::1]:2", [Address("localhost", 1), Address("::1", 2)]),
    ],
)
def test_an_address_is_a_host_and_a_port(bind: str, found: list[Address]) -> None:
    assert addresses(bind) == tuple(found)


@pytest.mark.parametrize(
    "bind", ["8080", "localhost", "::1:80", "a:65536", "a:b", "", "a:1,", "a b:1"]
)
def test_what_is_no_address_is_refused(bind: str) -> None:
    assert addresses(bind) is None


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),  # noqa: S104 -- it is what must be recognised
        ("::", False),
        ("10.0.0.1", False),
        ("corvo.example", False),
    ],
)
def test_only_loopback_is_loopback(host: str, *, is_loopback: bool) -> None:
    assert Address(host, 80).is_loopback is is_loopback


# ---- Refusals.


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
@pytest.mark.parametrize("nonsense", [True, 1.5, {"a": 1}, None, -1, "\x00", 1 << 60])
def test_nonsense_is_refused_with_the_key_its_source_and_what_would_do(
    key: Key, nonsense: object
) -> None:
    told = refusal(Given(key.name, nonsense, "corvo.toml"))

    assert told.startswith(f"{key.name} is ")
    assert "(corvo.toml)" in told
    assert key.wanted in told


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("shards", "0", "shards is '0' (--set): expected a number of at least 1 and at most 64"),
        ("shards", "65", "at most 64"),
        ("retention", "1w", "such as 500ms, 30s or 7d"),
        ("retention", "-1h", "a duration of at least 0"),
        ("retention", "1.0001ms", "a duration"),
        ("retention", "9" * 5_000, "a duration"),
        ("durability", "maybe", "expected relaxed or sync"),
        ("limits.fetch_wait_s_max", "500ms", "whole seconds"),
        ("limits.op_bytes_max", "5MiB", "at most 4194304"),
        ("bind", "8080", "expected HOST:PORT"),
        ("data_dir", "", "data_dir is ''"),
    ],
)
def test_a_value_out_of_bounds_is_refused(name: str, value: str, told: str) -> None:
    assert told in refusal(Given(name, value, "--set"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            given_by_environment({"CORVO_DATADIR": "x"}),
            "unknown setting CORVO_DATADIR; did you mean CORVO_DATA_DIR?",
        ),
        (
            given_by_file("[limits]\nidle = 3", "c.toml"),
            "limits.idle (c.toml); did you mean limits.idle_ms?",
        ),
        (
            given_by_file("limits = 3", "c.toml"),
            "limits (c.toml) is a group: set its settings, such as limits.body_bytes_max",
        ),
        (given_by_file("[bind]\nhost = 3", "c.toml"), "bind is not a group"),
        ([Given("zzzzzz", "1", "--set zzzzzz")], "`corvo config` lists all settings"),
    ],
)
def test_a_key_that_is_not_there_is_refused_with_the_nearest(given: list[Given], told: str) -> None:
    assert told in refusal(*given)


def test_a_file_that_is_no_toml_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigRefused, match=r"corvo.toml is not TOML: .*line 1"):
        given_by_file("bind = \nshards = 1\n", "corvo.toml")


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = refusal(Given("shards", "0", "a"), Given("nod", "1", "b"), Given("auth", "no", "c"))

    assert len(told.splitlines()) == 3


def test_a_secret_is_never_shown() -> None:
    told = refusal(Given("admin_key", "rook\x00", "CORVO_ADMIN_KEY"))
    rows = resolve([Given("admin_key", "raven", "x")]).rows()

    assert "rook" not in told
    assert "raven" not in str(rows)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"bind": ":8080"},
            "set CORVO_ADMIN_KEY (or --admin-key), or give every client full access",
        ),
        ({"bind": "127.0.0.1:1,10.0.0.1:1"}, "reachable from outside, and no admin key is set"),
        ({"auth": "off", "admin_key": "k"}, "remove one of the two settings"),
        ({"auth": "off", "admin_key_file": "f"}, "admin_key_file (x) is set: the key would"),
        ({"admin_key": "k", "admin_key_file": "f"}, "remove one of the two settings"),
        ({"admin_key": "schlüssel"}, "use printable ASCII"),
        ({"admin_key": " k"}, "use printable ASCII"),
        ({"webhooks.secrets": "mail=short"}, "a secret of at least 16 characters"),
        ({"webhooks.secrets": "sixteen letters, and more"}, "expected QUEUE=SECRET"),
        ({"tls_cert": "a.pem"}, "tls_key is not: set both or neither"),
        ({"tls_key": "a.pem"}, "tls_cert is not: set both or neither"),
        ({"accept_loss": "shard-1:1042,shard-2"}, "has 'shard-2': expected a shard and an entry"),
        ({"limits.payload_bytes_max": "4.5MiB"}, "expected at most 4194304"),
        ({"limits.result_bytes_max": "4.5MiB"}, "expected at most 4194304"),
        ({"limits.body_bytes_max": "64KiB"}, "expected at least 1048576"),
    ],
)
def test_a_contradiction_is_refused_with_a_way_out(values: dict[str, str], told: str) -> None:
    assert told in refusal(*(Given(name, value, "x") for name, value in values.items()))


def test_a_body_that_just_holds_a_payload_is_enough() -> None:
    values = {"limits.payload_bytes_max": "4MiB", "limits.body_bytes_max": "4MiB"}

    config = setting(**values)

    assert config.limits.body_bytes_max == config.jobs.payload_bytes_max == config.jobs.op_bytes_max


@pytest.mark.parametrize(
    ("values", "is_open", "must_be_loopback"),
    [
        ({}, True, True),
        ({"admin_key": "k"}, False, False),
        ({"admin_key": "k", "bind": ":80"}, False, False),
        ({"auth": "off", "bind": ":80"}, True, False),
    ],
)
def test_it_is_open_only_on_loopback_or_when_it_is_said_so(
    values: dict[str, str], *, is_open: bool, must_be_loopback: bool
) -> None:
    config = setting(**values)

    assert config.is_open is is_open
    assert config.must_be_loopback is must_be_loopback


# ---- Its shape.


def test_every_key_is_explained() -> None:
    assert all(key.about for key in KEYS.values())
