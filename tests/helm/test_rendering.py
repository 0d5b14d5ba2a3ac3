"""Every file of values in `ci/`: accepted by helm, and by the schemas of Kubernetes."""

import json
from functools import cache
from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest

import corvo
from tests.helm.charts import CI, KUBERNETES, Object, documents, helm, rendered
from tests.helm.values_reference import CHART

_FOREIGN: Final = {"Certificate", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
"""Kinds of other projects, which these schemas do not have."""


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_helm_accepts_the_values(values: Path) -> None:
    done = helm("lint", str(CHART), "--strict", "-f", str(values))

    assert done.code == 0, done.out


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_kubernetes_accepts_the_objects(values: Path, kubernetes: str) -> None:
    found = rendered(values=values, kubernetes=kubernetes)

    checked = [one for one in found.all if one.kind not in _FOREIGN]
    for one in checked:
        check(json.dumps(one.doc, sort_keys=True), kubernetes)
    assert len(checked) >= 4


@cache
def check(doc: str, kubernetes: str) -> None:
    """Validate an object; most are the same in many files."""
    kubernetes_validate.validate(json.loads(doc), kubernetes, strict=True)


def test_a_wrong_object_is_found() -> None:
    wrong = rendered().one("Service", "jobs-corvo").doc | {"spec": {"porst": []}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_every_template_is_rendered_by_some_file() -> None:
    kinds = {one.kind for values in CI for one in rendered(values=values).all}

    assert kinds == {
        *_FOREIGN,
        *("ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "Pod"),
        *("CronJob", "PersistentVolumeClaim"),
        *("PodDisruptionBudget", "Secret", "Service", "ServiceAccount", "StatefulSet"),
    }


def test_the_chart_is_for_this_version_of_corvo() -> None:
    [chart] = documents((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == corvo.__version__
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"
    assert f"## {chart['version']}" in (CHART / "CHANGELOG.md").read_text()
    assert f"## {chart['version']}" in (CHART / "UPGRADING.md").read_text()


# ---- Kinds of other projects, by the fields that they require.


def find(name: str, kind: str) -> list[Object]:
    """The objects of a kind for a file of values."""
    return rendered(values=CHART / "ci" / f"{name}-values.yaml").of(kind)


def test_prometheus_scrapes_every_pod_with_a_key_of_its_own() -> None:
    [monitor] = find("monitoring", "ServiceMonitor")
    services = find("monitoring", "Service")

    wanted = monitor.at("spec", "selector", "matchLabels")
    assert isinstance(wanted, dict)
    [service] = [one for one in services if wanted.items() <= one.meta.labels.items()]
    assert service.at("spec", "publishNotReadyAddresses") is True
    assert monitor.at("spec", "endpoints", 0, "port") in {port.name for port in service.ports}
    assert monitor.at("spec", "endpoints", 0, "path") == "/metrics"
    assert monitor.at("spec", "endpoints", 0, "authorization", "credentials", "name") == (
        "prometheus-key"
    )
    assert monitor.meta.labels["release"] == "prometheus"


def test_rules_of_a_release_follow_those_of_the_chart() -> None:
    [rule] = find("monitoring", "PrometheusRule")
    groups = rule.at("spec", "groups")

    assert isinstance(groups, list)
    assert [group["name"] for group in groups][-2:] == ["corvo-jobs", "shop"]
    names = [each.get("alert") for group in groups for each in group["rules"]]
    assert "CorvoOldestJob" in names
    assert "CorvoEventLoopStalls" not in names
    assert rule.meta.labels["release"] == "prometheus"


def test_each_dashboard_is_a_map_of_its_own(tmp_path: Path) -> None:
    chart = copy_of_chart(tmp_path)
    (chart / "files" / "dashboards").mkdir(exist_ok=True)
    (chart / "files" / "dashboards" / "more.json").write_text('{"title": "{{queue}}"}')

    found = rendered(values=CHART / "ci" / "monitoring-values.yaml", chart=chart)

    names = {one.meta.name for one in found.of("ConfigMap")}
    assert {"jobs-corvo-dashboard-operators", "jobs-corvo-dashboard-queues"} <= names
    board = found.one("ConfigMap", "jobs-corvo-dashboard-more")
    assert json.loads(board.data["more.json"]) == {"title": "{{queue}}"}
    assert board.meta.labels["grafana_dashboard"] == "1"


def test_cert_manager_gets_names_and_issuers() -> None:
    [client, peer] = find("cert-manager", "Certificate")

    names = client.at("spec", "dnsNames")
    assert isinstance(names, list)
    assert {"jobs-corvo.shop.svc", "jobs.example.net"} <= set(names)
    assert client.at("spec", "issuerRef", "name") == "public"
    assert peer.at("spec", "usages") == ["server auth", "client auth"]
    pod = find("cert-manager", "StatefulSet")[0].the_pod
    mounted = {one.secret.secret_name for one in pod.volumes if one.secret is not None}
    assert mounted == {client.at("spec", "secretName"), peer.at("spec", "secretName")}


def test_workers_follow_the_pending_jobs_of_their_queues() -> None:
    [scaler] = find("worker", "HorizontalPodAutoscaler")
    [keda] = find("worker-keda", "ScaledObject")
    [deployment] = find("worker", "Deployment")

    assert scaler.at("spec", "scaleTargetRef", "name") == deployment.meta.name
    assert deployment.at("spec", "replicas") is None
    assert scaler.at("spec", "metrics", 1, "external", "metric", "selector", "matchLabels") == {
        "queue": "sms",
        "state": "pending",
    }
    assert keda.at("spec", "triggers", 0, "metadata", "query") == (
        'max(corvo_queue_jobs{namespace="shop",queue="images",state="pending"})'
    )


def copy_of_chart(directory: Path) -> Path:
    """A chart that a test may change."""
    chart = directory / "corvo"
    for path in CHART.rglob("*"):
        if path.is_file():
            copy = chart / path.relative_to(CHART)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text())
    return chart
