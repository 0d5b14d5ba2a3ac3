"""One replica, and three: what becomes of submissions and questions, whatever happens meanwhile."""

from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvo.protocol import wire
from corvo.protocol.numbers import WAITING_OPS_MAX, Numbers
from corvo.protocol.ops.enqueue import Enqueue, EnqueueResults, NewJob
from corvo.protocol.ops.jobs import Move
from corvo.protocol.ops.queues import Pause
from corvo.protocol.ops.work import Ack, AckItem
from corvo.protocol.queries import QUERIES, EffectsTaken, GetNumbers, GetQueue, QueueView
from corvo.raft import Change, Membership
from corvo.raft.errors import ChangeRefused
from corvo.raft.membership import Action, Step
from corvo.raft.messages import AppendRequest
from corvo.shard import gathering, replica
from corvo.shard.ops import APPLY, NUMBERS, OPS
from corvo.shard.ops.transfer import Delivered, Receive, ReceivedMany, Renumber
from corvo.shard.ops.upkeep import Lead, Reclaim
from corvo.shard.relaying import Batch
from corvo.shard.state import outbox
from corvo.shard.state.outbox import WatchAnswer
from tests.shard.replicas import MS, Replicas, ops_of, refusal

PAUSE: Final = Pause(queue="mail")
MAIL: Final = Enqueue(jobs=[NewJob(queue="mail")])


def status(group: Replicas, number: int = 1) -> Numbers:
    request = group.ask(GetNumbers(), to=number)
    group.settle()
    told = group.answer(request, of=number)
    assert isinstance(told, wire.Reply)
    return msgspec.json.decode(told.body, type=Numbers)


def pending(answer: wire.Answer) -> int:
    assert isinstance(answer, wire.Reply)
    return msgspec.json.decode(answer.body, type=QueueView).counts["pending"]


# ---- Submissions.


def test_an_op_is_answered_when_it_is_applied_and_not_before() -> None:
    group = Replicas()
    group.slow[1] = None
    request = group.submit(MAIL)

    group.settle()
    early = group.answers(request)
    group.store(1)
    group.settle()

    assert early == []
    answer = group.answer(request)
    assert isinstance(answer, wire.Reply)
    [made] = msgspec.json.decode(answer.body, type=EnqueueResults).jobs
    assert made.status == "pending"
    assert answer.index == group.replicas[1].machine.applied


def test_what_gathers_while_the_disk_is_busy_becomes_one_entry() -> None:
    group = Replicas()
    group.slow[1] = None
    group.submit(PAUSE)
    group.settle()

    for _ in range(99):
        group.submit(MAIL)
        group.settle()
    busy = list(group.writes[1])
    group.store(1)
    group.settle()
    group.store(1)
    group.settle()

    assert [ops_of(each) for each in busy[0].entries] == [[PAUSE]]
    assert len(busy) == 1
    assert group.log()[-2:] == [[PAUSE], [MAIL] * 99]


def test_an_entry_has_512_ops_at_most() -> None:
    group = Replicas()
    group.slow[1] = None

    for _ in range(1_100):
        group.submit(MAIL)
    group.settle()

    [write] = group.writes[1]
    assert [len(ops_of(each)) for each in write.entries] == [512, 512, 76]


def test_an_entry_has_a_mebibyte_at_most_unless_an_op_alone_has_more() -> None:
    group = Replicas()
    group.slow[1] = None
    payloads = [400_000, 400_000, 400_000, 1_048_000, 400_000]

    for size in payloads:
        group.submit(Enqueue(jobs=[NewJob(queue="mail", payload=msgspec.Raw(b"1" * size))]))
    group.submit(Enqueue(jobs=[NewJob(queue="mail", payload=msgspec.Raw(b"1" * 600_000))] * 2))
    group.settle()

    [write] = group.writes[1]
    assert [len(ops_of(each)) for each in write.entries] == [2, 1, 1, 1, 1]


