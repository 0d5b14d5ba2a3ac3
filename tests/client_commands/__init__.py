"""Tests of the commands that ask a server."""
