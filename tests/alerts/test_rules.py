"""The alerts: their file, their values, and when each of them fires."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from corvo.router.node.families import FAMILIES
from tests.alerts import runbooks
from tests.alerts.cases import CASES, Case, Series, shown
from tests.alerts.rules import (
    METRICS_PAGE,
    PLAIN,
    ROOT,
    TABLE,
    Rule,
    alerts,
    defaults,
    groups_of,
    table,
    value_of,
    wanted,
    with_values,
)
from tests.helm.charts import rendered
from tests.support.pages import blocks
from tests.support.promtool import needs_promtool, promtool

ALERTS: Final = list(alerts())
RULES: Final = [rule for group in groups_of(with_values({})) for rule in group.rules]
RECORDED: Final = {rule.record for rule in RULES if rule.record}
_WITH_RULES: Final = "metrics.prometheusRule.enabled=true"


def of_chart(*words: str) -> dict[str, Rule]:
    """The rules as the chart renders them, by name."""
    found = rendered("--set", "auth.enabled=false", "--set", _WITH_RULES, *words)
    groups = groups_of(yaml.safe_dump(found.one("PrometheusRule").at("spec")))
    return {rule.alert or rule.record: rule for group in groups for rule in group.rules}


# ---- One source.


def test_every_value_of_the_chart_is_in_a_rule_and_every_alert_has_its_values() -> None:
    assert {*wanted()} == {*defaults()}
    assert {value_of(rule.alert) for rule in ALERTS} == {
        name.partition(".")[0] for name in defaults() if "." in name
    }


def test_the_plain_rules_and_the_table_are_those_of_the_source() -> None:
    assert PLAIN.read_text() == with_values({}), "run `make docs`"
    assert TABLE.findall(METRICS_PAGE.read_text()) == [table()], "run `make docs`"


def test_the_chart_has_the_plain_rules() -> None:
    assert list(of_chart().values()) == RULES


def test_values_of_the_chart_change_a_rule_and_leave_one_out() -> None:
    found = of_chart(
        *("--set", "metrics.prometheusRule.limits.oldestJob.seconds=60"),
        *("--set", "metrics.prometheusRule.limits.oldestJob.for=1s"),
        *("--set", "metrics.prometheusRule.runbooks=https://wiki.example.net/corvo"),
        *("--set", "metrics.prometheusRule.disabled={CorvoDiskFull}"),
    )

    assert "corvo_queue_oldest_pending_seconds) > 60\n" in found["CorvoOldestJob"].expr
    assert found["CorvoOldestJob"].for_ == "1s"
    assert found["CorvoOldestJob"].annotations["runbook_url"] == (
        "https://wiki.example.net/corvo/CorvoOldestJob.md"
    )
    assert {rule.alert for rule in ALERTS} - {*found} == {"CorvoDiskFull"}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule.alert)
def test_an_alert_has_what_an_operator_needs(rule: Rule) -> None:
    assert rule.labels.keys() == {"severity"}
    assert rule.labels["severity"] in {"critical", "warning"}
    assert rule.annotations.keys() == {"summary", "description", "runbook_url"}
    assert rule.annotations["runbook_url"] == f"docs/runbooks/{rule.alert}.md"
    assert rule.annotations["description"].endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert or rule.record)
def test_a_rule_names_metrics_that_there_are(rule: Rule) -> None:
    named = {*runbooks.metrics_in(rule.expr), *runbooks.metrics_in(str(rule.annotations))}
    recorded = {*runbooks.recorded_in(rule.expr)}

    assert named <= {*FAMILIES}
    assert recorded <= RECORDED
    assert named or recorded or "up{" in rule.expr


def test_a_recorded_expression_is_used_more_than_once() -> None:
    used = [name for rule in RULES for name in runbooks.recorded_in(rule.expr)]

    assert all(used.count(name) >= 2 for name in RECORDED)


# ---- When they fire.


@needs_promtool
def test_prometheus_accepts_the_rules() -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", str(PLAIN)) == ""


@needs_promtool
def test_prometheus_accepts_the_config_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "monitor.md").read_text()
    [config] = [block for block in blocks(page) if block.file == "prometheus.yml"]
    (tmp_path / "prometheus.yml").write_text(config.text)
    (tmp_path / "corvo.rules.yaml").write_text(PLAIN.read_text())

    assert promtool("check", "config", str(tmp_path / "prometheus.yml")) == ""


def test_every_alert_has_a_case() -> None:
    assert [*CASES] == [rule.alert for rule in ALERTS]


@needs_promtool
def test_each_alert_fires_and_does_not(tmp_path: Path) -> None:
    tests = [
        of_series(alert, case, series, count)
        for alert, case in CASES.items()
        for series, count in ((case.fires, case.firing), (case.quiet, 0))
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(PLAIN)], "tests": tests}))

    assert promtool("test", "rules", str(file)) == ""


def of_series(alert: str, case: Case, series: Series, count: int) -> Mapping[str, object]:
    """A test of promtool: the number of alerts that fire with these series."""
    found = {"labels": f'{{alertname="{alert}"}}', "value": count}
    return {
        "name": alert,
        "interval": "1m",
        "input_series": [
            {"series": shown(name), "values": values} for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": f"{case.minutes}m",
                "exp_samples": [found] if count else [],
            }
        ],
    }


@needs_promtool
def test_a_case_that_does_not_fire_is_found(tmp_path: Path) -> None:
    case = CASES["CorvoDiskFull"]
    file = tmp_path / "tests.yaml"
    test = of_series("CorvoDiskFull", case, case.quiet, 1)
    file.write_text(yaml.safe_dump({"rule_files": [str(PLAIN)], "tests": [test]}))

    assert "FAILED" in promtool("test", "rules", str(file))


def test_the_series_of_a_case_are_metrics_that_there_are() -> None:
    names = {
        name
        for case in CASES.values()
        for series in (*case.fires, *case.quiet)
        for name in runbooks.metrics_in(series)
    }

    assert names <= {*FAMILIES}
