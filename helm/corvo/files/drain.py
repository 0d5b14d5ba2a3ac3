"""preStop of a Corvo pod: waits until the other nodes can continue without this one.

    drain.py --server=http://127.0.0.1:8080 --serve=5 --timeout=40

The node serves all the time. Nothing of the cluster is changed: the node hands the leadership of
its shards over when it gets SIGTERM, which follows this program. The wait is limited, and the
program always ends with 0, because a failed preStop would only make the stop less orderly.
"""

import argparse
import json
import os
import ssl
import time
import urllib.request

_LAG_MAX = 1_000
"""Entries that a replica may be behind and still counts: it applies them within a second."""
_PAUSE_S = 0.5
_ANSWER_S = 3.0


def main():
    """Returns when the pod may stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="URL of the node of this pod")
    parser.add_argument("--serve", type=float, required=True, help="seconds to serve at least")
    parser.add_argument("--timeout", type=float, required=True, help="seconds to wait at most")
    options = parser.parse_args()
    started = time.monotonic()
    while time.monotonic() - started < options.timeout:
        try:
            why = why_not(ask(options.server), os.environ.get("CORVO_CLUSTER__NODE_ID", ""))
        except (OSError, ValueError) as error:
            print(f"the node does not answer, so nothing waits for it: {error}", flush=True)
            break
        if not why:
            break
        print(f"waiting: {why}", flush=True)
        time.sleep(_PAUSE_S)
    time.sleep(max(0.0, options.serve - (time.monotonic() - started)))


def ask(server):
    """The state of the cluster, as the node of this pod knows it."""
    # The certificate is for the names of the services, and this connection does not leave the pod.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"{server}/api/v1/cluster/status")
    if key := os.environ.get("CORVO_ADMIN_KEY"):
        request.add_header("X-API-Key", key)
    with urllib.request.urlopen(request, timeout=_ANSWER_S, context=context) as answer:
        return json.load(answer)


def why_not(status, name):
    """Why a shard would have no majority without the node; empty if each has one.

    A shard that the other voters cannot continue in any case, such as that of two, is not waited
    for.
    """
    cluster = status.get("cluster", {})
    own = [node["number"] for node in cluster.get("nodes", []) if node["name"] == name]
    for shard in cluster.get("shards", []):
        voters = [one for one in shard["replicas"] if one["is_voter"]]
        others = [one for one in voters if one["node"] not in own]
        majority = len(voters) // 2 + 1
        sound = [one for one in others if is_sound(one)]
        if len(others) < len(voters) and len(sound) < majority <= len(others):
            return f"shard {shard['shard']} has {len(sound)} of {majority} other voters"
    return ""


def is_sound(replica):
    """Whether a replica can vote and lead now."""
    is_near = replica.get("lag", _LAG_MAX) < _LAG_MAX
    return replica["is_reachable"] and is_near and not replica.get("is_repairing", False)


if __name__ == "__main__":
    main()
