"""All settings of a node, collected from the processes that use them; their sources and checks.

A later source beats an earlier one: defaults, the file, the environment, the flags. Sources are
handed in as values; `corvo.commands` has the doors to them. A name follows from the key: `limits.
idle_ms` is a line of the table `[limits]` in the file, `CORVO_LIMITS__IDLE_MS` in the environment
and `--set limits.idle_ms=75s` among the flags. Nothing is passed over: a key that is not known, or
a value that cannot work, is refused at the start, with the key, the source and what would do.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from ipaddress import ip_address
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, inspect

from corvo import cluster_settings
from corvo.cluster_settings import ClusterSettings
from corvo.errors import CorvoError
from corvo.mirror.config import MirrorSettings
from corvo.nearest import nearest
from corvo.protocol.ops.base import Limits as JobLimits
from corvo.router.config import ApiSettings, WebhookSettings
from corvo.router.config import Limits as DoorLimits
from corvo.shard.config import OP_BYTES_MAX, ShardSettings

ENVIRONMENT: Final = "CORVO_"
SHARDS_MAX: Final = 64
"""A process each: more than that is another machine's work."""
_NUMBER_MAX: Final = (1 << 53) - 1
"""What every reader of JSON keeps exact."""
_TEXT_MAX: Final = 4_096
_SECRET_MIN: Final = 16
"""Characters of a webhook's secret, as of an API key."""
_DAY_MS: Final = 86_400_000
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class ConfigRefused(CorvoError):
    """The config cannot work; `problems` has a sentence for each key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: Final = tuple(problems)
        super().__init__("; ".join(self.problems))


class Mirror(MirrorSettings, frozen=True, kw_only=True):
    """Settings of the mirror, and whether there is one."""

    enabled: Annotated[
        Literal["on", "off"],
        Meta(description="`off`: no search, no bulk operations by filter, no rates"),
    ] = "on"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node, each declared once with its text."""

    data_dir: Annotated[
        str,
        Meta(
            min_length=1,
            description="directory for all data; created, readable by this user only, if it"
            " does not exist",
        ),
    ] = "data"
    bind: Annotated[
        str,
        Meta(
            min_length=1,
            description="addresses and ports to listen on: HOST:PORT, several with commas"
            " between them; without HOST, all addresses",
        ),
    ] = "127.0.0.1:8080"
    shards: Annotated[
        int,
        Meta(
            ge=1,
            le=SHARDS_MAX,
            description="number of processes that share the queues; cannot be changed after"
            " the first start",
        ),
    ] = 4
    durability: Annotated[
        Literal["sync", "relaxed"],
        Meta(
            description="`sync`: a job is on disk before it is confirmed; `relaxed`: it is"
            " on disk within half a second"
        ),
    ] = "sync"
    retention_ms: Annotated[Amount, Meta(description="time that finished jobs are kept")] = (
        msgspec.field(default=7 * _DAY_MS, name="retention")
    )
    auth: Annotated[
        Literal["on", "off"],
        Meta(
            description="`on`: requests need an API key, once one exists; `off`: every"
            " client has full access"
        ),
    ] = "on"
    admin_key: Annotated[
        str,
        Meta(description="API key with full access; `CORVO_ADMIN_PASSWORD` is the same setting"),
    ] = ""
    admin_key_file: Annotated[
        str, Meta(description="file with the admin key, instead of `admin_key`")
    ] = ""
    tls_cert: Annotated[
        str,
        Meta(description="file with the TLS certificate and its chain, in PEM; needs `tls_key`"),
    ] = ""
    tls_key: Annotated[
        str, Meta(description="file with the private key of the TLS certificate, in PEM")
    ] = ""
    http2: Annotated[
        Literal["on", "off"],
        Meta(
            description="`off`: HTTP/1.1 only; `on`: HTTP/2 as well, which HTTP/1.1 is faster than"
        ),
    ] = "off"
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="origins of web pages that may call the API, such as"
            " https://ops.example; `*` is any origin"
        ),
    ] = ()
    accept_loss: Annotated[
        tuple[str, ...],
        Meta(
            description="losses of data that are accepted, each as the refused start named it, such"
            " as shard-1:1042"
        ),
    ] = ()
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Meta(description="`auto`: text on a terminal, JSON lines otherwise"),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="lowest level that is logged"),
    ] = "info"
    drain_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=600_000,
            description="time that running requests have to end when the node stops",
        ),
    ] = 1_500
    stop_delay_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="time that a node still serves after SIGTERM, while `/readyz` answers 503,"
            " so that a load balancer stops sending requests before the node stops",
        ),
    ] = 0
    cluster: ClusterSettings = ClusterSettings()
    shard: ShardSettings = ShardSettings()
    mirror: Mirror = Mirror()
    api: ApiSettings = ApiSettings()
    webhooks: WebhookSettings = WebhookSettings()
    limits: DoorLimits = DoorLimits()
    jobs: JobLimits = JobLimits()

    @property
    def is_open(self) -> bool:
        """Whether anybody who can reach us may do anything."""
        return self.auth == "off" or not self.has_admin_key

    @property
    def must_be_loopback(self) -> bool:
        """Whether it is open only because nobody from outside can come in."""
        return self.auth == "on" and not self.has_admin_key

    @property
    def has_admin_key(self) -> bool:
        """Whether there is an admin key, here or in a file."""
        return bool(self.admin_key or self.admin_key_file)


