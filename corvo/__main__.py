"""`python -m corvo`: the same as `corvo` on the command line."""

import sys

from corvo.cli import main

if __name__ == "__main__":
    sys.exit(main())
