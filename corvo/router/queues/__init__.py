"""Queues: their settings, their counts, and what is done to a whole queue."""
