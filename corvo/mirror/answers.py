"""Questions and who answers them."""

import sqlite3
from typing import Final

import msgspec

from corvo.mirror.fulltext import full_text
from corvo.mirror.reading import Reading, TimeOver
from corvo.mirror.refusals import NotAnswered
from corvo.mirror.reports import get_beats, get_rates, get_summary, get_throughput
from corvo.mirror.search import count, search, select
from corvo.questions import (
    Count,
    FullText,
    GetBeats,
    GetRates,
    GetSummary,
    GetThroughput,
    Question,
    Refused,
    Search,
    Select,
)

_encode: Final = msgspec.json.Encoder().encode


def answer(reading: Reading, question: Question) -> bytes | Refused:
    """What a question is answered, as JSON; or why it is not."""
    try:
        return _encode(_answer(reading, question))
    except NotAnswered as error:
        return error.refused
    except TimeOver:
        return _OVER
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return _OVER
        raise


_OVER: Final = Refused(
    code="over_budget", error="the time was over before there was anything to be answered"
)


def _answer(reading: Reading, question: Question) -> msgspec.Struct:
    match question:
        case Search():
            return search(reading, question)
        case FullText():
            return full_text(reading, question)
        case Count():
            return count(reading, question)
        case Select():
            return select(reading, question)
        case GetRates():
            return get_rates(reading, question)
        case GetThroughput():
            return get_throughput(reading, question)
        case GetBeats():
            return get_beats(reading, question)
        case GetSummary():
            return get_summary(reading, question)
        case _:
            name = type(question).__name__
            raise NotAnswered("unknown_query", f"{name} is not answered from the tables")
