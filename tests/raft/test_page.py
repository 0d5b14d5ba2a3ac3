"""The example on the library's page runs as it stands."""

import re
from pathlib import Path


def test_the_example_on_the_page_runs() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "raft.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    exec(compile(example, "docs/raft.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own
