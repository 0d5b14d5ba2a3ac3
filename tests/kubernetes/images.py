"""The images of the trial: made by buildah, and given to containerd."""

from pathlib import Path
from typing import Final

import trio

from tests.containers.engine import BASE, IMAGE, Engine
from tests.kubernetes.machine import PAUSE, SOCKET

SERVER: Final = "registry.example.net/corvo/corvo:0.1.0"
NEWER: Final = "registry.example.net/corvo/corvo:0.2.0"
MAILER: Final = "docker.io/example/mailer:1.2"
"""The names that docs/kubernetes.md has."""
_FILES: Final = {
    PAUSE: f"FROM {BASE}\nENTRYPOINT ['sleep', 'infinity']\n".replace("'", '"'),
    SERVER: f"FROM {IMAGE}\n",
    NEWER: f"FROM {IMAGE}\nLABEL org.opencontainers.image.version=0.2.0\n",
    MAILER: f"FROM {IMAGE}\nCOPY --chmod=0755 send-mail /usr/local/bin/send-mail\n",
}
# The result of a job is its payload.
_SEND_MAIL: Final = "#!/bin/sh\nexec cat\n"


async def archive(engine: Engine, directory: Path, *, is_kept: bool) -> Path:
    """A file with all of them."""
    await engine.make_image(is_kept=is_kept)
    path = directory / "images.tar"
    context = directory / "context"
    context.mkdir(exist_ok=True)
    (context / "send-mail").write_text(_SEND_MAIL)
    for name, text in _FILES.items():
        (context / "Dockerfile").write_text(text)
        await engine.build(name, context)
    path.unlink(missing_ok=True)
    await engine.podman("save", "--multi-image-archive", f"--output={path}", *_FILES)
    return path


async def load(path: Path) -> None:
    """Give them to containerd."""
    command = ["ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", str(path)]
    await trio.run_process(command, capture_stdout=True)
