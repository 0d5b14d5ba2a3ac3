"""Health check of a container: exits with 0 if the node of this container answers 200.

    healthy.py [PATH]

PATH is `/livez` (the router answers) or `/readyz` (the node takes requests). The node is found by
`CORVO_BIND` and `CORVO_TLS_CERT`; settings of a file are not seen.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Final

ANSWER_S: Final = 4.0
ANY: Final = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 -- of a node
"""Where a node that listens on all addresses is reached."""


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Ask the node; returns the exit code."""
    url = url_of(environment, *words)
    # The certificate is for the names that clients use, and this connection stays in the container.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S, context=context) as answer:
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        print(f"{url}: {error.code} {error.read().decode()}")
        return 1
    except OSError as error:
        print(f"{url}: {error}")
        return 1
    return 0


def url_of(environment: Mapping[str, str], path: str = "/livez") -> str:
    """The address of the node, out of its settings."""
    first = environment.get("CORVO_BIND", "").split(",")[0].strip() or "127.0.0.1:8080"
    host, _, port = first.rpartition(":")
    scheme = "https" if environment.get("CORVO_TLS_CERT") else "http"
    return f"{scheme}://{ANY.get(host, host)}:{port}{path}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
