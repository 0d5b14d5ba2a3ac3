"""The mirror: one SQLite file beside the shards of a node, for what needs a view across them."""
