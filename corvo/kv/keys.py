"""Every key space of a shard's state, declared once.

A key is a prefix that ends in `|`, then fields: text that ends at a zero byte, big-endian numbers,
and last, sometimes, text that runs to the end. So bytewise order is the order of the fields, and
no key of one space is a prefix of another's. A prefix once used is never given another meaning.

`SPACES` is the registry; `docs/formats.md` shows it. `Space.build` and `Space.parse` are derived
from the layout. What the hot paths build by hand, in `corvo.shard.state.tables`, is tested against
them.
"""

from enum import Enum
from typing import Final, TypeAlias

import msgspec

from corvo.errors import BadKey

Value: TypeAlias = str | int | bytes


class Kind(Enum):
    """What a field of a key is, and how it is written."""

    TEXT = "text that ends with a zero byte"
    TAIL = "text that runs to the end"
    U8 = "one byte"
    U32 = "four bytes, big-endian"
    U64 = "eight bytes, big-endian"


_WIDTHS: Final = {Kind.U8: 1, Kind.U32: 4, Kind.U64: 8}


class Field(msgspec.Struct, frozen=True):
    """One part of a key."""

    name: str
    kind: Kind


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of key."""

    name: str
    prefix: bytes
    layout: str
    """As it is written in the documents: `p|{queue}\\x00{priority:1B}{created_ns:8BE}{jobID}`."""
    value: str
    owner: str  # which module decides what is there

    @property
    def fields(self) -> tuple[Field, ...]:
        """The parts, as `layout` says."""
        return _fields(self.layout)

    def build(self, *values: Value) -> bytes:
        """The key of these fields. Raises `BadKey` where one would break the layout."""
        fields = self.fields
        if len(values) != len(fields):
            raise BadKey(f"a key of {self.name} has {len(fields)} fields, not {len(values)}")
        parts = [_write(field, value) for field, value in zip(fields, values, strict=True)]
        return self.prefix + b"".join(parts)

    def parse(self, key: bytes) -> tuple[Value, ...]:
        """The fields of a key. Raises `BadKey` when it is not one of this space."""
        if not key.startswith(self.prefix):
            raise BadKey(f"{key!r} is not a key of {self.name}")
        rest = key[len(self.prefix) :]
        values: list[Value] = []
        for field in self.fields:
            value, rest = _read(field, rest)
            values.append(value)
        if rest:
            raise BadKey(f"{key!r} has {len(rest)} bytes too many for {self.name}")
        return tuple(values)


def _fields(layout: str) -> tuple[Field, ...]:
    _, _, rest = layout.partition("|")
    fields = []
    while rest:
        name, _, after = rest.removeprefix("{").partition("}")
        name, _, width = name.partition(":")
        if width:
            kind = {"1B": Kind.U8, "4BE": Kind.U32, "8BE": Kind.U64}[width]
        elif after.startswith("\\x00"):
            kind, after = Kind.TEXT, after.removeprefix("\\x00")
        else:
            assert not after, "only the last field may run to the end"
            kind = Kind.TAIL
        fields.append(Field(name, kind))
        rest = after
    return tuple(fields)


def _write(field: Field, value: Value) -> bytes:
    if field.kind in {Kind.TEXT, Kind.TAIL}:
        if not isinstance(value, str):
            raise BadKey(f"{field.name} is text")
        check_name(field.name, value)
        text = value.encode()
        return text + b"\0" if field.kind is Kind.TEXT else text
    width = _WIDTHS[field.kind]
    if not isinstance(value, int) or not 0 <= value < 1 << (8 * width):
        raise BadKey(f"{field.name} is a number of {width} bytes, not {value!r}")
    return value.to_bytes(width, "big")


def _read(field: Field, rest: bytes) -> tuple[Value, bytes]:
    if field.kind is Kind.TAIL:
        return _decode(field, rest), b""
    if field.kind is Kind.TEXT:
        text, zero, rest = rest.partition(b"\0")
        if not zero:
            raise BadKey(f"{field.name} does not end")
        return _decode(field, text), rest
    width = _WIDTHS[field.kind]
    if len(rest) < width:
        raise BadKey(f"{field.name} is cut short")
    return int.from_bytes(rest[:width], "big"), rest[width:]


def _decode(field: Field, text: bytes) -> str:
    try:
        value = text.decode()
    except UnicodeDecodeError as error:
        raise BadKey(f"{field.name} is not UTF-8") from error
    check_name(field.name, value)
    return value


def check_name(what: str, name: str) -> None:
    """Raise `BadKey` for a name that cannot be part of a key."""
    if not name:
        raise BadKey(f"{what} is empty")
    if "\0" in name:
        raise BadKey(f"{what} has a zero byte in it")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise BadKey(f"{what} is not text: it has half of a surrogate pair") from error


def prefix_end(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`."""
    assert prefix[-1] < 0xFF, "prefixes end with a separator or a small number"
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def unique_value(job_id: str, expires_ns: int) -> bytes:
    """The value of a unique lock."""
    return b"%b|%b" % (job_id.encode(), expires_ns.to_bytes(8, "big"))


