"""The OpenAPI document, made from the route table and from the structs of the bodies.

Added here are the parameters in paths, the headers, and the errors that a route may have. Texts of
operations stand in their rows, all others in texts.toml.
"""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from corvo.protocol.cluster import NAME, NAME_MAX
from corvo.protocol.ops.base import ID_BYTES_MAX, NAME_BYTES_MAX
from corvo.router.auth.actions import Action
from corvo.router.http.bodies import REQUEST_KEY_MAX
from corvo.router.http.messages import FieldWarning, ProblemBody
from corvo.router.http.params import NO_CONTROL
from corvo.router.routes import READS, Parameter, Route, Routes
from corvo.router.texts import key_of, parameter_example, texts

Json: TypeAlias = dict[str, object]

OPENAPI: Final = "3.1.0"
_REF: Final = "#/components/schemas/{name}"
_PREFIX: Final = "/api/v1/"
_NO_BODY: Final = frozenset({204, 304})

_ID: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "maxLength": ID_BYTES_MAX,
    "pattern": NO_CONTROL,
}
_NAME: Final[Json] = {**_ID, "maxLength": NAME_BYTES_MAX}
_IN_PATH: Final[dict[str, tuple[str, Json]]] = {
    "id": ("Id of the {0.id_of}.", _ID),
    "job_id": ("Id of the job.", _ID),
    "name": ("Name of the queue: 1 to 255 bytes of UTF-8.", _NAME),
    "queue": ("Name of the queue: 1 to 255 bytes of UTF-8.", _NAME),
    "node": (
        "Number or name of the node.",
        {**_ID, "maxLength": NAME_MAX, "pattern": NAME.removesuffix(r"\Z") + "$"},
    ),
    "key_hash": (
        "SHA-256 of the API key, in hex.",
        {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    ),
}
"""Names in paths, with their text and their schema."""

_EITHER: Final[dict[str, tuple[str, ...]]] = {
    "SetThrottleBody": ("window_ms", "window", "period"),
    "SetRetentionBody": ("retention_ms", "retention"),
    "SnoozeBody": ("delay_ms", "delay"),
    "SnoozeEntry": ("delay_ms", "delay"),
}
"""Bodies that need one of these fields: the first is a number, the others are texts."""
_OR_BOTH: Final = frozenset({"SnoozeBody", "SnoozeEntry"})
"""Those of them that may have both, where they say the same."""

_EVERY_STATUS: Final = (400, 429, 431, 500, 503)
_WITH_KEY: Final = (401, 403)
_WITH_BODY: Final = (408, 413, 415, 417)
_KEY_REUSED: Final = 422


def document(routes: Routes, version: str) -> bytes:
    """The document as JSON."""
    names = _Names(routes.rows)
    paths: dict[str, Json] = {}
    for row in sorted(routes.rows, key=lambda row: row.path):
        operations = paths.setdefault(row.path, {})
        operations[row.method.lower()] = _operation(row, names)
    whole: Json = {
        "openapi": OPENAPI,
        "info": {
            "title": "Corvo",
            "summary": "A job queue server with no database and no broker",
            "description": _ABOUT,
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in texts().tags.items()],
        # The empty one is for servers that are open: see `/api/v1/auth/status`.
        "security": [{"key": []}, {"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": names.schemas,
            "headers": _HEADERS,
            "responses": _problem_responses(names),
            "links": {
                name: link for named in _LEADS_ON for name, link in _linked(named, names).items()
            },
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


_ABOUT: Final = """\
Bodies are JSON in UTF-8. `null` means not set. Times are RFC 3339. A duration is text such as
`30s`, `1h30m` or `500ms`. A changing request takes unknown fields and names them in `warnings` of
its answer, or rejects them if the setting `api.strict` is on. A read rejects them.

Every error has the same body. `code` is for programs and never changes, `error` is for people, and
`outcome` says whether the request took effect: `not_applied`, `applied` or `unknown`.

A changing request can carry an `Idempotency-Key`. Sent again with the same request key and body, it
has no second effect and gets the same answer for 24 hours. A request key belongs to the API key
that sends it, and to the queue or the jobs of the request. The answer has a position in
`Corvo-Seq`. A read that sends this position as `Corvo-Min-Seq` includes the change."""

_HEADERS: Final[Json] = {
    "Corvo-Seq": {
        "description": "Position in the log of each shard. Send it as `Corvo-Min-Seq`.",
        "schema": {"type": "string", "pattern": "^(s[0-9]+=[0-9]+(,s[0-9]+=[0-9]+)*)?$"},
        "example": "s0=1042,s3=77",
    },
    "Corvo-Leader-Contact-Ms": {
        "description": "With `consistency=local`: milliseconds since the replica that answered"
        " received a message of its leader; `unknown` if it has received none since its start.",
        "schema": {"type": "string", "pattern": "^([0-9]+|unknown)$"},
        "example": "120",
    },
    "Corvo-Warnings": {
        "description": "The field `warnings` of other answers, for an answer without a body.",
        "schema": {"type": "string"},
        "example": '[{"field":"timeout_s","warning":"unknown field; did you mean timeout?"}]',
    },
    "Retry-After": {
        "description": "Whole seconds after which to send the request again.",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
        "example": "1",
    },
    "X-Request-Id": {
        "description": "Id of the request: the one that was sent, or a new one.",
        "schema": {"type": "string"},
        "example": "3f2a91c04d-1b",
    },
    "Server-Timing": {
        "description": "Time within the server, in milliseconds.",
        "schema": {"type": "string"},
        "example": "proc;dur=0.412",
    },
    "WWW-Authenticate": {
        "description": "Scheme to send an API key with.",
        "schema": {"type": "string"},
        "example": "Bearer",
    },
}


# Names of things.


def operation_id(row: Route) -> str:
    """A name for a route that is the same in every release: `post_jobs_id_retry`."""
    of_api = row.path.startswith(_PREFIX)
    words = re.findall("[A-Za-z0-9]+", row.path.removeprefix(_PREFIX))
    return "_".join([row.method.lower(), *([] if of_api else ["server"]), *words])


class _Names:
    """The schemas of all bodies, and how a type is spoken of."""

    def __init__(self, rows: Iterable[Route]) -> None:
        self.rows: Final = tuple(rows)
        types: dict[type, None] = {ProblemBody: None, FieldWarning: None}
        for row in self.rows:
            named = [row.takes, *row.gives.values()]
            types.update(dict.fromkeys(each for each in named if each is not None))
        references, schemas = msgspec.json.schema_components(list(types), ref_template=_REF)
        self._references: dict[type, Json] = dict(zip(types, references, strict=True))
        taken = [self._references[row.takes] for row in self.rows if row.takes is not None]
        requests = _reached(taken, schemas)
        self.schemas: dict[str, Json] = {
            name: _described(name, schema, is_request=name in requests)
            for name, schema in sorted(schemas.items())
        }
        for name in _EITHER.keys() & self.schemas.keys():
            self.schemas[name] |= _needs_either(name)
        for answer in self._answers_with_warnings():
            [name] = _named_in(self._references[answer])
            properties: dict[str, Json] = self.schemas[name]["properties"]  # type: ignore[assignment]
            properties["warnings"] = self._warnings()

    def _answers_with_warnings(self) -> dict[type, None]:
        """Answers that may name fields of the request which had no effect: the door adds them."""
        rows = [row for row in self.rows if row.changes and not row.is_filtered]
        given = [each for row in rows for each in row.gives.values() if each is not None]
        return dict.fromkeys([ProblemBody, *given])

    def _warnings(self) -> Json:
        text = texts().fields["warnings"]
        return {
            "type": "array",
            "items": self._references[FieldWarning],
            "description": text.about,
            "examples": [text.example],
        }

    def of(self, type_: type) -> Json:
        """The schema of a type: a reference to it."""
        return self._references[type_]


def _reached(value: object, schemas: dict[str, Json]) -> set[str]:
    """The names of all schemas that a piece of the document refers to, however deep."""
    found: set[str] = set()
    new = _named_in(value)
    while new:
        found |= new
        new = {name for one in new for name in _named_in(schemas[one])} - found
    return found


def _named_in(value: object) -> set[str]:
    text = msgspec.json.encode(value).decode()
    return set(re.findall('"#/components/schemas/([^"]+)"', text))


def _described(name: str, schema: Json, *, is_request: bool) -> Json:
    """A schema with its text, and with those of its properties."""
    properties: dict[str, Json] = schema.get("properties", {})  # type: ignore[assignment]
    required: list[str] = schema.get("required", [])  # type: ignore[assignment]
    described: dict[str, Json] = {}
    for field, one in properties.items():
        text = texts().fields[key_of(name, field)]
        about = text.about
        if is_request and field not in required:
            about += f" Default: {text.default or 'not set'}."
        described[field] = {**one, "description": about}
        if text.example is not None:
            described[field]["examples"] = [text.example]
    whole = {**schema, "description": texts().schemas[name]}
    return {**whole, "properties": described} if described else whole


def _needs_either(name: str) -> Json:
    """The part of a body's schema that says that it needs a number or a text."""
    fields = _EITHER[name]
    either: list[Json] = []
    for needed in fields:
        properties: Json = {needed: {"type": "integer" if needed == fields[0] else "string"}}
        if name not in _OR_BOTH:
            properties |= {other: {"type": "null"} for other in fields if other != needed}
        elif needed != fields[0]:
            properties = {needed: {"type": "string", "minLength": 1}}
        either.append({"required": [needed], "properties": properties})
    return {"anyOf" if name in _OR_BOTH else "oneOf": either}


# One route.


def _operation(row: Route, names: _Names) -> Json:
    named = operation_id(row)
    operation: Json = {
        "operationId": named,
        "tags": [row.tag],
        "summary": row.summary.rstrip("."),
        "description": row.description,
    }
    if row.action is Action.OPEN:
        operation["security"] = []
    parameters = [*_path_parameters(row), *map(_query_parameter, row.query), *_headers(row)]
    if parameters:
        operation["parameters"] = parameters
    if row.takes is not None:
        operation["requestBody"] = _request_body(row, row.takes, names)
    elif row.takes_any:
        operation["requestBody"] = _ANY_BODY
    operation["responses"] = _responses(named, row, names)
    return operation


_ANY_BODY: Final[Json] = {
    "description": "The payload of the job. Text that is not JSON becomes a JSON string.",
    "required": False,
    "content": {"application/json": {"schema": {}}},
}


def _path_parameters(row: Route) -> list[Json]:
    parameters = []
    for name in re.findall(r"\{(\w+)\}", row.path):
        text, schema = _IN_PATH[name]
        example = parameter_example(name)
        parameters.append(_parameter(name, "path", text.format(row), schema, example))
    return parameters


def _parameter(name: str, place: str, text: str, schema: Json, example: object) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema,
        "example": example,
    }


def _query_parameter(parameter: Parameter) -> Json:
    bounds = ("minLength", "maxLength") if parameter.type == "string" else ("minimum", "maximum")
    schema: Json = {"type": parameter.type}
    for bound, value in zip(bounds, (parameter.minimum, parameter.maximum), strict=True):
        if value is not None:
            schema[bound] = value
    if parameter.pattern:
        schema["pattern"] = parameter.pattern
    name = parameter.name
    text = parameter.description or texts().fields[key_of(parameter.of, name)].about
    example = parameter.example or parameter_example(name)
    return _parameter(name, "query", text, schema, example)


def _headers(row: Route) -> list[Json]:
    headers: list[Json] = []
    if row.changes:
        headers.append(
            _parameter(
                "Idempotency-Key",
                "header",
                "Request key: sent again, the request has no second effect.",
                {"type": "string", "maxLength": REQUEST_KEY_MAX, "pattern": "^[\\x20-\\x7e]*$"},
                parameter_example("request_key"),
            )
        )
    if row.has_min_seq:
        pattern = "^s[0-9]{1,4}=[0-9]{1,18}(,s[0-9]{1,4}=[0-9]{1,18})*$"
        headers.append(
            _parameter(
                "Corvo-Min-Seq",
                "header",
                "Position from `Corvo-Seq`: the answer includes that change.",
                {"type": "string", "pattern": pattern},
                "s0=1042",
            )
        )
    return headers


def _request_body(row: Route, takes: type[msgspec.Struct], names: _Names) -> Json:
    needed = any(field.required for field in msgspec.structs.fields(takes))
    content: Json = {"schema": names.of(takes)}
    if row.takes_example is not None:
        content["example"] = row.takes_example
    return {
        "required": needed or takes.__name__ in _EITHER,
        "content": {"application/json": content},
    }


def problems_of(row: Route) -> list[int]:
    """The statuses of all problems that a route may have."""
    statuses = {*_EVERY_STATUS, *row.problems}
    if row.action is not Action.OPEN:
        statuses |= {*_WITH_KEY}
    if row.method != "GET":
        statuses |= {*_WITH_BODY}
    if row.changes:
        statuses.add(_KEY_REUSED)
    return sorted(statuses)


def _responses(named: str, row: Route, names: _Names) -> Json:
    responses: dict[int, Json] = {}
    seq = ["Corvo-Seq"] if row.changes or row.has_min_seq else []
    if READS in row.query:
        seq.append("Corvo-Leader-Contact-Ms")
    for status, gives in sorted(row.gives.items()):
        also = ["Corvo-Warnings"] if status in _NO_BODY and row.changes else []
        headers = _named(*seq, *also)
        response: Json = {"description": texts().statuses[status], "headers": headers}
        if gives is not None and status not in _NO_BODY:
            content: Json = {"schema": names.of(gives)}
            if row.gives_example is not None and status < 300:
                content["example"] = row.gives_example
            response["content"] = {row.content_type: content}
        if named in _LEADS_ON and gives is not None:
            response["links"] = {
                name: {"$ref": f"#/components/links/{name}"} for name in _linked(named, names)
            }
        responses[status] = response
    for status in problems_of(row):
        given = row.gives.get(status)
        if given is None:
            responses[status] = {"$ref": f"#/components/responses/{_problem_name(status)}"}
        else:
            either: Json = {"anyOf": [names.of(given), names.of(ProblemBody)]}
            responses[status] = _problem_response(status, either)
    return {str(status): response for status, response in sorted(responses.items())}


def _problem_responses(names: _Names) -> Json:
    """Each problem that there is, to be referred to."""
    statuses = sorted({status for row in names.rows for status in problems_of(row)})
    schema = names.of(ProblemBody)
    return {_problem_name(status): _problem_response(status, schema) for status in statuses}


def _problem_response(status: int, schema: Json) -> Json:
    also = {401: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}
    return {
        "description": texts().statuses[status],
        "headers": _named(*also.get(status, [])),
        "content": {"application/json": {"schema": schema}},
    }


def _problem_name(status: int) -> str:
    return f"Problem{status}"


# Where an answer leads.

_LEADS_ON: Final = {
    "post_enqueue": ("$response.body#/job_id", ("id",)),
    "post_fetch": ("$response.body#/job_id", ("job_id", "id")),
}
"""Answers that have a job's id in them, where, and what it is called in the paths to go on with."""
_FETCHED: Final[Json] = {
    "post_enqueue-post_fetch": {
        "operationId": "post_fetch",
        "parameters": {},
        "requestBody": {"queues": ["$response.body#/job/queue"], "wait_seconds": 0},
    }
}
"""What is put into a queue can be fetched from it."""


def _linked(named: str, names: _Names) -> Json:
    """By name, the routes to go on with from one."""
    where, called = _LEADS_ON[named]
    first = _FETCHED if named == "post_enqueue" else {}
    by_job = {
        f"{named}-{operation_id(row)}": {
            "operationId": operation_id(row),
            "parameters": {parameter: where},
        }
        for row in names.rows
        for parameter in called
        if f"{{{parameter}}}" in row.path
    }
    return {**first, **by_job}


def _named(*headers: str) -> Json:
    return {
        name: {"$ref": f"#/components/headers/{name}"}
        for name in (*headers, "Server-Timing", "X-Request-Id")
    }
