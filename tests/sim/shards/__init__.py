"""The simulation of whole replicas: `python -m tests.sim.shards SEED` replays one life.

A shard of several `Replica`s on the model disk, with clients that come over links, and everything
that goes wrong in `tests.sim`, of which this is the upper half. Where what is:

    options     what a run is like, drawn from its seed: that of the Raft simulation, and more
    clock       the clocks of a machine: elapsed time, and a wall clock that anybody may set
    host        one replica's process, as `corvo.shard.driver.process` drives it
    links       connections of clients to hosts: in order, or broken
    callers     who asks: attempts, giving up, another replica, the same request key again
    producers   who enqueues
    workers     who fetches, and what becomes of the jobs then
    neighbour   another shard: jobs move to it, and come back
    people      who pauses, limits, cancels, moves, retries and clears
    schedulers  who creates, changes, runs and moves schedules
    clients     all of them, and reads
    book        every applied entry once more by the rules, and what all replicas must agree on
    timetables  what becomes of each due time of a schedule
    times       the stamps of all entries: they follow elapsed time, whatever wall clocks show
    history     what clients were told, judged by what was applied
    unanswered  requests that a replica has neither answered nor proposed
    nemesis     what goes wrong with links and clocks, beside what `tests.sim.faults` does
    world       the phases of a run; behind the healing, everything must be worked off
    planted     bugs in `corvo.shard` that the simulation must find

How to use it from the command line stands in `__main__`.
"""
