"""The standard variables of OpenTelemetry: what switches traces on, and what is ignored."""

from typing import Final

import pytest
from msgspec.json import decode as decode_json
from msgspec.json import encode as encode_json

from corvo.otel_settings import Sampler, TraceSettings, trace_settings

BASE: Final = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
ENDPOINT: Final = "http://collector:4318/v1/traces"


def settings(**variables: str) -> TraceSettings:
    found = trace_settings(BASE | {f"OTEL_{name}": text for name, text in variables.items()})
    assert found is not None
    return found


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "corvo", "OTEL_TRACES_SAMPLER": "always_on"},
        BASE | {"OTEL_SDK_DISABLED": "true"},
        BASE | {"OTEL_SDK_DISABLED": "True"},
        BASE | {"OTEL_TRACES_EXPORTER": "none"},
        BASE | {"OTEL_TRACES_EXPORTER": "console"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
    ],
)
def test_traces_are_off(environment: dict[str, str]) -> None:
    assert trace_settings(environment) is None


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        (BASE, ENDPOINT),
        (BASE | {"OTEL_SDK_DISABLED": "no"}, ENDPOINT),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/x/"}, "https://c/x/v1/traces"),
        (BASE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1/own"}, "http://t:1/own"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"),
    ],
)
def test_an_endpoint_or_the_exporter_switches_them_on(
    environment: dict[str, str], endpoint: str
) -> None:
    found = trace_settings(environment)

    assert found is not None
    assert found.endpoint == endpoint
    assert found.ignored == ()


def test_bytes_of_the_environment_that_are_no_text_stop_nothing() -> None:
    found = settings(SERVICE_NAME="a\udcff", EXPORTER_OTLP_HEADERS="k=\udcff")

    assert found.resource == {"service.name": "a?"}
    assert decode_json(encode_json(found), type=TraceSettings) == found


def test_the_defaults_are_those_of_the_specification() -> None:
    assert settings() == TraceSettings(endpoint=ENDPOINT, resource={"service.name": "corvo"})
    assert settings().sampler == Sampler("always_on", 1.0, follows_parent=True)


def test_each_variable_is_read() -> None:
    found = settings(
        EXPORTER_OTLP_HEADERS="Authorization=Bearer%20a%3Db, x-a=1,",
        EXPORTER_OTLP_TRACES_HEADERS="x-a=2",
        EXPORTER_OTLP_CERTIFICATE="/ca.pem",
        EXPORTER_OTLP_TIMEOUT="2000",
        RESOURCE_ATTRIBUTES="service.name=a,k8s.pod.name=corvo-0,city=K%C3%B6ln",
        SERVICE_NAME="jobs",
        BSP_SCHEDULE_DELAY="100",
        BSP_MAX_QUEUE_SIZE="10",
        BSP_MAX_EXPORT_BATCH_SIZE="5",
        EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )

    assert found == TraceSettings(
        endpoint=ENDPOINT,
        headers=(("authorization", "Bearer a=b"), ("x-a", "2")),
        certificate="/ca.pem",
        timeout_ms=2_000,
        resource={"service.name": "jobs", "k8s.pod.name": "corvo-0", "city": "Köln"},
        delay_ms=100,
        queue_max=10,
        batch_max=5,
    )


@pytest.mark.parametrize(
    ("name", "arg", "sampler"),
    [
        ("always_on", "", Sampler("always_on", 1.0, follows_parent=False)),
        ("always_off", "", Sampler("always_off", 1.0, follows_parent=False)),
        ("traceidratio", "0.25", Sampler("traceidratio", 0.25, follows_parent=False)),
        ("parentbased_traceidratio", "0", Sampler("traceidratio", 0.0)),
        ("parentbased_traceidratio", "", Sampler("traceidratio", 1.0)),
        ("parentbased_always_off", "0.5", Sampler("always_off", 1.0)),
    ],
)
def test_the_samplers_have_their_standard_names(name: str, arg: str, sampler: Sampler) -> None:
    found = settings(TRACES_SAMPLER=name, TRACES_SAMPLER_ARG=arg)

    assert found.sampler == sampler
    assert found.ignored == ()


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"TRACES_SAMPLER": "jaeger_remote"}, ["TRACES_SAMPLER"]),
        ({"TRACES_SAMPLER": "traceidratio", "TRACES_SAMPLER_ARG": "2"}, ["TRACES_SAMPLER_ARG"]),
        ({"TRACES_SAMPLER": "traceidratio", "TRACES_SAMPLER_ARG": "nan"}, ["TRACES_SAMPLER_ARG"]),
        ({"EXPORTER_OTLP_TIMEOUT": "0"}, ["EXPORTER_OTLP_TIMEOUT"]),
        ({"BSP_MAX_QUEUE_SIZE": "-1"}, ["BSP_MAX_QUEUE_SIZE"]),
        ({"EXPORTER_OTLP_HEADERS": "secret"}, ["EXPORTER_OTLP_HEADERS"]),
        ({"EXPORTER_OTLP_HEADERS": "a b=1"}, ["EXPORTER_OTLP_HEADERS"]),
        ({"EXPORTER_OTLP_HEADERS": "a=1%0d%0ab: 2"}, ["EXPORTER_OTLP_HEADERS"]),
        ({"RESOURCE_ATTRIBUTES": "=x"}, ["RESOURCE_ATTRIBUTES"]),
        ({"EXPORTER_OTLP_PROTOCOL": "grpc"}, ["EXPORTER_OTLP_PROTOCOL"]),
        ({"EXPORTER_OTLP_COMPRESSION": "gzip"}, ["EXPORTER_OTLP_COMPRESSION"]),
        ({"EXPORTER_OTLP_ENDPOINT": "collector:4318"}, ["EXPORTER_OTLP_ENDPOINT"]),
        ({"EXPORTER_OTLP_ENDPOINT": "http://[x"}, ["EXPORTER_OTLP_ENDPOINT"]),
    ],
)
def test_what_cannot_be_used_is_ignored_with_a_reason_and_no_secret(
    variables: dict[str, str], names: list[str]
) -> None:
    found = settings(**variables)

    assert [each.partition(":")[0] for each in found.ignored] == [f"OTEL_{name}" for name in names]
    assert "secret" not in "".join(found.ignored)
    assert found.headers == ()


def test_a_header_has_no_space_at_its_ends() -> None:
    settings = trace_settings(
        {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=%20Bearer%20a%20",
        }
    )

    assert settings is not None
    assert settings.headers == (("authorization", "Bearer a"),)
