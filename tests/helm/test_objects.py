"""What holds for the objects of the chart with all values."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.helm.charts import CI, Object, Objects, Pod, Probe, rendered, sets
from tests.helm.test_rendering import copy_of_chart
from tests.helm.values_reference import CHART

_SELECTOR: Final = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
}
_THREE: Final = ("cluster.enabled=true", "replicaCount=3")


@pytest.fixture(params=CI, ids=lambda path: path.stem.removesuffix("-values"))
def objects(request: pytest.FixtureRequest) -> Objects:
    """The objects of each file of values."""
    values = request.param
    assert isinstance(values, Path)
    return rendered(values=values)


def of(name: str) -> Objects:
    """The objects of one file of values."""
    return rendered(values=CHART / "ci" / f"{name}-values.yaml")


# ---- Every file of values.


def test_every_pod_meets_the_restricted_standard(objects: Objects) -> None:
    for one in objects.pods:
        pod = one.the_pod
        assert pod.security_context.run_as_non_root
        assert pod.security_context.seccomp_profile == {"type": "RuntimeDefault"}
        assert not pod.automount_service_account_token
        for container in [*pod.containers, *pod.init_containers]:
            security = container.security_context
            assert not security.allow_privilege_escalation, f"{one.meta.name} {container.name}"
            assert not security.privileged
            assert security.capabilities == {"drop": ["ALL"]}
            assert security.read_only_root_filesystem


def test_every_image_has_a_version(objects: Objects) -> None:
    for one in objects.pods:
        for container in [*one.the_pod.containers, *one.the_pod.init_containers]:
            assert re.search(r"(:[\w.-]+|@sha256:[0-9a-f]{64})$", container.image)
            assert not container.image.endswith(":latest")


def test_every_selector_selects_its_pods_and_no_others(objects: Objects) -> None:
    components = {
        one.pod_meta.labels["app.kubernetes.io/component"]: one.pod_meta.labels
        for one in objects.pods
    }

    for one in objects.all:
        wanted = selector_of(one)
        if wanted is None:
            continue
        component = "worker" if one.kind == "Deployment" else "server"
        assert set(wanted) == _SELECTOR
        selected = {name for name, labels in components.items() if wanted.items() <= labels.items()}
        assert selected == {component}, f"{one.kind} {one.meta.name}"


def selector_of(one: Object) -> dict[str, str] | None:
    """The labels that an object selects pods by."""
    path = {
        "Deployment": ("spec", "selector", "matchLabels"),
        "NetworkPolicy": ("spec", "podSelector", "matchLabels"),
        "PodDisruptionBudget": ("spec", "selector", "matchLabels"),
        "Service": ("spec", "selector"),
        "StatefulSet": ("spec", "selector", "matchLabels"),
    }.get(one.kind)
    found = one.at(*path) if path is not None else None
    assert found is None or isinstance(found, dict)
    return found


def test_every_port_of_a_service_is_one_of_the_container(objects: Objects) -> None:
    container = objects.one("StatefulSet").the_pod.server
    ports = {port.name: port.container_port for port in container.ports}

    for service in objects.of("Service"):
        for port in service.ports:
            assert port.target_port in ports
            if service.at("spec", "clusterIP") == "None":
                assert port.port == ports[str(port.target_port)], "pods have no port mapping"


def test_every_volume_secret_and_map_is_there(objects: Objects) -> None:
    for one in objects.pods:
        pod = one.the_pod
        claims = one.at("spec", "volumeClaimTemplates") or []
        assert isinstance(claims, list)
        volumes = {volume.name for volume in pod.volumes} | {
            claim["metadata"]["name"] for claim in claims
        }
        for container in [*pod.containers, *pod.init_containers]:
            assert {mount.name for mount in container.volume_mounts} <= volumes
    made = {one.meta.name for one in objects.of("Secret")}
    assert made <= secrets_of(objects), "no Secret is made that no pod uses"


def secrets_of(objects: Objects) -> set[str]:
    """The Secrets that pods need."""
    found = set()
    for one in objects.pods:
        for volume in one.the_pod.volumes:
            if volume.secret is not None:
                found.add(volume.secret.secret_name)
        for container in one.the_pod.containers:
            for variable in container.env:
                source = variable.value_from
                if source is not None and source.secret_key_ref is not None:
                    found.add(source.secret_key_ref.name)
    return found


def test_probes_do_not_restart_a_pod_for_want_of_a_quorum(objects: Objects) -> None:
    for container in [objects.one("StatefulSet").the_pod.server]:
        for probe in (container.startup_probe, container.liveness_probe):
            assert path_of(probe) in {"", "/livez"}
        assert path_of(container.readiness_probe) in {"", "/readyz"}


def path_of(probe: Probe | None) -> str:
    """The path that a probe asks for; empty without one."""
    return probe.http_get.path if probe is not None and probe.http_get is not None else ""


def test_a_pod_has_time_to_stop(objects: Objects) -> None:
    pod = objects.one("StatefulSet").the_pod
    hook = pod.server.lifecycle.pre_stop if pod.server.lifecycle is not None else None
    waits = re.findall(r"--timeout=(\d+)", " ".join(hook.exec.command if hook else []))

    assert all(pod.termination_grace_period_seconds >= int(wait) + 10 for wait in waits)


# ---- One subject each.


def test_existing_secrets_are_used_and_none_is_made() -> None:
    found = of("existing-secrets")

    assert found.of("Secret") == []
    assert secrets_of(found) == {"cluster-secret-of-ours", "admin-key-of-ours"}
    server = found.one("StatefulSet").the_pod.server
    keys = {
        one.name: one.value_from.secret_key_ref.key
        for one in server.env
        if one.value_from is not None and one.value_from.secret_key_ref is not None
    }
    assert keys == {"CORVO_ADMIN_KEY": "key", "CORVO_CLUSTER__SECRET": "secret"}
    assert [
        volume.config_map.name
        for volume in found.one("StatefulSet").the_pod.volumes
        if volume.name == "config" and volume.config_map is not None
    ] == ["settings-of-ours"]
    assert found.one("StatefulSet").at("spec", "template", "spec", "imagePullSecrets") == [
        {"name": "everything"},
        {"name": "registry"},
    ]


def test_certificates_are_mounted_where_the_variables_point() -> None:
    server = of("tls").one("StatefulSet").the_pod.server
    mounted = {mount.mount_path for mount in server.volume_mounts}

    assert server.text("CORVO_TLS_CERT") == "/etc/corvo/tls/fullchain.pem"
    assert server.text("CORVO_TLS_KEY") == "/etc/corvo/tls/privkey.pem"
    assert server.text("CORVO_CLUSTER__TLS_CA") == "/etc/corvo/peer-tls/ca.crt"
    assert {"/etc/corvo/tls", "/etc/corvo/peer-tls"} <= mounted
    assert server.readiness_probe is not None
    assert server.readiness_probe.http_get is not None
    assert server.readiness_probe.http_get.scheme == "HTTPS"


def test_more_nodes_change_no_pod() -> None:
    three = rendered(*sets(_THREE)).one("StatefulSet")
    seven = rendered(*sets(["cluster.enabled=true", "replicaCount=7"])).one("StatefulSet")

    assert three.at("spec", "replicas") == 3
    assert seven.at("spec", "replicas") == 7
    assert {**three.doc, "spec": None} == {**seven.doc, "spec": None}
    assert three.at("spec", "template") == seven.at("spec", "template")


def test_a_new_version_changes_nothing_that_cannot_change(tmp_path: Path) -> None:
    chart = copy_of_chart(tmp_path)
    text = (chart / "Chart.yaml").read_text()
    text = re.sub(r"(?m)^version: .*", "version: 9.9.9", text)
    (chart / "Chart.yaml").write_text(text)

    old = rendered(*sets(_THREE)).one("StatefulSet")
    newer = rendered(*sets(_THREE), chart=chart).one("StatefulSet")

    assert newer.meta.labels["helm.sh/chart"] == "corvo-9.9.9"
    for part in ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"):
        assert newer.at("spec", part) == old.at("spec", part)
    # A new chart with the same version of Corvo restarts no node.
    assert newer.at("spec", "template") == old.at("spec", "template")


def test_changed_settings_restart_the_pods_and_other_values_do_not() -> None:
    plain = checksum("shards=4")

    assert checksum("config.limits.idle_ms=90s") != plain
    assert checksum("config.durability=relaxed") != plain
    assert checksum("service.port=80") == plain


def checksum(setting: str) -> str:
    """The checksum of the settings, for a value."""
    found = rendered(*sets([setting])).one("StatefulSet")
    return found.pod_meta.annotations["checksum/config"]


def test_traces_are_switched_on_by_the_standard_variables() -> None:
    found = of("monitoring")
    server = found.one("StatefulSet").the_pod.server
    variables = {
        one.name.removeprefix("OTEL_"): one for one in server.env if one.name.startswith("OTEL_")
    }
    headers = variables.pop("EXPORTER_OTLP_HEADERS").value_from
    assert headers is not None
    assert headers.secret_key_ref is not None

    assert {name: one.value for name, one in variables.items()} == {
        "EXPORTER_OTLP_ENDPOINT": "http://collector.monitoring:4318",
        "TRACES_SAMPLER": "parentbased_traceidratio",
        "TRACES_SAMPLER_ARG": "0.05",
        "SERVICE_NAME": "jobs-corvo",
        "RESOURCE_ATTRIBUTES": "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)",
    }
    assert headers.secret_key_ref.name == "collector-headers"
    assert headers.secret_key_ref.key == "headers"
    assert {"ports": [{"port": 4318}]} in _egress(found)
    others = of("three-nodes")
    assert not [one for one in others.one("StatefulSet").the_pod.server.env if "OTEL" in one.name]


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://collector", 80), ("https://c.example.net/otlp", 443), ("https://c:4319/x", 4319)],
)
def test_the_network_policy_opens_the_port_of_the_receiver(endpoint: str, port: int) -> None:
    settings = ("tracing.enabled=true", f"tracing.endpoint={endpoint}")

    assert {"ports": [{"port": port}]} in _egress(rendered(*sets(settings)))


def _egress(found: Objects) -> list[object]:
    rules = found.one("NetworkPolicy").at("spec", "egress")
    assert isinstance(rules, list)
    return rules


def test_settings_become_toml() -> None:
    found = of("three-nodes").one("ConfigMap", "jobs-corvo")

    assert found.data["corvo.toml"] == (
        'durability = "sync"\n'
        'http2 = "on"\n\n'
        '[cluster]\nclock_offset_max_ms = "400ms"\n\n'
        '[limits]\nidle_ms = "90s"\npayload_bytes_max = 8388608\n'
    )


def test_the_port_for_other_nodes_is_open_to_them_only() -> None:
    own = {"podSelector": {"matchLabels": selector_of(of("three-nodes").one("StatefulSet"))}}
    for name in ("three-nodes", "closed-network"):
        policy = of(name).one("NetworkPolicy")
        rules = policy.at("spec", "ingress")
        assert isinstance(rules, list)
        peers = [one for one in rules if {"port": 9400} in one["ports"]]
        assert peers == [{"ports": [{"port": 9400}], "from": [own]}]


def test_a_closed_network_lets_labelled_clients_in() -> None:
    found = of("closed-network")
    policy = found.one("NetworkPolicy")
    label = {"jobs-corvo-client": "true"}

    assert policy.at("spec", "ingress", 0, "from", 1) == {"podSelector": {"matchLabels": label}}
    assert policy.at("spec", "ingress", 0, "from", 2) == {
        "namespaceSelector": {"matchLabels": {"team": "shop"}},
        "podSelector": {"matchLabels": label},
    }
    assert label.items() <= found.one("Pod").meta.labels.items()
    assert label.items() <= of("worker").one("Deployment").pod_meta.labels.items()
    assert policy.at("spec", "egress", 1, "to") == policy.at("spec", "ingress", 1, "from")


def test_openshift_chooses_the_user() -> None:
    for one in of("openshift").pods:
        security = one.the_pod.security_context
        assert (security.run_as_user, security.fs_group) == (None, None)
        assert security.run_as_non_root


def test_names_follow_the_override() -> None:
    found = of("fullname-override")

    assert {one.meta.name for one in found.of("Service")} == {"jobs", "jobs-headless"}
    assert found.one("ServiceAccount").meta.name == "jobs-account"
    [url] = [word for word in found.one("Pod").the_pod.server.command if "--server" in word]
    assert url == "--server=http://jobs.shop.svc:80"


def test_extensions_are_in_their_places() -> None:
    found = of("extras")
    server = found.one("StatefulSet")
    pod: Pod = server.the_pod

    assert [one.name for one in pod.containers] == ["corvo", "logs"]
    assert [one.name for one in pod.init_containers] == ["wait"]
    assert pod.server.text("CORVO_LOG_LEVEL") == "debug"
    assert "/shared" in {mount.mount_path for mount in pod.server.volume_mounts}
    assert pod.server.lifecycle is not None
    assert pod.server.lifecycle.pre_stop is not None
    assert pod.server.lifecycle.pre_stop.exec.command == ["sleep", "10"]
    assert server.pod_meta.labels["tier"] == "backend"
    assert server.pod_meta.annotations["restarted-by"] == "ada"
    assert found.one("ConfigMap", "jobs-corvo-extra").data == {"port": "8080"}
    assert found.one("ConfigMap", "jobs-corvo-text").data == {}
    for one in found.all:
        if one.meta.name not in {"jobs-corvo-extra", "jobs-corvo-text"}:
            assert one.meta.labels["team"] == "platform"
            assert one.meta.annotations["contact"] == "ada"
    spread = ("spec", "template", "spec", "topologySpreadConstraints", 0)
    assert server.at(*spread, "topologyKey") == "rack"
    assert server.at(*spread, "labelSelector", "matchLabels") == selector_of(server)


def test_a_worker_gets_time_and_a_key_of_its_own() -> None:
    deployment = of("worker").one("Deployment")
    pod = deployment.the_pod

    assert pod.termination_grace_period_seconds == 300
    assert pod.server.image == "example/mailer:1.2"
    assert [*pod.server.command, *pod.server.args] == [
        *("corvo", "worker", "mail", "sms", "--exec", "/usr/local/bin/send {id}"),
        *("--concurrency=4", "--lease=2m"),
    ]
    assert pod.server.text("CORVO_SERVER") == "http://jobs-corvo.shop.svc:8080"
    key = pod.server.variable("CORVO_API_KEY")
    assert key is not None
    assert key.value_from is not None
    assert key.value_from.secret_key_ref is not None
    assert key.value_from.secret_key_ref.name == "mailer-key"
    assert of("worker-keda").one("Deployment").the_pod.server.command == ["/app/worker"]


def test_the_pod_of_helm_test_stays_for_its_log() -> None:
    pod = of("three-nodes").one("Pod", "jobs-corvo-test")
    # `helm test --logs` reads the log after the pod is deleted by any other policy.
    assert pod.meta.annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_no_persistence_needs_no_claim() -> None:
    server = of("no-persistence").one("StatefulSet")

    assert server.at("spec", "volumeClaimTemplates") is None
    [data] = [one for one in server.the_pod.volumes if one.name == "data"]
    assert data.empty_dir == {}
    assert server.the_pod.server.text("CORVO_AUTH") == "off"


def test_an_existing_claim_is_mounted_without_a_server_for_a_look() -> None:
    server = of("existing-claim").one("StatefulSet")

    [data] = [one for one in server.the_pod.volumes if one.name == "data"]
    assert data.persistent_volume_claim is not None
    assert data.persistent_volume_claim.claim_name == "data-of-before"
    assert server.the_pod.server.command == ["sleep", "infinity"]
    assert server.the_pod.server.liveness_probe is None
