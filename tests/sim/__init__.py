"""A deterministic simulation of whole Raft groups: `python -m tests.sim SEED` replays one life.

Where what is:

    options     what a run is like, drawn from its seed
    chance      dice, one set for each concern
    timeline    time, and the heap of events
    world       the phases of a run
    host        one replica's process: the driver around `corvo.raft.Node`
    network     what happens to frames between hosts
    faults      what goes wrong, and when
    machine     the state machine under test, and what another would have to answer to
    workload    clients that write and read
    operations  an operator who changes the group
    oracles     what must never happen, judged without asking the code under test
    shadow      what is durable where, as seen from outside
    groups      memberships, derived a second time
    contact     who heard whom: the rules of leases and of CheckQuorum
    failures    how a run may end
    campaign    one seed to look at, or many, on every core
    command     the command line; `kind` is what it needs to know of this kind of run
    bugs        planted bugs that the simulation must find; the list is in `planted`

The simulation of whole replicas of a shard, clients included, stands on this one: see `shards`.
That of whole clusters takes time, network and faults from here: see `clusters`.
How to use it from the command line stands in `__main__`.
"""
