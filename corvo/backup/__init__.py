"""Backups: taken from a running cluster, verified, and brought back to one."""
