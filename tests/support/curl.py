"""`curl`, with the options that the pages use, where none may be installed.

It imports no more than it needs, because the pages start it often.
"""

import http.client
import sys
from argparse import ArgumentParser
from pathlib import Path


class Given:
    """What it is started with."""

    url: str
    request: str | None
    include: bool
    header: list[str]
    json: str | None


def main() -> int:
    """Send one request, and print the answer as it comes."""
    parser = ArgumentParser("curl", allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-N", "--no-buffer", action="store_true")
    parser.add_argument("-i", "--include", action="store_true")
    parser.add_argument("-X", "--request")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("--json")
    got = parser.parse_args(namespace=Given())
    body = None if got.json is None else got.json.encode()
    if body is not None and body.startswith(b"@"):
        body = Path(body[1:].decode()).read_bytes()
    host, _, path = got.url.removeprefix("http://").partition("/")
    headers = dict(header.split(": ", 1) for header in got.header)
    connection = http.client.HTTPConnection(host)
    method = got.request or ("GET" if body is None else "POST")
    connection.request(method, f"/{path}", body, headers)
    answer = connection.getresponse()
    if got.include:
        sys.stdout.write(f"HTTP/1.1 {answer.status} {answer.reason}\r\n{answer.headers}")
        sys.stdout.flush()
    while line := answer.readline():
        sys.stdout.buffer.write(line)
        sys.stdout.flush()
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
