"""Alerts on real nodes: their causes, and Prometheus."""

from pathlib import Path
from typing import Final

import pytest
import trio

from tests.alerts.firing import SCENARIOS, SHORT, run
from tests.alerts.prometheus import needs_prometheus
from tests.alerts.rules import alerts, defaults
from tests.node.filling import NoMount
from tests.support.certificates import needs_openssl

IN_SUITE: Final = [
    pytest.param(name, marks=needs_openssl if name == "certificate" else ())
    for name, scenario in SCENARIOS.items()
    if scenario.in_suite
]


def test_every_alert_is_made_real() -> None:
    made = {alert for scenario in SCENARIOS.values() for alert in scenario.alerts}

    assert made == {rule.alert for rule in alerts()}
    assert SHORT.keys() <= defaults().keys()


@needs_prometheus
@pytest.mark.parametrize("name", IN_SUITE)
def test_the_cause_of_an_alert_makes_it_fire(tmp_path: Path, name: str) -> None:
    # Each wait of a scenario has a limit of its own.
    try:
        fired = trio.run(run, name, tmp_path)
    except NoMount as error:
        pytest.skip(str(error))

    assert {each.name for each in fired} == {*SCENARIOS[name].alerts}
