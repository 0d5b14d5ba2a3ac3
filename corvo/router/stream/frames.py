"""The frames of a stream: a client's frame, the reply to it, and both as JSON and msgpack.

The two formats have the same fields. Where JSON has JSON of the client's own (a payload, a result,
a checkpoint, progress), msgpack has the text of that JSON as `bin`: what was sent in one format can
be fetched in the other, and nothing is written anew. See `docs/stream.md`.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from corvo.errors import CorvoError
from corvo.protocol.ops.base import Json, Millis, Name, Text
from corvo.protocol.ops.work import FETCH_MAX, LEASE_MS, LEASE_MS_MIN, QUEUES_MAX
from corvo.router.enqueue.bodies import BatchedJob, ChainBody, EnqueueItem, StepBody
from corvo.router.http.bodies import MALFORMED, REQUEST_KEY_MAX, bad_body
from corvo.router.http.messages import (
    FieldWarning,
    Problem,
    ProblemBody,
    Request,
    bad_field,
    encode_json,
    problem_body,
)
from corvo.router.http.unknown_fields import (
    JSON,
    LOOK_BYTES_MAX,
    MSGPACK,
    first_of,
    form_of,
    twin_of,
    warn,
)
from corvo.router.leases.fetch import LEASE_S_MAX, FetchedJob, span_ms
from corvo.router.leases.verbs import VERBS, FrameItems, LeaseFrame, LeaseReply


class Incoming(NamedTuple):
    """A message that was read."""

    frame: "Frame | Reply"
    """The client's frame; or what to answer, when it is not as a frame should be."""
    warnings: tuple[FieldWarning, ...] = ()
    """The first fields of it that have no effect."""
    ignored: int = 0
    """Number of fields without effect."""


class Unreadable(CorvoError):
    """A message that is no frame, so that nobody knows what to answer."""


# Frames.


