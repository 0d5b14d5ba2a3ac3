"""How a link begins, at either end: bytes in, bytes out.

Within a node:

    dials                       answers
    Hello              ->
                       <-       Hello, with the reason when it refuses

Between nodes, both ends prove that they know the cluster secret:

    Hello, Challenge   ->
                       <-       Challenge
    Proof              ->
                       <-       Hello, Proof

A proof is an HMAC-SHA256, with the secret as its key, of all frames before it in both directions.
So it belongs to this link alone (each end has added a random number), to this direction (the two
ends have different labels), and to every field of the hellos: roles, nodes, shard, cluster and
versions. The end that was dialled says who it is only after the other end's proof: a process
without the secret gets a random number, and the line that refuses it.

Nothing protects the bytes after that, other than TLS.
"""

import hmac
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

import msgspec

from corvo.errors import WireError
from corvo.protocol import wire
from corvo.protocol.wire import Challenge, First, Goodbye, Hello, Proof

_DIALS: Final = b"corvo-link 1 dials\n"
_ANSWERS: Final = b"corvo-link 1 answers\n"
_FIX: Final = "set cluster.secret to the same value on all nodes"


class Outcome(msgspec.Struct, frozen=True):
    """How it ended."""

    refusal: str = ""
    """Why the link must not be used; empty when it may be."""
    peer: Hello | None = None
    """The hello of the other end; None for an end that has not proved who it is."""
    last: bytes = b""
    """What is still to be sent."""


Frame: TypeAlias = tuple[First, bytes]
Steps: TypeAlias = Generator[bytes, Frame, Outcome]
"""Yields what is to be sent, and is sent the next message with its frame."""


class Greeting:
    """One end of a link that begins."""

    def __init__(self, steps: Steps, *, dials_node: bool = False) -> None:
        self.dials_node: Final = dials_node
        self._steps = steps
        self._frames = wire.FirstFrames()
        self.opening: Final = next(steps)
        """What is sent before anything is received; may be empty."""
        self.outcome: Outcome | None = None

    def receive(self, data: bytes | bytearray) -> bytes:
        """Take bytes of the other end; returns what is to be sent. Raises `WireError`."""
        self._frames.add(data)
        answer = b""
        while self.outcome is None and (found := self._frames.take()) is not None:
            try:
                answer += self._steps.send(found)
            except StopIteration as end:
                self.outcome = end.value
                answer += self.outcome.last
        return answer

    @property
    def rest(self) -> bytes:
        """What came after the last of these messages."""
        return self._frames.rest


# Within a node.


def dialling(ours: Hello, *, node: int) -> Steps:
    """The end that dials that node, or any."""
    theirs, _ = yield wire.encode(ours)
    if not isinstance(theirs, Hello):
        raise _unexpected(theirs)
    return Outcome(wire.refusal(ours, theirs, node=node) or theirs.refusal, theirs)


def answering(ours: Hello) -> Steps:
    """The end that was dialled."""
    theirs, _ = yield b""
    if not isinstance(theirs, Hello):
        raise _unexpected(theirs)
    reason = wire.refusal(ours, theirs)
    return Outcome(reason, theirs, wire.encode(msgspec.structs.replace(ours, refusal=reason)))


# Between nodes.


def dialling_node(ours: Hello, *, node: int, secret: str, nonce: bytes) -> Steps:
    """The end that dials that node, or any. `nonce` is a new random number."""
    opening = wire.encode(ours) + wire.encode(Challenge(nonce, node))
    challenge, frame = yield opening
    if isinstance(challenge, Goodbye):
        return _refused(challenge)
    if not isinstance(challenge, Challenge):
        raise _unexpected(challenge)
    frames = opening + frame
    proof = wire.encode(Proof(mac(secret, _DIALS, frames)))
    theirs, frame = yield proof
    if isinstance(theirs, Goodbye):
        return _refused(theirs)
    if not isinstance(theirs, Hello):
        raise _unexpected(theirs)
    frames += proof + frame
    shown, _ = yield b""
    if not isinstance(shown, Proof):
        raise _unexpected(shown)
    reason = _unproven(ours, theirs, mac(secret, _ANSWERS, frames), shown.mac)
    if reason:
        return Outcome(reason)
    return Outcome(wire.refusal(ours, theirs, node=node) or theirs.refusal, theirs)


def answering_node(
    ours: Hello, *, secret: str, nonce: bytes, judge: Callable[[Hello], str] = lambda _: ""
) -> Steps:
    """The end that was dialled. `nonce` is a new random number.

    `judge` gives a reason of its own to refuse a process of the cluster; empty for none.
    """
    theirs, hello = yield b""
    if not isinstance(theirs, Hello):
        raise _unexpected(theirs)
    challenge, frame = yield b""
    if not isinstance(challenge, Challenge) or len(challenge.nonce) != wire.NONCE_BYTES:
        raise _unexpected(challenge)
    asked = wire.encode(Challenge(nonce))
    frames = hello + frame + asked
    shown, frame = yield asked
    if not isinstance(shown, Proof):
        raise _unexpected(shown)
    reason = _unproven(ours, theirs, mac(secret, _DIALS, frames), shown.mac)
    if reason:
        return Outcome(reason)
    reason = _why_refused(ours, theirs, challenge.node) or judge(theirs)
    answer = wire.encode(msgspec.structs.replace(ours, refusal=reason))
    proof = Proof(mac(secret, _ANSWERS, frames + frame + answer))
    return Outcome(reason, theirs, answer + wire.encode(proof))


def _why_refused(ours: Hello, theirs: Hello, dialled: int) -> str:
    reason = wire.refusal(ours, theirs)
    if not reason and ours.node == theirs.node:
        reason = (
            f"a process of node {ours.node} connected to node {ours.node} as if it were another"
            " node: check the address, and that each node has a data directory of its own"
        )
    # As the end that dialled sees it, so that no connection to another node is taken for one here.
    return reason or wire.refusal(theirs, ours, node=dialled)


def mac(secret: str, label: bytes, frames: bytes) -> bytes:
    """A proof; empty without a secret."""
    return hmac.digest(secret.encode(), label + frames, "sha256") if secret else b""


def _unproven(ours: Hello, theirs: Hello, expected: bytes, shown: bytes) -> str:
    """Why a proof is not accepted; empty when it is."""
    if hmac.compare_digest(expected, shown):
        return ""
    us, them = _title(ours), _title(theirs)
    if not expected:
        return f"{them} has a cluster secret, and {us} has none: {_FIX}"
    if not shown:
        return f"{us} has a cluster secret, and {them} has none: {_FIX}"
    return f"the cluster secret of {them} is not that of {us}: {_FIX}"


def _title(hello: Hello) -> str:
    return f"node {hello.node}" if hello.node else "the node that joins"


def _refused(goodbye: Goodbye) -> Outcome:
    return Outcome(goodbye.reason[: wire.REFUSAL_MAX] or "refused without a reason")


def _unexpected(message: First) -> WireError:
    return WireError(f"a {type(message).__name__.lower()} where a link begins otherwise")
