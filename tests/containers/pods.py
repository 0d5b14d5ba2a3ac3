"""The pods of the chart as containers, with the security context that the chart renders.

Kubernetes makes a container of a part of a pod; here podman does, with the options that mean the
same. A field that has no option here is refused, so that none is silently left out.
"""

import os
from typing import Final

import trio

from tests.containers.engine import IMAGE, Engine
from tests.helm.charts import Done, Pod, Security
from tests.helm.pods import Release
from tests.node.http import Client
from tests.support.networks import Place

_GRACE_S: Final = "60"
_DRAIN_S: Final = 1.0
"""The hook takes some seconds."""


class Container:
    """A pod of the StatefulSet, whether or not it runs."""

    def __init__(self, engine: Engine, release: Release, number: int, places: list[Place]) -> None:
        """`places` are those of all pods, by their numbers."""
        self._engine: Final = engine
        self._release: Final = release
        self._pod: Final = release.server.the_pod
        self._names: Final = names_of(release, places)
        self.place: Final = places[number]
        self.name: Final = f"{release.server.meta.name}-{number}"
        self._environment: Final = release.values(release.server, self.name)

    def client(self) -> Client:
        """A client in the network of the pod."""
        key = self._environment["CORVO_ADMIN_KEY"]
        return Client(("127.0.0.1", 8080), key, make_socket=self.place.make_socket)

    async def start(self) -> None:
        """Start it, with what is on its disk."""
        container = self._pod.server
        assert len(container.command) == 1, container.command
        await self._engine.podman(
            "run",
            "--detach",
            f"--name={self.name}",
            f"--hostname={self.name}",
            f"--network=ns:/run/netns/{self.place.name}",
            "--no-healthcheck",  # Kubernetes ignores that of an image
            *(f"--add-host={name}:{address}" for name, address in self._names.items()),
            *security_options(self._pod),
            *(f"--env={name}={value}" for name, value in self._environment.items()),
            *self._volumes(),
            f"--entrypoint={container.command[0]}",
            IMAGE,
            *container.args,
        )

    def _volumes(self) -> list[str]:
        """Its mounts, owned as the kubelet does it for `fsGroup`."""
        group = self._pod.security_context.fs_group
        assert group is not None
        found = []
        for there, here in self._release.mounts(self._release.server, self.name).items():
            is_written = here.is_dir() and there in {"/var/lib/corvo", "/tmp"}  # noqa: S108 -- there
            os.chown(here, 0, group)
            here.chmod(0o2770 if here.is_dir() else 0o640)
            if not is_written and here.is_dir():
                for each in here.iterdir():
                    os.chown(each, 0, group)
                    each.chmod(0o640)
            found.append(f"--volume={here}:{there}:{'rw' if is_written else 'ro'}")
        return found

    async def execute(self, *words: str) -> Done:
        """A command in it."""
        return await self._engine.podman("exec", self.name, *words, is_checked=False)

    async def is_ready(self) -> bool:
        """What the readiness probe finds."""
        client = self.client()
        try:
            return (await client.ask("GET", "/readyz")).status == 200
        finally:
            client.close()

    async def stop(self) -> int:
        """What Kubernetes does: the hook, SIGTERM, and the removal; the exit code."""
        drained = await self._drain()
        assert drained.code == 0, drained
        await self._engine.podman("stop", "--time", _GRACE_S, self.name)
        return await self._remove()

    async def kill(self) -> int:
        """End all of its processes at once; the exit code."""
        await self._engine.podman("kill", "--signal=KILL", self.name)
        await self._engine.podman("wait", self.name)
        return await self._remove()

    async def kill_while_it_drains(self) -> int:
        """End all of its processes at once, a second after its hook was started; the exit code."""
        drained: list[Done] = []

        async def drain() -> None:
            drained.append(await self._drain())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            await trio.sleep(_DRAIN_S)
            assert not drained, "the hook goes on"
            return await self.kill()

    async def _drain(self) -> Done:
        hook = self._pod.server.lifecycle
        assert hook is not None
        assert hook.pre_stop is not None
        return await self.execute(*hook.pre_stop.exec.command)

    async def _remove(self) -> int:
        form = "--format={{.State.ExitCode}}"
        found = await self._engine.podman("inspect", form, self.name)
        await self._engine.podman("rm", self.name)
        return int(found.out)

    async def discard(self) -> None:
        """Remove it, also if it runs."""
        await self._engine.podman("rm", "--force", "--time=0", "--ignore", self.name)

    async def log(self) -> str:
        """What it has logged."""
        done = await self._engine.podman("logs", self.name, is_checked=False)
        return done.out + done.err


def names_of(release: Release, places: list[Place]) -> dict[str, str]:
    """What DNS has in the namespace of the release."""
    domain = f"{release.server.at('spec', 'serviceName')}.shop.svc.cluster.local"
    return {
        f"{release.server.meta.name}-{number}.{domain}": place.address
        for number, place in enumerate(places)
    }


def security_options(pod: Pod) -> list[str]:
    """The options that mean the same as the security context of a pod and its container."""
    of_pod, of_container = pod.security_context, pod.server.security_context
    user, group = of_pod.run_as_user, of_pod.run_as_group
    # All of the context is here, or this fails: the profile of seccomp is podman's default.
    assert of_pod == Security(
        run_as_non_root=True,
        run_as_user=user,
        run_as_group=group,
        fs_group=of_pod.fs_group,
        seccomp_profile={"type": "RuntimeDefault"},
    )
    assert of_container == Security(
        allow_privilege_escalation=False,
        capabilities={"drop": ["ALL"]},
        read_only_root_filesystem=True,
    )
    return [
        f"--user={user}:{group}",
        f"--group-add={of_pod.fs_group}",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--read-only-tmpfs=false",
    ]
