"""What the chart refuses, before anything is installed: each message says what to do."""

import base64
from pathlib import Path
from typing import Final

import pytest

from corvo.config import KEYS
from tests.helm.charts import Done, Object, described, documents, helm, refused, rendered, sets
from tests.helm.fake_api import kubernetes
from tests.helm.test_rendering import copy_of_chart
from tests.helm.values_reference import CHART

_CLUSTER: Final = ("cluster.enabled=true", "replicaCount=3")
_SET: Final = "/apis/apps/v1/namespaces/shop/statefulsets/jobs-corvo"
_KEYS: Final = "/api/v1/namespaces/shop/secrets/jobs-corvo-keys"


# ---- Values that cannot work.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["replicaCount=0"], "replicaCount: Must be greater than or equal to 1"),
        (["shards=65"], "shards: Must be less than or equal to 64"),
        (["replicas=3"], "Additional property replicas is not allowed"),
        (["service.type=Loadbalancer"], "service.type must be one of the following"),
        (["cluster.joinWait=soon"], "cluster.joinWait: Does not match pattern"),
        (["image.tag=latest"], "image.tag is latest: name a version"),
        (["replicaCount=3"], "cluster.enabled is false: set cluster.enabled=true, or repl"),
        (["cluster.enabled=true"], "Set replicaCount to at least 3"),
        ([*_CLUSTER, "persistence.enabled=false"], "Set persistence.enabled=true, or"),
        ([*_CLUSTER, "persistence.existingClaim=x"], "persistence.existingClaim is for one node"),
        (["terminationGracePeriodSeconds=45"], "set it to at least 50"),
        (["tls.enabled=true"], "set tls.existingSecret, or tls.certManager.enabled=true"),
        ([*_CLUSTER, "cluster.tls.enabled=true"], "set cluster.tls.existingSecret, or"),
        (["tls.certManager.enabled=true"], "needs tls.certManager.issuerRef, such as"),
        (["cluster.tls.certManager.enabled=true"], "needs cluster.tls.certManager.issuerRef"),
        (["ingress.enabled=true"], "ingress.enabled needs ingress.hosts"),
        (["metrics.serviceMonitor.enabled=true"], "`corvo keys create prometheus --role readon"),
        (["tracing.enabled=true"], "tracing.enabled needs tracing.endpoint, such as"),
        (["tracing.enabled=true", "tracing.endpoint=collector:4318"], "needs tracing.endpoint"),
        (["tracing.sampler=sometimes"], "tracing.sampler must be one of the following"),
        (["worker.enabled=true"], "`corvo keys create NAME --role worker`"),
        (["worker.enabled=true", "worker.existingSecret=x"], "worker.queues and worker.exec, or"),
        (["config.bind=:80"], "config.bind is made by the chart: use the value service.port"),
        (["config.cluster.secret=x"], "use the value cluster.existingSecret"),
        (["config.webhooks.secrets=a=b"], "would be readable in a ConfigMap"),
        (["config.limits.idle.ms=1"], "config.limits.idle is a group"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(settings: list[str], message: str) -> None:
    assert message in refused(*settings)


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_a_worker_that_scales_needs_more_values(kind: str) -> None:
    worker = ("worker.enabled=true", "worker.existingSecret=x", "worker.command={/app}")
    settings = (*worker, f"worker.autoscaling.kind={kind}", "worker.autoscaling.prometheusUrl=x")

    assert "worker.autoscaling needs worker.queues" in refused(*settings)
    none = refused(*settings, "worker.queues={a}", "worker.autoscaling.minReplicas=0") if (
        kind == "hpa"
    ) else refused(*worker, "worker.queues={a}", "worker.autoscaling.kind=keda")  # fmt: skip
    assert ("can scale to none" in none) is (kind == "hpa")
    assert ("needs worker.autoscaling.prometheusUrl" in none) is (kind == "keda")


def test_every_setting_that_the_chart_makes_is_refused_in_config() -> None:
    made: set[str] = set()
    for path in sorted((CHART / "ci").glob("*.yaml")):
        for variable in rendered(values=path).one("StatefulSet").the_pod.server.env:
            if variable.name.startswith("CORVO_"):
                made.add(variable.name)
    made -= {"CORVO_LOG_LEVEL", "CORVO_WEBHOOKS__SECRETS"}  # of `extraEnv`
    names = {key.name for key in KEYS.values() if key.variable in made}

    assert len(names) == len(made)
    for name in sorted(names):
        assert f"config.{name} is made by the chart" in refused(f"config.{name}=x")


# ---- The running release, as `lookup` finds it.


def upgrade(live: dict[str, object], *settings: str) -> Done:
    """Render for a Kubernetes that has these objects."""
    with kubernetes(live) as address:
        return helm(
            *("template", "jobs", str(CHART), "--namespace", "shop"),
            *("--dry-run=server", "--kube-apiserver", address, *sets(settings)),
        )


def running(*settings: str) -> dict[str, object]:
    """The StatefulSet of a release that was installed with these values."""
    return {_SET: rendered(*sets(settings)).one("StatefulSet").doc}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (["replicaCount=5"], [], "Remove the nodes with the highest numbers first"),
        ([], ["shards=8"], "shards is 8, and the release has 4: the number cannot be changed"),
        ([], ["cluster.initialNodes=2"], "the release was formed with 3: set it to 3"),
        (["cluster.formation=join"], [], "Set cluster.formation=join"),
    ],
    ids=str,
)
def test_an_upgrade_that_loses_data_is_refused(
    before: list[str], after: list[str], message: str
) -> None:
    done = upgrade(running(*_CLUSTER, *before), *_CLUSTER, *after)

    assert done.code != 0
    assert message in done.err


