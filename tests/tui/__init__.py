"""Tests of `corvo top`."""
