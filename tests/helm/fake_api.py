"""The part of a Kubernetes API that helm's `lookup` asks: objects that the cluster has already."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_KINDS: Final = {
    "/api/v1": ("v1", "secrets", "Secret"),
    "/apis/apps/v1": ("apps/v1", "statefulsets", "StatefulSet"),
}


@contextmanager
def kubernetes(objects: Mapping[str, object]) -> Iterator[str]:
    """The address of an API with these objects, each under its path."""
    answers = {path: _resources(*kind) for path, kind in _KINDS.items()} | dict(objects)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the test says what is wrong."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _resources(version: str, name: str, kind: str) -> dict[str, object]:
    resource = {"name": name, "singularName": "", "kind": kind, "namespaced": True}
    return {
        "kind": "APIResourceList",
        "groupVersion": version,
        "resources": [{**resource, "verbs": ["get"]}],
    }
