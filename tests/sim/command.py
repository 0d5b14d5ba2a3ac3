"""The command line of a simulator, whichever kind of run it is for."""

import argparse
import importlib
import secrets
from collections.abc import Mapping

from tests.sim.bugs import Bug, plant


def main(doc: str, command: str, known: Mapping[str, Bug], kind_at: str) -> int:
    """Do what the command line says. `kind_at` is the module that has the `KIND` of run."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {command}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seed", nargs="?", type=lambda text: int(text, 0))
    parser.add_argument("--without", action="append", default=[], metavar="FAULT")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--once", action="store_true", help="do not compare with a second run")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--from", dest="first", type=lambda text: int(text, 0))
    parser.add_argument("--bug", choices=list(known))
    parser.add_argument("--bugs", nargs="*", choices=[*known, []], metavar="NAME")
    parser.add_argument("--hunt", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--ranges", type=int, default=3)
    given = parser.parse_args()
    if given.bug is not None:
        plant(known[given.bug])
    # Imported only now: a planted bug must be there before the product is.
    campaign = importlib.import_module("tests.sim.campaign")
    kind = importlib.import_module(kind_at).KIND
    first = given.first if given.first is not None else secrets.randbits(40) * 1000
    if given.bugs is not None:
        names = given.bugs or list(known)
        return int(campaign.table(given.budget, given.ranges, names, kind))
    if given.hunt is not None:
        return int(campaign.report_hunt(first, given.hunt, kind))
    if given.seed is not None:
        without = tuple(given.without)
        if given.shrink:
            return int(campaign.shrink(given.seed, without, kind))
        return int(campaign.replay(given.seed, without, twice=not given.once, kind=kind))
    if given.minutes is None and given.seeds is None:
        parser.error("give a SEED, --minutes, --seeds or --bugs")
    return int(campaign.campaign(first=first, count=given.seeds, minutes=given.minutes, kind=kind))
