"""Corvo: a job queue that needs nothing beside itself."""

__version__ = "0.1.0.dev0"
