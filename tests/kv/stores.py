"""What the tests of stores share: an applied index in every write, and a look at everything."""

from collections.abc import Mapping

from corvo.kv.store import Store

APPLIED = b"meta|applied"
END = b"\xff" * 9
EVERYTHING = 1 << 40


def applied(store: Store) -> int:
    return int(store.get(APPLIED) or b"0")


def commit(store: Store, index: int, changes: Mapping[bytes, bytes | None] | None = None) -> None:
    store.write({APPLIED: b"%d" % index, b"job|%05d" % index: b"x" * 50, **(changes or {})})


def commit_all(store: Store, first: int, last: int) -> None:
    for index in range(first, last + 1):
        commit(store, index)


def content(store: Store) -> dict[bytes, bytes]:
    return dict(store.scan(b"", END, limit=EVERYTHING))


def content_at(index: int) -> dict[bytes, bytes]:
    """What `commit_all(store, 1, index)` leaves behind."""
    jobs = {b"job|%05d" % each: b"x" * 50 for each in range(1, index + 1)}
    return {**jobs, APPLIED: b"%d" % index} if index else {}
