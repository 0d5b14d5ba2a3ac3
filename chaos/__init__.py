"""Break a real cluster on purpose, and check what it keeps.

The harness (processes, faults, workloads) writes a history: `chaos.history` has its records. The
checker (`chaos.checks`) reads a history, long after the run if need be, and says which promises of
the public documents it breaks. The checker imports nothing of corvo: it must not share an error
with what it checks.
"""