_SECRETS: Final = ("admin_key", "cluster.secret", "webhooks.secrets")
_SECTIONS: Final[tuple[tuple[str, str, type[msgspec.Struct]], ...]] = (
    ("", "", Config),
    ("cluster.", "cluster", ClusterSettings),
    ("shard.", "shard", ShardSettings),
    ("mirror.", "mirror", Mirror),
    ("api.", "api", ApiSettings),
    ("webhooks.", "webhooks", WebhookSettings),
    ("limits.", "limits", DoorLimits),
    ("limits.", "jobs", JobLimits),
)
"""The keys' prefix, the field of `Config` they are kept in, and the struct with the keys."""
_GROUPS: Final = {"cluster", "shard", "mirror", "api", "webhooks", "limits"}


# Keys.


class Key(msgspec.Struct, frozen=True):
    """Something that can be set."""

    name: str
    held_in: str  # the field of `Config` whose struct has it; empty for `Config` itself
    field: str
    type: inspect.Type
    about: str  # its text, for `corvo config` and `docs/config.md`
    default: object
    unit: str  # `ms`, `s`, `bytes`, or none

    @property
    def is_secret(self) -> bool:
        """Whether its value is never shown."""
        return self.name in _SECRETS

    @property
    def variable(self) -> str:
        """What it is called in the environment."""
        return ENVIRONMENT + self.name.replace(".", "__").upper()

    @property
    def wanted(self) -> str:
        """What would do, in words."""
        match self.type:
            case inspect.LiteralType(values):
                return " or ".join(str(value) for value in values)
            case inspect.IntType():
                return self._wanted_number()
            case inspect.VarTupleType():
                return "strings with commas between them"
            case _:
                return "a string"

    @property
    def example(self) -> str:
        """How it may be written, where that is not plain."""
        return {
            "ms": "500ms, 30s or 7d",
            "s": "30s or 2m",
            "bytes": "65536, 64KiB or 8MiB",
            "": "",
        }[self.unit]

    def _wanted_number(self) -> str:
        what = {"ms": "a duration", "s": "whole seconds", "bytes": "a size", "": "a number"}
        least, most = self.bounds
        told = f"{what[self.unit]} of at least {self.show(least)}"
        return told if most == _NUMBER_MAX else f"{told} and at most {self.show(most)}"

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most that a number may be."""
        assert isinstance(self.type, inspect.IntType)
        # The limits of a shard have no bounds of their own, since a log is never measured again.
        least = self.type.ge if self.type.ge is not None else 1
        most = self.type.le if self.type.le is not None else _NUMBER_MAX
        return least, most

    def show(self, value: object) -> str:
        """A value as people write it; what is shown here is read back as the same."""
        if self.is_secret and value:
            return "***"
        if isinstance(value, tuple):
            return ",".join(str(one) for one in value)
        if isinstance(value, int) and self.unit:
            for name, factor in reversed(_UNITS[self.unit].items()):
                if value and value % factor == 0:
                    return f"{value // factor}{name}"
        return str(value)


_UNITS: Final[dict[str, dict[str, int]]] = {
    "ms": {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000},
    "s": {"s": 1, "m": 60, "h": 3_600, "d": 86_400},
    "bytes": {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
}
"""By the unit of the key: how a value may be written."""


def _unit_of(field: str) -> str:
    for unit in ("ms", "s", "bytes"):
        if re.search(rf"_{unit}(_max|_min)?$", field):
            return unit
    return ""


def _described(annotation: object) -> tuple[inspect.Type, str]:
    """The type of a setting, and its text."""
    kind = inspect.type_info(annotation)
    assert isinstance(kind, inspect.Metadata), "every setting has a description"
    extra = kind.extra_json_schema or {}
    return kind.type, str(extra["description"])


def _keys() -> Iterator[Key]:
    for prefix, held_in, struct in _SECTIONS:
        for field in msgspec.structs.fields(struct):
            if isinstance(field.default, msgspec.Struct):
                continue  # a section of its own
            kind, about = _described(field.type)
            unit = _unit_of(field.name)
            name = prefix + field.encode_name
            yield Key(name, held_in, field.name, kind, about, field.default, unit)


KEYS: Final = {key.name: key for key in _keys()}


# Sources.


class Given(msgspec.Struct, frozen=True):
    """One key as a source has it."""

    name: str
    value: object
    source: str


DEFAULT: Final = "default"

_CLIENTS: Final = re.compile(
    "CORVO_(CONFIG|URL|SERVER|API_KEY|NAMESPACE|PROFILE|OUTPUT|THEME|CHROMIUM|PERF_.*)"
)
"""Variables of ours that are no keys: where the file is, and what clients and tests read."""
_KUBERNETES: Final = re.compile(
    r"CORVO_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes puts into every pod beside a service called corvo, or corvo-something."""
