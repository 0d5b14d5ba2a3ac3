"""`corvo top`: the queues, workers, shards and failing jobs of a server, live in a terminal."""
