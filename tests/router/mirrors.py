"""A mirror played by hand: what it is asked is written down, and it answers what a test has set."""

from typing import Final, TypeVar

import msgspec
import trio

from corvo.protocol.questions import (
    NUMBERS,
    QUESTIONS,
    AllRates,
    AsOf,
    Beats,
    Found,
    FullText,
    GetBeats,
    GetRates,
    GetSummary,
    GetThroughput,
    MirrorAnswer,
    Place,
    Question,
    Rebuild,
    Rebuilding,
    Refused,
    Search,
    Summary,
    TextFound,
    Throughput,
    positions_of,
)
from corvo.router.api import Api
from corvo.router.config import RouterConfig
from corvo.router.http.messages import Problem, encode_json
from corvo.router.shards.mirror import Mirror, problem_of, unavailable

Q = TypeVar("Q", bound=Question)

AT: Final = "2026-02-20T10:00:07.25Z"
AS_OF: Final[AsOf] = {"s0": Place(12, AT), "s2": Place(7, AT)}


class _Dated(msgspec.Struct):
    as_of: AsOf = {}


_read_as_of: Final = msgspec.json.Decoder(_Dated).decode


class ScriptedMirror(Mirror):
    """Answers at once: with the last that was set for a question, or what its type answers."""

    def __init__(self, config: RouterConfig) -> None:
        super().__init__(msgspec.structs.replace(config, mirror_socket="nowhere"))
        self.asked: list[Question] = []
        self.answers: dict[type[Question], msgspec.Struct | bytes | Problem] = {}
        self.is_away = False

    @property
    def is_up(self) -> bool:
        return not self.is_away

    async def _ask(self, number: int, body: bytes) -> MirrorAnswer:
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise unavailable("it was sent away")
        kind = QUESTIONS[number]
        self.asked.append(msgspec.json.decode(body, type=kind))
        answer = self.answers.get(kind)
        assert answer is not None, f"nothing is set for {kind.__name__}"
        if isinstance(answer, Problem):
            raise answer
        if isinstance(answer, Refused):
            raise problem_of(answer)
        if isinstance(answer, MirrorAnswer):
            return answer
        written = answer if isinstance(answer, bytes) else encode_json(answer)
        return MirrorAnswer(written, positions_of(_read_as_of(written).as_of))

    def last(self, kind: type[Q]) -> Q:
        """The last question of a kind."""
        found = [each for each in self.asked if isinstance(each, kind)]
        assert found, f"no {kind.__name__} was asked"
        return found[-1]

    def count(self, kind: type[Question]) -> int:
        """How many of a kind were asked."""
        return sum(isinstance(each, kind) for each in self.asked)


def give(api: Api) -> ScriptedMirror:
    """A mirror for a router, which answers that there is nothing."""
    mirror = ScriptedMirror(api.config)
    mirror.answers = {
        GetRates: AllRates(queues=[], as_of=AS_OF),
        GetBeats: Beats(workers=[], as_of=AS_OF),
        GetSummary: Summary(queues=[], as_of=AS_OF),
        Search: Found(jobs=[], total=0, total_is_exact=True, as_of=AS_OF),
        FullText: TextFound(q="", results=[], as_of=AS_OF),
        GetThroughput: Throughput(minutes=[], as_of=AS_OF),
        Rebuild: Rebuilding(shards=3),
    }
    api.mirror = mirror
    return mirror


def number_of(question: Question) -> int:
    """What a question is called on a link."""
    return NUMBERS[type(question)]