_PASSWORD: Final = "CORVO_ADMIN_PASSWORD"  # noqa: S105 -- a variable's name


def given_by_file(text: str, name: str) -> list[Given]:
    """The keys in a file of TOML. Raises `ConfigRefused` when it is none."""
    try:
        return list(_flattened(tomllib.loads(text), "", name))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigRefused([f"{name} is not TOML: {error}"]) from error


def _flattened(table: Mapping[str, object], prefix: str, source: str) -> Iterator[Given]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.", source)
        else:
            yield Given(prefix + name, value, source)


def given_by_environment(environment: Mapping[str, str]) -> list[Given]:
    """The keys in the environment. A variable that is empty counts as not set."""
    given = []
    for variable in sorted(environment):
        value = environment[variable]
        if not variable.startswith(ENVIRONMENT) or not value:
            continue
        if variable == _PASSWORD:
            given.append(Given("admin_key", value, variable))
        elif variable in _VARIABLES:
            given.append(Given(_VARIABLES[variable].name, value, variable))
        elif not (_CLIENTS.fullmatch(variable) or _KUBERNETES.fullmatch(variable)):
            name = variable.removeprefix(ENVIRONMENT).replace("__", ".").lower()
            given.append(Given(name, value, variable))
    return given


_VARIABLES: Final = {key.variable: key for key in KEYS.values()}


# The whole.


class Row(msgspec.Struct, frozen=True):
    """One key as it holds: for people and programs who ask."""

    key: str
    value: object
    shown: str
    source: str
    about: str


class Resolved(msgspec.Struct, frozen=True):
    """A config, and who set what."""

    config: Config
    sources: dict[str, str]  # of each key that is not at its default

    def is_given(self, name: str) -> bool:
        """Whether anybody set it."""
        assert name in KEYS
        return name in self.sources

    def rows(self) -> list[Row]:
        """Every key with its value, secrets left out."""
        rows = []
        for key in KEYS.values():
            value = value_of(self.config, key)
            shown = key.show(value)
            kept = shown if key.is_secret else value
            rows.append(Row(key.name, kept, shown, self.sources.get(key.name, DEFAULT), key.about))
        return rows


def value_of(config: Config, key: Key) -> object:
    """What a config says to a key."""
    holder: object = getattr(config, key.held_in) if key.held_in else config
    value: object = getattr(holder, key.field)
    return value


