"""What the command line needs to know of runs of the Raft simulation."""

from typing import Final

from tests.sim.campaign import RAFT

KIND: Final = RAFT
