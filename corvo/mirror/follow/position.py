"""What a mirror asks its shard next, and what follows from an answer.

A follower asks for the changes after its cursor. When the shard does not know what changed since
then (`Reset`), the cursor is set to the shard's present index, and a full pass begins: page by
page, with changes in between. A later page is newer, so pages are written in the order in which
they came.
"""

from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from corvo.errors import WireError
from corvo.mirror.follow.progress import Cursor, Page
from corvo.protocol import wire

Request: TypeAlias = wire.Follow | wire.Scan


class Step(NamedTuple):
    """A page that is to be written, and then the position moves on."""

    page: Page
    more: bytes = b""
    is_pass: bool = False
    """Whether a full pass begins."""
    owes_changes: bool = False


class Position:
    """Of one follower. It is ahead of the rows by the pages that wait to be written."""

    def __init__(self, cursor: Cursor, *, keys_max: int, scan_keys_max: int) -> None:
        self.cursor = cursor
        self._keys_max: Final = keys_max
        self._scan_keys_max: Final = scan_keys_max
        self._more = b""
        """The last key of an entry whose documents are too large for one answer."""
        self._owes_changes = False
        """Whether documents of a pass are newer than the cursor: changes are read before more."""
        self._last_id = 0

    def linked(self) -> None:
        """A link was opened: what the last one has not finished begins again."""
        self._more = b""
        self._owes_changes = False

    def begin_pass(self) -> Step:
        """Go through all documents, from the first on."""
        return Step(Page(replace(self.cursor, pass_key=b"")), self._more, is_pass=True)

    def next_request(self) -> Request:
        """What to ask now: while a pass is under way, a page of it, and then of changes.

        Where nothing has changed since the cursor there is no page of changes: its answer, and the
        pass with it, would wait for some.
        """
        self._last_id += 1
        cursor = self.cursor
        if cursor.pass_key is not None and not self._owes_changes:
            return wire.Scan(
                self._last_id, cursor.pass_key, self._scan_keys_max, least=cursor.index
            )
        return wire.Follow(
            self._last_id,
            cursor.index,
            cursor.digest,
            keys_max=self._keys_max,
            after_key=self._more,
            through=cursor.through if cursor.through > cursor.index else 0,
            through_digest=cursor.through_digest,
        )

    def after(self, request: Request, answer: wire.FollowerAnswer) -> Step:
        """What follows from an answer. Raises `WireError` if it does not fit the request."""
        match request, answer:
            case wire.Scan(), wire.Scanned():
                return self._scanned(request.after, answer)
            case wire.Follow(), wire.Changes():
                return self._changed(answer)
            case wire.Follow(), wire.Reset():
                return self._reset(answer)
            case _:
                raise WireError(
                    f"a {type(request).__name__} was answered with {type(answer).__name__}"
                )

    def move(self, step: Step) -> None:
        """The page of a step is on its way to the rows."""
        self.cursor = step.page.cursor
        self._more = step.more
        self._owes_changes = step.owes_changes

    def _scanned(self, after: bytes, answer: wire.Scanned) -> Step:
        if answer.through < self.cursor.index:
            # The log does not come so far any more, or the replica knows nothing of `least`: the
            # changes since then will not be told again. Changes show which one it is.
            return Step(Page(self.cursor), self._more, owes_changes=True)
        reached = self.cursor.reached(answer.through, answer.through_digest)
        cursor = replace(reached, pass_key=answer.last or None)
        page = Page(cursor, answer.pairs, scanned=(after, answer.last))
        return Step(page, self._more, owes_changes=answer.through > cursor.index)

    def _changed(self, answer: wire.Changes) -> Step:
        cursor = self.cursor
        moved = replace(
            cursor.reached(answer.through, answer.through_digest),
            index=answer.index,
            digest=answer.digest,
            # A part of an entry moves neither the index nor the time.
            now_ns=answer.now_ns if answer.index > cursor.index else cursor.now_ns,
        )
        return Step(Page(moved, answer.pairs, is_news=True), answer.more)

    def _reset(self, reset: wire.Reset) -> Step:
        """A full pass begins: the rows may be of another log."""
        cursor = Cursor(
            self.cursor.shard,
            index=reset.index,
            digest=reset.digest,
            now_ns=reset.now_ns,
            through=reset.index,
            pass_key=b"",
            through_digest=reset.digest,
        )
        return Step(Page(cursor), is_pass=True)