def test_a_follower_says_who_leads() -> None:
    group = Replicas(3)

    request = group.submit(MAIL, to=2)
    group.settle()

    assert group.answer(request, of=2) == wire.NotLeader(request, 1)


def test_a_full_replica_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WAITING_OPS_MAX", 3)
    group = Replicas()
    group.slow[1] = None

    requests = [group.submit(MAIL) for _ in range(4)]
    group.settle()
    refused = group.answers(requests[3])
    group.slow.clear()
    group.store(1)
    group.settle()
    again = group.do(MAIL)

    assert refused == [wire.Busy(requests[3], replica.BUSY_MS)]
    assert [len(group.answers(request)) for request in requests[:3]] == [1, 1, 1]
    assert isinstance(again, wire.Reply)
    assert not again.code


def test_bytes_that_wait_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WAITING_BYTES_MAX", 1_000)
    group = Replicas()
    large = Enqueue(jobs=[NewJob(queue="mail", payload=msgspec.Raw(b"1" * 1_000))])

    first, second = group.submit(large), group.submit(PAUSE)
    group.settle()

    assert group.answer(second) == wire.Busy(second, replica.BUSY_MS)
    assert isinstance(group.answer(first), wire.Reply)


@pytest.mark.parametrize(
    ("number", "body", "code", "field"),
    [
        (2, b"{}", "unknown_op", ""),
        (3, b'{"queues":[]}', "bad_request", "queues"),
        (3, b'{"queues":["mail"],"lease_ms":10}', "bad_request", "lease_ms"),
        (3, b'{"queues":["mail"]', "bad_json", ""),
        (11, b'{"queue":"mail","other":1}', "bad_request", ""),
        (11, b'{"queue":"ma\\u0000il"}', "bad_request", "queue"),
        (76, b'{"grace_ms":1}', "forbidden", ""),
        (18, b'{"limit":1}', "forbidden", ""),
    ],
)
def test_a_bad_op_is_refused_at_the_door(number: int, body: bytes, code: str, field: str) -> None:
    group = Replicas()
    log = group.log()

    request = group.submit_raw(number, body)
    group.settle()

    refused = refusal(group.answer(request))
    assert (refused.code, refused.field) == (code, field)
    assert refused.error
    assert group.log() == log


def test_answers_go_to_the_link_that_asked_though_numbers_are_the_same() -> None:
    group = Replicas()
    leader = group.replicas[1]
    leader.joined(2)

    leader.submit(1, wire.Submit(7, 11, b'{"queue":"first"}'))
    leader.submit(2, wire.Submit(7, 11, b'{"queue":"second"}'))
    group.settle()

    answers = [
        (client, msgspec.json.decode(message.body, type=dict[str, str])["queue"])
        for client, message in group.heard[1]
        if isinstance(message, wire.Reply)
    ]
    assert answers == [(1, "first"), (2, "second")]


def test_nobody_is_answered_behind_the_end_of_a_link() -> None:
    group = Replicas()
    group.replicas[1].joined(2)
    group.slow[1] = None
    group.submit(MAIL, client=2)
    group.ask(GetQueue(queue="mail"), client=2)
    group.settle()

    group.heard[1].clear()
    group.replicas[1].left(2)
    group.slow.clear()
    group.store(1)
    group.settle()

    assert group.heard[1] == []
    assert group.log()[-1] == [MAIL]


def test_a_new_link_is_told_who_leads_and_all_are_told_of_another() -> None:
    group = Replicas(3)
    for number in group.voters:
        group.replicas[number].joined(5)

    group.settle()
    first = [dict(group.heard[number]) for number in group.voters]
    for heard in group.heard.values():
        heard.clear()
    group.elect(2, 3)

    assert first == [{5: wire.Leading(1, 1)}] * 3
    for number in group.voters:
        assert (5, wire.Leading(2, 2)) in group.heard[number]


# ---- What becomes of them when leadership is lost.


