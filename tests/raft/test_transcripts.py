"""The scenarios of `scenarios/`, one test each: what happens is what the file says, to the letter.

To see a scenario, read its file. To accept a change of behaviour, run
`python -m tests.raft.transcript --rewrite` and read the difference.
"""

import re

import pytest

from tests.raft import transcript
from tests.raft.transcript import SCENARIOS, Stage, difference, render


def check(name: str) -> None:
    """Play one scenario."""
    found = difference(SCENARIOS / name)

    assert not found, f"\n{found}"


@pytest.mark.conformance("I01")
def test_i01_writes_are_handed_out_several_deep_and_each_releases_its_own_answers() -> None:
    check("async_writes.txt")


@pytest.mark.conformance("I02")
def test_i02_an_old_write_marks_nothing_durable_that_was_replaced() -> None:
    check("async_writes_aba.txt")


@pytest.mark.conformance("I03")
def test_i03_a_plain_election_asks_first_and_commits_a_no_op() -> None:
    check("campaign.txt")


@pytest.mark.conformance("I04")
def test_i04_a_leader_that_hears_nobody_stops_and_a_fresh_one_is_not_contended() -> None:
    check("check_quorum.txt")


@pytest.mark.conformance("I05")
def test_i05_a_replica_that_does_not_know_it_is_a_voter_votes() -> None:
    check("learner_must_vote.txt")


@pytest.mark.conformance("I06")
def test_i06_a_second_change_is_always_refused_where_it_is_proposed() -> None:
    check("one_change_at_a_time.txt")


@pytest.mark.conformance("I07")
def test_i07_a_newcomer_begins_with_a_snapshot_and_votes_only_when_it_follows() -> None:
    check("add_by_snapshot.txt")


@pytest.mark.conformance("I08")
def test_i08_a_leader_that_removed_itself_stays_until_the_others_know() -> None:
    check("remove_leader.txt")


@pytest.mark.conformance("I09")
def test_i09_a_removed_leader_steps_aside_as_soon_as_it_hears_that_others_know() -> None:
    check("remove_leader_silent.txt")


@pytest.mark.conformance("I10")
def test_i10_a_node_told_to_forget_its_leader_helps_another_or_loses_nothing() -> None:
    check("forget_leader.txt")


@pytest.mark.conformance("I11")
def test_i11_only_a_majority_that_forgot_can_replace_a_leader_that_lives() -> None:
    check("forget_leader_quorum.txt")


@pytest.mark.conformance("I12")
def test_i12_forgetting_a_leader_never_lets_two_answer_a_read() -> None:
    check("forget_leader_reads.txt")


@pytest.mark.conformance("I13")
def test_i13_a_joint_state_that_ends_by_itself_ends_once() -> None:
    check("add_two_auto.txt")


@pytest.mark.conformance("I14")
def test_i14_a_new_leader_ends_the_joint_state_it_finds() -> None:
    check("add_two_new_leader.txt")


@pytest.mark.conformance("I15a")
def test_i15a_a_single_step_goes_through_the_joint_state_too() -> None:
    check("add_one_auto.txt")


@pytest.mark.conformance("I15b")
def test_i15b_an_explicit_joint_state_lasts_until_it_is_left() -> None:
    check("add_one_explicit.txt")


@pytest.mark.conformance("I16")
def test_i16_a_leader_hands_over_to_its_replacement_inside_the_joint_state() -> None:
    check("replace_leader.txt")


@pytest.mark.conformance("I17")
def test_i17_a_leader_leaves_the_joint_state_that_removes_it_and_goes() -> None:
    check("replace_leader_in_place.txt")


@pytest.mark.conformance("I18")
def test_i18_a_caught_up_peer_leaves_probing_without_new_entries() -> None:
    check("probe_recovers.txt")


@pytest.mark.conformance("I19")
def test_i19_a_lost_commit_notice_arrives_after_the_next_heartbeat() -> None:
    check("lagging_commit.txt")


@pytest.mark.conformance("I20")
def test_i20_the_logs_of_figure_7_become_equal_in_one_election() -> None:
    check("figure_7.txt")


@pytest.mark.conformance("I21")
def test_i21_a_node_that_was_cut_off_cannot_disturb_the_group() -> None:
    check("pre_vote.txt")


@pytest.mark.conformance("I22")
def test_i22_a_majority_that_asks_for_votes_replaces_a_leader_that_lives() -> None:
    check("pre_vote_quorum.txt")


@pytest.mark.conformance("I23")
def test_i23_a_group_of_one_commits_when_its_own_disk_is_done() -> None:
    check("single_node.txt")


@pytest.mark.conformance("I24")
def test_i24_a_saturated_peer_gets_one_empty_append_for_each_heartbeat() -> None:
    check("replicate_pause.txt")


@pytest.mark.conformance("I25")
def test_i25_an_installed_snapshot_is_reported_by_an_ordinary_answer() -> None:
    check("snapshot_by_answer.txt")


@pytest.mark.conformance("I26")
def test_i26_an_older_snapshot_than_the_one_offered_is_good_enough() -> None:
    check("snapshot_by_answer_behind.txt")


@pytest.mark.conformance("I27")
def test_i27_a_slow_peer_overtaken_by_a_cut_of_the_log_recovers() -> None:
    check("slow_follower_after_compaction.txt")


def test_every_scenario_has_its_test_and_names_the_same_id() -> None:
    tests = [value for name, value in globals().items() if re.match(r"test_i\d", name)]
    marks = [mark.args for test in tests for mark in test.pytestmark]

    named = []
    for path in sorted(SCENARIOS.iterdir()):
        found = re.match(r"# covers: (.+)\n", path.read_text(encoding="utf-8"))
        assert found, f"{path.name} does not begin with the ids it covers"
        named.append(tuple(found[1].split()))

    assert sorted(named) == sorted(marks)


def test_every_command_is_described_and_used() -> None:
    commands = {*Stage().commands}

    lines = [line for path in SCENARIOS.iterdir() for line in path.read_text().splitlines()]
    used = {
        line.removeprefix("> ").removeprefix("quietly ").split()[0]
        for line in lines
        if line[:2] == "> "
    }
    described = {*re.findall(r"[a-z-]+", str(transcript.__doc__).partition("The commands:")[2])}

    assert commands - used == set()
    assert commands - described == set()


def test_an_answer_that_is_not_what_happens_is_shown() -> None:
    wrong = "> group 1\n> campaign 1\n1: leader in t9\n"

    rendered = render(wrong)

    assert rendered == "> group 1\n> campaign 1\n1: candidate in t1\n"


def test_comments_and_blank_lines_are_kept_as_they_are() -> None:
    text = "# covers: I00\n\n> group 1\n\n# The end.\n"

    rendered = render(text)

    assert rendered == text


def test_a_command_that_fails_says_where_and_what_was_before() -> None:
    with pytest.raises(KeyError) as failure:
        render("> group 1\n> campaign 7\n")

    assert failure.value.__notes__ == ["at the command: campaign 7"]
