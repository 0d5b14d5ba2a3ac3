"""The real state machine against the reference, entry by entry, over both stores.

Hypothesis thinks of entries; each goes through `Machine` and, op by op, through `Reference`. Every
answer and then the whole state must be the same, every index must follow from the documents, and
`Witness` asserts the invariants from the answers alone. Machines start anew at any time.

A long campaign, on two processes: `python -m tests.shard.test_model --examples 20000`.
"""

import argparse
import multiprocessing
import shutil
import sys
import tempfile
from collections import Counter
from typing import Final, cast

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from corvo.kv import keys
from corvo.kv.level import LevelStore
from corvo.kv.store import Store
from corvo.kv.tables import read_meta
from corvo.model import Job, JobError, Outgoing
from corvo.protocol.numbers import COUNTED
from corvo.shard.machine import Answer, Machine
from corvo.shard.ops import OPS
from corvo.shard.state.entry import Record, Stamp, encode
from corvo.shard.state.tables import JOBS, QUEUES
from corvo.shard.state.tx import TOKEN_BITS
from tests.shard import shapes
from tests.shard.counting_twin import CountingTwin
from tests.shard.intentions import (
    CHOSEN,
    HERE,
    Intention,
    firsts,
    intentions,
    moments,
    names,
)
from tests.shard.reference import Reference
from tests.shard.shapes import Fields, number, rows, text
from tests.shard.shard import wrong_in
from tests.shard.witness import WHERE, Witness
from tests.support.memory import MemoryStore

BEGIN_NS: Final = 1_700_000_000_000_000_000
MS: Final = 1_000_000
EVERYTHING: Final = 1 << 30
NUMBERS: Final = {op.__name__: number for number, op in OPS.items()}

PREFERRED: Final = {
    **dict.fromkeys(WHERE, ("active",)),
    "Retry": ("completed", "dead", "cancelled", "scheduled"),
    "Requeue": ("dead",),
    "Expedite": ("scheduled", "retrying"),
    "Approve": ("held",),
    "Reject": ("held",),
    "Hold": ("pending", "scheduled", "retrying", "active"),
    "Cancel": ("pending", "scheduled", "retrying", "held", "active"),
}
"""Where an op has something to do: most picks are from there."""

NOT_HERE: Final = (
    *("Tell", "UpsertAPIKey", "DeleteAPIKey", "Renumber", "Skip"),
    *("Announce", "DrainNode", "RemoveNode", "Place", "SetReplicas", "RaiseOpVersion"),
    *("CreateSchedule", "ChangeSchedule", "PauseSchedule", "DeleteSchedule", "RunSchedule"),
    *("BackfillSchedule", "FireSchedules", "Restore"),
)
"""What the end of a job means for others has tests of its own, and so have API keys, losses,
schedules, the cluster map and what comes back from a backup."""

FAILURES: Final = 24
"""More than there are errors kept."""

SWEEPS_MAX: Final = 200
"""More than there are jobs in an example."""

ENDS_ENTRY: Final = ("Sweep", "DeleteQueue", "Clear")
"""How much of a queue these remove at once is not said; what they left is read after the entry."""