def resolve(given: Iterable[Given]) -> Resolved:
    """The config out of what the sources give, the weakest first. Raises `ConfigRefused`."""
    problems: list[str] = []
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for one in given:
        key = KEYS.get(one.name)
        if key is None:
            problems.append(_unknown(one))
            continue
        value = read_value(key, one.value)
        if value is None:
            told = "***" if key.is_secret else _quoted(one.value)
            hint = f", such as {key.example}" if key.example else ""
            problems.append(f"{key.name} is {told} ({one.source}): expected {key.wanted}{hint}")
            continue
        is_alias = one.source == _PASSWORD and sources.get(key.name) == key.variable
        if is_alias and values[key.name] != value:
            problems.append(
                f"{key.name}: CORVO_ADMIN_KEY and {_PASSWORD} differ: set only one of them"
            )
        values[key.name] = value
        sources[key.name] = one.source
    if not problems:
        config = _assembled(values)
        problems += contradictions(config, sources)
        if not problems:
            return Resolved(config, sources)
    raise ConfigRefused(problems)


def _unknown(given: Given) -> str:
    name = given.name
    if name in _GROUPS:
        return f"{name} ({given.source}) is a group: set its settings, such as {_first_of(name)}"
    if name.partition(".")[0] in KEYS:
        return f"unknown setting {name} ({given.source}): {name.partition('.')[0]} is not a group"
    near = nearest(name, tuple(KEYS))
    is_variable = given.source.startswith(ENVIRONMENT)
    written = given.source if is_variable else f"{name} ({given.source})"
    if not near:
        return f"unknown setting {written}; `corvo config` lists all settings"
    meant = KEYS[near].variable if is_variable else near
    return f"unknown setting {written}; did you mean {meant}?"


def _first_of(group: str) -> str:
    return next(name for name in KEYS if name.startswith(f"{group}."))


