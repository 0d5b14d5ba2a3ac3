"""Bulk operations: one action on many jobs."""