class Shard(RuleBasedStateMachine):
    """One shard, in the real and by the book."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.open_store()
        self.machine = self.start()
        self.reference = Reference(local=HERE)
        self.witness = Witness()
        self.counting = CountingTwin(self.reference)
        self.documents: dict[str, Job] = {}
        """All jobs in the store after the last entry, but swept ones."""
        self.clock_ns = BEGIN_NS
        self.has_failed = False
        """Whether the last entry did not come to its end."""
        self.more = False
        """Whether the leader's last op said that there is more."""
        self.effects: dict[str, Fields] = {}
        """How each job left that is away."""
        self.arrived: Fields = {}
        self.noted = 0
        """The number of the last effect that was seen in the outbox."""
        self.seq = 0
        """Of the last arrival."""
        self.after_fetch = False
        """Whether a job that is pending may be active at this point of the entry."""
        self.tokens: dict[str, list[int]] = {}
        self.sent: dict[str, tuple[str, Fields]] = {}
        """The last op under each request key."""

    def open_store(self) -> Store:
        return MemoryStore()

    def start(self) -> Machine:
        return Machine(self.store, shard=0, shards=2)

    # What can happen.

    @rule(first=firsts, moment=moments, dice=st.integers(0, 3), wanted=intentions())
    def apply(
        self, first: str, moment: tuple[str, int, int], dice: int, wanted: list[Intention]
    ) -> None:
        match first:
            case "start anew":
                self.machine = self.start()
            case "fail often":
                self.fail_often()
            case _:
                pass
        stamp_ns = self.stamp_ns(moment)
        self.after_fetch = False
        ops = [op for intention in wanted if (op := self.resolve(intention, stamp_ns))]
        while ops:
            ends = (at for at, (name, _) in enumerate(ops, 1) if name in ENDS_ENTRY)
            size = 1 if self.counts_ghosts() else next(ends, len(ops))
            self.apply_entry(stamp_ns, dice * 0x5555_5555, ops[:size])
            ops = ops[size:]

    def fail_often(self) -> None:
        """A job is fetched and fails again and again: more errors and events than are kept."""
        for _ in range(FAILURES):
            self.apply_entry(self.clock_ns, 1, [("Fetch", {"queues": list(HERE)})])
            active = [job for job in self.reference.jobs.values() if job.state == "active"]
            if not active:
                return
            job = max(active, key=lambda job: job.token)
            word: Fields = {"job_id": job.id, "lease_token": job.token, "error": "again"}
            self.apply_entry(self.clock_ns, 2, [("Fail", {"fails": [word]})])
            due_ns = max(self.clock_ns, job.scheduled_ns)
            again: Fields = {"job_ids": [job.id]}
            self.apply_entry(due_ns, 3, [("Promote", {"limit": 1}), ("Requeue", again)])

    def counts_ghosts(self) -> bool:
        """Swept jobs that count against a limit may go at any time: look after every op."""
        return any(ghost.state == "active" for ghost in self.reference.ghosts.values())

    def teardown(self) -> None:
        """What was cleared or deleted is removed in the end, in bounded steps."""
        if self.has_failed:
            return  # or a second failure would hide the first
        for queue in HERE:
            for _ in range(SWEEPS_MAX):
                self.apply_entry(self.clock_ns, 0, [("Sweep", {"queue": queue, "limit": 3})])
                if not self.more:
                    break
            assert not self.more, "a sweep ends"
        assert not self.reference.ghosts, "nothing is left that was swept"

    # From an intention to an op.

    def stamp_ns(self, moment: tuple[str, int, int]) -> int:
        how, much, off_ns = moment
        if how == "pass":
            return self.clock_ns + much * MS
        due = [
            moment_ns
            for job in self.reference.jobs.values()
            for moment_ns in (
                job.scheduled_ns,
                job.lease_expires_ns,
                job.run_expires_ns,
                job.graced_ns,
                job.expires_ns,
                job.unique_until_ns,
            )
            if moment_ns > self.clock_ns
        ]
        due = sorted((*due, *self.windows_end_ns()))
        return due[much % len(due)] + off_ns if due else self.clock_ns

    def windows_end_ns(self) -> list[int]:
        """When fetches cease to count against a rate limit."""
        ends_ns = [
            fetched_ns + queue.rate_window_ms * MS
            for name, queue in self.reference.queues.items()
            for fetched_ns in self.reference.fetches.get(name, ())
        ]
        return [end_ns for end_ns in ends_ns if end_ns > self.clock_ns]

    def resolve(self, intention: Intention, stamp_ns: int) -> tuple[str, Fields] | None:
        """The op, or None when there is nothing that it could be about."""
        name, fields = intention[0], dict(intention[1])
        again = fields.pop("again", None)
        if isinstance(again, str) and again in self.sent:
            return self.sent[again]
        self.after_fetch = self.after_fetch or name == "Fetch"
        if name == "Enqueue":
            fields["jobs"] = [self.resolve_new(job, stamp_ns) for job in rows(fields, "jobs")]
        elif name in WHERE:
            where = WHERE[name]
            items = [self.resolve_item(name, item) for item in rows(fields, where)]
            fields[where] = [item for item in items if item]
            if not fields[where]:
                return None
        elif name == "Receive":
            return self.resolve_arrival(fields)
        elif name == "ReceiveMany":
            return self.resolve_arrivals(fields)
        elif name == "Delivered":
            return name, {"shard": 1, "seq": max(1, self.reference.sent)}
        elif "picks" in fields and not self.resolve_picks(name, fields):
            return None
        key = text(fields, "request_key")
        if key:
            self.sent.setdefault(key, (name, fields))
        return name, fields

    def resolve_arrival(self, fields: Fields) -> tuple[str, Fields] | None:
        """A job that had left comes back, as if the other shard had moved it at once."""
        how = fields["how"]
        if how == "again" and self.arrived:
            return "Receive", self.arrived
        here = [job_id for job_id in self.reference.away if job_id in self.effects]
        if how == "again" or not here:
            return None
        job_id = here[number(fields, "pick") % len(here)]
        effect = {**self.effects[job_id], "queue": fields["queue"]}
        if how == "gap":
            return "Receive", {"source": 1, "seq": self.seq + 2, "effect": effect}
        self.seq += 1
        del self.effects[job_id]
        self.arrived = {"source": 1, "seq": self.seq, "effect": effect}
        return "Receive", self.arrived

    def resolve_arrivals(self, fields: Fields) -> tuple[str, Fields] | None:
        """Several come back in one op, some of which were taken before."""
        how, arrivals = fields["how"], rows(fields, "arrivals")
        known = self.arrived if how == "again" else {}
        wanted = [{**each, "how": "gap" if how == "gap" else "next"} for each in arrivals]
        found = [self.resolve_arrival(each) for each in wanted[: 1 if how == "gap" else None]]
        came = [
            {**effect[1], "by": each["by"]}
            for effect, each in zip(found, arrivals, strict=False)
            if effect is not None
        ]
        effects = [known, *came] if known else came
        return ("ReceiveMany", {"effects": effects}) if effects else None

    def resolve_picks(self, name: str, fields: Fields) -> bool:
        picks = cast("list[int]", fields.pop("picks"))
        job_ids = [job_id for pick in picks if (job_id := self.pick(name, pick))]
        token = text(fields, "token")
        fields.pop("token", None)
        if token and job_ids:
            del job_ids[1:]
            fields.update(self.token(job_ids[0], token))
        fields["job_ids"] = job_ids
        return bool(job_ids)

    def resolve_new(self, job: Fields, stamp_ns: int) -> Fields:
        fields = dict(job)
        due_in_ms = fields.pop("due_in_ms", None)
        if due_in_ms is not None:
            fields["scheduled_ns"] = stamp_ns + cast("int", due_in_ms) * MS
        return fields

    def resolve_item(self, name: str, item: Fields) -> Fields:
        job_id = self.pick(name, number(item, "pick"))
        if not job_id:
            return {}
        fields = {key: item[key] for key in item if key not in {"pick", "token"}}
        if name == "Snooze":
            fields.setdefault("delay_ms", 1_000)
        return {"job_id": job_id, **fields, **self.token(job_id, text(item, "token"))}

    def pick(self, name: str, pick: int) -> str:
        """A job to which the op could happen; sometimes any, or one that is not there; or none."""
        jobs = self.reference.jobs.values()
        states = PREFERRED.get(name, ())
        match pick:
            case 31:
                found = ["unknown", *CHOSEN, *self.reference.away]
            case 28 | 29 | 30:
                found = [job.id for job in jobs]
            case _:
                if self.after_fetch and name in WHERE and pick % 3 == 0:
                    states = ("pending",)
                found = [job.id for job in jobs if not states or job.state in states]
        return found[pick % len(found)] if found else ""

    def token(self, job_id: str, how: str) -> Fields:
        given = self.tokens.get(job_id, [])
        job = self.reference.jobs.get(job_id)
        match how:
            case "present" if self.after_fetch and job is not None and job.state == "pending":
                return {"lease_token": self.machine.applied + 1 << TOKEN_BITS}
            case "present" if given:
                return {"lease_token": given[-1]}
            case "old" if given:
                return {"lease_token": given[0]}
            case "settled" if job is not None and job.settled is not None:
                return {"lease_token": job.settled[0]}
            case "wrong":
                return {"lease_token": 7}
            case _:
                return {}

    # One entry through both.

    def apply_data(self, index: int, data: bytes) -> list[Answer]:
        return self.machine.apply(index=index, term=1, data=data)

    def apply_entry(self, stamp_ns: int, dice: int, ops: list[tuple[str, Fields]]) -> None:
        self.has_failed = True
        before = read_meta(self.store)
        before_documents = self.documents
        index = before.applied + 1
        records: list[Record] = [
            (NUMBERS[name], msgspec.json.encode(fields)) for name, fields in ops
        ]
        data = encode(Stamp(stamp_ns, dice), records)

        answers = self.apply_data(index, data)

        now_ns = self.machine.tx.now_ns
        assert now_ns == max(stamp_ns, before.now_ns + 1), "time is the leader's, and only rises"
        assert read_meta(self.store).applied == index, "A5: the applied index is in the state"
        self.clock_ns = max(self.clock_ns, now_ns)
        self.reference.begin(now_ns=now_ns, dice=dice, last_ns=before.now_ns)
        self.witness.begin(now_ns)
        self.counting.begin()
        assert len(answers) == len(ops)
        for (name, fields), answer in zip(ops, answers, strict=True):
            seen = plain(answer)
            self.counting.look(fields)
            expected = self.reference.do(name, fields, seen)
            self.counting.saw(name, fields, expected)
            in_fact, by_book = clean(seen), clean(expected)
            assert in_fact == by_book, f"{name} {fields}: {in_fact}, by the book {by_book}"
            self.witness.saw(name, fields, seen)
            self.remember(name, seen)
            self.more = seen.get("more") is True
        self.check()
        self.witness.look(ops, before_documents, self.documents)
        self.check_counts()
        self.has_failed = False

    def check_counts(self) -> None:
        """What the entry tells for metrics, against a recount of each op."""
        tx = self.machine.tx
        told = Counter[tuple[str, str]]()
        for queue, counts in tx.minutes.happened:
            told.update({(queue, COUNTED[place]): count for place, count in enumerate(counts)})
        by_book = self.counting.counted
        assert +told == +by_book, f"{+told}, by the book {+by_book}"
        fetched = sum(count for (_, what), count in told.items() if what == "fetched")
        assert len(tx.waited_ns) == fetched, "each fetched job has waited"
        assert all(waited_ns >= 0 for waited_ns in (*tx.waited_ns, *tx.ran_ns))

    def remember(self, name: str, answer: Fields) -> None:
        if name == "Fetch" and "jobs" in answer:
            for claim in rows(answer, "jobs"):
                given = self.tokens.setdefault(text(claim, "job_id"), [])
                if number(claim, "lease_token") not in given:
                    given.append(number(claim, "lease_token"))

    # What must be the same.

    def check(self) -> None:
        content = dict(self.store.scan(b"", b"\xff", limit=EVERYTHING))
        jobs = {
            job.id: job
            for key, value in content.items()
            if key.startswith(keys.JOB.prefix)
            for job in (JOBS.decode(value),)
        }
        wrong = wrong_in(self.store, shard=0, shards=2)
        assert not wrong, wrong
        expected = self.reference.jobs
        swept = [job_id for job_id in jobs if job_id not in expected]
        assert all(job_id in self.reference.ghosts for job_id in swept), swept
        self.reference.ghosts = {job_id: self.reference.ghosts[job_id] for job_id in swept}
        for job_id, job in expected.items():
            assert job_id in jobs, f"{job_id} is lost"
            differences = differing(found(jobs[job_id], errors_of(content, job_id)), wanted(job))
            assert not differences, f"{job_id}, {job.state}: {differences}"
        waiting = [job for job in expected.values() if job.state in {"pending", "active"}]
        by_book = sorted(waiting, key=lambda job: job.place)
        in_fact = sorted(waiting, key=lambda job: jobs[job.id].order_ns)
        assert by_book == in_fact, "places are in the same order"
        self.documents = {job_id: jobs[job_id] for job_id in expected}
        self.note_effects(content)
        self.check_queues(content)

    def note_effects(self, content: dict[bytes, bytes]) -> None:
        """What is on its way to the other shard: the numbers and what they carry."""
        outgoing = [
            msgspec.msgpack.decode(value, type=Outgoing)
            for key, value in sorted(content.items())
            if key.startswith(keys.OUTBOX.prefix)
        ]
        assert [effect.seq for effect in outgoing] == self.reference.outbox
        for sent in outgoing:
            if sent.seq > self.noted:
                self.noted = sent.seq
                effect = cast("Fields", msgspec.json.decode(sent.body, type=Fields)["effect"])
                self.effects[shapes.names(effect, "job")[0]] = effect

    def check_queues(self, content: dict[bytes, bytes]) -> None:
        queues = {
            queue.name: queue
            for key, value in content.items()
            if key.startswith(keys.QUEUE_CONFIG.prefix)
            for queue in (QUEUES.decode(value),)
        }
        for name, queue in self.reference.queues.items():
            there = queues[name]
            for setting in shapes.Queue.__slots__:
                assert getattr(there, setting) == getattr(queue, setting), (name, setting)
        cleared = self.reference.cleared
        for name in [name for name in cleared if name not in queues or not queues[name].cleared_ns]:
            del cleared[name]  # the sweep is over
        for name, there in queues.items():
            assert name in self.reference.queues or there.deleted_ns, f"{name} is there"


