"""A year of schedules: `python -m tests.sim.years` lives one.

Thousands of schedules over some shards, from one due time to the next: state machines and the
leader's `Firing`, without Raft. Where what is:

    calendar    the due times of a year, by a plain walk that shares no code with `corvo.cron`
    plans       schedules that are drawn, and what must become of each of their due times
    year        the shards, and everything that happens to them
"""
