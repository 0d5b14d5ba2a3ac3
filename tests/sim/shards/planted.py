"""Bugs in the shard: name, module, the text that is replaced, what replaces it, a seed."""

from typing import Final

from tests.sim.bugs import Bug
from tests.sim.planted import Row

LEASES: Final[tuple[Row, ...]] = (
    (
        "token-not-checked",
        "shard.state.lifecycle",
        "if token is not None and token != job.lease_token:",
        "if False:",
        1,
    ),
    (
        "lease-over-too-early",
        "shard.state.lifecycle",
        "    if tx.now_ns < expires_ns:\n",
        "    if tx.now_ns < expires_ns - 300_000_000:\n",
        12,
    ),
    (
        "expired-lease-still-good",
        "shard.state.lifecycle",
        "    if not is_over(tx, job):\n",
        "    if True:\n",
        26,
    ),
    (
        "no-grace",
        "shard.state.lifecycle",
        "return not (expires_ns > tx.grace.since_ns and tx.now_ns < tx.grace.until_ns)",
        "return True",
        1,
    ),
    (
        "heartbeat-moves-nothing",
        "shard.ops.work",
        "max(job.lease_expires_ns, tx.now_ns + job.lease_ms * MS)",
        "job.lease_expires_ns",
        1,
    ),
    (
        "fetch-again-gives-what-is-lost",
        "shard.ops.work",
        "if job.state is _ACTIVE and job.lease_token == token:",
        "if True:",
        4,
    ),
    (
        "request-key-not-remembered",
        "shard.state.requests",
        "    if found is not None:\n        request = found.document",
        "    if found is not None and False:\n        request = found.document",
        1,
    ),
)

QUEUES: Final[tuple[Row, ...]] = (
    (
        "reclaimed-to-the-end",
        "shard.state.lifecycle",
        "return tx.next_order_ns() if is_cleared else job.order_ns",
        "return tx.next_order_ns()",
        2,
    ),
    ("paused-queue-gives", "shard.state.limits", "if queue.paused:", "if False:", 7),
    (
        "one-more-than-the-limit",
        "shard.state.limits",
        "queue.max_concurrency - tx.count(queue.name)[_ACTIVE]",
        "queue.max_concurrency - tx.count(queue.name)[_ACTIVE] + 1",
        6,
    ),
    (
        "rate-limit-forgotten-at-restart",
        "shard.state.limits",
        "rows = tx.keys(prefix, prefix_end(prefix), limit=2 * RATE_MAX)",
        "rows = tx.keys(prefix, prefix_end(prefix), limit=1)[1:]",
        6,
    ),
    (
        "cancelled-job-still-counted",
        "kv.tables",
        "            counts[was[1]] -= 1\n",
        "            counts[was[1]] -= number != 6\n",
        6,
    ),
    (
        "time-goes-backwards",
        "kv.tables",
        "self.now_ns = max(stamp_ns, self.meta.now_ns + 1)",
        "self.now_ns = stamp_ns or self.meta.now_ns + 1",
        3,
    ),
)

CLOCKS: Final[tuple[Row, ...]] = (
    (
        "stamps-follow-the-wall-clock",
        "steered_clock",
        "            shown_ns += passed_ns\n",
        "            shown_ns = wall_ns\n",
        1,
    ),
    (
        "steered-without-bound",
        "steered_clock",
        "share_ns = min(passed_ns, REACH_NS) // SHARE",
        "share_ns = AHEAD_MAX_NS",
        1,
    ),
    (
        "slowed-to-a-standstill",
        "steered_clock",
        "max(-share_ns, min(ahead_ns, share_ns))",
        "max(-passed_ns, min(ahead_ns, share_ns))",
        1,
    ),
    (
        "steered-away",
        "steered_clock",
        "shown_ns += max(-share_ns, min(ahead_ns, share_ns))",
        "shown_ns -= max(-share_ns, min(ahead_ns, share_ns))",
        1,
    ),
    (
        "a-century-believed-at-a-start",
        "steered_clock",
        "is_absurd = wall_ns - last_ns > self._ahead_max_ns and last_ns >= UNSET_NS",
        "is_absurd = False",
        89,
    ),
    (
        "leader-not-followed",
        "shard.replica",
        "            self.clock.follow(awaited.elapsed_ns, self.machine.now_ns)",
        "            pass",
        51,
    ),
)

