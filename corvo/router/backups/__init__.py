"""Backups: copies of all shards, and documents that come back."""
