"""The feeds of the shards as a router follows them, and the events in them."""
