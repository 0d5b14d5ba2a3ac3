"""`payload_jq`: a condition over payloads, written in a subset of jq. See docs/jq.md."""

import sqlite3

from corvo.mirror.jq.lexer import BadJq
from corvo.mirror.jq.parser import parse
from corvo.mirror.jq.sql import Sql, to_sql
from corvo.mirror.jq.values import payload_matches

__all__ = ["BadJq", "compile_jq", "prepare"]


def prepare(connection: sqlite3.Connection) -> None:
    """Give a new connection the function that conditions call."""
    connection.create_function("payload_matches", 2, payload_matches, deterministic=True)


def compile_jq(source: str) -> Sql:
    """An expression as a condition: true, false, or NULL where it is not judged. Raises `BadJq`."""
    return to_sql(parse(source), source)
