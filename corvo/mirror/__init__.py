"""The mirror: a SQLite file beside the shards of a node, for questions that need a view across them."""