class ShardOverLevel(Shard):
    """The same over LevelDB; beside it one over memory, which keeps no documents at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = Machine(MemoryStore(), shard=0, shards=2, cache_bytes_max=0)

    def apply_data(self, index: int, data: bytes) -> list[Answer]:
        answers = super().apply_data(index, data)
        assert self.twin.apply(index=index, term=1, data=data) == answers
        assert self.twin.digest == self.machine.digest, "what is kept in memory changes nothing"
        return answers

    def open_store(self) -> Store:
        self.directory = tempfile.mkdtemp()
        return LevelStore(f"{self.directory}/state")

    def teardown(self) -> None:
        super().teardown()
        self.store.close()
        shutil.rmtree(self.directory)


# From bytes to what is compared.


def plain(answer: Answer) -> Fields:
    """An answer as JSON; a refusal without its words."""
    body = msgspec.json.decode(answer.body, type=Fields)
    if answer.code:
        return refusal(body)
    if "results" in body:
        body["results"] = [refusal(it) if "code" in it else it for it in rows(body, "results")]
    return body


def refusal(body: Fields) -> Fields:
    assert body["error"], "a refusal has words"
    return {"code": body["code"], "job_id": body["job_id"]}


def clean(body: object) -> object:
    """Without what is not given."""
    if isinstance(body, dict):
        return {key: clean(it) for key, it in body.items() if it or key == "payload"}
    if isinstance(body, list):
        return [clean(it) for it in body]
    return body


def loaded(data: bytes) -> object:
    return msgspec.json.decode(data) if data else None


def errors_of(content: dict[bytes, bytes], job_id: str) -> list[Fields]:
    prefix = keys.JOB_ERROR.prefix + job_id.encode() + b"\0"
    errors = [value for key, value in sorted(content.items()) if key.startswith(prefix)]
    return [
        cast("Fields", msgspec.to_builtins(msgspec.json.decode(error, type=JobError)))
        for error in errors
    ]


def found(job: Job, errors: list[Fields]) -> Fields:
    """What is compared of a job in the store."""
    state = job.state.value
    active = state == "active"
    return {
        "queue": job.queue,
        "payload": job.payload,
        "state": state,
        "priority": job.priority,
        "attempt": job.attempt,
        "crashes": job.crashes,
        "failures": job.failures,
        "token": job.lease_token,
        "lease": (job.lease_expires_ns, job.run_expires_ns),
        "worker": job.worker_id if active else "",
        "cancel_requested": job.cancel_requested,
        "settled": job.settled.token if job.settled else None,
        "due": job.scheduled_ns if state in {"scheduled", "retrying"} else 0,
        "expires": job.expires_ns,
        "finished": job.finished_ns,
        "reason": job.hold_reason if state == "held" else "",
        "lock": job.unique_until_ns,
        "words": [loaded(it) for it in (job.progress, job.checkpoint, job.result)],
        "errors": errors,
        "trail": [(event.at_ns, event.by) for event in job.trail],
    }


def wanted(job: shapes.Job) -> Fields:
    """The same of a job by the book."""
    active = job.state == "active"
    return {
        "queue": job.queue,
        "payload": msgspec.json.encode(job.asked.get("payload", {})),
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "crashes": job.crashes,
        "failures": job.failures,
        "token": job.token,
        "lease": (job.lease_expires_ns, job.run_expires_ns),
        "worker": job.worker_id if active else "",
        "cancel_requested": job.cancel_requested,
        "settled": job.settled[0] if job.settled else None,
        "due": job.scheduled_ns,
        "expires": job.expires_ns,
        "finished": job.finished_ns,
        "reason": job.hold_reason,
        "lock": job.unique_until_ns,
        "words": [job.progress, job.checkpoint, job.result],
        "errors": job.errors,
        "trail": job.trail,
    }


def differing(found: Fields, wanted: Fields) -> Fields:
    return {name: (found[name], wanted[name]) for name in found if found[name] != wanted[name]}


# The runs.

# Entries are big; hypothesis would call both the machine and the drawing slow.
_CHECKS: Final = (HealthCheck.too_slow, HealthCheck.data_too_large)
_settings = settings(
    max_examples=200,
    stateful_step_count=25,
    deadline=None,
    print_blob=True,
    suppress_health_check=_CHECKS,
)


TestMemory = Shard.TestCase
TestMemory.settings = _settings
TestLevel = ShardOverLevel.TestCase
TestLevel.settings = settings(_settings, max_examples=50)


def run_seed(run: tuple[int, int, bool]) -> str:
    """One piece of a campaign; what failed, if anything did."""
    seed, examples, shrinks = run
    phases = (Phase.generate, Phase.shrink) if shrinks else (Phase.generate,)
    wanted = settings(_settings, max_examples=examples, database=None, phases=phases)
    try:
        stateful.run_state_machine_as_test(hypothesis.seed(seed)(Shard), settings=wanted)
    except AssertionError as failure:
        return "\n".join((f"seed {seed}: {failure}", *failure.__notes__))
    return ""


def main() -> int:
    """A long campaign in pieces, each with the next seed; it ends with the first difference."""
    parser = argparse.ArgumentParser(description="Hold the state machine against the reference.")
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first piece")
    parser.add_argument("--piece", type=int, default=250, help="examples for each seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shrink", action="store_true", help="look for the least failure: slow")
    wanted = parser.parse_args()
    seeds = range(wanted.seed, wanted.seed + -(-wanted.examples // wanted.piece))
    runs = [(seed, wanted.piece, wanted.shrink) for seed in seeds]
    with multiprocessing.Pool(wanted.processes) as pool:
        for seed, failure in zip(seeds, pool.imap(run_seed, runs), strict=True):
            if failure:
                print(failure)
                return 1
            done = (seed - wanted.seed + 1) * wanted.piece
            print(f"{done} examples, no difference; seeds {wanted.seed} to {seed}", flush=True)
    return 0


def test_every_op_is_intended() -> None:
    there = {op.__name__ for op in OPS.values()}

    assert there == {*names(), *NOT_HERE}


if __name__ == "__main__":
    sys.exit(main())
