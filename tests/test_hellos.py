"""How a link begins: who is taken, and what an attacker without the secret can do."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.errors import WireError
from corvo.hellos import (
    _ANSWERS,
    _DIALS,
    Greeting,
    answering,
    answering_node,
    dialling,
    dialling_node,
    mac,
)
from corvo.protocol.wire import (
    FOLLOWER,
    NONCE_BYTES,
    REPLICA,
    ROUTER,
    Challenge,
    First,
    FirstFrames,
    Goodbye,
    Hello,
    Ping,
    Proof,
    encode,
    make_hello,
)
from tests.support.links import STRANGER, THEM, US, Member

SECRET: Final = "a secret of the rookery"  # noqa: S105 -- of these tests alone
OTHER: Final = "a secret of the nest"
FIX: Final = "set cluster.secret to the same value on all nodes"

_NONCES: Final[Iterator[bytes]] = (number.to_bytes(NONCE_BYTES, "big") for number in range(1 << 40))


def dials(hello: Hello = US, *, secret: str = SECRET, node: int = 2) -> Greeting:
    return Greeting(dialling_node(hello, node=node, secret=secret, nonce=next(_NONCES)))


def answers(hello: Hello = THEM, *, secret: str = SECRET) -> Greeting:
    return Greeting(answering_node(hello, secret=secret, nonce=next(_NONCES)))


def as_they_are(data: bytes) -> bytes:
    return data


def meet(
    dialler: Greeting,
    answerer: Greeting,
    *,
    out: Callable[[bytes], bytes] = as_they_are,
    back: Callable[[bytes], bytes] = as_they_are,
) -> list[bytes]:
    """Carry bytes between two ends until both are silent; the pieces, in order.

    `out` and `back` change what the end that dials, or the other one, has sent.
    """
    pieces = []
    sent = dialler.opening
    while sent:
        pieces.append(sent)
        answer = answerer.receive(out(sent)) if answerer.outcome is None else b""
        if not answer:
            break
        pieces.append(answer)
        sent = dialler.receive(back(answer)) if dialler.outcome is None else b""
    return pieces


def frames(data: bytes) -> list[First]:
    reader = FirstFrames()
    reader.add(data)
    found = []
    while (one := reader.take()) is not None:
        found.append(one[0])
    assert not reader.rest
    return found


def say(end: Greeting, said: list[First]) -> None:
    for one in said:
        end.receive(encode(one))


def is_taken(end: Greeting) -> bool:
    """Whether an end would use the link."""
    return end.outcome is not None and not end.outcome.refusal


def reason(end: Greeting) -> str:
    assert end.outcome is not None
    return end.outcome.refusal


# Who is taken.


@pytest.mark.parametrize("secret", ["", SECRET, "ü"])
def test_two_ends_with_one_secret_know_each_other(secret: str) -> None:
    dialler, answerer = dials(secret=secret), answers(secret=secret)

    pieces = meet(dialler, answerer)

    assert is_taken(dialler)
    assert is_taken(answerer)
    assert dialler.outcome is not None
    assert dialler.outcome.peer == THEM
    assert answerer.outcome is not None
    assert answerer.outcome.peer == US
    kinds = [[type(one) for one in frames(piece)] for piece in pieces]
    assert kinds == [[Hello, Challenge], [Challenge], [Proof], [Hello, Proof]]


@given(st.integers(1, 40))
def test_pieces_of_any_size_make_the_same_link_and_what_follows_is_kept(size: int) -> None:
    dialler, answerer = dials(), answers()
    to_answerer, to_dialler = dialler.opening, b""
    while not (is_taken(dialler) and is_taken(answerer)):
        to_dialler += answerer.receive(to_answerer[:size])
        to_answerer = to_answerer[size:]
        if is_taken(answerer) and not to_dialler.endswith(encode(Ping(1))):
            to_dialler += encode(Ping(1))
        piece, to_dialler = to_dialler[:size], to_dialler[size:]
        to_answerer += dialler.receive(piece)

    assert (dialler.rest + to_dialler, answerer.rest) == (encode(Ping(1)), b"")


def test_different_secrets_are_refused_by_one_line_and_nothing_else_is_said() -> None:
    dialler, answerer = dials(secret=OTHER), answers()

    pieces = meet(dialler, answerer)

    assert reason(answerer) == f"the cluster secret of node 1 is not that of node 2: {FIX}"
    assert answerer.outcome is not None
    assert (answerer.outcome.peer, answerer.outcome.last) == (None, b"")
    assert [type(one) for one in frames(pieces[1])] == [Challenge], "a random number, and no more"
    assert len(pieces) == 3
    dialler.receive(encode(Goodbye(reason(answerer))))
    assert reason(dialler) == reason(answerer)


@pytest.mark.parametrize(
    ("ours", "theirs", "line"),
    [
        ("", SECRET, "node 2 has a cluster secret, and node 1 has none"),
        (SECRET, "", "node 1 has a cluster secret, and node 2 has none"),
    ],
)
def test_a_secret_on_one_side_alone_is_refused(ours: str, theirs: str, line: str) -> None:
    dialler, answerer = dials(secret=ours), answers(secret=theirs)

    meet(dialler, answerer)

    assert reason(answerer) == f"{line}: {FIX}"


def test_an_end_that_answers_without_a_proof_is_not_taken() -> None:
    dialler = dials()
    dialler.receive(encode(Challenge(bytes(NONCE_BYTES))))

    dialler.receive(encode(THEM) + encode(Proof(b"")))

    assert reason(dialler) == f"node 1 has a cluster secret, and node 2 has none: {FIX}"
    assert dialler.outcome is not None
    assert dialler.outcome.peer is None


def test_nodes_with_one_secret_of_different_clusters_are_told_apart() -> None:
    dialler, answerer = dials(), answers(STRANGER)

    meet(dialler, answerer)

    assert "belongs to cluster 'rookery'" in reason(answerer)
    assert "belongs to cluster 'nest'" in reason(dialler)


def test_a_node_that_answers_for_another_is_refused_by_both() -> None:
    dialler, answerer = dials(node=3), answers()

    meet(dialler, answerer)

    expected = "the replica of node 2 answers at the address of node 3: check the address"
    assert (reason(dialler), reason(answerer)) == (expected, expected)


def test_a_node_that_is_dialled_may_have_a_reason_of_its_own_to_refuse() -> None:
    def judge(hello: Hello) -> str:
        return f"node {hello.node} was removed"

    steps = answering_node(THEM, secret=SECRET, nonce=next(_NONCES), judge=judge)
    dialler, answerer = dials(), Greeting(steps)

    meet(dialler, answerer)

    assert reason(dialler) == reason(answerer) == f"node {US.node} was removed"


def test_any_node_may_answer_where_no_number_is_known() -> None:
    dialler, answerer = dials(node=0), answers()

    meet(dialler, answerer)

    assert is_taken(dialler)
    assert is_taken(answerer)


@pytest.mark.parametrize("node", [0, 2])
def test_a_node_that_dials_itself_is_refused(node: int) -> None:
    ours = msgspec.structs.replace(US, node=2)
    dialler, answerer = dials(ours, node=node), answers()

    meet(dialler, answerer)

    expected = "a process of node 2 connected to node 2 as if it were another node"
    assert reason(answerer).startswith(expected)
    assert reason(dialler) == reason(answerer)


# What an attacker can do who has the wire, and not the secret.


@given(st.data())
def test_no_byte_can_be_changed_on_the_way(data: st.DataObject) -> None:
    dialler, answerer = dials(), answers()
    lengths = [len(piece) for piece in meet(dials(), answers())]
    piece = data.draw(st.integers(0, 3))
    at = data.draw(st.integers(0, lengths[piece] - 1))
    change = data.draw(st.integers(1, 255))
    seen = 0

    def tamper(sent: bytes) -> bytes:
        nonlocal seen
        seen += 1
        return sent[:at] + bytes([sent[at] ^ change]) + sent[at + 1 :] if seen == turn else sent

    turn = piece // 2 + 1
    sides = {"out": tamper} if piece % 2 == 0 else {"back": tamper}
    with suppress(WireError):
        meet(dialler, answerer, **sides)

    assert not is_taken(dialler)
    # The end that was dialled has nothing more to hear once it has seen the proof.
    assert is_taken(answerer) == (piece == 3)


FIELDS: Final[dict[str, object]] = {
    "role": FOLLOWER,
    "node": 5,
    "shard": 2,
    "cluster": "nest",
    "wire_version": 99,
    "op_version": 99,
    "shards": 8,
    "wire_oldest": 1,
    "op_oldest": 1,
    "refusal": "go away",
    "instance": "cd",
    "release": "9",
}


def test_every_field_of_a_hello_is_tried() -> None:
    assert set(FIELDS) == set(Hello.__struct_fields__)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("side", ["out", "back"])
def test_no_field_of_a_hello_can_be_changed_on_the_way(field: str, side: str) -> None:
    def changed(one: First) -> First:
        if not isinstance(one, Hello):
            return one
        values = {**msgspec.structs.asdict(one), field: FIELDS[field]}
        return msgspec.convert([1, *values.values()], Hello)

    def tamper(sent: bytes) -> bytes:
        return b"".join(encode(changed(one)) for one in frames(sent))

    dialler, answerer = dials(), answers()
    meet(dialler, answerer, **{side: tamper})

    victim = answerer if side == "out" else dialler
    assert reason(victim).startswith("the cluster secret of node")
    assert victim.outcome is not None
    assert victim.outcome.peer is None
    assert not is_taken(dialler)


@pytest.mark.parametrize("node", [0, 3])
def test_the_node_that_was_dialled_cannot_be_changed_on_the_way(node: int) -> None:
    def tamper(sent: bytes) -> bytes:
        return b"".join(
            encode(msgspec.structs.replace(one, node=node) if isinstance(one, Challenge) else one)
            for one in frames(sent)
        )

    answerer = answers()
    meet(dials(), answerer, out=tamper)

    assert reason(answerer).startswith("the cluster secret of node")


def test_what_one_link_has_said_opens_no_other() -> None:
    opening, asked, proof, greeting = meet(dials(), answers())

    answerer = answers()
    answerer.receive(opening)
    answerer.receive(proof)
    dialler = dials()
    dialler.receive(asked)
    dialler.receive(greeting)

    assert reason(answerer).startswith("the cluster secret")
    assert reason(dialler).startswith("the cluster secret")


def test_an_end_that_dials_hears_its_own_words_as_no_answer() -> None:
    dialler = dials()
    nonce = next(one.nonce for one in frames(dialler.opening) if isinstance(one, Challenge))

    proof = dialler.receive(encode(Challenge(nonce)))
    dialler.receive(encode(THEM) + proof)

    assert reason(dialler).startswith("the cluster secret of node 2")


def test_the_proof_of_an_end_that_answers_does_not_open_another() -> None:
    """Both ends have other labels: what one signs is not what the other expects."""
    mirrored = msgspec.structs.replace(THEM, node=1)
    opening, asked, proof, greeting = meet(dials(), answers())

    for shown in (frames(greeting)[1], frames(proof)[0], frames(asked)[0]):
        answerer = answers(mirrored)
        answerer.receive(opening)
        try:
            answerer.receive(encode(shown))
        except WireError:
            continue
        assert reason(answerer).startswith("the cluster secret")


@given(st.binary(max_size=200))
def test_the_two_ends_never_sign_the_same(frames: bytes) -> None:
    assert mac(SECRET, _DIALS, frames) != mac(SECRET, _ANSWERS, frames)


@pytest.mark.parametrize("node", [0, 2, 3])
def test_a_connection_that_is_carried_on_to_another_node_is_refused(node: int) -> None:
    """Someone on the way sends all bytes on, unchanged, to a node that was not dialled."""
    third = make_hello(Member(shards=4, node=3), REPLICA, shard=3)
    dialler, answerer = dials(node=node), answers(third)

    meet(dialler, answerer)

    assert is_taken(answerer) == is_taken(dialler) == (node in {0, 3})


def test_a_connection_that_is_carried_back_to_its_own_node_is_refused() -> None:
    ours = make_hello(Member(shards=4, node=1), REPLICA, shard=3)
    dialler, answerer = dials(msgspec.structs.replace(US, role=ROUTER), node=2), answers(ours)

    meet(dialler, answerer)

    assert not is_taken(answerer)
    assert not is_taken(dialler)


@pytest.mark.parametrize("length", range(32))
def test_a_proof_is_taken_whole(length: int) -> None:
    def cut(sent: bytes) -> bytes:
        [proof] = frames(sent) if len(frames(sent)) == 1 else [None]
        return encode(Proof(proof.mac[:length])) if isinstance(proof, Proof) else sent

    answerer = answers()
    meet(dials(), answerer, out=cut)

    assert not is_taken(answerer)


@pytest.mark.parametrize(
    "said",
    [
        [Proof(bytes(32))],
        [Challenge(bytes(32))],
        [Goodbye("never mind")],
        [US, US],
        [US, Proof(bytes(32))],
        [US, Challenge(bytes(31))],
        [US, Challenge(b"")],
        [US, Challenge(bytes(32)), US],
        [US, Challenge(bytes(32)), Challenge(bytes(32))],
    ],
)
def test_an_end_that_answers_wants_everything_in_its_order(said: list[First]) -> None:
    answerer = answers()

    with pytest.raises(WireError, match="where a link begins otherwise"):
        say(answerer, said)

    assert not is_taken(answerer)


@pytest.mark.parametrize(
    "said",
    [
        [THEM],
        [Proof(bytes(32))],
        [Challenge(bytes(32)), Challenge(bytes(32))],
        [Challenge(bytes(32)), Proof(bytes(32))],
        [Challenge(bytes(32)), THEM, THEM],
        [Challenge(bytes(32)), THEM, Goodbye("no")],
    ],
)
def test_an_end_that_dials_wants_everything_in_its_order(said: list[First]) -> None:
    dialler = dials()

    with pytest.raises(WireError, match="where a link begins otherwise"):
        say(dialler, said)

    assert not is_taken(dialler)


def test_an_end_may_be_refused_before_it_is_asked_for_a_proof() -> None:
    late: list[First] = [Challenge(bytes(32)), Goodbye("")]
    early: list[First] = [Goodbye("x" * 3_000)]
    for said in (early, late):
        dialler = dials()
        say(dialler, said)
        assert 0 < len(reason(dialler)) <= 500


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_never_taken(garbage: bytes, is_late: bool) -> None:
    for end in (dials(), answers()):
        try:
            if is_late:
                end.receive(encode(US) + encode(Challenge(bytes(32))))
            end.receive(garbage)
        except WireError:
            pass
        assert not is_taken(end)


# Within a node.


def test_within_a_node_each_end_sends_its_hello_alone() -> None:
    dialler, answerer = Greeting(dialling(US, node=2)), Greeting(answering(THEM))

    pieces = meet(dialler, answerer)

    assert pieces == [encode(US), encode(THEM)]
    assert is_taken(dialler)
    assert is_taken(answerer)


def test_an_end_of_a_node_is_not_taken_for_another_nodes() -> None:
    dialler, answerer = dials(), Greeting(answering(THEM))

    with pytest.raises(WireError, match="a hello where"):
        meet(dialler, answerer)

    assert not is_taken(dialler)
