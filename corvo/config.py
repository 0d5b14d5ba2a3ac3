"""The one config of a node: every key, its default and meaning, who set it, and what is refused.

A later source beats an earlier one: defaults, the file, the environment, the flags. Sources are
handed in as values; `corvo.commands` has the doors to them. A name follows from the key: `limits.
idle_ms` is a line of the table `[limits]` in the file, `CORVO_LIMITS__IDLE_MS` in the environment
and `--set limits.idle_ms=75s` among the flags. Nothing is passed over: a key that is not known, or
a value that cannot work, is refused at the start, with the key, the source and what would do.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from ipaddress import ip_address
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import inspect

from corvo.errors import CorvoError
from corvo.protocol.ops.base import Limits as JobLimits
from corvo.router.config import Limits as DoorLimits
from corvo.shard.config import OP_BYTES_MAX

ENVIRONMENT: Final = "CORVO_"
SHARDS_MAX: Final = 64
"""A process each: more than that is another machine's work."""
_NUMBER_MAX: Final = (1 << 53) - 1
"""What every reader of JSON keeps exact."""
_TEXT_MAX: Final = 4_096
_DAY_MS: Final = 86_400_000

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class ConfigRefused(CorvoError):
    """The config cannot work; `problems` has a sentence for each key."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: Final = tuple(problems)
        super().__init__("; ".join(self.problems))


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """How the shards work: `corvo.shard.config.ShardConfig` has the same names and defaults."""

    tick_ms: Count = 100
    election_ticks: Annotated[int, msgspec.Meta(ge=2)] = 15
    grace_ms: Amount = 5_000
    segment_bytes: Annotated[int, msgspec.Meta(ge=1 << 10)] = 64 << 20
    ballast_bytes: Amount = 0
    checkpoint_bytes: Count = 128 << 20
    checkpoint_entries: Count = 200_000
    keep_entries: Amount = 10_000
    feed_bytes: Count = 256 << 20
    room_bytes_min: Amount = 64 << 20


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """How the mirror works: `corvo.mirror.config.MirrorConfig` has the same names and defaults."""

    enabled: Literal["on", "off"] = "on"
    readers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    questions_max: Count = 64
    pause_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 50
    wal_bytes_max: Annotated[int, msgspec.Meta(ge=1 << 20)] = 256 << 20
    room_bytes_min: Amount = 128 << 20
    niceness: Annotated[int, msgspec.Meta(ge=0, le=19)] = 10


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What one node was told."""

    data_dir: Annotated[str, msgspec.Meta(min_length=1)] = "data"
    bind: Annotated[str, msgspec.Meta(min_length=1)] = "127.0.0.1:8080"
    node: Count = 1
    shards: Annotated[int, msgspec.Meta(ge=1, le=SHARDS_MAX)] = 4
    durability: Literal["sync", "relaxed"] = "sync"
    retention_ms: Amount = msgspec.field(default=7 * _DAY_MS, name="retention")
    auth: Literal["on", "off"] = "on"
    admin_key: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    cors_origins: tuple[str, ...] = ()
    log_format: Literal["auto", "text", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_ms: Annotated[int, msgspec.Meta(ge=1, le=600_000)] = 1_500
    shard: Shard = Shard()
    mirror: Mirror = Mirror()
    limits: DoorLimits = DoorLimits()
    jobs: JobLimits = JobLimits()

    @property
    def is_open(self) -> bool:
        """Whether anybody who can reach us may do anything."""
        return self.auth == "off" or not self.admin_key

    @property
    def must_be_loopback(self) -> bool:
        """Whether it is open only because nobody from outside can come in."""
        return self.auth == "on" and not self.admin_key


ABOUT: Final = {
    "data_dir": "directory for all data; created, readable by this user only, if it does not exist",
    "bind": "addresses and ports to listen on: HOST:PORT, several with commas between them; without"
    " HOST, all addresses",
    "node": "number of this node in its cluster",
    "shards": "number of processes that share the queues; cannot be changed after the first start",
    "durability": "`sync`: a job is on disk before it is confirmed; `relaxed`: it is on disk within"
    " half a second",
    "retention": "time that finished jobs are kept",
    "auth": "`on`: requests need an API key, once one exists; `off`: every client has full access",
    "admin_key": "API key with full access; `CORVO_ADMIN_PASSWORD` is the same setting",
    "tls_cert": "file with the TLS certificate and its chain, in PEM; needs `tls_key`",
    "tls_key": "file with the private key of the TLS certificate, in PEM",
    "cors_origins": "origins of web pages that may call the API, such as https://ops.example;"
    " `*` is any origin",
    "log_format": "`auto`: text on a terminal, JSON lines otherwise",
    "log_level": "lowest level that is logged",
    "drain_ms": "time that running requests have to end when the node stops",
    "shard.tick_ms": "interval of a shard's Raft clock",
    "shard.election_ticks": "ticks without a message of the leader, after which an election starts",
    "shard.grace_ms": "after a start or change of leader, no lease expires for this long",
    "shard.segment_bytes": "size of one log file",
    "shard.ballast_bytes": "disk space that is reserved, and freed when the disk is full",
    "shard.checkpoint_bytes": "bytes of log after which a checkpoint is made",
    "shard.checkpoint_entries": "log entries after which a checkpoint is made",
    "shard.keep_entries": "log entries that are kept before a checkpoint, for slow replicas",
    "shard.feed_bytes": "size of the list of changes that is kept for the mirror and for events",
    "shard.room_bytes_min": "free disk space below which new jobs are rejected",
    "mirror.enabled": "`off`: no search, no bulk operations by filter, no rates",
    "mirror.readers": "searches that run at the same time",
    "mirror.questions_max": "searches that run or wait; more are rejected",
    "mirror.pause_ms": "time that changes are collected before they are written",
    "mirror.wal_bytes_max": "size of SQLite's write-ahead log above which new searches wait until"
    " it is emptied",
    "mirror.room_bytes_min": "free disk space below which the mirror stops writing",
    "mirror.niceness": "nice value of the mirror's process: 0 is normal, 19 the lowest priority",
    "limits.body_bytes_max": "size of a request's body",
    "limits.bodies_bytes_max": "size of all bodies together that are being received",
    "limits.header_bytes_max": "size of a request's line and headers together",
    "limits.headers_max": "number of headers in a request",
    "limits.connections_max": "open connections; above it, an idle or slow one is closed",
    "limits.idle_ms": "time that a connection may be idle between two requests",
    "limits.header_ms": "time from the first byte of a request to the end of its headers",
    "limits.body_grace_ms": "time before the minimum upload speed (`limits.body_rate_min`) is"
    " enforced",
    "limits.body_rate_min": "minimum upload speed of a body, in bytes a second",
    "limits.send_ms": "time that an answer waits for a client that does not read it",
    "limits.in_flight_max": "requests that are answered at the same time, without waiting fetches",
    "limits.parked_max": "fetches that wait for a job at the same time",
    "limits.fetch_wait_s_max": "time that a fetch may wait for a job",
    "limits.batch_jobs_max": "jobs in one `enqueue/batch`",
    "limits.leader_wait_ms": "time that a request waits for a shard that has no leader",
    "limits.search_ms_max": "time that a search may take; then it answers with what it has found",
    "limits.listeners_max": "clients that follow events at the same time",
    "limits.streams_max": "open streams (`/api/v1/stream`)",
    "limits.stream_frames_max": "frames of one stream that are answered at the same time",
    "limits.read_rate": "reading requests of one client in a second; 0 is no limit",
    "limits.read_burst": "reading requests that one client may send at once",
    "limits.write_rate": "changing requests of one client in a second; 0 is no limit",
    "limits.write_burst": "changing requests that one client may send at once",
    "limits.payload_bytes_max": "size of a job's payload",
    "limits.result_bytes_max": "size of a job's result",
    "limits.checkpoint_bytes_max": "size of a job's checkpoint",
    "limits.progress_bytes_max": "size of a job's progress",
    "limits.tags_max": "number of tags of a job",
    "limits.tag_bytes_max": "size of a tag's name, and of its value",
    "limits.error_bytes_max": "size of an error message; a longer one is cut",
    "limits.backtrace_bytes_max": "size of a stack trace; a longer one is cut",
    "limits.op_bytes_max": "size of one operation in a shard's log",
}
"""The text of each setting, for `corvo config` and `docs/config.md`."""

_SECRETS: Final = ("admin_key",)
_SECTIONS: Final[tuple[tuple[str, str, type[msgspec.Struct]], ...]] = (
    ("", "", Config),
    ("shard.", "shard", Shard),
    ("mirror.", "mirror", Mirror),
    ("limits.", "limits", DoorLimits),
    ("limits.", "jobs", JobLimits),
)
"""The keys' prefix, the field of `Config` they are kept in, and the struct with the keys."""
_GROUPS: Final = {"shard", "mirror", "limits"}


# Keys.


class Key(msgspec.Struct, frozen=True):
    """Something that can be set."""

    name: str
    held_in: str
    """The field of `Config` whose struct has it; empty for `Config` itself."""
    field: str
    type: inspect.Type
    default: object
    unit: str
    """`ms`, `s`, `bytes`, or none."""

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
            "ms": "500ms, 30s or 168h",
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
    "ms": {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000},
    "s": {"s": 1, "m": 60, "h": 3_600},
    "bytes": {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
}
"""By the unit of the key: how a value may be written."""


def _unit_of(field: str) -> str:
    for unit in ("ms", "s", "bytes"):
        if re.search(rf"_{unit}(_max|_min)?$", field):
            return unit
    return ""


def _keys() -> Iterator[Key]:
    for prefix, held_in, struct in _SECTIONS:
        for field in msgspec.structs.fields(struct):
            if isinstance(field.default, msgspec.Struct):
                continue  # a section of its own
            kind = inspect.type_info(field.type)
            unit = _unit_of(field.name)
            name = prefix + field.encode_name
            yield Key(name, held_in, field.name, kind, field.default, unit)


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
    sources: dict[str, str]
    """Of each key that is not at its default."""

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
            rows.append(Row(key.name, kept, shown, self.sources.get(key.name, DEFAULT), about(key)))
        return rows


def about(key: Key) -> str:
    """What a key means."""
    return ABOUT[key.name]


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
    near = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.5)
    is_variable = given.source.startswith(ENVIRONMENT)
    written = given.source if is_variable else f"{name} ({given.source})"
    if not near:
        return f"unknown setting {written}; `corvo config` lists all settings"
    meant = KEYS[near[0]].variable if is_variable else near[0]
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
    defaults = Config()
    # The value of each key was read as the type of its field.
    shard = msgspec.structs.replace(defaults.shard, **fields["shard"])  # type: ignore[arg-type]
    mirror = msgspec.structs.replace(defaults.mirror, **fields["mirror"])  # type: ignore[arg-type]
    limits = msgspec.structs.replace(defaults.limits, **fields["limits"])  # type: ignore[arg-type]
    jobs = msgspec.structs.replace(defaults.jobs, **fields["jobs"])  # type: ignore[arg-type]
    changed = {**fields[""], "shard": shard, "mirror": mirror, "limits": limits, "jobs": jobs}
    return msgspec.structs.replace(defaults, **changed)  # type: ignore[arg-type]


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
    if config.auth == "off" and config.admin_key:
        problems.append(
            f"{told('auth')} is off and {told('admin_key')} is set: the key would have no effect;"
            " remove one of the two settings"
        )
    if not config.admin_key.isascii() or config.admin_key != config.admin_key.strip():
        problems.append(
            f"{told('admin_key')} has characters that an HTTP header cannot carry, or spaces at an"
            " end: use printable ASCII"
        )
    if bool(config.tls_cert) != bool(config.tls_key):
        missing, there = ("tls_key", "tls_cert") if config.tls_cert else ("tls_cert", "tls_key")
        problems.append(f"{told(there)} is set and {missing} is not: set both or neither")
    return problems + _sizes(config, told("limits.op_bytes_max"), told("limits.body_bytes_max"))


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
