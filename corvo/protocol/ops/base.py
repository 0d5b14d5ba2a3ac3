"""Ops: frozen structs that are the body between processes, and the record in the log.

An op arrives as JSON and is decoded to be checked (`check`), before it may reach the log. The
replica that proposed it applies what was decoded; others decode it from the log. Its effect is
decided where it is applied: `corvo.shard.ops`. A refusal is a value, never an exception.

A number in the registry (`corvo.protocol.ops`) is never given to another op. A field is only added
with a default, and no bound is ever tightened: an old log must still be read the same.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

NAME_BYTES_MAX: Final = 255
"""Largest name of a queue, or of anything else that is part of a stored key."""

OWN_ID_BYTES_MAX: Final = 128
"""Largest id that a client chooses."""

ID_BYTES_MAX: Final = NAME_BYTES_MAX + 1 + OWN_ID_BYTES_MAX
"""Largest id of a job: of its queue and the id that the client chose."""

ITEMS_MAX: Final = 1_000
"""Largest number of jobs in one op, which one entry applies without delaying the shard."""

TEXT_BYTES_MAX: Final = 4_096
"""Largest reason, worker's name and the like."""

_NO_CONTROL: Final = "^[^\\x00-\\x1f\\x7f-\\x9f]*\\Z"  # `$` would let a last line feed pass
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_BYTES_MAX)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_BYTES_MAX)]
Token: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]

Millis: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10 * 366 * 86_400_000)]
"""A duration, up to ten years."""

Nanos: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A time in nanoseconds; 0 means not set."""

Json: TypeAlias = msgspec.Raw | msgspec.UnsetType
"""JSON as the client sent it; UNSET if it was not sent, because `null` is a value."""


class Rejected(msgspec.Struct, frozen=True):
    """A refusal: nothing was changed."""

    code: str  # a stable code, for programs
    error: str
    """A text for people: the thing, its state, and the fix. A refusal is kept with its request key,
    so a change of a text changes the digest of the state."""
    field: str = ""  # the invalid field of the request, if there is one
    job_id: str = ""  # the job that the refusal is about
    shard: int = -1  # the shard that can apply it


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that are checked before an op reaches the log, and never after.

    Each is declared once: `corvo.config` shows them as `limits.NAME`.
    """

    payload_bytes_max: Annotated[int, Meta(description="size of a job's payload")] = 1 << 20
    result_bytes_max: Annotated[int, Meta(description="size of a job's result")] = 1 << 20
    checkpoint_bytes_max: Annotated[int, Meta(description="size of a job's checkpoint")] = 1 << 20
    progress_bytes_max: Annotated[int, Meta(description="size of a job's progress")] = 16 << 10
    tags_max: Annotated[int, Meta(description="number of tags of a job")] = 32
    tag_bytes_max: Annotated[int, Meta(description="size of a tag's name, and of its value")] = 256
    error_bytes_max: Annotated[
        int, Meta(description="size of an error message; a longer one is cut")
    ] = 16 << 10
    backtrace_bytes_max: Annotated[
        int, Meta(description="size of a stack trace; a longer one is cut")
    ] = 64 << 10
    op_bytes_max: Annotated[int, Meta(description="size of one operation in a shard's log")] = (
        4 << 20
    )


def bad_request(field: str, error: str) -> Rejected:
    """Refusal: a field of the request is invalid."""
    return Rejected("bad_request", error, field=field)


def left_out(job_id: str) -> Rejected:
    """Refusal: the entry is full; the job is changed when the client asks again."""
    error = f"the log's entry is full: nothing was done to job {job_id}, so send it again"
    return Rejected("entry_full", error, job_id=job_id)


class Op(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An op: a command to a shard."""

    request_key: Annotated[str, msgspec.Meta(max_length=64, pattern=_NO_CONTROL)] = ""
    """Request key of the caller: a repeated request has no second effect."""
    earlier_key: Annotated[str, msgspec.Meta(max_length=64, pattern=_NO_CONTROL)] = ""
    """The request key that the same request had before version 2 of the ops."""
    part_of: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Digest of all that the request key is for, if this op has only a part of it."""
    by: Text = ""  # name of the caller, for the trail

    NUMBER: ClassVar[int] = 0
    """What it is in the log; never given to another op."""

    PRIVATE: ClassVar[bool] = False  # whether only the leader itself may propose it

    SINCE: ClassVar[int] = 1
    """The op version that it came with: see `corvo.protocol.versions`."""
    FIELDS_SINCE: ClassVar[Mapping[str, int]] = {}
    """The op versions of fields that came later."""

    def check(self, limits: Limits) -> Rejected | None:
        """The refusal of an invalid op, before it reaches the log."""
        return None

    @property
    def is_safe_twice(self) -> bool:
        """Whether applying it twice is like once: then a caller without an answer may repeat it."""
        return bool(self.request_key)

    def asked(self) -> bytes:
        """Its content without the caller, independent of how its JSON was written."""
        return encode_json(replace(self, request_key="", earlier_key="", by=""))


Result_co = TypeVar("Result_co", covariant=True)


class TypedOp(Op, Generic[Result_co], frozen=True, kw_only=True):
    """An op whose result is of a known type. A refusal of the whole op is always possible."""


encode_json: Final = msgspec.json.Encoder().encode


def json_bytes(value: Json, default: bytes = b"") -> bytes:
    """The client's own bytes."""
    return default if value is msgspec.UNSET else bytes(value)


def as_json(data: bytes) -> Json:
    """Stored bytes as JSON; UNSET if they are empty."""
    return msgspec.Raw(data) if data else msgspec.UNSET
