"""Batches: one by its id, and a list of all."""
