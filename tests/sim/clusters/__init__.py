"""The simulation of whole clusters: `python -m tests.sim.clusters SEED` replays one life.

Three or five nodes, two to four shards, and a mirror on each node. The modules of the product
decide: replicas and their groups, the cluster map and places, effects between shards, the links to
leaders, which shards a node has, and what a mirror asks. Where what is:

    options     what a run is like, drawn from its seed
    machine     a machine: its directory, and the node that runs on it
    process     one process of a shard, as `corvo.shard.driver.process` drives it
    linked      links to all replicas of a shard, as `corvo.shard_links` keeps them
    router      the router of a node: the cluster map, and requests of clients
    mirror      the mirror of a node: rows in memory
    people      clients, and who adds, drains, loses and replaces nodes
    ledger      what must never happen, judged at each step
    ending      what must be in the end
    world       the phases of a run
    planted     bugs in the product that the simulation must find
"""