def test_a_cluster_does_not_become_one_node() -> None:
    done = upgrade(running(*_CLUSTER), "cluster.enabled=false", "cluster.allowScaleDown=true")

    assert "cluster.enabled is false, and the release is a cluster" in done.err


def test_one_node_becomes_a_cluster_only_by_joining() -> None:
    refused_one = upgrade(running(), *_CLUSTER)

    assert "new pods could form a second cluster beside them" in refused_one.err


def test_one_node_restarts_before_others_join_it() -> None:
    joining = ("cluster.enabled=true", "cluster.formation=join")

    # Kubernetes would not restart it: it waits until the new pods are ready, and they wait for it.
    at_once = upgrade(running(), *joining, "replicaCount=3")
    first = upgrade(running(), *joining)
    then = upgrade(running(*joining), *joining, "replicaCount=3")

    assert "Upgrade with replicaCount=1 first" in at_once.err
    assert first.code == 0, first.err
    assert then.code == 0, then.err


def test_a_harmless_upgrade_is_accepted() -> None:
    three = running(*_CLUSTER)

    assert upgrade(three, *_CLUSTER, "cluster.formation=join").code == 0
    assert upgrade(three, "cluster.enabled=true", "replicaCount=5").code == 0
    fewer = upgrade(running("cluster.enabled=true", "replicaCount=5"), *_CLUSTER,
                    "cluster.allowScaleDown=true")  # fmt: skip
    assert fewer.code == 0, fewer.err


def test_generated_keys_are_kept_over_upgrades() -> None:
    kept = {"admin-key": text64("the admin key"), "cluster-secret": text64("the secret of all")}
    live = {**running(*_CLUSTER), _KEYS: {"apiVersion": "v1", "kind": "Secret", "data": kept}}

    done = upgrade(live, *_CLUSTER)

    assert secret_in(done).data == kept


def test_a_missing_key_is_added_to_those_that_are_kept() -> None:
    kept = {"admin-key": text64("the admin key")}
    live: dict[str, object] = {_KEYS: {"apiVersion": "v1", "kind": "Secret", "data": kept}}

    data = secret_in(upgrade(live, *_CLUSTER)).data

    assert data["admin-key"] == kept["admin-key"]
    assert len(base64.b64decode(data["cluster-secret"])) == 40


def test_new_keys_differ() -> None:
    data = [secret_in(upgrade({}, *_CLUSTER)).data for _ in range(2)]

    assert len({value for one in data for value in one.values()}) == 4


def text64(text: str) -> str:
    """A text as a Secret has it."""
    return base64.b64encode(text.encode()).decode()


def secret_in(done: Done) -> Object:
    """The Secret in what helm has rendered."""
    assert done.code == 0, done.err
    [found] = [one for one in map(described, documents(done.out)) if one.kind == "Secret"]
    return found


# ---- The notes after an installation.


@pytest.mark.parametrize(
    ("settings", "expected", "unexpected"),
    [
        ([], "helm -n shop test jobs --logs", "WARNING"),
        (["auth.enabled=false"], "every client that reaches the service has full access", "key"),
        (["persistence.enabled=false"], "all jobs are lost with the pod", "NOTE"),
        (["cluster.enabled=true", "replicaCount=4"], "Use an odd number", "WARNING"),
        (["auth.existingSecret=ours"], "with the admin key of the Secret ours", "WARNING"),
    ],
    ids=str,
)
def test_the_notes_have_three_commands(
    settings: list[str], expected: str, unexpected: str, tmp_path: Path
) -> None:
    # `helm template` leaves the notes out, so a copy of the chart has them in an object.
    chart = copy_of_chart(tmp_path)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text(
        f'{{{{- define "notes" -}}}}{notes}{{{{- end -}}}}\n'
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\n"
        'data: {text: {{ include "notes" . | toJson }}}\n'
    )

    text = rendered(*sets(settings), chart=chart).one("ConfigMap", "notes").data["text"]

    assert expected in text
    assert unexpected not in text
    assert len([line for line in text.splitlines() if line.startswith("  ")]) == 3
