"""A reference model of the queue, written from the public documents only."""
