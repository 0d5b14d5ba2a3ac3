"""Scopes: which queues they have, and that an empty one never has any."""

import msgspec
import pytest

from corvo.protocol.questions import QUESTIONS, Question
from corvo.scopes import EVERYTHING, NOTHING, Scope, scope_of_stored


@pytest.mark.parametrize("queue", ["mail", "", "*", "_corvo.bulk"])
def test_an_empty_scope_has_no_queue_and_everything_has_to_be_said(queue: str) -> None:
    assert not Scope().covers(queue)
    assert not NOTHING.covers(queue)
    assert EVERYTHING.covers(queue)


@pytest.mark.parametrize(
    ("names", "queue", "covers"),
    [
        (("mail",), "mail", True),
        (("mail",), "mail2", False),
        (("mail*",), "mail2", True),
        (("mail*",), "mai", False),
        (("evil*",), "mail", False),
        (("*",), "mail", True),
        (("sms", "mail-*"), "mail-eu", True),
        (("sms", "mail-*"), "sms-eu", False),
    ],
)
def test_a_scope_has_the_queues_that_it_names(
    names: tuple[str, ...], queue: str, *, covers: bool
) -> None:
    assert Scope(names).covers(queue) is covers


def test_an_empty_list_in_a_document_stands_for_every_queue_and_nothing_else_does() -> None:
    assert scope_of_stored(()) == EVERYTHING
    assert scope_of_stored(("mail",)) == Scope(("mail",))
    assert EVERYTHING.stored() == ()
    assert Scope(("mail",)).stored() == ("mail",)
    with pytest.raises(AssertionError):
        NOTHING.stored()


@pytest.mark.parametrize("kind", QUESTIONS.values())
def test_a_question_that_says_nothing_of_its_scope_is_for_no_queue(kind: type[Question]) -> None:
    fields = {"q": "x"} if kind.__name__ == "FullText" else {}
    question = msgspec.convert(fields, kind)

    assert question.scope == NOTHING
