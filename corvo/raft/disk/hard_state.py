"""Term and vote on disk: one file with two equal slots.

A save writes one slot, syncs, writes the other, syncs. So at any moment at most one slot is in
doubt, and the other holds what was last saved in full:

- both intact and equal: that is it;
- both intact, one newer: the newer was being saved. Nobody has been told of it, nobody minds it;
- one bad: either it was being written, and the other is what counted; or it was damaged at rest,
  and the other says the same. The older state can never stand in for a newer one that counted;
- both bad: damage.

One sync would do for a crash. The second is for a bad sector: a vote forgotten is a vote cast
twice. Elections are rare.
"""

import struct
from typing import Final

from corvo.raft.checksum import chain
from corvo.raft.disk.damage import REPLACE, damaged
from corvo.raft.disk.filesystem import Files, replace
from corvo.raft.messages import HardState

HARD_STATE: Final = "hard-state"
SLOT_BYTES: Final = 4096
"""One block each, so that writing one cannot harm the other."""

_SLOT: Final = struct.Struct("<QQQQ")
_CHECKSUM: Final = struct.Struct("<I")
_SEED: Final = chain(0, b"corvo hard state 1")
"""So that a block of zeros, or a slot of something else, is not a slot."""


class HardStateFile:
    """Saves hard states, each to both slots; `state` is what was saved last."""

    def __init__(self, files: Files, generation: int, state: HardState, doubtful: int) -> None:
        self.state = state
        self._files = files
        self._generation = generation
        # The slot to be written first, so that the other one stands if that goes wrong. A save of
        # generation g begins with slot g % 2; after it, the other is the one written last.
        self._doubtful = doubtful

    def save(self, state: HardState) -> None:
        """Make `state` durable: it counts when this returns."""
        self._generation += 1
        if self._generation % 2 != self._doubtful:
            self._generation += 1
        slot = encode_slot(self._generation, state)
        for number in (self._doubtful, 1 - self._doubtful):
            self._files.write(HARD_STATE, number * SLOT_BYTES, slot)
            self._files.sync(HARD_STATE)
        self._doubtful = 1 - self._doubtful
        self.state = state


def create_hard_state(files: Files) -> None:
    """Begin with term 0 in both slots."""
    slot = encode_slot(1, HardState()).ljust(SLOT_BYTES, b"\0")
    replace(files, HARD_STATE, slot + slot)


def read_hard_state(files: Files) -> HardStateFile:
    """What counts. Raises `LogDamaged` if neither slot is intact, or if there is no such file."""
    if HARD_STATE not in files.names():
        raise damaged(HARD_STATE, 0, 0, "the file is missing", action=REPLACE)
    slots = [decode_slot(files, number) for number in (0, 1)]
    match slots:
        case [(generation, state), None]:
            return HardStateFile(files, generation, state, doubtful=1)
        case [None, (generation, state)]:
            return HardStateFile(files, generation, state, doubtful=0)
        case [(first, state), (second, _)] if first == second:
            return HardStateFile(files, first, state, doubtful=(first + 1) % 2)
        case [(first, state), (second, _)] if first > second:
            return HardStateFile(files, first, state, doubtful=0)
        case [(_, _), (second, state)]:
            return HardStateFile(files, second, state, doubtful=1)
    raise damaged(HARD_STATE, 0, 0, "both slots are bad", action=REPLACE)


def encode_slot(generation: int, state: HardState) -> bytes:
    """The bytes of one slot."""
    slot = _SLOT.pack(generation, state.term, state.vote, state.commit)
    return slot + _CHECKSUM.pack(chain(_SEED, slot))


def decode_slot(files: Files, number: int) -> tuple[int, HardState] | None:
    """Generation and state of a slot, or None where it is bad."""
    data = files.read(HARD_STATE, number * SLOT_BYTES, _SLOT.size + _CHECKSUM.size)
    slot, checksum = data[: _SLOT.size], data[_SLOT.size :]
    if len(checksum) < _CHECKSUM.size or _CHECKSUM.pack(chain(_SEED, slot)) != checksum:
        return None
    generation, term, vote, commit = _SLOT.unpack(slot)
    return generation, HardState(term, vote, commit)
