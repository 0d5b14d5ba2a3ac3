"""Secrets out of files: those of Docker, Kubernetes and systemd."""

from pathlib import Path

import pytest

from corvo.config import Given, resolve
from corvo.node import SecretUnread, with_secrets

KEY = "raven-and-rook-0123"


def test_the_admin_key_comes_out_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    config = resolve([Given("admin_key_file", str(tmp_path / "key"), "x")]).config

    read = with_secrets(config)

    assert (read.admin_key, read.admin_key_file) == (KEY, "")
    assert not config.is_open, "it is not open before the file is read, either"


def test_an_address_of_all_may_be_used_with_a_key_in_a_file() -> None:
    given = [Given("bind", ":8080", "x"), Given("admin_key_file", "f", "x")]

    assert not resolve(given).config.must_be_loopback


def test_the_cluster_secret_comes_out_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f" {KEY} ")
    settings = {"node_id": "a", "bootstrap": "on", "secret_file": str(tmp_path / "secret")}
    given = [Given(f"cluster.{name}", value, "x") for name, value in settings.items()]

    assert with_secrets(resolve(given).config).cluster.secret == KEY


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"\n", "is empty"),
        ("schlüssel".encode(), "use printable ASCII"),
    ],
    ids=str,
)
def test_a_file_that_has_no_key_is_refused_by_its_setting(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    config = resolve([Given("admin_key_file", str(tmp_path / "key"), "x")]).config

    with pytest.raises(SecretUnread, match=f"admin_key_file {tmp_path / 'key'}.* ?{told}"):
        with_secrets(config)
