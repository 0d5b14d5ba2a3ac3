"""The programs of Kubernetes, etcd and CoreDNS: built from source, out of Go's module proxy."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

KUBERNETES: Final = "1.34.4"
"""The newest minor version that runs on machines with control groups of version 1 by default."""
COREDNS: Final = "1.14.3"
_SOURCE: Final = Path(__file__).parent / "go"
_NAMES: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


def build(directory: Path) -> Path:
    """Build them, unless they are there; the directory with the programs."""
    programs = directory / f"kubernetes-{KUBERNETES}-coredns-{COREDNS}"
    if programs.is_dir():
        return programs
    made = directory / "programs.new"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    _compile("kube", _modules_of_kubernetes(), made)
    for name in _NAMES:
        (made / name).symlink_to("kube")
    _compile("dns", f"require github.com/coredns/coredns v{COREDNS}\n", made)
    (made / "dns").rename(made / "coredns")
    shutil.rmtree(made / "source")
    made.rename(programs)
    return programs


def _compile(name: str, modules: str, made: Path) -> None:
    source = made / "source" / name
    shutil.copytree(_SOURCE / name, source)
    version = re.findall(r"go(\d+\.\d+)", _go(source, "version"))[0]
    (source / "go.mod").write_text(f"module corvo.test/{name}\n\ngo {version}\n\n{modules}")
    _go(source, "mod", "tidy")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
    _go(source, "build", "-trimpath", f"-ldflags={flags}", "-o", str(made / name), ".")


def _modules_of_kubernetes() -> str:
    """What the module of Kubernetes requires.

    It names its own parts by directories of its source. Here they are the modules as published.
    """
    path = _go(Path.cwd(), "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}")
    found = re.search(r'"GoMod": "(.+)"', path)
    assert found is not None, path
    text = Path(found[1]).read_text()
    parts = re.findall(r"^\t(\S+) => \./staging", text, re.MULTILINE)
    samples = [each for each in parts if each.startswith("k8s.io/sample-")]
    parts = [each for each in parts if each not in samples]
    version = "v0" + KUBERNETES.removeprefix("1")
    others = [
        f"\t{name} {number}"
        for name, number in re.findall(r"^\t(\S+) (v\S+)", text, re.MULTILINE)
        if name not in (*parts, *samples)
    ]
    lines = [
        *("require (", f"\tk8s.io/kubernetes v{KUBERNETES}", *others),
        *(f"\t{name} {version}" for name in parts),
        *(")", "", "replace (", *(f"\t{name} => {name} {version}" for name in parts), ")", ""),
        # Programs to learn from: no program needs them, and not all are published.
        *(f"exclude {name} v0.0.0" for name in samples),
        "",
    ]
    return "\n".join(lines)


def _go(directory: Path, *words: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        ["go", *words], cwd=directory, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