def parse_unique_value(value: bytes) -> tuple[str, int]:
    """Who holds a unique lock, and until when."""
    if len(value) < 10 or value[-9:-8] != b"|":
        raise BadKey(f"{value!r} is not the value of a unique lock")
    return _decode(Field("jobid", Kind.TAIL), value[:-9]), int.from_bytes(value[-8:], "big")


def _space(name: str, layout: str, value: str = "empty", *, owner: str = "shard.tables") -> Space:
    prefix = layout.partition("|")[0].encode() + b"|"
    space = Space(name=name, prefix=prefix, layout=layout, value=value, owner=owner)
    _spaces.append(space)
    return space


_spaces: Final[list[Space]] = []
_PLANNED: Final = "planned"
"""Owner of a space that waits for its feature: nothing writes it yet."""

# The twenty spaces of the original, byte for byte.

JOB: Final = _space("job", "j|{jobID}", "msgpack: model.Job")
JOB_ERROR: Final = _space(
    "job error",
    "je|{jobID}\\x00{attempt:4BE}",
    "JSON: model.JobError; numbered by failure, for a retry begins attempts again",
)
PENDING: Final = _space("pending, urgent", "p|{queue}\\x00{priority:1B}{created_ns:8BE}{jobID}")
ACTIVE: Final = _space(
    "active", "a|{queue}\\x00{jobID}", "the lease's end in ns, 8 bytes big-endian"
)
SCHEDULED: Final = _space("scheduled", "s|{queue}\\x00{scheduled_ns:8BE}{jobID}")
RETRYING: Final = _space("retrying", "r|{queue}\\x00{retry_ns:8BE}{jobID}")
QUEUE_APPEND: Final = _space("pending, normal", "qa|{queue}\\x00{created_ns:8BE}{jobID}")
QUEUE_CURSOR: Final = _space(
    "cursor",
    "qac|{queue}",
    "a qa| key: none of the queue is smaller, so a scan may begin there",
    owner="kv.heads",
)
QUEUE_CONFIG: Final = _space("queue", "qc|{queue}", "JSON: model.Queue")
QUEUE_NAME: Final = _space("queue name", "qn|{queue}")
UNIQUE: Final = _space(
    "unique lock",
    "u|{queue}\\x00{unique_key}",
    "jobid|expires_ns: the id, a bar, 8 bytes big-endian",
)
RATE_LIMIT: Final = _space(
    "rate limit window",
    "l|{queue}\\x00{fetched_ns:8BE}{random:8BE}",
    "empty; `random` is a place taken in the entry, for chance would differ between replicas",
    owner="shard.limits",
)
BATCH: Final = _space("batch", "b|{batchID}", "JSON: model.Batch")
WORKER: Final = _space("worker", "w|{workerID}", "JSON: model.Worker")
SCHEDULE: Final = _space("schedule", "sc|{scheduleID}", "JSON: model.Schedule")
EVENT: Final = _space(
    "event log",
    "ev|{seq:8BE}",
    "msgpack: kv.feed.Row; what the log's entry `seq` changed, and what happened in it",
    owner="kv.feed",
)
EVENT_CURSOR: Final = _space(
    "event log's begin",
    "evc|",
    "msgpack: kv.feed.Begin; the last entry of which there is no row any more",
    owner="kv.feed",
)
BUDGET: Final = _space("budget", "bg|{scope}\\x00{target}", "JSON; planned", owner=_PLANNED)
PROVIDER: Final = _space("provider", "pv|{name}", "JSON; planned", owner=_PLANNED)
QUEUE_PROVIDER: Final = _space(
    "provider of a queue", "qp|{queue}", "the provider's name; planned", owner=_PLANNED
)

