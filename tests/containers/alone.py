"""One container with a read-only root and no rights: works, keeps its data, and stops in order."""

from typing import Final

import msgspec
import trio

from corvo import __version__
from tests.containers.engine import BASE, IMAGE, Engine
from tests.helm.charts import Done

STOP_S: Final = 10.0
_LOOK_S: Final = 0.2
_NAME: Final = "corvo-alone"
_VOLUME: Final = "corvo-alone"
_CONFINED: Final = (
    "--network=none",
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--user=10001",
    "--tmpfs=/tmp",
)
_COMPILERS: Final = "gcc g++ cc c++ clang tcc make ld as"
_ZOMBIES: Final = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        name, state = open(f"/proc/{pid}/stat").read().split(" ", 3)[1:3]
    except OSError:
        continue
    if state == "Z":
        print(pid, name)
"""
_JOB: Final = """
export CORVO_API_KEY=$CORVO_ADMIN_KEY
corvo enqueue mail '{"to": "ada"}' >/dev/null
id=$(corvo fetch mail -o id)
corvo ack "$id" >/dev/null
echo "$id"
"""
_STATE: Final = 'corvo inspect --api-key "$CORVO_ADMIN_KEY" -o json'


class Job(msgspec.Struct):
    """A job as `corvo inspect` shows it."""

    state: str


class Bill(msgspec.Struct):
    """The SBOM of the image."""

    components: list[dict[str, object]]


class Trial:
    """What is tried, each with its result."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self.results: Final[list[tuple[str, bool, str]]] = []

    def _note(self, name: str, is_right: bool, what: object = "") -> None:
        self.results.append((name, is_right, str(what)))

    async def run(self) -> None:
        """All of it."""
        try:
            await self._look()
            await self._live()
        finally:
            with trio.CancelScope(shield=True):
                await self._engine.podman("rm", "--force", "--time=0", "--ignore", _NAME)
                await self._engine.podman("volume", "rm", "--force", _VOLUME, is_checked=False)

    async def _once(self, *words: str, entrypoint: str = "") -> Done:
        first = [f"--entrypoint={entrypoint}"] if entrypoint else []
        command = ("run", "--rm", "--no-healthcheck", *_CONFINED, *first, IMAGE, *words)
        return await self._engine.podman(*command, is_checked=False)

    async def _look(self) -> None:
        """What is in the image."""
        version = await self._once("--version")
        self._note("version", version.out == f"corvo {__version__}\n", version.out.strip())
        user = await self._once("-u", entrypoint="id")
        self._note("user", user.out == "10001\n", user.out.strip())
        found = await self._once(
            "-c", f"for each in {_COMPILERS}; do command -v $each; done; true", entrypoint="sh"
        )
        self._note("no compiler", (found.code, found.out) == (0, ""), found.out)
        wrote = await self._once("/opt/corvo/x", "/x", entrypoint="touch")
        self._note("read-only root", wrote.code != 0, wrote.err.splitlines()[-1:])
        rights = await self._once("-E", "CapEff|NoNewPrivs", "/proc/self/status", entrypoint="grep")
        wanted = "CapEff: 0000000000000000 NoNewPrivs: 1"
        self._note("no rights", " ".join(rights.out.split()) == wanted, rights.out.split())
        listed = await self._once("/opt/corvo/sbom.cdx.json", entrypoint="cat")
        bill = msgspec.json.decode(listed.out, type=Bill)
        self._note("SBOM", len(bill.components) > 1, f"{len(bill.components)} packages")
        refused = await self._once()
        self._note("refused without an admin key", refused.code == 72, refused.code)
        sizes = [await self._size(image) for image in (IMAGE, BASE)]
        self._note("size", True, f"{sizes[0]:.0f} MB, of which the base has {sizes[1]:.0f} MB")

    async def _size(self, image: str) -> float:
        done = await self._engine.podman("image", "inspect", "--format={{.Size}}", image)
        return int(done.out) / 1e6

    async def _start(self) -> None:
        key = "--env=CORVO_ADMIN_KEY=an admin key of the trial"
        await self._engine.podman(
            "run", "--detach", "--no-healthcheck", f"--name={_NAME}", *_CONFINED, key,
            f"--volume={_VOLUME}:/var/lib/corvo", IMAGE,
        )  # fmt: skip
        with trio.fail_after(120):
            while True:
                if (await self._inside("python3", "/opt/corvo/healthy.py", "/readyz")).code == 0:
                    break
                await trio.sleep(_LOOK_S)

    async def _inside(self, *words: str) -> Done:
        return await self._engine.podman("exec", _NAME, *words, is_checked=False)

    async def _stop(self) -> None:
        began = trio.current_time()
        await self._engine.podman("stop", "--time=60", _NAME)
        took_s = trio.current_time() - began
        code = (await self._engine.podman("inspect", "--format={{.State.ExitCode}}", _NAME)).out
        self._note("SIGTERM", code == "0\n" and took_s < STOP_S, f"{code.strip()}, {took_s:.2f} s")
        await self._engine.podman("rm", _NAME)

    async def _live(self) -> None:
        """A job before and after a restart, orphans in between."""
        await self._engine.podman("volume", "create", _VOLUME)
        await self._start()
        job = (await self._inside("sh", "-c", _JOB)).out.strip()
        await self._inspect("a job is completed", job)
        await self._inside("sh", "-c", "(sh -c 'exit 3' &) ; (cat </dev/null &)")
        zombies = await self._inside("python3", "-c", _ZOMBIES)
        self._note("orphans are reaped", zombies.out == "", zombies.out)
        await self._stop()
        await self._start()
        await self._inspect("data are kept", job)
        await self._stop()

    async def _inspect(self, name: str, job: str) -> None:
        shown = await self._inside("sh", "-c", f"{_STATE} {job}")
        state = msgspec.json.decode(shown.out, type=Job).state if shown.code == 0 else shown
        self._note(name, state == "completed", f"{job} {state}")