def test_an_op_is_answered_by_the_replica_that_took_it_though_it_leads_no_more() -> None:
    group = Replicas(3)
    request = group.submit(MAIL)
    group.deaf[1] = None
    group.settle()
    early = group.answers(request)

    group.elect(2, 3)
    group.deaf.clear()
    group.tick(2, 2)

    assert early == []
    answer = group.answer(request)
    assert isinstance(answer, wire.Reply)
    assert not answer.code
    assert not group.replicas[1].node.is_leader


def test_an_op_whose_entry_was_replaced_was_never_done() -> None:
    group = Replicas(3)
    group.cut_off[1] = None
    request = group.submit(MAIL)
    group.settle()

    group.elect(2, 3)
    group.put(NewJob(queue="other"), to=2)
    early = group.answers(request)
    group.cut_off.clear()
    group.tick(2, 2)

    assert early == []
    assert group.answer(request) == wire.NotLeader(request, 2)
    assert all(MAIL not in ops for ops in group.log())


def test_ops_behind_the_end_of_the_log_of_the_next_leader_were_never_done() -> None:
    group = Replicas(3)
    group.cut_off[1] = None
    requests = []
    for _ in range(6):
        requests.append(group.submit(MAIL))
        group.work(1)
    group.elect(2, 3)
    group.cut_off.clear()
    group.tick(3)

    answers = [group.answer(request) for request in requests]

    assert [type(answer) for answer in answers] == [wire.NotLeader] * 6
    assert all(MAIL not in ops for ops in group.log())


def test_what_only_gathered_is_given_back_with_the_leadership() -> None:
    group = Replicas(3)
    group.slow[1] = None
    under_way, gathered = group.submit(PAUSE), None
    group.settle()
    gathered = group.submit(MAIL)
    group.settle()

    group.cut_off[1] = None
    group.elect(2, 3)
    group.cut_off.clear()
    group.tick(1, 2)

    assert isinstance(group.answer(gathered), wire.NotLeader)
    assert group.answers(under_way) == []  # its fate is not known while the disk is busy


def test_a_leader_that_comes_back_remembers_what_it_proposed_in_its_first_term() -> None:
    """Its new entries have indexes that its old ones had; each is answered by its own fate."""
    group = Replicas(3)
    group.cut_off[1] = None
    lost = []
    for _ in range(8):
        lost.append(group.submit(PAUSE))
        group.settle()
    group.elect(2, 3)
    group.cut_off.clear()
    group.tick(1, 2)
    early = [type(group.answer(request)) for request in lost]
    group.elect(1, 2, 3)

    requests = [group.submit(MAIL) for _ in range(3)]
    group.settle()
    for _ in range(6):
        assert isinstance(group.do(MAIL), wire.Reply)

    assert early == [wire.NotLeader] * 8
    for request in requests:
        answer = group.answer(request)
        assert isinstance(answer, wire.Reply)
        assert not answer.code
    assert all(PAUSE not in ops for ops in group.log())


def test_nobody_knows_what_became_of_an_op_behind_a_snapshot() -> None:
    group = Replicas(3)
    group.cut_off[1] = None
    request = group.submit(MAIL)
    group.settle()
    group.elect(2, 3)
    for _ in range(5):
        group.put(NewJob(queue="other"), to=2)

    group.make_snapshot(2)
    group.cut_off.clear()
    group.tick(3, 2)

    refused = refusal(group.answer(request))
    assert refused.code == "unknown"
    assert group.replicas[1].machine.digest == group.replicas[2].machine.digest


def test_all_replicas_come_to_the_same_state_and_a_restart_goes_on_from_it() -> None:
    group = Replicas(3)
    random = Random(3)
    for number in range(60):
        match random.randrange(3):
            case 0:
                group.put(NewJob(queue="mail"), to=1)
            case 1:
                for claim in group.fetch():
                    group.do(Ack(acks=[AckItem(job_id=claim.job_id)]))
            case _:
                group.start(2 + number % 2)
                group.tick(1, 1)

    digests = {group.replicas[number].machine.digest for number in group.voters}
    applied = {group.replicas[number].machine.applied for number in group.voters}
    assert (len(digests), len(applied)) == (1, 1)