REPLICAS: Final[tuple[Row, ...]] = (
    (
        "watching-link-not-notified",
        "shard.replica",
        "touched = [queue for queue in tx.touched if queue in self._watchers]",
        "touched: list[str] = []",
        3,
    ),
    (
        "retry-not-notified",
        "shard.replica",
        "due = self._watchers.take_due(now_ns) if self._watchers.retries else []",
        "due: list[str] = []",
        10,
    ),
    (
        "promotion-not-told",
        "shard.state.lifecycle",
        "EventType.PROMOTED),\n    )\n    return _change(tx, found, after)",
        "EventType.PROMOTED),\n    )\n    return JOBS.change(tx, found, after)",
        3,
    ),
    (
        "lost-entry-answered-as-done",
        "shard.gathering",
        "if proposed.index == index and proposed.term == term:",
        "if proposed.index == index:",
        4,
    ),
    (
        "snapshot-keeps-the-old-machine",
        "shard.replica",
        "        self.machine = machine\n        if machine.tx.shard",
        "        if machine.tx.shard",
        1,
    ),
    (
        "snapshot-means-no-effect",
        "shard.replica",
        "self._refuse(submission.client, submission.request, unknown)",
        "self._say(submission.client, wire.NotLeader(submission.request, None))",
        2,
    ),
    (
        "membership-of-a-snapshot-not-noted",
        "shard.replica",
        "        self.node.stored(token, intact=intact)\n        self._note_membership()",
        "        self.node.stored(token, intact=intact)",
        8,
    ),
    (
        "read-before-it-is-applied",
        "shard.replica",
        "due = [questions for index, questions in self._reading if index <= applied]",
        "due = [questions for _, questions in self._reading]",
        1,
    ),
    (
        "stands-down-without-a-word",
        "shard.replica",
        "        for submission in self._gathering.refuse_gathered():",
        "        for submission in []:",
        1,
    ),
    (
        "own-op-of-a-lost-term-counted",
        "shard.replica",
        "        if submission.request == self._led_term:",
        "        if True:",
        10,
    ),
)

EFFECTS: Final[tuple[Row, ...]] = (
    (
        "inbox-before-the-effects",
        "shard.ops.transfer",
        "    taken = 0\n    for effect in op.effects:\n",
        (
            "    taken = 0\n    for effect in op.effects:\n"
            "        if effect.seq == outbox.last_taken(tx, effect.source) + 1:\n"
            "            outbox.take(tx, effect.source, effect.seq, epoch=effect.epoch)\n"
            "    for effect in op.effects:\n"
        ),
        1,
    ),
    (
        "half-of-a-batch",
        "shard.ops.transfer",
        "        taken += _take(effect, tx)\n",
        (
            "        if effect is op.effects[0]:\n            taken += _take(effect, tx)\n"
            "        elif effect.seq == outbox.last_taken(tx, effect.source) + 1:\n"
            "            outbox.take(tx, effect.source, effect.seq, epoch=effect.epoch)\n"
            "            taken += 1\n"
        ),
        1,
    ),
    (
        "effect-taken-twice",
        "shard.ops.transfer",
        (
            "    if op.seq <= outbox.last_taken(tx, op.source):\n        return False\n"
            "    outbox.take(tx, op.source, op.seq, epoch=op.epoch)\n"
        ),
        (
            "    if op.seq < outbox.last_taken(tx, op.source):\n        return False\n"
            "    if op.seq > outbox.last_taken(tx, op.source):\n"
            "        outbox.take(tx, op.source, op.seq, epoch=op.epoch)\n"
        ),
        1,
    ),
    (
        "window-skips-on-a-resend",
        "shard.relaying",
        "        self.sent = self.taken\n",
        "        pass\n",
        10,
    ),
    (
        "effects-removed-when-sent",
        "shard.relaying",
        "            destination.taken = taken\n",
        "            destination.taken = destination.sent\n",
        3,
    ),
    (
        "refusal-of-a-batch-forgotten",
        "shard.relaying",
        "        destination.has_failed = True\n",
        "        destination.under_way.pop(batch.number)\n",
        13,
    ),
)