# Ours.

TIMER: Final = _space(
    "timer",
    "t|{kind:1B}{due_ns:8BE}{id}",
    "empty; what has to be looked at then, by `shard.tables.Timer`",
)
FINISHED: Final = _space(
    "finished",
    "f|{queue}\\x00{finished_ns:8BE}{jobID}",
    "empty; completed, dead and cancelled jobs, until retention ends",
)
HELD: Final = _space("held", "h|{queue}\\x00{held_ns:8BE}{jobID}")
BLOCKED: Final = _space(
    "blocked", "bl|{queue}\\x00{created_ns:8BE}{jobID}", "empty; pending jobs that wait for others"
)
DEPENDENT: Final = _space("dependent", "dp|{awaitedID}\\x00{jobID}", "empty; who waits for a job")
COUNTS: Final = _space(
    "counts",
    "qs|{queue}",
    "msgpack: jobs of the queue by state, in the order of model.State",
    owner="kv.tables",
)
THROUGHPUT: Final = _space(
    "throughput",
    "tp|{queue}\\x00{slot:1B}",
    "msgpack: model.Throughput; a ring, `slot` is the minute modulo 64",
    owner="shard.throughput",
)
REQUEST: Final = _space("request key", "rk|{request_key}", "msgpack: model.Request")
OUTBOX: Final = _space(
    "outbox", "ob|{shard:4BE}{seq:8BE}", "msgpack: model.Outgoing", owner="shard.outbox"
)
INBOX: Final = _space(
    "inbox",
    "ib|{source:4BE}",
    "the last number taken from that shard, 8 bytes big-endian",
    owner="shard.outbox",
)
FORWARD: Final = _space(
    "forwarding address",
    "fw|{jobID}",
    "msgpack: model.Forward; where a job of this shard has moved",
)
WATCHER: Final = _space(
    "watcher",
    "dw|{jobID}\\x00{shard:4BE}",
    "empty; which other shard must learn how a job of this one ends",
    owner="shard.dependencies",
)
WATCHED: Final = _space(
    "watched",
    "dx|{jobID}",
    "empty, or until when that is waited for (8 bytes) and 1 if the job does not exist yet; the "
    "home of this job was asked, and has not answered yet, how it ends",
    owner="shard.dependencies",
)
ENDING: Final = _space(
    "ending",
    "de|{jobID}",
    "msgpack: model.Ending; how a job ended, while some that waited have no answer; or a job that "
    "does not exist yet, and until when it is waited for",
)
API_KEY: Final = _space(
    "API key", "ak|{key_hash}", "JSON: model.ApiKey; in shard 0 alone, and never the key itself"
)
META: Final = _space(
    "meta",
    "m|{name}",
    "msgpack: what there is one of in a shard; `applied` is kv.tables.Meta",
    owner="kv.tables",
)

SPACES: Final = tuple(_spaces)
"""The registry, in the order of declaration."""
