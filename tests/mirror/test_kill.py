"""The mirror equals the projection of all documents, whoever was killed or hurt."""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from tests.mirror import killing


def test_the_mirror_has_what_the_shards_have_after_everybody_was_killed_and_hurt() -> None:
    with TemporaryDirectory(prefix="c") as directory:  # pytest's own are too long for a socket
        seen = trio.run(
            lambda: killing.run(Path(directory), rounds=len(killing.DEEDS), seed=20261118)
        )

    assert set(seen.deeds) == set(killing.DEEDS)
    assert seen.compared == len(killing.DEEDS) + 1
    assert seen.rows > 1_000
    assert seen.resets > 0
    assert seen.made_anew > 0
