"""The list of planted bugs: name, module, the text that is replaced, what replaces it, a seed."""

from typing import Final, TypeAlias

Row: TypeAlias = tuple[str, str, str, str, int]

ELECTIONS: Final[tuple[Row, ...]] = (
    (
        "message-before-vote-is-durable",
        "state",
        "waits = not self.is_saved",
        "waits = False",
        1,
    ),
    (
        "vote-for-everybody",
        "election",
        "may = (message.pre and message.term > raft.term) or free",
        "may = True",
        2,
    ),
    (
        "vote-for-a-shorter-log",
        "election",
        (
            "        and raft.log.is_up_to_date(last_index=message.last_index,"
            " last_term=message.last_term)\n"
        ),
        "",
        4,
    ),
    (
        "vote-under-repair",
        "election",
        "        and raft.repair is None\n",
        "",
        1,
    ),
    (
        "vote-forgotten-at-restart",
        "state",
        "self.vote = storage.hard_state.vote",
        "self.vote = NOBODY",
        78,
    ),
    (
        "vote-forgotten-when-stepping-down",
        "roles",
        "    if term != raft.term:\n        raft.term = term",
        "    if True:\n        raft.term = term",
        4,
    ),
    (
        "pre-vote-of-another-term",
        "election",
        "if message.pre and message.granted and message.term != raft.term + 1:",
        "if False:",
        2,
    ),
    (
        "lease-ignored",
        "core",
        "case VoteRequest() if raft.in_lease and not message.forced:",
        "case VoteRequest() if False:",
        1,
    ),
    (
        "lease-renewed-by-nobody",
        "core",
        "        election.campaign(raft)",
        "        raft.elapsed = 0\n        election.campaign(raft)",
        42,
    ),
    (
        "lease-renewed-by-a-doubled-request",
        "election",
        "if granted and not message.pre and raft.vote == NOBODY:",
        "if granted and not message.pre:",
        88,
    ),
    (
        "leader-ignores-a-higher-term",
        "core",
        "    if message.term > raft.term:\n",
        "    if message.term > raft.term and raft.role is not Role.LEADER:\n",
        1,
    ),
    (
        "elected-by-one-half",
        "quorum",
        "halves = (outcome(voters, votes), outcome(outgoing, votes))",
        "halves = (outcome(voters, votes),)",
        8,
    ),
    (
        "campaign-with-unapplied-change",
        "election",
        "not raft.is_promotable or raft.has_unapplied_change",
        "not raft.is_promotable",
        30,
    ),
    (
        "committed-change-forgotten-at-restart",
        "node",
        "        log.commit_to(changes[-2].index)\n",
        "        pass\n",
        1459,
    ),
    (
        "check-quorum-missing",
        "replication",
        "if not _quorum_is_active(raft, leadership):",
        "if False:",
        5,
    ),
    (
        "transfer-never-given-up",
        "replication",
        "if leadership.transfer_elapsed >= raft.settings.election_ticks:",
        "if False:",
        32,
    ),
)

LOGS: Final[tuple[Row, ...]] = (
    (
        "ack-before-sync",
        "state",
        "if isinstance(message, AppendResponse) and not self.log.is_durable:",
        "if False:",
        1,
    ),
    (
        "ack-beyond-the-message",
        "following",
        "        _accept(raft, last)",
        "        _accept(raft, max(last, message.commit))",
        4,
    ),
    (
        "log-matching-unchecked",
        "following",
        "if raft.log.matches(message.previous_index, message.previous_term):",
        "if message.previous_index <= raft.log.last_index:",
        14,
    ),
    (
        "late-append-cuts",
        "log",
        "if not self.matches(entry.index, entry.term):",
        "if not self.matches(entry.index, entry.term) or entries[-1].index < self.last_index:",
        27,
    ),
    (
        "append-commits-before-it-agrees",
        "following",
        "        last = raft.log.merge(",
        "        raft.log.commit_to(message.commit)\n        last = raft.log.merge(",
        6,
    ),
    (
        "heartbeat-commits-unclamped",
        "replication",
        "commit = min(raft.log.commit, progress.match)",
        "commit = raft.log.commit",
        4,
    ),
    (
        "commit-of-an-older-term-by-count",
        "replication",
        "if index <= raft.log.commit or not raft.log.matches(index, raft.term):",
        "if index <= raft.log.commit:",
        9,
    ),
    (
        "commit-by-one-half",
        "quorum",
        "return min(committed(voters, acked), committed(outgoing, acked))",
        "return committed(voters, acked)",
        8,
    ),
    (
        "learners-counted",
        "state",
        "return joint_committed(self.membership.voters, ",
        "return joint_committed(self.membership.voters + self.membership.learners, ",
        5,
    ),
    (
        "own-match-before-stored",
        "state",
        "return self.log.stable",
        "return self.log.last_index",
        7,
    ),
    (
        "no-op-skipped",
        "roles",
        '    raft.log.append((Entry(last_index + 1, raft.term, Kind.NOOP, b""),))',
        "",
        1,
    ),
    (
        "claims-not-capped",
        "log",
        "            claim.last_index = min(claim.last_index, first - 1)",
        "            pass",
        42,
    ),
    (
        "unstable-entries-applied",
        "log",
        "last = min(self.commit, self.stable)",
        "last = self.commit",
        1,
    ),
    (
        "window-never-freed",
        "replication",
        "            progress.window.free_to(message.index)",
        "            pass",
        19,
    ),
    (
        "paused-for-ever",
        "replication",
        "    progress.paused = False\n    if progress.flow",
        "    if progress.flow",
        1,
    ),
)

