"""A worker in plain Python: `python3 worker.py QUEUE`. SIGTERM lets it finish its job first."""

import json
import os
import signal
import sys
import threading
import time
import traceback
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SERVER = os.environ.get("CORVO_SERVER", "http://127.0.0.1:8080")
HEADERS = {"X-API-Key": os.environ.get("CORVO_API_KEY", "")}
LEASE_S = float(os.environ.get("LEASE_SECONDS", "30"))
WAIT_S = 5  # a fetch waits at most this long, so that SIGTERM does not wait longer
stopping = threading.Event()


def work(job, cancelled):
    """The work. An exception fails the attempt; the job is retried after a delay."""
    if not job["payload"].get("to"):
        raise ValueError("the letter has no address")
    print("sending a letter to", job["payload"]["to"])
    if cancelled.wait(job["payload"].get("seconds", 0)):  # stands for work that takes time
        raise InterruptedError("stopped because of a cancel")
    return {"sent": True}


def call(path, body):
    """Send a request; the answer, or None if there is no job."""
    request = Request(f"{SERVER}/api/v1/{path}", json.dumps(body).encode(), HEADERS)
    with urlopen(request, timeout=WAIT_S + 10) as answer:
        return json.loads(answer.read() or "null")


def report(path, body):
    """Repeat a report until a server answers: the lease token makes that safe."""
    while True:
        try:
            return call(path, body)
        except HTTPError as error:
            if error.code not in (429, 500, 502, 503, 504):
                # 409 LEASE_LOST: the lease has expired, and another worker may have the job.
                print("rejected:", error.read().decode(), file=sys.stderr)
                return None
        except OSError as error:
            print("no answer:", error, file=sys.stderr)
        time.sleep(1)


def heartbeat(job, cancelled, ended):
    """Renew the lease until the work has ended."""
    body = {"jobs": {job["job_id"]: {"lease_token": job["lease_token"]}}}
    while not ended.wait(LEASE_S / 3):
        try:
            answer = call("heartbeat", body)
        except OSError as error:  # the lease lasts for two more heartbeats
            print("no heartbeat:", error, file=sys.stderr)
            continue
        if answer["jobs"][job["job_id"]]["status"] == "cancel":
            cancelled.set()  # the job was cancelled, or another worker has it


def run(job):
    """Do one job, and report its end."""
    cancelled, ended = threading.Event(), threading.Event()
    threading.Thread(target=heartbeat, args=(job, cancelled, ended), daemon=True).start()
    end = {"lease_token": job["lease_token"]}
    try:
        report(f"ack/{job['job_id']}", {**end, "result": work(job, cancelled)})
    except Exception as error:
        failure = {"error": str(error), "error_class": type(error).__name__}
        report(f"fail/{job['job_id']}", {**end, **failure, "backtrace": traceback.format_exc()})
    finally:
        ended.set()


def main(queue):
    """Fetch jobs until SIGTERM or Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    fetch = {"queues": [queue], "worker_id": f"python-{os.getpid()}"}
    fetch |= {"wait_seconds": WAIT_S, "lease_seconds": int(LEASE_S)}
    print("waiting for jobs of", queue)
    while not stopping.is_set():
        try:
            job = call("fetch", fetch)
        except OSError as error:  # also HTTPError: the server is overloaded, or restarts
            print("no answer:", error, file=sys.stderr)
            stopping.wait(1)
            continue
        if job:
            run(job)
    print("stopped")


if __name__ == "__main__":
    main(sys.argv[1])
