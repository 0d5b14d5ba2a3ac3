"""Turn the change notes into a section of CHANGELOG.md: `python changes/release.py VERSION`."""

import datetime
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
    today = datetime.datetime.now(tz=datetime.UTC).date()
    release(Path(__file__).parent.parent, version, today.isoformat())
    print(f"CHANGELOG.md has a section {version}; read it before you commit it")
