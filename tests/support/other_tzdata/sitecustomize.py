"""Time zone data of another version, for whole nodes: Python imports this in each process."""

import os

import tzdata

tzdata.__version__ = os.environ["OTHER_TZDATA"]
