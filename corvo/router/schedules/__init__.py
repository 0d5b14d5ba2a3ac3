"""Schedules: jobs that are created at due times."""
