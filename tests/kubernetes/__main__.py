"""`python -m tests.kubernetes VERB`: starts a Kubernetes, and tries the chart on it.

- `page`: every command of docs/kubernetes.md, with what it prints
- `objects`: what the API server keeps, refuses and evicts
- `shell`: a shell with kubectl, helm and the images, at the root of the repository

Kubernetes is built from source, which takes some minutes once; the images are built by buildah. It
needs root and the commands of both. What the machine cannot do is printed as not covered. Exit code
1 when something is wrong.
"""

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.containers.engine import ROOT, Engine
from tests.containers.engine import missing as missing_for_images
from tests.kubernetes import images, machine, objects, page, programs

_VERBS: Final = ("page", "objects", "shell")


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.kubernetes", description=__doc__)
    parser.add_argument("verb", choices=_VERBS)
    parser.add_argument(
        "--store", type=Path, default=ROOT / "build", help="programs and images, kept between runs"
    )
    parser.add_argument("--keep-image", action="store_true", help="do not build it again")
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    read = parser.parse_args()
    if read.inside:
        return trio.run(inside, read.verb, *read.inside)
    if lacking := [*machine.missing(), *missing_for_images()]:
        print(f"not covered: Kubernetes; this machine lacks {', '.join(lacking)}")
        return 0
    built = programs.build(read.store / "kubernetes")
    engine = Engine(read.store / "containers")
    is_kept = read.keep_image
    made = trio.run(partial(images.archive, engine, read.store / "kubernetes", is_kept=is_kept))
    return trio.run(outside, read.verb, built, made)


async def outside(verb: str, built: Path, made: Path) -> int:
    """Start this package again, in surroundings of its own."""
    async with machine.surroundings() as group:
        with tempfile.TemporaryDirectory(prefix="kubernetes-") as directory:
            await trio.Path(directory).chmod(0o711)  # for the users of the containers
            words = (verb, "--inside", group, directory, str(built), str(made))
            command = machine.enclosed(group, *words)
            run = partial(trio.run_process, check=False, stdin=None)
            return (await run(command, deliver_cancel=machine.kill)).returncode


async def inside(verb: str, group: str, at: str, built: str, made: str) -> int:
    """Start a machine in a directory, and try one thing on it."""
    tell, directory = partial(print, flush=True), Path(at)
    wrong: list[str] = []
    async with trio.open_nursery() as nursery:
        made_of = machine.Machine(Path(built), directory, group, nursery)
        await made_of.start()
        await images.load(Path(made))
        tell("Kubernetes is ready")
        work = directory / "work"
        work.mkdir()
        if verb == "page":
            wrong = await page.follow(made_of, work, tell)
        elif verb == "objects":
            wrong = await objects.examine(made_of, work, tell)
        else:
            environment = {**os.environ, **made_of.environment}
            await trio.run_process(["bash"], check=False, stdin=None, cwd=ROOT, env=environment)
        nursery.cancel_scope.cancel()
    for each in wrong:
        tell(f"\nWRONG\n{each}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