CHANGES: Final[tuple[Row, ...]] = (
    (
        "change-before-the-term-is-established",
        "node",
        "        if not raft.is_established:\n",
        "        if False:\n",
        17,
    ),
    (
        "second-change-under-way",
        "node",
        "if raft.log.applied < leadership.pending_change:",
        "if False:",
        5,
    ),
    (
        "joint-state-left-twice",
        "replication",
        "    if raft.log.applied >= leadership.pending_change:\n        append",
        "    if True:\n        append",
        5,
    ),
    (
        "joint-state-left-before-the-first-commit",
        "replication",
        "    if not raft.is_established:\n        # Nobody",
        "    if False:\n        # Nobody",
        0,
    ),
    (
        "joint-state-never-left",
        "core",
        "    replication.leave_joint_if_due(raft)",
        "",
        5,
    ),
    (
        "change-in-force-too-late",
        "core",
        "while raft.configs and raft.configs[0][0] <= index:",
        "while raft.configs and raft.configs[0][0] < index:",
        5,
    ),
    (
        "committed-change-not-saved",
        "state",
        "return self.is_vote_saved and self.log.committed_change <= self.durable.commit",
        "return self.is_vote_saved",
        5,
    ),
    (
        "removed-leader-leaves-at-once",
        "replication",
        ">= left_at:",
        ">= 0:",
        9,
    ),
    (
        "removed-leader-stays",
        "replication",
        "        _step_aside(raft, leadership)",
        "        pass",
        22,
    ),
)

READS: Final[tuple[Row, ...]] = (
    (
        "read-without-a-round",
        "replication",
        "        leadership.reads.ask(context, asker, raft.log.commit)",
        (
            "        raft.reads.append(Read(context, raft.log.commit)) if asker == NOBODY else"
            " leadership.reads.ask(context, asker, raft.log.commit)"
        ),
        1,
    ),
    (
        "read-round-of-another-answer",
        "replication",
        "progress.round = max(progress.round, message.round)",
        "progress.round = leadership.reads.round",
        1,
    ),
    (
        "read-before-the-first-commit",
        "replication",
        "    if raft.is_established:\n        leadership.reads",
        "    if True:\n        leadership.reads",
        26,
    ),
    (
        "read-proven-by-one-half",
        "replication",
        "round_ = joint_committed(group.voters, group.outgoing, confirmed)",
        "round_ = joint_committed(group.voters, (), confirmed)",
        8,
    ),
    (
        "reads-kept-by-a-leader-that-was",
        "roles",
        "        raft.reads_lost.extend(raft.leadership.reads.own())\n",
        "",
        6,
    ),
)

DIRECTORIES: Final[tuple[Row, ...]] = (
    (
        "impostor-believed",
        "core",
        'return None if message.instance == known else "instance"',
        "return None",
        42,
    ),
)

SNAPSHOTS: Final[tuple[Row, ...]] = (
    (
        "chunk-of-another-stream",
        "following",
        "if current is None or message.snapshot != current.snapshot or",
        "if current is None or",
        372,
    ),
    (
        "chunk-out-of-order",
        "following",
        "is_asked_for = current.expected == current.received == message.offset",
        "is_asked_for = True",
        53,
    ),
    (
        "install-keeps-the-membership",
        "following",
        "    raft.membership = snapshot.membership\n",
        "",
        1,
    ),
    (
        "install-before-apply-ended",
        "node",
        "if raft.install is not None and raft.log.handed > raft.log.applied:",
        "if False:",
        99,
    ),
    (
        "follower-stuck-in-snapshot",
        "replication",
        "if progress.quiet_ticks >= 3 * raft.settings.election_ticks:",
        "if False:",
        40,
    ),
    (
        "overtaken-stream-installed",
        "following",
        " or log.matches(snapshot.index, snapshot.term):",
        ":",
        1473,
    ),
    (
        "complete-stream-never-installed",
        "following",
        "    if current.received == current.snapshot.size > 0:\n",
        "    if False:\n",
        0,
    ),
    (
        "repair-without-a-new-term",
        "node",
        "become_follower(raft, raft.term + 1, NOBODY)",
        "become_follower(raft, raft.term, NOBODY)",
        1,
    ),
    (
        "repair-ends-too-early",
        "following",
        ">= repair.goal_index:",
        ">= 0:",
        1,
    ),
)

