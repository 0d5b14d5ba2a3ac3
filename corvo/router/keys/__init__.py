"""API keys over HTTP: created, listed and deleted by an admin."""
