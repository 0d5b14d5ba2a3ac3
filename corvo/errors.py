"""Exceptions of all packages except the Raft library, which has its own.

    CorvoError
    ├── StoreError
    │   ├── StoreFailed     a write or a sync failed: the process ends and starts into recovery
    │   ├── StoreFull       no room: nothing was changed, and it may be tried again
    │   ├── StoreDamaged    bytes are not what was written
    │   └── StoreRefused    the directory is in use, or another shard's
    ├── BadKey              a name that would break a key's layout
    ├── WireError           bytes that are not a frame of ours; the connection ends
    ├── LinkLost            the peer is gone: a request's outcome may be unknown (corvo.link)
    │   └── LinkRefused     the two ends must not talk, before any request (corvo.link)
    ├── BadConfig           a shard was told something that cannot work (corvo.shard.config)
    ├── BadRouterConfig     so was a router (corvo.router.config)
    ├── ConfigRefused       settings of the node that cannot work, all at once (corvo.config)
    ├── BadTimetable        an expression or time zone that cannot be used (corvo.cron)
    ├── DirectoryUnfit      the data directory is not one for this node (corvo.datadir)
    ├── DirectoryInUse      a server has the data directory (corvo.datadir)
    ├── DirectoryDamaged    what says whose it is cannot be read (corvo.datadir)
    ├── ListenFailed        nobody can listen where the node was told to (corvo.listening)
    ├── Problem             a request that is refused or fails (corvo.router.http.messages)
    ├── LineBroken          a client's connection is gone (corvo.router.http.lines)
    ├── NewerEntry          an entry of the log that only a later release can apply
    ├── ShardLost           a shard has less than it had (corvo.shard.driver.known)
    └── Poisoned            an entry that ended the process twice; see `docs/operations.md`

Refusals of an op are values (`corvo.protocol.ops.base.Rejected`), and bugs are assertions; neither
is here.
"""


class CorvoError(Exception):
    """The root of all of them."""


class StoreError(CorvoError):
    """The state's storage cannot do what it was asked."""


class StoreFailed(StoreError):
    """A write or a sync failed. What the disk holds now is known to nobody."""


class StoreFull(StoreError):
    """There is no room. Nothing was changed."""


class StoreDamaged(StoreError):
    """Bytes are not what was written."""


class StoreRefused(StoreError):
    """The directory is not one this process may use."""


class BadKey(CorvoError):
    """A name cannot be part of a key."""


class WireError(CorvoError):
    """Bytes are not a frame of ours."""


class Poisoned(CorvoError):
    """An entry ended the process twice, and is not tried a third time."""


class NewerEntry(CorvoError):
    """An entry of the log has an op, or a field, that this release does not know."""
