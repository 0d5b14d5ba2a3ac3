"""Endpoints of the OpenAPI document and of the page `/docs`."""

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pkgutil import get_data
from typing import Final

import msgspec

from corvo.protocol.ops.base import encode_json
from corvo.router.api import Api
from corvo.router.auth.actions import Action
from corvo.router.auth.rights import NODE
from corvo.router.http.messages import JSON, Request, Response
from corvo.router.node.health import API_VERSION
from corvo.router.openapi import pages
from corvo.router.openapi.document import document as describe
from corvo.router.routes import Route, Routes

_FRESH: Final = ("cache-control", "max-age=300")
_POLICY: Final = "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
_ALONE: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
)


class Start(msgspec.Struct, frozen=True):
    """Where to go from `/`."""

    name: str = "corvo"
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    api: str = "/api/v1"
    info: str = "/api/v1/info"
    ready: str = "/readyz"
    metrics: str = "/metrics"


_START: Final = encode_json(Start()) + b"\n"
_ABOUT: Final = (
    (
        "/",
        Start,
        "Find the documentation, the API and the probes",
        "Paths of the documentation, the API, the probe and the metrics.",
    ),
    (
        "/openapi.json",
        None,
        "Read this document in OpenAPI 3.1",
        "This document, in OpenAPI 3.1.",
    ),
    ("/docs", None, "Read this document as a web page", "This document as a web page."),
    ("/docs.css", None, "Style sheet of the web page", "Style sheet of the web page."),
)
"""Path, answer, summary and description of each route."""


def rows(others: Iterable[Route]) -> tuple[Route, ...]:
    """The rows of the table that tell of all the others, and of themselves."""

    @cache
    def document() -> bytes:
        return describe(Routes((*told, *mine)), API_VERSION)

    @cache
    def page() -> bytes:
        return pages.page(document())

    @cache
    def style() -> bytes:
        return get_data("corvo.router.openapi", "docs.css") or b""

    async def get_start(_: Api, request: Request) -> Response:
        return _answer(request, _START, JSON)

    async def get_document(_: Api, request: Request) -> Response:
        return _answer(request, document(), JSON)

    async def get_page(_: Api, request: Request) -> Response:
        return _answer(request, page(), "text/html; charset=utf-8")

    async def get_style(_: Api, request: Request) -> Response:
        return _answer(request, style(), "text/css; charset=utf-8")

    told = tuple(others)
    endpoints = (get_start, get_document, get_page, get_style)
    mine = tuple(
        Route(
            method="GET",
            path=path,
            endpoint=endpoint,
            action=Action.OPEN,
            rights=NODE,
            tag="About",
            summary=summary,
            description=description,
            gives={200: given, 304: None},
        )
        for endpoint, (path, given, summary, description) in zip(endpoints, _ABOUT, strict=True)
    )
    return mine


def _answer(request: Request, body: bytes, content_type: str) -> Response:
    """Something that is the same until there is another release; or the word that it is."""
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = [_FRESH, ("etag", tag), *_ALONE]
    tags = request.headers.get("if-none-match", "").split(",")
    known = [each.strip().removeprefix("W/") for each in tags]
    if tag in known or known == ["*"]:
        return Response(status=304, headers=headers)
    return Response(body=body, content_type=content_type, headers=headers)