# ---- Leaving.


def test_a_leader_that_leaves_takes_no_ops_and_answers_those_that_it_has() -> None:
    group = Replicas(3)
    group.cut_off[3] = None
    group.put(NewJob(queue="mail"))
    before = group.submit(MAIL)
    group.work(1)

    is_possible = group.replicas[1].leave()
    after = group.submit(MAIL)
    is_over = [group.replicas[1].has_left]
    group.settle()
    group.answer(before)
    is_over.append(group.replicas[1].has_left)

    assert is_possible
    assert isinstance(group.answer(after), wire.NotLeader)
    assert group.replicas[2].node.is_leader, "it has the whole log"
    assert is_over == [False, True]


def test_who_has_no_successor_or_does_not_lead_leaves_at_once() -> None:
    group = Replicas(3)

    assert not Replicas().replicas[1].leave()
    assert not group.replicas[2].leave()


# ---- Leading.


def test_a_leader_begins_with_grace_before_anything_else() -> None:
    group = Replicas(leads=False)
    group.replicas[1].node.campaign()
    group.work(1)
    assert group.replicas[1].node.is_leader

    group.submit(MAIL)
    group.settle()

    assert next(ops[0] for ops in group.log()) == Lead(grace_ms=5_000)
    assert MAIL in [op for ops in group.log() for op in ops]


def test_no_lease_ends_before_the_grace_of_a_new_leader_does() -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    [claim] = group.fetch(lease_ms=1_000)
    group.elect(2, 3)

    group.pass_time(4_900)
    early = group.fetch(to=2)
    group.pass_time(101)
    [again] = group.fetch(to=2)

    assert early == []
    assert again.job_id == claim.job_id
    assert again.lease_token > claim.lease_token


def test_the_disk_that_is_full_refuses_ops_and_answers_questions() -> None:
    group = Replicas()
    group.replicas[1].disk_is_full = True

    refused = refusal(group.do(MAIL))
    request = group.ask(GetQueue(queue="mail"))
    group.settle()
    seen = pending(group.answer(request))
    group.replicas[1].disk_is_full = False
    after = group.do(MAIL)

    assert refused.code == "disk_full"
    assert seen == 0
    assert isinstance(after, wire.Reply)
    assert not after.code


def test_a_long_log_is_applied_in_pieces_so_that_others_get_their_turn() -> None:
    group = Replicas(page_bytes_max=64 << 10)
    group.slow[1] = None
    large = Enqueue(jobs=[NewJob(queue="mail", payload=msgspec.Raw(b"1" * 30_000))])
    for _ in range(340):
        group.submit(large)
        group.submit(large)
    group.settle()
    group.store(1)

    steps = []
    has_more = True
    while has_more:
        before = group.replicas[1].machine.applied
        has_more = group.replicas[1].work(group.now_ns, group.now_ns).has_more
        steps.append(group.replicas[1].machine.applied - before)

    # Each of the entries has 34 ops, a mebibyte.
    assert steps[:20] == [1] * 20


# ---- Questions.


def test_a_question_is_answered_behind_a_proof_of_leadership() -> None:
    group = Replicas(3)
    group.put(NewJob(queue="mail"))
    request = group.ask(GetQueue(queue="mail"))

    group.work(1)
    early = group.answers(request)
    group.settle()

    assert early == []
    assert pending(group.answer(request)) == 1


def test_a_follower_answers_from_a_state_that_is_new_enough() -> None:
    group = Replicas(3)
    group.cut_off[3] = None
    group.put(NewJob(queue="mail"))
    assert group.replicas[3].machine.applied < group.replicas[1].machine.applied
    group.cut_off.clear()

    request = group.ask(GetQueue(queue="mail"), to=3)
    group.settle()
    group.tick(3, 1)

    assert pending(group.answer(request, of=3)) == 1