def _quoted(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _assembled(values: Mapping[str, object]) -> Config:
    fields: dict[str, dict[str, object]] = {held_in: {} for _, held_in, _ in _SECTIONS}
    for name, value in values.items():
        fields[KEYS[name].held_in][KEYS[name].field] = value
    own = fields.pop("")
    # The value of each key was read as the type of its field.
    sections = {held_in: type_(**fields[held_in]) for _, held_in, type_ in _SECTIONS if held_in}
    return Config(**own, **sections)  # type: ignore[arg-type]


# Values.


def read_value(key: Key, raw: object) -> object | None:
    """A value as its key wants it; None when it cannot be."""
    match key.type:
        case inspect.IntType():
            return _number(key, raw)
        case inspect.LiteralType(values):
            return raw if isinstance(raw, str) and raw in values else None
        case inspect.VarTupleType():
            return _texts(raw)
        case inspect.StrType():
            return raw if _is_text(raw, least=key.type.min_length or 0) else None
        case _:
            raise AssertionError(f"{key.name} is of a type that nothing reads")


def _is_text(raw: object, *, least: int) -> bool:
    return isinstance(raw, str) and least <= len(raw) <= _TEXT_MAX and raw.isprintable()


def _texts(raw: object) -> tuple[str, ...] | None:
    parts: object = [part.strip() for part in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple):
        return None
    texts = tuple(part for part in parts if isinstance(part, str) and _is_text(part, least=1))
    return texts if len(texts) == len(parts) else None


def _number(key: Key, raw: object) -> int | None:
    number = raw
    if isinstance(raw, str):
        number = _amount(raw.strip(), _UNITS[key.unit]) if key.unit else _plain(raw.strip())
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    least, most = key.bounds
    return number if least <= number <= most else None


_DIGITS_MAX: Final = 20


def _plain(text: str) -> int | None:
    digits = text.replace("_", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    return int(digits) if is_number else None


def _amount(text: str, units: Mapping[str, int]) -> int | None:
    """A number with a unit, or several such as `1h30m`; a bare number is of the smallest unit."""
    if (plain := _plain(text)) is not None:
        return plain
    parts = re.findall(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([A-Za-z]+)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    if any(unit not in units for _, unit in parts):
        return None
    total = sum(Fraction(number) * units[unit] for number, unit in parts)
    return int(total) if total.denominator == 1 else None


# Addresses.


class Address(msgspec.Struct, frozen=True):
    """Where to listen; without a host, everywhere."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether nobody from another machine can come in."""
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"


def addresses(bind: str) -> tuple[Address, ...] | None:
    """The addresses in `bind`; None when it has something that is no address."""
    found = []
    for part in bind.split(","):
        matched = re.fullmatch(
            r"(\[(?P<v6>[^\[\]]+)\]|(?P<host>[^\[\]:\s]*)):(?P<port>\d{1,5})", part.strip()
        )
        if matched is None or int(matched["port"]) >= 1 << 16:
            return None
        host = matched["v6"] or matched["host"]
        found.append(Address("" if host == "*" else host, int(matched["port"])))
    return tuple(found)


# Losses that are accepted.

_LOSS: Final = re.compile(r"shard-([0-9]{1,2}):([0-9]{1,19})")


def accepted_losses(texts: Iterable[str]) -> dict[int, int]:
    """By the shard, the entry that names its loss."""
    found = [_LOSS.fullmatch(text) for text in texts]
    return {int(one[1]): int(one[2]) for one in found if one is not None}


# What cannot be true together.


def contradictions(config: Config, sources: Mapping[str, str]) -> list[str]:
    """What is wrong although each value by itself is right."""

    def told(name: str) -> str:
        return f"{name} ({sources.get(name, DEFAULT)})"

    problems = []
    listened = addresses(config.bind)
    if listened is None:
        problems.append(
            f"{told('bind')} is {_quoted(config.bind)}: expected HOST:PORT, such as"
            " 127.0.0.1:8080, [::1]:8080 or :8080"
        )
    elif config.must_be_loopback and not all(one.is_loopback for one in listened):
        problems.append(
            f"{told('bind')} is {config.bind}, which is reachable from outside, and no admin key is"
            " set: set CORVO_ADMIN_KEY (or --admin-key), or give every client full access with"
            " --auth off"
        )
    if config.auth == "off" and config.has_admin_key:
        key = "admin_key" if config.admin_key else "admin_key_file"
        problems.append(
            f"{told('auth')} is off and {told(key)} is set: the key would have no effect;"
            " remove one of the two settings"
        )
    if config.admin_key and config.admin_key_file:
        problems.append(
            f"{told('admin_key')} and {told('admin_key_file')} are set: remove one of the two"
            " settings"
        )
    if not is_header_value(config.admin_key):
        problems.append(f"{told('admin_key')} {NO_HEADER_VALUE}")
    for number, one in enumerate(config.webhooks.secrets, start=1):
        queue, equals, secret = one.partition("=")
        if not (queue and equals and len(secret) >= _SECRET_MIN):
            problems.append(
                f"{told('webhooks.secrets')}: expected QUEUE=SECRET, with a secret of at least"
                f" {_SECRET_MIN} characters, in each entry; entry {number} is another"
            )
    if bool(config.tls_cert) != bool(config.tls_key):
        missing, there = ("tls_key", "tls_cert") if config.tls_cert else ("tls_cert", "tls_key")
        problems.append(f"{told(there)} is set and {missing} is not: set both or neither")
    problems += [
        f"{told('accept_loss')} has {_quoted(text)}: expected a shard and an entry, such as"
        " shard-1:1042"
        for text in config.accept_loss
        if _LOSS.fullmatch(text) is None
    ]
    problems += [
        f"{told(f'cluster.{name}')} {wrong}"
        for name, wrong in cluster_settings.problems(config.cluster)
    ]
    return problems + _sizes(config, told("limits.op_bytes_max"), told("limits.body_bytes_max"))


NO_HEADER_VALUE: Final = (
    "has characters that an HTTP header cannot carry, or spaces at an end: use printable ASCII"
)


def is_header_value(text: str) -> bool:
    """Whether a client can send this as an API key."""
    return text.isascii() and text == text.strip()


def _sizes(config: Config, op: str, body: str) -> list[str]:
    problems = []
    jobs = config.jobs
    if jobs.op_bytes_max > OP_BYTES_MAX:
        problems.append(f"{op} is {jobs.op_bytes_max}: expected at most {OP_BYTES_MAX}")
    for name in ("payload_bytes_max", "result_bytes_max", "checkpoint_bytes_max"):
        part: int = getattr(jobs, name)
        if part > jobs.op_bytes_max:
            problems.append(
                f"limits.{name} is {part}: expected at most {jobs.op_bytes_max}, the value of {op}"
            )
    if config.limits.body_bytes_max < jobs.payload_bytes_max:
        problems.append(
            f"{body} is {config.limits.body_bytes_max}: expected at least"
            f" {jobs.payload_bytes_max}, the value of limits.payload_bytes_max"
        )
    return problems
