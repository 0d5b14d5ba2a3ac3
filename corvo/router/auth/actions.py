"""Actions: the kinds of requests. Each route has one, and a role is a set of them."""

from enum import StrEnum


class Action(StrEnum):
    """What a key must be allowed to do for a route: see `corvo.router.auth.keyring`."""

    OPEN = "open"
    """Nothing: anybody may, also without a key."""
    READ = "read"
    PRODUCE = "produce"
    """Put jobs into queues."""
    WORK = "work"
    """Fetch jobs, and say what became of them."""
    OPERATE = "operate"
    """Change jobs and queues by hand."""
    ADMIN = "admin"
    """Change who may do what."""