def test_a_leader_that_is_cut_off_answers_nothing_but_what_is_about_itself() -> None:
    group = Replicas(3)
    group.cut_off[1] = None
    request = group.ask(GetQueue(queue="mail"))
    group.settle()
    early = group.answers(request)
    seen = status(group)

    group.elect(2, 3)
    group.cut_off.clear()
    group.tick(1, 2)
    late = group.answers(request)

    assert early == []
    assert seen.role == "leader"
    assert late == [wire.NotLeader(request, 2)]


def test_a_replica_that_knows_no_leader_says_so() -> None:
    group = Replicas(3, leads=False)

    request = group.ask(GetQueue(queue="mail"))
    group.settle()

    assert group.answer(request) == wire.NotLeader(request, None)


def test_questions_that_gather_share_one_proof() -> None:
    group = Replicas(3)
    requests = [group.ask(GetQueue(queue="mail")) for _ in range(50)]

    group.work(1)
    waiting = group.replicas[1].node.statistics().reads_waiting
    group.settle()

    assert waiting == 1

    assert [len(group.answers(request)) for request in requests] == [1] * 50


@pytest.mark.parametrize(
    ("number", "body", "code"),
    [
        (999, b"{}", "unknown_query"),
        (4, b"{}", "bad_request"),
        (4, b"{", "bad_request"),
        (4, b"\xff", "bad_request"),
        (2, b'{"job_id":"\\ud800"}', "bad_request"),
        (2, b'{"job_id":"nobody"}', "job_not_found"),
    ],
)
def test_a_bad_question_is_refused(number: int, body: bytes, code: str) -> None:
    group = Replicas()

    request = group.ask_raw(number, body)
    group.settle()

    assert refusal(group.answer(request)).code == code


def test_an_answer_that_no_frame_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "BODY_BYTES_MAX", 100)
    group = Replicas()

    request = group.ask(GetQueue(queue="mail"))
    group.settle()

    assert refusal(group.answer(request)).code == "answer_too_large"


FUZZED: Final = st.one_of(
    st.binary(max_size=60),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("mail"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["queue", "queues", "jobs", "job_id", "job_ids", "acks", "worker_id", "id"]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ).map(msgspec.json.encode),
)


@given(
    submitted=st.lists(
        st.tuples(st.booleans(), st.sampled_from([*OPS, *QUERIES, 0, 250]), FUZZED), max_size=12
    )
)
def test_whatever_is_sent_gets_one_answer(submitted: list[tuple[bool, int, bytes]]) -> None:
    group = Replicas()

    requests = [
        group.submit_raw(number, body) if is_op else group.ask_raw(number, body)
        for is_op, number, body in submitted
    ]
    group.settle()

    assert [len(group.answers(request)) for request in requests] == [1] * len(requests)


NAMES: Final = ["", "\0", "a\0b", "\x1f", "a" * 256, "é" * 200, "mail", "\u2028", "a" * 100_000]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", sorted(OPS))
def test_no_name_gets_past_the_door_that_a_key_cannot_hold(number: int, name: str) -> None:
    group = Replicas()
    items = [{"job_id": name, "worker_id": name}]
    job = {"queue": name, "id": name, "unique_key": name, "kind": name, "tags": {name: name}}
    fields: dict[str, object] = {
        "queue": name,
        "queues": [name],
        "jobs": items if number != 1 else [job],
        "acks": items,
        "fails": items,
        "job_ids": [name],
        "worker_id": name,
        "request_key": name,
        "by": name,
    }
    known = {field.encode_name for field in msgspec.structs.fields(OPS[number])}
    body = {field: value for field, value in fields.items() if field in known}

    request = group.submit_raw(number, msgspec.json.encode(body))
    group.settle()

    assert len(group.answers(request)) == 1


