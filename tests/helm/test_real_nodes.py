"""Real nodes, started with the command, variables and files that the chart renders."""

import os
import signal
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import trio

from tests.helm.charts import Done, rendered, sets
from tests.helm.pods import PATIENCE_S, Process, Release
from tests.helm.values_reference import CHART
from tests.support.certificates import Authority, needs_openssl
from tests.support.links import on_sockets
from tests.support.nodes import Running

_LOOK_S: Final = 0.1
_SMALL: Final = ("shards=1", "config.mirror.enabled=off", "drain.serveSeconds=0")
"""Fewer processes, which changes nothing in how they find each other."""
_CLUSTER: Final = ("cluster.enabled=true", "replicaCount=3")


def release(
    directory: Path, *settings: str, secrets: dict[str, dict[str, str]] | None = None
) -> Release:
    """A release with these values."""
    return Release(rendered(*sets((*_SMALL, *settings))), directory, secrets or {})


@asynccontextmanager
async def started(pods: Sequence[Process]) -> AsyncIterator[list[Running]]:
    """All of these pods."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(pod.running()) for pod in pods]


async def probe(pod: Process, name: str) -> int:
    """The status that a probe of the container gets; 0 without an answer."""
    probes = {
        "startup": pod.container.startup_probe,
        "readiness": pod.container.readiness_probe,
        "liveness": pod.container.liveness_probe,
    }
    found = probes[name]
    assert found is not None
    assert found.http_get is not None
    url = f"{found.http_get.scheme.lower()}://{pod.host}:8080{found.http_get.path}"
    return await trio.to_thread.run_sync(_status_of, url)


def _status_of(url: str) -> int:
    # As the kubelet does: it looks at no name in the certificate.
    context = ssl._create_unverified_context()  # noqa: S323 -- of this test alone
    try:
        with urlopen(url, timeout=5, context=context) as answer:  # noqa: S310 -- of this test alone
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


async def ready(pods: Sequence[Process], nodes: Sequence[Running]) -> None:
    """Wait until all pods are ready."""
    with trio.fail_after(PATIENCE_S):
        for pod, node in zip(pods, nodes, strict=True):
            while await probe(pod, "readiness") != 200:
                assert not node.silent.is_set(), node.story()
                await trio.sleep(_LOOK_S)


def assert_drained(hook: Done) -> None:
    """The node has answered. On a busy machine, the hook may have waited for another one."""
    assert (hook.code, hook.err) == (0, "")
    assert all(line.startswith("waiting: ") for line in hook.out.splitlines()), hook.out


@on_sockets
async def test_three_pods_form_a_cluster_that_a_fourth_joins(tmp_path: Path) -> None:
    three = release(tmp_path, *_CLUSTER)
    # The same disks and secrets, after an upgrade to more nodes.
    objects = rendered(*sets((*_SMALL, "cluster.enabled=true", "replicaCount=5")))
    pods = [three.pod(number) for number in range(3)]
    fourth = three.pod(3)
    assert objects.one("StatefulSet").at("spec", "template") == three.server.at("spec", "template")

    async with started(pods) as nodes:
        await ready(pods, nodes)
        formed = await pods[0].corvo("cluster", "status", "--nodes", "3", "--wait", "60s")
        job = await three.test().execute(three.test().container.command)
        alive = [await probe(pods[2], "startup"), await probe(pods[2], "liveness")]
        hook = pods[0].container.lifecycle
        assert hook is not None
        assert hook.pre_stop is not None
        drained = await pods[0].execute(hook.pre_stop.exec.command)
        after = await pods[1].corvo("cluster", "nodes")
        code = await nodes[0].end(signal.SIGTERM)
        async with started([pods[0], fourth]) as later:
            await ready([pods[0], fourth], later)
            joined = await pods[1].corvo("cluster", "status", "--nodes", "4", "--wait", "60s")

    assert (formed.code, formed.err) == (0, "")
    assert (job.code, job.out.split()[-1]) == (0, "completed"), job.err
    assert alive == [200, 200]
    assert_drained(drained)
    assert [line.split()[2] for line in after.out.splitlines()[1:]] == ["active"] * 3
    assert code == 0
    assert (joined.code, joined.err) == (0, "")
    assert " jobs-corvo-3 " in joined.out


@on_sockets
async def test_a_release_of_one_node_becomes_a_cluster(tmp_path: Path) -> None:
    alone = release(tmp_path)
    more = release(tmp_path, *_CLUSTER, "cluster.formation=join", "auth.existingSecret=kept",
                   secrets={"kept": {"admin-key": "the key that was generated"}})  # fmt: skip
    first = alone.pod(0)
    pods = [more.pod(number) for number in range(3)]

    async with started([first]) as [node]:
        await ready([first], [node])
        job = await alone.test().execute(alone.test().container.command)
        code = await node.end(signal.SIGTERM)
    async with started(pods) as nodes:
        await ready(pods, nodes)
        status = await pods[2].corvo("cluster", "status", "--nodes", "3", "--wait", "60s")
        jobs = await pods[2].corvo("queues", "-o", "id")

    assert (job.code, code) == (0, 0)
    assert (status.code, status.err) == (0, "")
    assert jobs.out == "helm-test\n"


@needs_openssl
@on_sockets
async def test_nodes_use_the_certificates_of_their_secrets(tmp_path: Path) -> None:
    secrets = await trio.to_thread.run_sync(certificates, tmp_path / "authority")
    objects = rendered(*sets(_SMALL), values=CHART / "ci" / "tls-values.yaml")
    tls = Release(objects, tmp_path / "disks", secrets)
    pods = [tls.pod(number) for number in range(3)]

    async with started(pods) as nodes:
        await ready(pods, nodes)
        job = await tls.test().execute(tls.test().container.command)
        hook = pods[1].container.lifecycle
        assert hook is not None
        assert hook.pre_stop is not None
        drained = await pods[1].execute(hook.pre_stop.exec.command)
        codes = [await node.end(signal.SIGTERM) for node in nodes]

    assert (job.code, job.out.split()[-1]) == (0, "completed"), job.err
    assert_drained(drained)
    assert codes == [0, 0, 0]


@on_sockets
async def test_a_worker_that_is_stopped_finishes_its_job_and_fetches_no_other(
    tmp_path: Path,
) -> None:
    key = ("worker.existingSecret=jobs-corvo-keys", "worker.apiKeyKey=admin-key")
    work = ("worker.queues={mail}", "worker.exec=cat /pipes/pipe", "worker.lease=10s")
    volume = ("worker.extraVolumes[0].name=pipes", "worker.extraVolumes[0].emptyDir.medium=Memory")
    mount = (
        "worker.extraVolumeMounts[0].name=pipes",
        "worker.extraVolumeMounts[0].mountPath=/pipes",
    )
    jobs = release(tmp_path, "worker.enabled=true", *key, *work, *volume, *mount)
    server, worker = jobs.pod(0), jobs.worker()
    pipe = worker.places["/pipes"] + "/pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # a program that reads the pipe waits for its end

    async with started([server]) as [node]:
        await ready([server], [node])
        await server.corvo("enqueue", "mail", "{}", "--id", "first")
        async with worker.running() as running:
            with trio.fail_after(PATIENCE_S):
                while not (leased := await inspect(server, "mail~first")).lease_expires_at:
                    assert not running.silent.is_set(), running.story()
            await server.corvo("enqueue", "mail", "{}", "--id", "second")
            running.send(signal.SIGTERM)
            with trio.fail_after(PATIENCE_S):
                while (later := await inspect(server, "mail~first")) == leased:
                    assert not running.silent.is_set(), running.story()
            os.write(end, b'"done"')
            os.close(end)
            with trio.fail_after(PATIENCE_S):
                code = await running.gone()
        first, second = [await inspect(server, f"mail~{one}") for one in ("first", "second")]

    assert later.state == "active", "its lease was renewed"
    assert code == 0
    assert (first.state, first.attempt, first.result) == ("completed", 1, "done")
    assert second.state == "pending"


class Job(msgspec.Struct, frozen=True):
    """A job, with the fields that the test looks at."""

    state: str
    attempt: int
    lease_expires_at: str = ""
    result: str = ""


async def inspect(server: Process, job: str) -> Job:
    """A job as `corvo inspect` shows it."""
    done = await server.corvo("inspect", job, "-o", "json")
    assert done.code == 0, done.err
    return msgspec.json.decode(done.out, type=Job)


def certificates(directory: Path) -> dict[str, dict[str, str]]:
    """The Secrets that the values name: one certificate for clients and for nodes."""
    authority = Authority(directory)
    signed = authority.sign("jobs")
    cert, key = Path(signed.tls_cert).read_text(), Path(signed.tls_key).read_text()
    return {
        "peer-certificates": {"tls.crt": cert, "tls.key": key, "ca.crt": authority.ca.read_text()},
        "certificates": {"fullchain.pem": cert, "privkey.pem": key},
    }