class FetchPart(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs are wanted from, and how many."""

    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=QUEUES_MAX)]
    """Served in this order."""
    count: Annotated[int, msgspec.Meta(ge=1, le=FETCH_MAX)] = 1
    wait_seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    wait_ms: Millis | None = None
    """How long to wait when there is none; so long the whole frame is not answered."""
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=LEASE_S_MAX)] | None = None
    lease_ms: Annotated[int, msgspec.Meta(ge=LEASE_MS_MIN, le=LEASE_S_MAX * 1_000)] | None = None
    worker_id: Annotated[str, msgspec.Meta(max_length=255)] = ""
    hostname: Text = ""

    def __post_init__(self) -> None:
        try:
            self.waits_ms, self.leases_ms  # noqa: B018 -- each raises where its two spellings differ
        except Problem as problem:
            raise ValueError(problem.error) from None

    @property
    def waits_ms(self) -> int:
        """How long to wait, in milliseconds."""
        return span_ms("wait", self.wait_seconds, self.wait_ms) or 0

    @property
    def leases_ms(self) -> int:
        """The length of the lease, in milliseconds."""
        return span_ms("lease", self.lease_seconds, self.lease_ms) or LEASE_MS


class Frame(LeaseFrame, frozen=True, kw_only=True):
    """A client's frame. Operations under leases are done first, then enqueues, then the fetch."""

    enqueues: FrameItems[EnqueueItem] = msgspec.field(default_factory=list)
    fetch: FetchPart | None = None
    request_key: Annotated[
        str, msgspec.Meta(max_length=REQUEST_KEY_MAX, pattern="^[\\x20-\\x7e]*$")
    ] = ""
    """The same frame again, under the same key, enqueues nothing twice."""


class _FrameId(msgspec.Struct):
    """All that is read of a frame that cannot be read whole."""

    id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


# Replies.


class Reply(LeaseReply, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a frame: a list of results for each part that it had."""

    enqueued: list[BatchedJob] | None = None
    jobs: list[FetchedJob] | None = None
    error: ProblemBody | None = None
    """Why nothing of the frame was done."""
    fetch_error: ProblemBody | None = None
    """Why nothing was fetched."""
    seq: str = ""
    """How far the shards have come: see `corvo.router.http.positions`."""
    warnings: tuple[FieldWarning, ...] = ()
    """Fields of the frame that had no effect."""


def refuse(frame_id: int, problem: Problem) -> Reply:
    """The answer to a frame of which nothing was done."""
    return Reply(id=frame_id, error=problem_body(problem))


# Formats: JSON in text messages, msgpack in binary ones.


def decode(message: bytes | str, *, is_strict: bool = False) -> Incoming:
    """A client's message; `is_strict` refuses unknown fields. Raises `Unreadable`."""
    noted = Request(method="", path="", is_strict=is_strict)
    frame: Frame | Reply
    try:
        frame = _decode(message, noted)
    except Problem as problem:
        frame = _refuse(message, problem)
    except msgspec.ValidationError as error:
        frame = _refuse(message, bad_body(error, Frame))
    except MALFORMED as error:
        raise _unreadable(error) from None
    return Incoming(frame, noted.warnings, noted.ignored)


def _decode(message: bytes | str, noted: Request) -> Frame:
    try:
        if isinstance(message, str):
            known: Frame = _decode_known_text(message)
            return known
        return _unwrapped(_decode_known_packed(message))
    except MALFORMED as error:
        if len(message) > LOOK_BYTES_MAX:
            if isinstance(message, str):
                frame: Frame = _decode_text(message)
            else:
                frame = _unwrapped(_decode_packed(message))
            warn(noted, first_of(str(error)))
            return frame
        # A frame with a field that is unknown or not stored, or none at all.
        if isinstance(message, str):
            warn(noted, list(_FORM.look(message.lstrip().encode(), JSON)))
            return _decode_text(message)
        warn(noted, list(_FORM.look(message, MSGPACK)))
        return _unwrapped(_decode_packed(message))


def encode(reply: Reply, *, is_text: bool) -> bytes | str:
    """An answer, in the format of its question. Not twice: the reply is used up."""
    return encode_json(reply).decode() if is_text else _pack(reply)


def _refuse(message: bytes | str, problem: Problem) -> Reply:
    try:
        if isinstance(message, str):
            return refuse(_decode_text_id(message).id, problem)
        return refuse(_decode_packed_id(message).id, problem)
    except msgspec.ValidationError as error:
        raise Unreadable(f"no frame: {bad_body(error, _FrameId).error}") from None
    except MALFORMED as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> Unreadable:
    what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return Unreadable(f"no frame: {what}")


_FORM: Final = form_of(Frame)
_decode_text: Final = msgspec.json.Decoder(Frame).decode
_decode_known_text: Final = msgspec.json.Decoder(twin_of(Frame)).decode
_decode_text_id: Final = msgspec.json.Decoder(_FrameId).decode


# Msgpack: the client's own JSON travels as `bin`.

_decode_packed: Final = msgspec.msgpack.Decoder(Frame).decode
_decode_known_packed: Final = msgspec.msgpack.Decoder(twin_of(Frame)).decode
_decode_packed_id: Final = msgspec.msgpack.Decoder(_FrameId).decode
_encode_packed: Final = msgspec.msgpack.Encoder().encode
_encode_bin: Final[Callable[[bytes], bytes]] = msgspec.msgpack.Encoder().encode
_read_json: Final = msgspec.json.Decoder(msgspec.Raw).decode
_set: Final = msgspec.structs.force_setattr

_HEADER_BYTES: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}
"""Before the bytes of a `bin` of each kind."""
_NIL: Final = 0xC0


def _unwrapped(frame: Frame) -> Frame:
    for verb, names in _JSON_FIELDS:
        for number, entry in enumerate(getattr(frame, verb.part)):
            _unwrap(entry, names, verb.part, number)
    for number, item in enumerate(frame.enqueues):
        _unwrap(item, ("payload", "checkpoint", "chain_config"), "enqueues", number)
        if item.chain is not None:
            for step in _steps(item.chain):
                _unwrap(step, ("payload",), "enqueues", number, "chain.")
    return frame


_JSON_FIELDS: Final = [
    (verb, [each.name for each in msgspec.structs.fields(verb.entry) if each.type == Json])
    for verb in VERBS
]
"""The fields of each operation's entries that have JSON of the client's own."""


def _steps(chain: ChainBody) -> list[StepBody]:
    others = (chain.on_failure, chain.on_exit)
    return [*chain.steps, *(step for step in others if isinstance(step, StepBody))]


def _unwrap(
    item: msgspec.Struct, names: Sequence[str], part: str, number: int, where: str = ""
) -> None:
    """Have JSON as it stands in JSON.

    It is pasted into ops as it is, so it has to be JSON indeed, and one value of it.
    """
    for name in names:
        packed: Json = getattr(item, name)
        if packed is msgspec.UNSET:
            continue
        view = memoryview(packed)
        if view[0] == _NIL:
            _set(item, name, msgspec.UNSET)
            continue
        header_bytes = _HEADER_BYTES.get(view[0])
        field = f"{part}[{number}].{where}{name}"
        if header_bytes is None:
            raise bad_field(field, f"{field}: expected JSON in a `bin`")
        try:
            json = _read_json(view[header_bytes:])
        except (msgspec.DecodeError, RecursionError) as error:
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise bad_field(field, f"{field}: expected JSON: {what}") from None
        # A copy: what was decoded is a view of the whole frame.
        _set(item, name, json.copy())


def _pack(reply: Reply) -> bytes:
    for job in reply.jobs or ():
        _set(job, "payload", _wrapped(job.payload))
        if job.checkpoint is not msgspec.UNSET:
            _set(job, "checkpoint", _wrapped(job.checkpoint))
    return _encode_packed(reply)


def _wrapped(json: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(_encode_bin(bytes(json)))
