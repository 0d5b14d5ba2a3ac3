"""Tests of the chaos harness and of its checker."""
