"""`python -m tests.deploy`: a rolling restart behind HAProxy, with clients that know HAProxy only.

The nodes and the configuration are those of the compose file with three nodes. Exit code 1 when a
job was lost, or a request failed twice.
"""

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.deploy import balancing


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.deploy", description=__doc__)
    parser.add_argument("--stop-delay", default="4s", help="of the nodes")
    read = parser.parse_args()
    if shutil.which("haproxy") is None:
        print("not covered: the load balancer; this machine lacks haproxy")
        return 0
    with tempfile.TemporaryDirectory(prefix="deploy-") as directory:
        run = partial(balancing.run, Path(directory), stop_delay=read.stop_delay)
        seen = trio.run(run)
    loaded = seen.loaded
    print(f"{loaded.jobs} jobs, {loaded.repeated} requests repeated, {len(loaded.failed)} failed")
    print("\n".join(sorted({*loaded.failed})[:10]), end="\n" if loaded.failed else "")
    print(f"{loaded.missing} jobs are missing, {loaded.doubled} are there twice")
    print(f"requests: {loaded.times}")
    print(f"exit codes {seen.codes}; stopped within {[round(each, 1) for each in seen.stops_s]} s")
    return int(bool(loaded.missing or loaded.doubled or loaded.failed))


if __name__ == "__main__":
    sys.exit(main())
