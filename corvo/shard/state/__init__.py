"""The state of a shard: its tables, and every change that an op may make to them."""
