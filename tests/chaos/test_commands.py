"""The command line of the chaos harness."""

from pathlib import Path

import pytest

from chaos.checks.report import Report, Stage
from chaos.commands import chosen, main, uncovered
from chaos.faults import all_faults
from chaos.remote import command_faults, site_of
from chaos.run import Failed, leaves
from chaos.verdict import UNCOUNTED, code_of

NAMES = ["kill-all", "kill-node", "loss", "power-all"]


def test_faults_are_chosen_by_name_by_the_beginning_of_their_names_or_all() -> None:
    assert chosen("all", NAMES) == NAMES
    assert chosen("none", NAMES) == []
    assert chosen("kill,loss", NAMES) == ["kill-all", "kill-node", "loss"]
    with pytest.raises(ValueError, match="unknown name 'kil'"):
        chosen("kil", NAMES)


def test_a_fault_whose_ability_the_machine_lacks_is_not_covered_with_the_reason() -> None:
    loss = all_faults()["loss"]

    assert uncovered(loss, {}) == ""
    assert uncovered(loss, {"packets": "only as root"}) == "only as root"


def test_faults_and_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0

    said = capsys.readouterr().out
    assert all(name in said for name in all_faults())
    assert "zombies" in said


def test_an_unknown_fault_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "run"

    assert main(["run", "--faults", "meteor", "--output", str(directory)]) == UNCOUNTED

    assert "unknown name 'meteor'" in capsys.readouterr().out
    assert not directory.exists()


def test_the_reasons_of_nested_groups_are_found() -> None:
    group = ExceptionGroup("", [ExceptionGroup("", [Failed("one")]), Failed("two")])

    assert [str(each) for each in leaves(group)] == ["one", "two"]


def test_an_address_has_a_scheme_and_a_host() -> None:
    site = site_of("https://corvo-0.example:8080", "secret")

    assert (site.host, site.port, site.is_tls) == ("corvo-0.example", 8080, True)
    assert site.headers == {"x-api-key": "secret"}
    assert site_of("http://10.0.0.1", "").port == 80
    with pytest.raises(ValueError, match="expected an address"):
        site_of("corvo-0:8080", "")


def test_a_fault_of_a_command_needs_a_name_and_a_command() -> None:
    assert list(command_faults(["kill=kubectl delete pod {node}"])) == ["kill"]
    with pytest.raises(ValueError, match="expected NAME=COMMAND"):
        command_faults(["kubectl delete pod {node}"])


def found(**wrong: int) -> Report:
    names = ("sanity", "witness", "replay", "final")
    return Report([Stage(name, total=wrong.get(name, 0)) for name in names])


def test_the_exit_code_tells_a_broken_rule_from_a_run_that_does_not_count() -> None:
    assert code_of(found()) == 0
    assert code_of(found(final=2)) == 1
    assert code_of(found(sanity=1, final=2)) == 2


def test_a_run_that_did_not_come_to_its_end_counts_only_if_a_rule_was_broken_before() -> None:
    assert code_of(found(), is_whole=False) == 2
    assert code_of(found(sanity=1, final=2), is_whole=False) == 2
    assert code_of(found(sanity=1, replay=1), is_whole=False) == 1