# ---- Other shards, membership, checkpoints.


def taken(seq: int) -> wire.Reply:
    """Another shard has taken the effects up to one."""
    return wire.Reply(1, "", msgspec.json.encode(ReceivedMany(0, seq, 1)))


def test_a_link_to_another_shard_is_asked_for_with_the_first_effect_and_effects_wait_for_it() -> (
    None
):
    group = Replicas(shards=2)
    group.put(NewJob(queue="mail", id="one"), NewJob(queue="mail", id="two"))

    before = group.last[1].shards_wanted
    group.submit(Move(job_ids=["one"], queue="parcels"))
    wanted: list[int] = []
    while group.work(1):
        wanted += group.last[1].shards_wanted
    group.do(Move(job_ids=["two"], queue="parcels"))
    waiting = list(group.batches)
    group.replicas[1].relaying.opened(1)
    group.settle()

    assert (before, wanted, waiting) == ((), [1], [])
    assert [(batch.shard, batch.last) for batch in group.batches] == [(1, 2)]


def test_effects_are_removed_when_they_are_taken() -> None:
    group = Replicas(shards=2)
    group.replicas[1].relaying.opened(1)
    group.put(NewJob(queue="mail", id="one"), NewJob(queue="mail", id="two"))
    for job_id in ("one", "two"):
        group.do(Move(job_ids=[job_id], queue="parcels"))
    [first, second] = group.batches

    assert group.replicas[1].relaying.answered(first, taken(1)) == 0
    assert group.replicas[1].relaying.answered(second, taken(2)) == 0
    group.settle()

    assert [Delivered(shard=1, seq=2)] in group.log()
    assert outbox.numbers(group.replicas[1].machine.tx) == {1: (2, 2)}
    assert not group.replicas[1].has_answers


def test_a_leader_that_lost_its_place_sends_nothing_to_other_shards() -> None:
    group = Replicas(3, shards=2)
    for each in group.replicas.values():
        each.relaying.opened(1)
    group.put(NewJob(queue="mail", id="one"))
    group.do(Move(job_ids=["one"], queue="parcels"))
    [before] = group.batches

    group.elect(2, 3)
    group.replicas[1].relaying.answered(before, taken(1))
    group.settle()

    assert [batch.body for batch in group.batches] == [before.body] * 2
    assert all(not isinstance(op, Delivered) for ops in group.log() for op in ops)
    group.replicas[2].relaying.answered(group.batches[1], taken(1))
    group.settle()
    assert [Delivered(shard=1, seq=1)] in group.log(2)


def test_effects_without_end_do_not_hold_up_what_is_due() -> None:
    group = Replicas(shards=3)
    relaying = group.replicas[1].relaying
    for shard in (1, 2):
        relaying.opened(shard)
    group.put(*(NewJob(queue="sms", id=f"x{number}") for number in range(20)))
    group.fetch("sms", lease_ms=1_000)
    for number in range(1, 20):
        group.do(Move(job_ids=[f"x{number}"], queue=("mail", "push")[number % 2]))
    group.slow[1] = None
    batches: list[list[Batch]] = [[], []]
    for number in range(8):  # while effects on one shard are removed, others are taken
        for batch in group.batches:
            batches[batch.shard - 1].append(batch)
        group.batches.clear()
        batch = batches[number % 2].pop(0)
        relaying.answered(batch, taken(batch.last))
        group.settle()
        if number:
            group.store(1)
            group.settle()
        group.now_ns += 10_000 * MS

    reclaimed = [ops for ops in group.log() if any(isinstance(op, Reclaim) for op in ops)]
    assert len(reclaimed) == 1