NODES: Final[tuple[Row, ...]] = (
    (
        "places-of-an-earlier-map",
        "shard.ops.cluster",
        "shards: int) -> ClusterMap | Rejected:\n    if op.base != known.version:\n",
        "shards: int) -> ClusterMap | Rejected:\n    if False:\n",
        6,
    ),
    (
        "number-given-again",
        "shard.ops.cluster",
        "        number = known.last_number + 1\n",
        "        number = known.nodes[-1].number + 1\n",
        22,
    ),
    (
        "removed-directory-returns",
        "shard.ops.cluster",
        "if op.instance == removed.instance or op.number == removed.number:",
        "if op.number == removed.number:",
        140,
    ),
    (
        "wiped-node-keeps-its-number",
        "shard.ops.cluster",
        "        if found.instance:\n",
        "        if False:\n",
        7,
    ),
    (
        "removed-node-keeps-its-places",
        "shard.ops.cluster",
        "each for each in place if each != number",
        "each for each in place",
        9,
    ),
    (
        "draining-node-is-given-places",
        "shard.upkeep",
        "if node.number in carriers\n",
        "if True\n",
        5,
    ),
    (
        "map-forgotten-at-a-start",
        "shard.state.tx",
        "_decode_map(store.get(_MAP_KEY)) if shard == MAP_HOME else None",
        "None",
        5,
    ),
    (
        "places-proposed-once",
        "shard.upkeep",
        "return self._place_again_ns if known.version == self._placed_version else 0",
        "return _NEVER_NS if known.version >= self._placed_version > 0 else 0",
        5,
    ),
)

SCHEDULES: Final[tuple[Row, ...]] = (
    (
        "due-time-not-noted",
        "shard.ops.schedules",
        "        from_ns=planned.until_ns,\n",
        "        from_ns=found.document.from_ns,\n",
        5,
    ),
    (
        "plan-of-an-earlier-definition",
        "shard.ops.schedules",
        "if (planned.changes, planned.from_ns) != (schedule.changes, schedule.from_ns):",
        "if planned.from_ns != schedule.from_ns:",
        110,
    ),
    (
        "plan-of-an-earlier-time",
        "shard.ops.schedules",
        (
            "    if (planned.changes, planned.from_ns) != (schedule.changes, schedule.from_ns):\n"
            "        return False\n"
            "    times = [each.due_ns for each in planned.due]\n"
            "    if planned.missed:\n"
            "        times.insert(0, planned.missed_ns)\n"
            "    first_ns, last_ns = max(schedule.from_ns + 1, schedule.starts_ns),"
        ),
        (
            "    if planned.changes != schedule.changes:\n"
            "        return False\n"
            "    times = [each.due_ns for each in planned.due]\n"
            "    if planned.missed:\n"
            "        times.insert(0, planned.missed_ns)\n"
            "    first_ns, last_ns = schedule.starts_ns,"
        ),
        126,
    ),
    (
        "client-before-the-due-time",
        "shard.ops.schedules",
        "    fire_due(tx, found)\n    return found\n",
        "    return found\n",
        53,
    ),
    (
        "pause-is-made-up-for",
        "shard.ops.schedules",
        "after = _unplanned(replace(after, from_ns=tx.now_ns))\n",
        "after = _unplanned(after)\n",
        5,
    ),
    (
        "moving-schedule-goes-on",
        "shard.ops.schedules",
        "    SCHEDULES.change(tx, found, after)\n    schedules.send(tx, after)\n",
        "    schedules.send(tx, after)\n",
        18,
    ),
    (
        "due-time-lost-on-the-way",
        "shard.state.schedules",
        '        moving_to="",\n        runs=',
        '        moving_to="",\n        from_ns=0,\n        next_ns=0,\n        runs=',
        18,
    ),
    (
        "overlap-not-seen",
        "shard.ops.schedules",
        'if running and schedule.overlap in {"skip", "queue"}:\n        skipped',
        'if running and schedule.overlap == "queue":\n        skipped',
        12,
    ),
    (
        "waiting-due-time-lost",
        "shard.state.schedules",
        "SCHEDULES.change(tx, found, replace(schedule, runs=runs))",
        "SCHEDULES.change(tx, found, replace(schedule, runs=runs, queued_ns=0))",
        12,
    ),
    (
        "job-without-its-due-time",
        "shard.ops.schedules",
        'return f"{schedule.id}@{prefix}{format_time(due_ns)}"',
        'return f"{schedule.id}@{prefix}"',
        5,
    ),
    (
        "jitter-is-late",
        "shard.state.tables",
        "return (schedule.missed_after_ms + schedule.jitter_ms) * MS",
        "return schedule.missed_after_ms * MS",
        76,
    ),
    (
        "job-in-the-queue-of-a-refused-move",
        "protocol.ops.schedules",
        "return replace(_decode_job(schedule.job), queue=schedule.queue)",
        "return _decode_job(schedule.job)",
        187,
    ),
    (
        "all-that-was-missed",
        "shard.firing",
        "kept = found[-keep:] if keep else []",
        "kept = found",
        5,
    ),
)

BUGS: Final = (*LEASES, *QUEUES, *CLOCKS, *REPLICAS, *EFFECTS, *NODES, *SCHEDULES)

BY_NAME: Final = {row[0]: Bug(*row, package="corvo") for row in BUGS}
