"""The Raft log on a disk: what a driver writes to, and the core reads from."""
