"""`helm test`: one job through the HTTP API, from its creation to its end.

run_job.py --server=http://corvo.default.svc:8080
"""

import argparse
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

_QUEUE = "helm-test"
_WORKER = "helm-test"
_ANSWER_S = 10.0
_PATIENCE_S = 60.0
"""A cluster that has just been installed elects its leaders."""
_PAUSE_S = 0.5


class NotYet(Exception):
    """The server cannot answer now."""


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="URL of the service")
    server = parser.parse_args().server
    job = patient(server, "/api/v1/enqueue", {"queue": _QUEUE, "payload": {"to": "world"}})
    print(f"created   {job['job_id']}", flush=True)
    finish(server, job["job_id"])
    path = f"/api/v1/jobs/{urllib.parse.quote(job['job_id'], safe='~')}"
    state = patient(server, path)["state"]
    print(f"state     {state}", flush=True)
    return 0 if state == "completed" else 1


def finish(server, job_id):
    """Fetch and complete jobs of the queue, up to this one: an earlier test may have left some."""
    while True:
        body = {"queues": [_QUEUE], "worker_id": _WORKER, "wait_seconds": 5}
        job = patient(server, "/api/v1/fetch", body)
        if not job.get("job_id"):
            continue
        print(f"fetched   {job['job_id']}", flush=True)
        path = f"/api/v1/ack/{urllib.parse.quote(job['job_id'], safe='~')}"
        patient(server, path, {"lease_token": job["lease_token"], "result": {"ok": True}})
        if job["job_id"] == job_id:
            return


def patient(server, path, body=None):
    """An answer, from a server that may be starting."""
    ends = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask(server, path, body)
        except NotYet as error:
            if time.monotonic() > ends:
                sys.exit(f"error: {error}")
        time.sleep(_PAUSE_S)


def ask(server, path, body):
    """One request. Raises `NotYet`."""
    # The test is for jobs: with a private authority, its certificate is not in this image.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server}{path}", data)
    request.add_header("Content-Type", "application/json")
    if key := os.environ.get("CORVO_ADMIN_KEY"):
        request.add_header("X-API-Key", key)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S, context=context) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        if error.code in {429, 503}:
            raise NotYet(f"{path}: {error.code} {text}") from error
        sys.exit(f"error: {path}: {error.code} {text}")
    except OSError as error:
        raise NotYet(f"{server}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
