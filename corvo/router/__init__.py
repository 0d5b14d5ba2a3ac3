"""The router: HTTP on the one side, shards on the other."""
