"""`python -m tests.containers VERB`: builds the image without a daemon, and tries it.

It needs root, buildah, podman, runc and debootstrap, and downloads a base from Debian and packages
for pip. Parts that the machine cannot do are printed as not covered. Exit code 1 when something is
wrong.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from tests.containers import alone, cluster
from tests.containers.engine import ROOT, Engine, missing


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.containers", description=__doc__)
    parser.add_argument("verb", choices=["alone", "cluster", "all"])
    parser.add_argument(
        "--store", type=Path, default=ROOT / "build" / "containers", help="kept between runs"
    )
    parser.add_argument("--keep-image", action="store_true", help="do not build it again")
    parser.add_argument("--shards", type=int, default=2, help="of the cluster")
    read = parser.parse_args()
    if lacking := missing():
        print(f"not covered: containers; this machine lacks {', '.join(lacking)}")
        return 0
    engine = Engine(read.store)
    trio.run(partial(engine.make_image, is_kept=read.keep_image))
    is_right = True
    if read.verb in {"alone", "all"}:
        is_right = try_alone(engine)
    if read.verb in {"cluster", "all"}:
        is_right = try_cluster(engine, read.shards) and is_right
    return int(not is_right)


def try_alone(engine: Engine) -> bool:
    """One container; whether all is well."""
    trial = alone.Trial(engine)
    trio.run(trial.run)
    for name, is_right, what in trial.results:
        print(f"{'ok' if is_right else 'WRONG':6}{name}: {what}")
    return all(is_right for _, is_right, _ in trial.results)


def try_cluster(engine: Engine, shards: int) -> bool:
    """Three containers; whether all is well."""
    with tempfile.TemporaryDirectory(prefix="containers-") as directory:
        Path(directory).chmod(0o711)  # for the user of the containers
        tell = partial(print, flush=True)
        seen = trio.run(partial(cluster.run, engine, Path(directory), shards=shards, tell=tell))
    loaded = seen.loaded
    print(f"{loaded.jobs} jobs, {loaded.repeated} requests repeated, {len(loaded.failed)} failed")
    print("\n".join(sorted({*loaded.failed})[:10]), end="\n" if loaded.failed else "")
    print(f"{loaded.missing} jobs are missing, {loaded.doubled} are there twice")
    print(f"requests: {loaded.times}")
    print(f"exit codes {seen.codes}; stopped within {[round(each, 1) for each in seen.stops_s]} s")
    print(seen.status)
    is_lost = bool(loaded.missing or loaded.doubled or loaded.failed)
    return not is_lost and seen.codes == [0, 0, 0] and seen.status.startswith("status: healthy")


if __name__ == "__main__":
    sys.exit(main())
