"""Flags of `corvo server` of corvo-go: each is understood, or rejected with its successor.

`docs/coming-from-corvo-go.md` has the same table for people.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from corvo.config import ConfigRefused

RENAMED: Final = {
    "--admin-password": "--admin-key=",
    "--max-payload-size": "--set=limits.payload_bytes_max=",
    "--raft-advertise": "--advertise=",
    "--raft-bind": "--peer-bind=",
    "--raft-shards": "--shards=",
    "--rate-limit-read-burst": "--set=limits.read_burst=",
    "--rate-limit-read-rps": "--set=limits.read_rate=",
    "--rate-limit-write-burst": "--set=limits.write_burst=",
    "--rate-limit-write-rps": "--set=limits.write_rate=",
    "--shutdown-timeout": "--set=drain_ms=",
    "--stream-max-open": "--set=limits.streams_max=",
}
"""By old flag: what its value is appended to."""

_TRACES: Final = "set the variable OTEL_EXPORTER_OTLP_ENDPOINT, such as http://collector:4318"
SWITCHES: Final = {
    "--bootstrap": {"true": "--set=cluster.bootstrap=on", "false": ""},
    "--docs-enabled": {"true": "", "false": "the page /docs cannot be switched off"},
    "--durable": {"true": "--durability=sync", "false": "--durability=relaxed"},
    "--no-compression": {"true": "", "false": "answers are not compressed; remove the flag"},
    "--otel-enabled": {"true": _TRACES, "false": ""},
    "--rate-limit-enabled": {
        "true": "set limits.read_rate and limits.write_rate (requests per second and client)",
        "false": "--set=limits.read_rate=0 --set=limits.write_rate=0",
    },
    "--saml-header-auth": {"true": "single sign-on is not available; use API keys", "false": ""},
}
"""By old flag without a value (`--durable`, `--durable=false`): what it means now. A text that does
not begin with `--` is the reason why it is rejected."""

_SSO: Final = "single sign-on is not available; use API keys"
_LICENCE: Final = "there are no licences; remove the flag"
_WAKES: Final = "a waiting fetch is woken by new jobs; remove the flag"
REJECTED: Final = {
    "--apply-multi-mode": "ops are applied in the order of their arrival; remove the flag",
    "--fetch-poll-interval": _WAKES,
    "--idle-fetch-sleep": _WAKES,
    "--license-key": _LICENCE,
    "--license-public-key": _LICENCE,
    "--oidc-client-id": _SSO,
    "--oidc-issuer-url": _SSO,
    "--otel-endpoint": _TRACES,
    "--raft-max-fetch-inflight": "use --set limits.parked_max=N, the limit of waiting fetches",
    "--raft-max-pending": "use --set limits.in_flight_max=N, the limit of concurrent requests",
    "--raft-store": "each shard has its own log and LevelDB store; remove the flag",
    "--retention-interval": "a finished job is deleted when its retention ends; remove the flag",
    "--snapshot-threshold": "use --set shard.checkpoint_entries=N",
    "--stream-max-fps": "a stream has no frame rate; use --set limits.stream_frames_max=N",
    "--stream-max-inflight": "use --set limits.stream_frames_max=N, which counts for each stream",
}
"""By old flag with a value: why it is rejected, and what to use."""


def translate(arguments: Sequence[str]) -> list[str]:
    """The arguments with present flags. Raises `ConfigRefused` for an old one without successor."""
    problems: list[str] = []
    translated: list[str] = []
    following = iter(arguments)
    for argument in following:
        flag, equals, text = argument.partition("=")
        if flag in SWITCHES:
            meaning = SWITCHES[flag].get((text or "true").lower())
            if meaning is None:
                problems.append(f"{flag}: expected true or false, got {text!r}")
            elif meaning.startswith("--"):
                translated += meaning.split()
            elif meaning:
                problems.append(f"{argument}: {meaning}")
        elif flag in RENAMED:
            value = text if equals else _value(flag, following)
            translated.append(RENAMED[flag] + value)
        elif flag in REJECTED:
            if not equals:
                next(following, None)
            problems.append(f"{flag}: {REJECTED[flag]}")
        else:
            translated.append(argument)
    if problems:
        raise ConfigRefused(problems)
    return translated


def _value(flag: str, following: Iterator[str]) -> str:
    value = next(following, None)
    if value is None:
        raise ConfigRefused([f"{flag}: a value is missing"])
    return value
