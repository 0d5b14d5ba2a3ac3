"""`payload_jq`: a condition over payloads, written in a subset of jq. See docs/jq.md."""

from typing import NamedTuple

from corvo.mirror.jq_lexer import BadJq
from corvo.mirror.jq_parser import parse
from corvo.mirror.jq_sql import Parameter, to_sql

__all__ = ["BadJq", "Compiled", "compile_jq"]


class Compiled(NamedTuple):
    """A condition over the column `jobs.payload`: true, false, or NULL where it is not judged."""

    sql: str
    parameters: tuple[Parameter, ...]
    """Everything that stood in the expression; nothing of it is in `sql`."""


def compile_jq(source: str) -> Compiled:
    """An expression as a condition. Raises `BadJq`."""
    sql = to_sql(parse(source))
    return Compiled(sql.text, sql.parameters)
