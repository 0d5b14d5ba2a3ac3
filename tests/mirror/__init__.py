"""The mirror: that it has what the shards have, and finds in it what is asked for."""
