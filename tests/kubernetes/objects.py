"""What a real API server accepts, keeps, refuses and evicts.

All of it in a namespace that admits only pods of the restricted Pod Security Standard.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from tests.helm.charts import CI, Done, documents
from tests.helm.values_reference import CHART
from tests.kubernetes.images import NEWER, SERVER
from tests.kubernetes.machine import Machine, as_list

_NAMESPACE: Final = "shop"
_IMAGE, _TAG = SERVER.rsplit(":", 1)
_NEWER_TAG: Final = NEWER.rsplit(":", 1)[1]
_THREE: Final = ("replicaCount=3", "cluster.enabled=true", "shards=2", f"image.tag={_TAG}")
_OTHERS: Final = frozenset({"Certificate", "PrometheusRule", "ScaledObject", "ServiceMonitor"})
"""Kinds of other projects, which this API server does not know."""
_PATIENCE: Final = "--timeout=300s"
_LOOK_S: Final = 0.5


class Examiner:
    """Runs commands, and notes what is not as it must be."""

    def __init__(self, environment: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._environment: Final = environment
        self._tell: Final = tell
        self.wrong: Final[list[str]] = []

    async def run(self, *words: str, stdin: str = "") -> Done:
        """A command."""
        done = await trio.run_process(
            words,
            stdin=stdin.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=self._environment,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def kubectl(self, *words: str, stdin: str = "") -> Done:
        """A command of kubectl, in the namespace."""
        return await self.run("kubectl", "--namespace", _NAMESPACE, *words, stdin=stdin)

    async def upgrade(self, *settings: str) -> Done:
        """Install the release, or change it."""
        sets = [f"--set={each}" for each in (f"image.repository={_IMAGE}", *settings)]
        words = ("upgrade", "--install", "jobs", str(CHART), "--namespace", _NAMESPACE)
        return await self.run("helm", *words, *sets)

    async def corvo(self, words: str) -> Done:
        """A command of corvo, in the first pod."""
        script = f"CORVO_API_KEY=$CORVO_ADMIN_KEY CORVO_OUTPUT=table corvo {words}"
        return await self.kubectl("exec", "jobs-corvo-0", "--", "sh", "-c", script)

    async def pod(self, name: str) -> str:
        """The identity of a pod."""
        return (await self.kubectl("get", "pod", name, "-o", "jsonpath={.metadata.uid}")).out

    async def rolled(self) -> Done:
        """Wait until all pods are as the release says."""
        return await self.kubectl("rollout", "status", "statefulset/jobs-corvo", _PATIENCE)

    def note(self, what: str, done: Done, *expected: str, code: int = 0) -> None:
        """Compare how a command ended with what it must say."""
        text = done.out + done.err
        is_right = done.code == code and all(each in text for each in expected)
        self._tell(f"{'ok' if is_right else 'WRONG':6}{what}")
        if not is_right:
            self.wrong.append(f"{what}: exit code {done.code}\n{text}")

    def note_same(self, what: str, one: object, other: object) -> None:
        """Two things must be the same, and not empty."""
        self.note(what, Done(int(not one or one != other), f"{one}\n{other}", ""))


async def examine(machine: Machine, directory: Path, tell: Callable[[str], None]) -> list[str]:
    """Everything; what is wrong."""
    environment = {**machine.environment, "HOME": str(directory)}
    it = Examiner(environment, tell)
    for command in (
        ("create", "namespace", _NAMESPACE),
        (
            *("label", "namespace", _NAMESPACE),
            "pod-security.kubernetes.io/enforce=restricted",
            "pod-security.kubernetes.io/warn=restricted",  # for what creates pods
        ),
    ):
        it.note(" ".join(command), await it.run("kubectl", *command))
    await _accepted(it)
    await _installed(it)
    await _secrets_kept(it)
    await _refused(it)
    await _evicted(it)
    await _kept_without_release(it)
    return it.wrong


async def _accepted(it: Examiner) -> None:
    """The API server validates and admits all objects of all values files."""
    left_out = 0
    for path in CI:
        words = ("template", "jobs", str(CHART), "--namespace", _NAMESPACE, "-f", str(path))
        done = await it.run("helm", *words)
        found = documents(done.out)
        known = [doc for doc in found if doc["kind"] not in _OTHERS]
        left_out += len(found) - len(known)
        applied = await it.kubectl(*("apply", "--dry-run=server", "-f", "-"), stdin=as_list(known))
        what = f"{path.name}: {len(known)} objects are accepted"
        if "would violate PodSecurity" in applied.err:
            applied = applied._replace(code=1)
        it.note(what, applied)
    it.note(f"{left_out} objects are of kinds that only other projects define", Done(0, "", ""))


async def _installed(it: Examiner) -> None:
    it.note("three nodes are installed", await it.upgrade(*_THREE), "STATUS: deployed")
    it.note("they become ready", await it.rolled())
    tested = await it.run("helm", "test", "jobs", "--namespace", _NAMESPACE, "--logs")
    it.note("helm test runs a job", tested, "completed")


async def _secrets_kept(it: Examiner) -> None:
    """An upgrade replaces all pods and no key."""
    words = ("get", "secret", "jobs-corvo-keys", "-o", "jsonpath={.metadata.uid} {.data}")
    before, pods = await it.kubectl(*words), [await it.pod(f"jobs-corvo-{n}") for n in range(3)]
    newer = [each.replace(f"tag={_TAG}", f"tag={_NEWER_TAG}") for each in _THREE]
    it.note("an upgrade changes the image", await it.upgrade(*newer), "STATUS: deployed")
    it.note("the pods are replaced one by one", await it.rolled())
    it.note_same("the keys are those of before", before.out, (await it.kubectl(*words)).out)
    after = [await it.pod(f"jobs-corvo-{n}") for n in range(3)]
    is_new = not {*pods} & {*after}
    it.note_same("all pods are new ones", is_new, True)
    tested = await it.run("helm", "test", "jobs", "--namespace", _NAMESPACE, "--logs")
    it.note("helm test runs a job again", tested, "completed")


async def _refused(it: Examiner) -> None:
    """Guards that look at what is there."""
    five = [each.replace("replicaCount=3", "replicaCount=5") for each in _THREE]
    tag = f"image.tag={_NEWER_TAG}"
    it.note("it grows to five nodes", await it.upgrade(*five, tag), "STATUS: deployed")
    pods = [await it.pod(f"jobs-corvo-{n}") for n in range(3)]
    it.note("they become ready", await it.rolled())
    after = [await it.pod(f"jobs-corvo-{n}") for n in range(3)]
    it.note_same("growth restarts no pod", pods, after)
    shrunk = await it.upgrade(*_THREE, tag)
    it.note("fewer nodes are refused", shrunk, "cluster.allowScaleDown", code=1)
    other = await it.upgrade(*five, tag, "shards=3")
    it.note("another number of shards is refused", other, "shards", code=1)
    it.note("the release is as it was", await it.upgrade(*five, tag), "STATUS: deployed")


async def _evicted(it: Examiner) -> None:
    """The budget lets one pod go at a time."""
    it.note("one pod may be evicted", await _evict(it, "jobs-corvo-4"))
    it.note("a second one may not", await _evict(it, "jobs-corvo-3"), "disruption budget", code=1)
    it.note("the pod comes back", await it.rolled())


async def _evict(it: Examiner, pod: str) -> Done:
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod}/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": _NAMESPACE},
    }
    command = ("kubectl", "create", "--raw", path, "-f", "-")
    return await it.run(*command, stdin=json.dumps(eviction))


async def _kept_without_release(it: Examiner) -> None:
    """The volumes stay, and a release with the same name continues."""
    five = [each.replace("replicaCount=3", "replicaCount=5") for each in _THREE]
    words = ("get", "pvc", "-o", "jsonpath={.items[*].metadata.uid}")
    before = (await it.kubectl(*words)).out
    it.note("a job is created", await it.corvo("enqueue kept '{}'"), "was enqueued in kept")
    removed = await it.run("helm", "uninstall", "jobs", "--namespace", _NAMESPACE, "--wait")
    it.note("the release is uninstalled", removed)
    it.note_same("its volumes stay", before, (await it.kubectl(*words)).out)
    it.note("it is installed again", await it.upgrade(*five), "STATUS: deployed")
    it.note("it continues with its volumes", await it.rolled())
    it.note("the job is there", await it.corvo("search --queue kept --count"), "1\n")
