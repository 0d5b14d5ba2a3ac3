"""Searches over all shards, full text, timelines and the summary."""
