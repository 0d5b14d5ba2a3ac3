"""Tests of the Raft library."""
