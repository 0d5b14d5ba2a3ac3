"""The recount of a shard: all that follows from documents is computed again, and compared."""