def test_a_shard_with_too_many_ops_of_clients_takes_those_of_other_shards() -> None:
    group = Replicas(shards=2)
    group.replicas[1].joined(2, is_shard=True)
    group.slow[1] = None
    for _ in range(WAITING_OPS_MAX + 1):
        group.submit(MAIL)
    last = group.submit(MAIL)
    receive = group.submit(Receive(source=1, seq=1, effect=WatchAnswer("x", "dead")), client=2)
    group.settle()

    assert isinstance(group.answer(last), wire.Busy)
    while group.writes[1]:
        group.store(1)
        group.settle()
    assert isinstance(group.answer(receive), wire.Reply)


def test_members_are_changed_and_leadership_is_handed_over() -> None:
    group = Replicas(3)
    leader = group.replicas[1]

    leader.change_membership(Change((Step(Action.REMOVE, 3),)))
    group.settle()
    with pytest.raises(ChangeRefused):
        leader.change_membership(Change((Step(Action.ADD_VOTER, 9),)))
    leader.transfer(2)
    group.settle()

    assert group.replicas[2].node.is_leader
    assert group.replicas[1].node.membership.voters == (1, 2)


def test_the_membership_of_an_index_is_the_one_that_was_in_force_there() -> None:
    group = Replicas(3)
    leader = group.replicas[1]
    group.put(NewJob(queue="mail"))
    before = leader.machine.applied
    group.slow[1] = None
    for number in (2, 3):
        group.slow[number] = None
    changed = leader.change_membership(Change((Step(Action.ADD_LEARNER, 4),)))
    group.submit(MAIL)
    group.settle()
    group.slow.clear()
    group.settle()
    group.put(NewJob(queue="mail"))

    found = [leader.membership_at(index) for index in (before, changed - 1, changed)]

    assert leader.machine.applied > changed
    assert [each.learners for each in found if each is not None] == [(), (), (4,)]
    assert leader.membership_at(leader.machine.applied) == leader.node.membership


def test_the_membership_of_what_was_applied_before_the_start_is_not_known() -> None:
    group = Replicas()
    group.put(NewJob(queue="mail"))
    group.put(NewJob(queue="mail"))
    applied = group.replicas[1].machine.applied

    group.start(1)

    assert group.replicas[1].membership_at(applied - 1) is None
    assert group.replicas[1].membership_at(applied) == Membership(voters=(1,))


def test_a_snapshot_brings_its_membership() -> None:
    group = Replicas(3)
    group.cut_off[3] = None
    group.replicas[1].change_membership(Change((Step(Action.ADD_LEARNER, 4),)))
    group.settle()
    group.put(NewJob(queue="mail"))
    group.make_snapshot(1)

    group.cut_off.clear()
    group.tick(3, 1)

    behind = group.replicas[3]
    assert behind.machine.digest == group.replicas[1].machine.digest
    assert behind.membership_at(behind.machine.applied) == behind.node.membership
    assert behind.node.membership.learners == (4,)


def test_the_entry_that_an_exception_came_from_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Replicas()
    group.put(NewJob(queue="mail"))
    applied = group.replicas[1].machine.applied
    calm = group.replicas[1].applying

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(APPLY, NUMBERS[Pause], fail)
    group.submit(MAIL)
    group.settle()
    group.submit(PAUSE)
    with pytest.raises(ZeroDivisionError):
        group.settle()

    assert calm is None
    assert group.replicas[1].applying == applied + 2
    assert group.replicas[1].machine.applied == applied + 1


# ---- Effects for another shard, and what a new leader may not know yet.


def test_a_new_leader_renumbers_no_effects_before_its_state_has_all_that_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Replicas(3, shards=2)
    theirs = EffectsTaken(seq=4, epochs=[(1, 7)])
    with monkeypatch.context() as losing:
        losing.setattr(group, "is_lost", lambda message: isinstance(message, AppendRequest))
        group.elect(2, 2, 3)

        assert group.replicas[2].compare(1, theirs) is None

    group.tick(5)
    group.settle()

    assert isinstance(group.replicas[2].compare(1, theirs), Renumber)
