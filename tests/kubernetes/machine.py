"""A machine with Kubernetes: its processes, in a network and a process namespace of their own.

One kubelet, so all pods are on one machine, and a loss of a machine is not tried. What a usual
installation has and this one lacks: certificates of clients (there is a token), a network that
enforces NetworkPolicies (they are only accepted), a provisioner of volumes (they exist beforehand),
a registry for images (they are given to containerd), and the operators of cert-manager, KEDA and
Prometheus.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

NODE: Final = "machine"
ADDRESS: Final = "10.88.0.1"
TOKEN: Final = "admin"  # noqa: S105 -- the API is in a network namespace of this run
VOLUMES: Final = 24
PAUSE: Final = "localhost/pause:1"
_API: Final = "https://127.0.0.1:6443"
_PODS: Final = "10.244.0.0/16"
_SERVICES: Final = "10.96.0.0/16"
_PLUGINS: Final = ("/usr/lib/cni", "/opt/cni/bin")
SOCKET: Final = "/run/containerd.sock"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PRIVATE: Final = ("/run", "/var/lib", "/var/log")
"""Directories in which the programs write under fixed names."""
_READY_S: Final = 120.0
_LOOK_S: Final = 0.2
_SHOWN: Final = 4_000
"""Characters of the log of a program that has ended."""


def missing() -> list[str]:
    """What keeps this machine from running Kubernetes."""
    commands = (
        "go",
        "containerd",
        "ctr",
        "runc",
        "iptables",
        "ip",
        "nsenter",
        "unshare",
        "openssl",
    )
    found = [f"the command {each}" for each in commands if shutil.which(each) is None]
    if _plugins() is None:
        found.append("the plugins for container networks")
    if os.geteuid() != 0:
        found.append("root")
    return found


def _plugins() -> str | None:
    return next((each for each in _PLUGINS if Path(each, "bridge").exists()), None)


def enclosed(network: str, *words: str) -> list[str]:
    """The command line that runs this package with other words, where a machine can be started."""
    return [
        *("nsenter", f"--net=/run/netns/{network}"),
        *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
        *(sys.executable, "-m", "tests.kubernetes", *words),
    ]


class Machine:
    """The files of the programs, and the programs."""

    def __init__(self, programs: Path, directory: Path, group: str, nursery: trio.Nursery) -> None:
        """`group` is the control group of its pods."""
        self._group: Final = group
        self._programs: Final = programs
        self._directory: Final = directory
        self._nursery: Final = nursery
        self.config: Final = directory / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """What the programs find."""
        own = Path(sys.executable).parent  # helm may be there
        places = f"{self._programs}:{own}:{os.environ['PATH']}:/usr/sbin:/sbin"
        return {"PATH": places, "HOME": str(self._directory), "KUBECONFIG": str(self.config)}

    async def start(self) -> None:
        """Start all of it, until pods can be created."""
        for each in _PRIVATE:
            await trio.run_process(["mount", "-t", "tmpfs", "tmpfs", each])
        await self._make_network()
        self._make_files()
        url = "http://127.0.0.1:2379"
        await self._spawn(
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--unsafe-no-fsync",
        )
        await self._spawn("containerd", f"--config={self._directory / 'containerd.toml'}")
        await self._spawn(
            "kube-apiserver",
            f"--etcd-servers={url}",
            f"--advertise-address={ADDRESS}",
            f"--cert-dir={self._directory / 'certificates'}",
            f"--service-cluster-ip-range={_SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._directory / 'accounts.key'}",
            f"--service-account-key-file={self._directory / 'accounts.key'}",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged",
        )
        await self.wait_for("get", "--raw=/readyz")
        config = f"--kubeconfig={self.config}"
        await self._spawn(
            "kube-controller-manager",
            config,
            "--leader-elect=false",
            f"--service-account-private-key-file={self._directory / 'accounts.key'}",
        )
        await self._spawn("kube-scheduler", config, "--leader-elect=false")
        await self._spawn(
            "kubelet",
            config,
            f"--config={self._directory / 'kubelet.json'}",
            f"--root-dir={self._directory / 'kubelet'}",
            f"--cert-dir={self._directory / 'certificates'}",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
        )
        await self._spawn(
            "kube-proxy",
            config,
            "--proxy-mode=iptables",
            f"--cluster-cidr={_PODS}",
            f"--hostname-override={NODE}",
            "--conntrack-max-per-core=0",
        )
        await self._spawn("coredns", f"-conf={self._directory / 'Corefile'}")
        await self._apply(self._volumes())
        await self.wait_for("get", "serviceaccount", "default")
        await self.wait_for("wait", "--for=condition=Ready", f"node/{NODE}")

    async def wait_for(self, *words: str) -> None:
        """Repeat a command of kubectl until it succeeds."""
        with trio.fail_after(_READY_S):
            while True:
                if (await self._kubectl(*words)).returncode == 0:
                    return
                await trio.sleep(_LOOK_S)

    async def _apply(self, objects: list[dict[str, object]]) -> None:
        done = await self._kubectl("apply", "-f", "-", stdin=as_list(objects).encode())
        assert done.returncode == 0, done

    async def _kubectl(
        self, *words: str, stdin: bytes = b""
    ) -> "subprocess.CompletedProcess[bytes]":
        return await trio.run_process(
            ["kubectl", *words],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=self.environment,
        )

    async def _spawn(self, name: str, *words: str) -> None:
        """Start a program; if it ends, so does the machine."""
        self._nursery.start_soon(self._run, name, [str(self._program(name)), *words])

    async def _run(self, name: str, command: Sequence[str]) -> None:
        path = self._directory / f"{name}.log"
        with path.open("wb") as log:
            await trio.run_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self._directory,
                check=False,
                deliver_cancel=kill,
            )
        message = f"{name} has ended:\n{path.read_text()[-_SHOWN:]}"
        raise RuntimeError(message)

    def _program(self, name: str) -> Path:
        built = self._programs / name
        return built if built.exists() else Path(str(shutil.which(name)))

    # Networks and files.

    async def _make_network(self) -> None:
        for words in (
            "link set lo up",
            "link add machine0 type veth peer name machine1",
            f"addr add {ADDRESS}/24 dev machine0",
            "link set machine0 up",
            "link set machine1 up",
            "route add default dev machine0",
        ):
            await trio.run_process(["ip", *words.split()])

    def _make_files(self) -> None:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        # Services for pods on the same bridge: its packets pass the rules of the machine.
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")
        certificates = self._directory / "certificates"
        certificates.mkdir()
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self._directory / "accounts.key"), "2048"],
            check=True,
            capture_output=True,
        )
        for each in range(VOLUMES):
            (self._directory / "volumes" / str(each)).mkdir(parents=True)
        resolver = self._directory / "resolv.conf"
        self._write("resolv.conf", f"nameserver {ADDRESS}\n")
        self._write("tokens.csv", f"{TOKEN},admin,admin,system:masters\n")
        self._write("kubeconfig", json.dumps(_kubeconfig()))
        self._write("kubelet.json", json.dumps(self._kubelet(str(resolver))))
        self._write("Corefile", _corefile(self.config))
        self._write("containerd.toml", self._containerd())
        (self._directory / "cni").mkdir()
        self._write("cni/pods.conflist", json.dumps(self._network()))

    def _write(self, name: str, text: str) -> None:
        (self._directory / name).write_text(text)

    def _kubelet(self, resolver: str) -> Mapping[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "clusterDNS": [ADDRESS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "failSwapOn": False,
            "resolvConf": resolver,
            "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
        }

    def _containerd(self) -> str:
        plugin = 'plugins."io.containerd.grpc.v1.cri"'
        return f"""
