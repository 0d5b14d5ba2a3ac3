"""Tests of the stores, and of what is kept in them."""
