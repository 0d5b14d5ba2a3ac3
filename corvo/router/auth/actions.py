"""What can be asked of a router, in kinds: a role is a set of them, and each route is of one."""

from enum import Enum


class Action(Enum):
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
