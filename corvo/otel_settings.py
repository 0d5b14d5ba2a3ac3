"""Settings of traces from the standard variables of OpenTelemetry, `OTEL_*`.

Traces are off unless an endpoint or the exporter is named. A value that cannot be used is ignored
with a reason, as the specification asks: a server starts with any of them.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

ALWAYS: Final = "always_on"
NEVER: Final = "always_off"
RATIO: Final = "traceidratio"
PARENT: Final = "parentbased_"
_SAMPLERS: Final = frozenset(
    f"{parent}{root}" for parent in ("", PARENT) for root in (ALWAYS, NEVER, RATIO)
)
_DEFAULT_ENDPOINT: Final = "http://localhost:4318"
_PATH: Final = "v1/traces"
_TRUE: Final = "true"
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRINTABLE: Final = re.compile(r"[ -~]*")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_DECIMAL: Final = re.compile(r"[0-9]*\.?[0-9]{1,18}")


class Sampler(msgspec.Struct, frozen=True):
    """Which traces are recorded."""

    root: str = ALWAYS  # of a request without a context: `ALWAYS`, `NEVER` or `RATIO`
    ratio: float = 1.0
    follows_parent: bool = True
    """Whether a request with a context is recorded exactly if its sender records it."""


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where spans are sent, and which."""

    endpoint: str
    headers: tuple[tuple[str, str], ...] = ()
    certificate: str = ""  # a file of trusted certificates in PEM; empty for those of the system
    timeout_ms: int = 10_000
    resource: dict[str, str] = {}
    sampler: Sampler = Sampler()
    delay_ms: int = 5_000
    """Time from one batch to the next."""
    queue_max: int = 2_048
    batch_max: int = 512
    ignored: tuple[str, ...] = ()
    """Variables without effect, and why."""


def trace_settings(environment: Mapping[str, str]) -> TraceSettings | None:
    """The settings in the environment; None if traces are off."""
    read = _Reader(environment)
    if read.text("SDK_DISABLED").lower() == _TRUE:
        return None
    exporter = read.text("TRACES_EXPORTER")
    endpoint = read.text("EXPORTER_OTLP_TRACES_ENDPOINT")
    base = read.text("EXPORTER_OTLP_ENDPOINT")
    if exporter not in {"", "otlp"} or not (exporter or endpoint or base):
        return None  # `none`, or an exporter that is for libraries
    if not endpoint:
        endpoint = f"{(base or _DEFAULT_ENDPOINT).rstrip('/')}/{_PATH}"
    if not _is_url(endpoint):
        read.ignore("EXPORTER_OTLP_ENDPOINT", "expected a URL such as http://collector:4318")
        endpoint = f"{_DEFAULT_ENDPOINT}/{_PATH}"
    if read.of_otlp("PROTOCOL") == "grpc":
        read.ignore("EXPORTER_OTLP_PROTOCOL", "spans are sent by http/json; use port 4318")
    if read.of_otlp("COMPRESSION") not in {"", "none"}:
        read.ignore("EXPORTER_OTLP_COMPRESSION", "spans are sent without compression")
    headers = read.pairs("EXPORTER_OTLP_HEADERS") | read.pairs("EXPORTER_OTLP_TRACES_HEADERS")
    return TraceSettings(
        endpoint=endpoint,
        headers=tuple(_headers(read, headers)),
        certificate=read.of_otlp("CERTIFICATE"),
        timeout_ms=read.number("EXPORTER_OTLP_TRACES_TIMEOUT", 0)
        or read.number("EXPORTER_OTLP_TIMEOUT", 10_000),
        resource=_resource(read),
        sampler=_sampler(read),
        delay_ms=read.number("BSP_SCHEDULE_DELAY", 5_000),
        queue_max=read.number("BSP_MAX_QUEUE_SIZE", 2_048),
        batch_max=read.number("BSP_MAX_EXPORT_BATCH_SIZE", 512),
        ignored=tuple(read.ignored),
    )


class _Reader:
    """Reads variables, and notes those that cannot be used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.ignored: list[str] = []

    def text(self, name: str) -> str:
        """A variable; an empty one counts as not set."""
        text = self._environment.get(f"OTEL_{name}", "").strip()
        return text.encode(errors="replace").decode()  # bytes that are no text stand for `?`

    def of_otlp(self, name: str) -> str:
        """A variable of the exporter: the one for traces, or the one for all signals."""
        return self.text(f"EXPORTER_OTLP_TRACES_{name}") or self.text(f"EXPORTER_OTLP_{name}")

    def ignore(self, name: str, reason: str) -> None:
        """Note a variable without effect."""
        self.ignored.append(f"OTEL_{name}: {reason}")

    def number(self, name: str, default: int) -> int:
        """A positive whole number."""
        text = self.text(name)
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or not int(text):
            self.ignore(name, "expected a whole number above 0")
            return default
        return int(text)

    def pairs(self, name: str) -> dict[str, str]:
        """Names and values, as `a=b,c=d` with percent-encoding."""
        found = {}
        for pair in filter(None, map(str.strip, self.text(name).split(","))):
            key, is_there, value = pair.partition("=")
            if not is_there or not key.strip():
                # The pair may be a secret: it is not shown.
                self.ignore(name, "expected name=value pairs, separated by commas")
                continue
            found[unquote(key.strip())] = unquote(value.strip())
        return found


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        if not _PRINTABLE.fullmatch(text) or " " in text:
            return False
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _headers(read: _Reader, given: Mapping[str, str]) -> list[tuple[str, str]]:
    headers = []
    for name, value in given.items():
        if _HEADER.fullmatch(name) and _PRINTABLE.fullmatch(value):
            # A header that begins or ends with a space is refused, and the refusal shows it.
            headers.append((name.lower(), value.strip()))
        else:
            read.ignore("EXPORTER_OTLP_HEADERS", "a header has characters that none may have")
    return headers


def _resource(read: _Reader) -> dict[str, str]:
    attributes = read.pairs("RESOURCE_ATTRIBUTES")
    name = read.text("SERVICE_NAME")
    if name:
        attributes["service.name"] = name
    return {"service.name": "corvo"} | attributes


def _sampler(read: _Reader) -> Sampler:
    named = read.text("TRACES_SAMPLER").lower() or f"{PARENT}{ALWAYS}"
    if named not in _SAMPLERS:
        read.ignore("TRACES_SAMPLER", f"expected one of {', '.join(sorted(_SAMPLERS))}")
        named = f"{PARENT}{ALWAYS}"
    root = named.removeprefix(PARENT)
    ratio = _ratio(read) if root == RATIO else 1.0
    return Sampler(root, ratio, named.startswith(PARENT))


def _ratio(read: _Reader) -> float:
    text = read.text("TRACES_SAMPLER_ARG")
    if not text:
        return 1.0
    if not _DECIMAL.fullmatch(text) or float(text) > 1:
        read.ignore("TRACES_SAMPLER_ARG", "expected a number from 0 to 1")
        return 1.0
    return float(text)