COPIES: Final[tuple[Row, ...]] = (
    (
        "older-copy-not-noticed",
        "following",
        "    if _has_forgotten(raft, message):\n",
        "    if False:\n",
        180,
    ),
    (
        "older-copy-noticed-by-its-length-alone",
        "following",
        " or raft.log.matches(index, message.acknowledged_term)\n",
        " or index <= raft.log.last_index\n",
        0,
    ),
    (
        "older-copy-repaired-in-its-old-term",
        "following",
        "    become_follower(raft, raft.term + 1, NOBODY)\n",
        "    become_follower(raft, raft.term, NOBODY)\n",
        75,
    ),
    (
        "repair-not-remembered",
        "node",
        "repair=raft.repair_is_new,",
        "repair=False,",
        75,
    ),
    (
        "repair-remembered-after-its-term",
        "disk.wal",
        "        self._save_repair()\n        self._save_vote()\n",
        "        self._save_vote()\n        self._save_repair()\n",
        0,
    ),
    (
        "acknowledgement-of-another-directory",
        "following",
        "if message.acknowledged_by != raft.settings.instance or _agrees",
        "if _agrees",
        0,
    ),
)

DISKS: Final[tuple[Row, ...]] = (
    (
        "hard-state-not-synced",
        "disk.hard_state",
        (
            "            self._files.write(HARD_STATE, number * SLOT_BYTES, slot)\n"
            "            self._files.sync(HARD_STATE)\n"
        ),
        "            self._files.write(HARD_STATE, number * SLOT_BYTES, slot)\n",
        3,
    ),
    (
        "segment-not-synced",
        "disk.segmented_log",
        "            if segment.dirty:\n                segment.sync()",
        "            segment.dirty = False",
        3,
    ),
    (
        "names-not-synced",
        "disk.filesystem",
        "    files.rename(temporary, name)\n    files.sync_names()",
        "    files.rename(temporary, name)",
        3,
    ),
    (
        "replaced-before-synced",
        "disk.filesystem",
        "    files.sync(temporary)\n    files.rename",
        "    files.rename",
        3,
    ),
    (
        "damage-taken-for-a-torn-tail",
        "disk.segments",
        "    if segment.tail < mark.offset:\n",
        "    if segment.tail < mark.offset:\n        return\n    if False:\n",
        66,
    ),
    (
        "zeros-taken-for-the-end",
        "disk.segments",
        "    check_marked(segment)\n",
        (
            "    if any(files.read(segment.name, segment.tail, RECORD.size)):\n"
            "        check_marked(segment)\n"
        ),
        164,
    ),
    (
        "torn-tail-taken-for-whole",
        "disk.segments",
        "        if chained != checksum or len(body) < length or found",
        "        if len(body) < length or found",
        352,
    ),
    (
        "commit-told-while-installing",
        "following",
        "known = 0 if raft.log.is_installing else raft.log.commit",
        "known = raft.log.commit",
        11,
    ),
    (
        "commit-of-a-change-not-saved",
        "disk.wal",
        "        self._save_commit()\n",
        "",
        1,
    ),
    (
        "mark-before-sync",
        "disk.wal",
        "        self._log.sync()\n        if self._log.reshaped",
        (
            "        for segment in self._log.segments:\n"
            "            segment.dirty = False\n"
            "        self._log.mark()\n"
            "        if self._log.reshaped"
        ),
        3,
    ),
    (
        "compacted-too-far",
        "disk.segmented_log",
        "if segment.last_index > index]",
        "if segment.last_index > index + 1]",
        1,
    ),
    (
        "cut-tail-comes-back",
        "disk.segmented_log",
        "            kept[-1].keep(first - 1)",
        "            pass",
        4,
    ),
    (
        "manifest-not-written",
        "disk.wal",
        "        if self._log.reshaped:\n            self._publish()\n",
        "",
        1,
    ),
)

RARE: Final = {
    "older-copy-noticed-by-its-length-alone": (
        "test_older_copies.py"
        "::test_x35_what_was_acknowledged_and_is_not_there_begins_a_repair[another entry]"
    ),
    "repair-remembered-after-its-term": (
        "test_wal_damage.py::test_a_crash_at_every_step_leaves_no_new_term_without_the_repair"
    ),
    "acknowledgement-of-another-directory": (
        "test_older_copies.py::test_x35_what_another_directory_acknowledged_is_not_owed[78-False]"
    ),
    "joint-state-left-before-the-first-commit": (
        "test_step.py::test_x14_a_new_leader_leaves_no_joint_state_before_its_first_commit"
    ),
    "complete-stream-never-installed": (
        "test_snapshot_streams.py"
        "::test_a_stream_that_was_complete_during_a_campaign_is_installed_afterwards"
    ),
}
"""Bugs without a recorded seed, for one life in many thousands shows them: the test that does."""

BUGS: Final = ELECTIONS + LOGS + CHANGES + READS + DIRECTORIES + SNAPSHOTS + COPIES + DISKS
