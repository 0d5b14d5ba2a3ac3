"""The server's front: listening sockets, the two lanes, and the door that all requests pass."""
