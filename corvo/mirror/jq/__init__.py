"""`payload_jq`: a condition over payloads, written in a subset of jq. See docs/jq.md."""

import sqlite3
from typing import NamedTuple

from corvo.mirror.jq.lexer import BadJq
from corvo.mirror.jq.parser import parse
from corvo.mirror.jq.sql import Parameter, to_sql
from corvo.mirror.jq.values import payload_matches

__all__ = ["BadJq", "Compiled", "compile_jq", "prepare"]


def prepare(connection: sqlite3.Connection) -> None:
    """Give a new connection the function that conditions call."""
    connection.create_function("payload_matches", 2, payload_matches, deterministic=True)


class Compiled(NamedTuple):
    """A condition over the column `jobs.payload`: true, false, or NULL where it is not judged."""

    sql: str
    parameters: tuple[Parameter, ...]
    """Everything that stood in the expression; nothing of it is in `sql`."""


def compile_jq(source: str) -> Compiled:
    """An expression as a condition. Raises `BadJq`."""
    sql = to_sql(parse(source), source)
    return Compiled(sql.text, sql.parameters)
