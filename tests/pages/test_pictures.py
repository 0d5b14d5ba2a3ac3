"""The picture of the README shows what the commands print today."""

import html
import re
from contextlib import suppress

from corvo.client.calls import Client
from corvo.client.errors import ClientError
from tests.pages import pictures
from tests.support.pages import ROOT, general


def words_of(svg: str) -> str:
    """The text of a picture, without what differs from run to run."""
    pieces = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)
    text = "\n".join(html.unescape(piece).replace("\xa0", " ").strip() for piece in pieces)
    return re.sub(r"laptop-\d+", "WORKER", general(text))


def test_the_picture_of_the_first_session_is_what_the_commands_print(port: str) -> None:
    url = f"http://127.0.0.1:{port}"
    with Client([url]) as client, suppress(ClientError):
        client.change("DELETE", "/api/v1/queues/mail")  # if a page before has left one

    now = words_of(pictures.drawn(url))

    stored = words_of((ROOT / "docs" / pictures.NAME).read_text())
    assert "corvo worker mail" in stored
    assert now == stored, "run `python -m tests.pages.pictures`, and look at the picture"
