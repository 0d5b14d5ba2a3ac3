"""One replica of one shard: its ops, its state machine, and the process that drives it."""
