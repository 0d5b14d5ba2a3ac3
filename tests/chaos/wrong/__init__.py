"""Histories that break one promise each."""
