"""Backups: what they have, what comes back, and what is refused."""
