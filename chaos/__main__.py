"""`python -m chaos`: the command line."""

import os
import sys
from types import TracebackType

from chaos.commands import main
from chaos.verdict import UNCOUNTED


def _uncounted(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """An error of the harness itself: the run proves nothing, and breaks no rule."""
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    os._exit(UNCOUNTED)


if __name__ == "__main__":
    sys.excepthook = _uncounted
    sys.exit(main(sys.argv[1:]))
