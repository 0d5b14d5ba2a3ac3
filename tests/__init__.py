"""Tests, and the simulator that drives whole groups."""
