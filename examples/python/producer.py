"""A producer in plain Python: `python3 producer.py QUEUE ID PAYLOAD`."""

import json
import os
import sys
from urllib.request import Request, urlopen

SERVER = os.environ.get("CORVO_SERVER", "http://127.0.0.1:8080")
HEADERS = {"X-API-Key": os.environ.get("CORVO_API_KEY", "")}


def enqueue(queue, job_id, payload):
    """Enqueue a job once: with your own id, repeating the request creates no second job."""
    body = {"queue": queue, "id": job_id, "payload": payload}
    request = Request(f"{SERVER}/api/v1/enqueue", json.dumps(body).encode(), HEADERS)
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    made = enqueue(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    print(made["job_id"], "existed" if made["unique_existing"] else "was created")
