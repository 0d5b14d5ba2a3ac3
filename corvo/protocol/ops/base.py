"""Ops: frozen structs that are the body between processes, and the record in the log.

An op arrives as JSON and is decoded to be checked (`check`), before it may reach the log. The
replica that proposed it applies what was decoded; others decode it from the log. Its effect is
decided where it is applied: `corvo.shard.ops`. A refusal is a value, never an exception.

A number in the registry (`corvo.protocol.ops`) is never given to another op. A field is only added
with a default, and no bound is ever tightened: an old log must still be read the same.
"""

from typing import Annotated, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

NAME_BYTES_MAX: Final = 255
"""Of a queue, and of whatever else is part of a key."""


ID_BYTES_MAX: Final = 128


ITEMS_MAX: Final = 1_000
"""Jobs that one op may name: what one entry can do without holding the shard up."""


TEXT_BYTES_MAX: Final = 4_096
"""Of a reason, a worker's name and the like."""


_NO_CONTROL: Final = "^[^\\x00-\\x1f\\x7f-\\x9f]*\\Z"  # `$` would let a last line feed pass


Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]


Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_BYTES_MAX)]


Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_BYTES_MAX)]


Token: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]


Millis: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10 * 366 * 86_400_000)]
"""A duration: ten years are enough."""


Nanos: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A moment; 0 is none."""


Json: TypeAlias = msgspec.Raw | msgspec.UnsetType
"""JSON that is passed on as it came; not given is UNSET, for `null` is a value."""


class Rejected(msgspec.Struct, frozen=True):
    """A refusal. Nothing was done."""

    code: str
    """Stable; what programs look at."""
    error: str
    """For people: the thing, its state, and what to do."""
    field: str = ""
    """Where in the request, when it is the request that is wrong."""
    job_id: str = ""
    """The job that is in the way, or is meant."""
    shard: int = -1
    """Where to ask instead."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What is allowed at the door; what is in the log is never measured again."""

    payload_bytes_max: int = 1 << 20
    result_bytes_max: int = 1 << 20
    checkpoint_bytes_max: int = 1 << 20
    progress_bytes_max: int = 16 << 10
    tags_max: int = 32
    tag_bytes_max: int = 256
    error_bytes_max: int = 16 << 10
    backtrace_bytes_max: int = 64 << 10
    op_bytes_max: int = 4 << 20
    """One op as JSON: half of what an entry may have."""


def left_out(job_id: str) -> Rejected:
    """The entry changes as much as one may: this job's turn comes when it is asked for again."""
    error = f"the log's entry is full: nothing was done to job {job_id}, so send it again"
    return Rejected("entry_full", error, job_id=job_id)


class Op(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One command."""

    request_key: Annotated[str, msgspec.Meta(max_length=64, pattern=_NO_CONTROL)] = ""
    """The caller's name for this request: the same again has no second effect."""
    by: Text = ""
    """Who asks, for the trail."""

    PRIVATE: ClassVar[bool] = False
    """Whether only the leader itself may propose it."""

    def check(self, limits: Limits) -> Rejected | None:
        """What is wrong with it beside its types, before it reaches the log."""
        return None

    @property
    def is_safe_twice(self) -> bool:
        """Whether twice is as once: who does not know if it was done may then ask for it again."""
        return bool(self.request_key)

    def asked(self) -> bytes:
        """What it asks for: not who asks, and not how its JSON happened to be written."""
        return encode_json(replace(self, request_key="", by=""))


Result_co = TypeVar("Result_co", covariant=True)


class TypedOp(Op, Generic[Result_co], frozen=True, kw_only=True):
    """An op whose result is of a known type. A refusal of the whole op is always possible."""


encode_json: Final = msgspec.json.Encoder().encode


def json_bytes(value: Json, default: bytes = b"") -> bytes:
    """The client's own bytes."""
    return default if value is msgspec.UNSET else bytes(value)


def as_json(data: bytes) -> Json:
    """Stored bytes as JSON; none is not given."""
    return msgspec.Raw(data) if data else msgspec.UNSET


def too_long(field: str, value: Json, bytes_max: int) -> Rejected | None:
    """Refuse JSON that is longer than a limit."""
    if value is msgspec.UNSET or len(bytes(value)) <= bytes_max:
        return None
    return Rejected("payload_too_large", f"{field} has more than {bytes_max} bytes", field=field)
