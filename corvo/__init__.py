"""Corvo: a job queue server with no database and no broker."""

__version__ = "0.1.0.dev0"
