"""A process that is killed amid its writes: what it told is there, and nothing torn."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from corvo.kv.checkpoints import LevelStates
from tests.kv.stores import applied, content, content_at
from tests.kv.test_states import end

WRITER = """
import sys
from pathlib import Path
from threading import Thread
from corvo.kv.checkpoints import LevelStates
from tests.kv.stores import applied, commit

states = LevelStates(Path(sys.argv[1]), boot_id="1", applied=applied)
index = applied(states.store)
checkpoint = None
while True:
    index += 1
    commit(states.store, index)
    print(index, flush=True)
    if checkpoint is None or not checkpoint.is_alive():
        checkpoint = Thread(target=states.checkpoint, daemon=True)
        checkpoint.start()
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_process_loses_nothing_that_it_told(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    told = 0

    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert writer.stdout is not None
        for _ in range(random.randrange(1, 400)):
            told = int(writer.stdout.readline())
        writer.kill()
        told = max(told, *(int(line) for line in writer.stdout.read().split("\n")[:-1]), 0)
        writer.stdout.close()
        writer.wait()

    states = LevelStates(tmp_path, boot_id="1", applied=applied)
    index = applied(states.store)
    assert index in (told, told + 1)
    assert content(states.store) == content_at(index)
    assert not states.recovery.rebuilt
    checkpointed = states.checkpointed
    end(states)
    states = LevelStates(tmp_path, boot_id="2", applied=applied)
    assert content(states.store) == content_at(checkpointed)
    states.close()