version = 2
root = "{self._directory}/containerd"
state = "{self._directory}/run"
[grpc]
  address = "{SOCKET}"
[{plugin}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [{plugin}.cni]
    bin_dir = "{_plugins()}"
    conf_dir = "{self._directory}/cni"
  [{plugin}.containerd]
    snapshotter = "overlayfs"
"""

    def _network(self) -> Mapping[str, object]:
        return {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "pods0",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": _PODS}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(self._directory / "addresses"),
                    },
                }
            ],
        }

    def _volumes(self) -> list[dict[str, object]]:
        storage: dict[str, object] = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "machine",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        return [storage, *(self._volume(each) for each in range(VOLUMES))]

    def _volume(self, number: int) -> dict[str, object]:
        selected = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
        terms = [{"matchExpressions": [selected]}]
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"volume-{number}"},
            "spec": {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "machine",
                "local": {"path": str(self._directory / "volumes" / str(number))},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }


async def kill(process: trio.Process) -> None:
    """At the end nothing of a program is needed."""
    process.kill()


def as_list(objects: Sequence[Mapping[str, object]]) -> str:
    """Several objects as one."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def _kubeconfig() -> Mapping[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "machine",
        "clusters": [
            {"name": "machine", "cluster": {"server": _API, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "machine", "context": {"cluster": "machine", "user": "admin"}}],
    }


def _corefile(config: Path) -> str:
    """As kubeadm writes it: names are kept for 30 s."""
    return f"""
. {{
    bind {ADDRESS}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {config}
        ttl 30
    }}
    cache 30
}}
"""


@asynccontextmanager
async def surroundings() -> AsyncIterator[str]:
    """The name of a new network namespace and of a control group. Both end with the block."""
    name = f"corvo-kubernetes-{os.getpid()}"
    hierarchies = [each.parent for each in _CGROUPS.glob("*/cgroup.procs")] or [_CGROUPS]
    groups = [each / name for each in hierarchies]
    await trio.run_process(["ip", "netns", "add", name])
    try:
        for each in groups:
            each.mkdir()
        yield name
    finally:
        with trio.CancelScope(shield=True):
            await trio.run_process(["ip", "netns", "delete", name])
            for each in groups:
                for found in (*sorted(each.rglob("*/"), reverse=True), each):
                    await _remove(found)


async def _remove(path: Path) -> None:
    """A control group; its processes may still be ending."""
    group = trio.Path(path)
    with trio.fail_after(_READY_S):
        while True:
            try:
                await group.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
            else:
                return
            await trio.sleep(_LOOK_S)
