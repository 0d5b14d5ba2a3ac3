"""Profiles: named servers with their API keys, in a file that only its owner can read."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from corvo.client.errors import BadClientOption
from corvo.nearest import nearest

PROFILE: Final = "CORVO_PROFILE"
_OTHERS: Final = 0o077


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One server, or one cluster."""

    server: str | list[str] = ""
    api_key: str = ""
    api_key_file: str = ""
    api_key_env: str = ""
    output: str = ""
    protected: bool = False
    """Whether `--yes` needs `--profile` as well."""

    @property
    def servers(self) -> list[str]:
        """Its addresses."""
        return [self.server] if isinstance(self.server, str) else self.server


class Profiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file."""

    default: str = ""
    profile: dict[str, Profile] = {}


NO_PROFILE: Final = Profile()


def path_of(environment: Mapping[str, str]) -> Path:
    """The file, in the directory for configuration of the user."""
    base = environment.get("XDG_CONFIG_HOME", "") or str(
        Path(environment.get("HOME", "") or "~").expanduser() / ".config"
    )
    return Path(base) / "corvo" / "config.toml"


def load(path: Path) -> Profiles:
    """The profiles; none without a file. Raises `BadClientOption`."""
    try:
        data = path.read_bytes()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise BadClientOption(f"the profiles cannot be read: {error}") from error
    import tomllib  # noqa: PLC0415 -- most users have no file

    try:
        found = msgspec.convert(tomllib.loads(data.decode()), Profiles)
    except (ValueError, msgspec.ValidationError) as error:  # also what is not UTF-8, or not TOML
        raise BadClientOption(f"{path} is invalid: {error}") from error
    if mode & _OTHERS and any(each.api_key for each in found.profile.values()):
        raise BadClientOption(
            f"{path} has API keys, and other users can read it", f"chmod 600 '{path}'"
        )
    return found


def save(path: Path, profiles: Profiles) -> None:
    """Write all profiles, at once or not at all, readable by the owner alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(as_toml(profiles))
        new.chmod(0o600)
        new.replace(path)
    except OSError as error:
        raise BadClientOption(f"the profiles cannot be written: {error}") from error


def as_toml(profiles: Profiles) -> str:
    """The file as text."""
    lines = [f"default = {_quoted(profiles.default)}\n"] if profiles.default else []
    for name in sorted(profiles.profile):
        lines.append(f"\n[profile.{_quoted(name)}]\n")
        fields = msgspec.to_builtins(profiles.profile[name])
        for key, value in fields.items():
            lines.append(f"{key} = {_toml(value)}\n")
    return "".join(lines).lstrip("\n")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_quoted(str(each)) for each in value)}]"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """A text of TOML: JSON's form, whose escapes TOML has as well."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def choose(profiles: Profiles, named: str) -> tuple[str, Profile]:
    """The profile of a name, or else the default one. Raises `BadClientOption`."""
    name = named or profiles.default
    if not name:
        return "", NO_PROFILE
    if name not in profiles.profile:
        near = nearest(name, tuple(profiles.profile))
        hints = [f"did you mean:   {near}"] if near else []
        raise BadClientOption(
            f"profile {name!r} does not exist", *hints, "list them:   corvo profile list"
        )
    return name, profiles.profile[name]


def api_key_of(profile: Profile, environment: Mapping[str, str]) -> str:
    """The API key of a profile, from its place. Raises `BadClientOption`."""
    if profile.api_key:
        return profile.api_key
    if profile.api_key_env:
        found = environment.get(profile.api_key_env, "").strip()
        if not found:
            raise BadClientOption(f"the variable {profile.api_key_env} of the profile is not set")
        return found
    return read_api_key(profile.api_key_file) if profile.api_key_file else ""


def read_api_key(file: str) -> str:
    """An API key in a file. Raises `BadClientOption`."""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadClientOption(f"the file with the API key cannot be read: {error}") from error
