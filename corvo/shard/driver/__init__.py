"""The driver of a replica: sockets, disk and clock of the shard process."""
