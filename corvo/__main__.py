"""`python -m corvo`: one process of Corvo, named by the first argument."""

import sys

from corvo.shard import process as shard


def main() -> int:
    """Run the process that was asked for; returns its exit code."""
    match sys.argv[1:]:
        case ["shard"]:
            return shard.main()
        case _:
            sys.stderr.write("usage: python -m corvo shard (its config comes as JSON on a pipe)\n")
            return 2


if __name__ == "__main__":
    sys.exit(main())
