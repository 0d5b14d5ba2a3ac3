"""Prepare a release: `python changes/release.py VERSION`.

It writes the version into every file that has it, and turns the change notes into a section of
CHANGELOG.md. docs/releasing.md has the other steps.
"""

import datetime
import re
import sys
from pathlib import Path
from typing import Final

TITLES: Final = {
    "break": "Breaking changes",
    "feature": "Features",
    "fix": "Fixes",
    "op": "For operators",
    "internal": "Internal",
}
MARK: Final = "<!-- releases -->\n"
VERSION: Final = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?:\.dev\d+)?"
"""A version as Python writes it, which is a tag of an image as well."""
PLACES: Final = (
    ("corvo/__init__.py", rf'(?<=^__version__ = "){VERSION}(?="$)'),
    ("Dockerfile", rf"(?<=^ARG VERSION=){VERSION}$"),
    ("helm/corvo/Chart.yaml", rf'(?<=^appVersion: "){VERSION}(?="$)'),
    ("deploy/compose/one-node.yaml", rf"(?<=image: corvo/corvo:){VERSION}$"),
    ("deploy/compose/three-nodes.yaml", rf"(?<=image: corvo/corvo:){VERSION}$"),
    ("docs/howto/install.md", rf"(?<= corvo/corvo:){VERSION}$"),
)
"""Every place of the version: a file, and what stands there. The chart's own version is another."""


def versions(root: Path) -> dict[str, list[str]]:
    """The versions in each of the files."""
    return {
        path: re.findall(pattern, (root / path).read_text(), re.MULTILINE)
        for path, pattern in PLACES
    }


def set_version(root: Path, version: str) -> None:
    """Write the version into all files."""
    for path, pattern in PLACES:
        text, count = re.subn(pattern, version, (root / path).read_text(), flags=re.MULTILINE)
        assert count > 0, f"{path} has lost its version"
        (root / path).write_text(text)


def release(root: Path, version: str, date: str) -> None:
    """Write the section of `version` and delete the notes that went into it."""
    section = f"\n## {version} ({date})\n"
    for kind, title in TITLES.items():
        notes = sorted((root / "changes").glob(f"*.{kind}.md"))
        if notes:
            section += f"\n### {title}\n\n" + "".join(item(note) for note in notes)
        for note in notes:
            note.unlink()
    changelog = root / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(MARK, MARK + section, 1))


def item(note: Path) -> str:
    """The note as an item of a list."""
    return "- " + note.read_text().strip().replace("\n", "\n  ") + "\n"


if __name__ == "__main__":
    [version] = sys.argv[1:]
    if not re.fullmatch(VERSION, version):
        sys.exit(f"{version}: expected a version such as 0.2.0 or 0.2.0rc1")
    here = Path(__file__).parent.parent
    today = datetime.datetime.now(tz=datetime.UTC).date()
    set_version(here, version)
    release(here, version, today.isoformat())
    print(f"CHANGELOG.md has a section {version}; read it before you commit it")
    print(f"the version is {version} in: {', '.join(path for path, _ in PLACES)}")
