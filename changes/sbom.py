"""Print the bill of materials (SBOM) of an environment that has Corvo and nothing else.

    ENVIRONMENT/bin/python3 changes/sbom.py [--wheels DIR]

It is CycloneDX in JSON, made from the metadata of the installed packages: the same environment
gives the same bytes. Hashes are those of the wheels, as far as they are in DIR. It needs the
standard library only.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final, TypeAlias

Json: TypeAlias = "str | int | list[Json] | dict[str, Json]"

ROOT_NAME: Final = "corvo"
TOOLS: Final = {"pip", "setuptools", "wheel"}
"""What an environment may have for itself."""
_TEXT_MAX: Final = 100
"""Some packages have the whole text of their licence where its name belongs."""


def main(words: Sequence[str]) -> int:
    """Print the SBOM; returns the exit code."""
    parser = argparse.ArgumentParser("sbom.py", description=__doc__)
    parser.add_argument("--wheels", type=Path, help="directory with the wheels of the packages")
    read = parser.parse_args(words)
    hashes = hashes_in(sorted(read.wheels.glob("*.whl"))) if read.wheels else {}
    bill = bill_of(distributions(), hashes)
    print(json.dumps(bill, indent=2, sort_keys=True, ensure_ascii=False))
    return 0


def bill_of(installed: Iterable[Distribution], hashes: Mapping[tuple[str, str], str]) -> Json:
    """The document. `hashes` are by name and version."""
    found = {name_of(one.metadata["Name"]): one for one in installed}
    found = {name: found[name] for name in sorted(found) if name not in TOOLS}
    root = component(found[ROOT_NAME], hashes) | {"type": "application"}
    others = [component(one, hashes) for name, one in found.items() if name != ROOT_NAME]
    graph: list[Json] = [
        {"ref": purl(one), "dependsOn": [purl(found[name]) for name in needs(one, found)]}
        for one in found.values()
    ]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": [*others],
        "dependencies": graph,
    }


def component(one: Distribution, hashes: Mapping[tuple[str, str], str]) -> dict[str, Json]:
    """A package."""
    entry: dict[str, Json] = {
        "type": "library",
        "bom-ref": purl(one),
        "name": one.metadata["Name"],
        "version": one.version,
        "purl": purl(one),
    }
    if summary := one.metadata["Summary"]:
        entry["description"] = summary
    if named := licences(one):
        entry["licenses"] = named
    if known := hashes.get((name_of(one.metadata["Name"]), one.version)):
        entry["hashes"] = [{"alg": "SHA-256", "content": known}]
    return entry


def licences(one: Distribution) -> list[Json]:
    """The licence of a package: an expression of SPDX if it has one, otherwise names."""
    metadata = one.metadata
    if expression := metadata["License-Expression"]:
        return [{"expression": expression}]
    stated = (metadata["License"] or "").strip()
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in metadata.get_all("Classifier") or []
        if classifier.startswith("License :: ") and not classifier.endswith(" :: OSI Approved")
    ]
    if stated and len(stated) <= _TEXT_MAX and "\n" not in stated:
        names = [stated]
    return [{"license": {"name": name}} for name in sorted(names)]


def needs(one: Distribution, found: Mapping[str, Distribution]) -> list[str]:
    """The packages that it needs, of those that are there: extras and other systems have none."""
    required = one.requires or []
    names = {
        name_of(matched[0])
        for text in required
        if "extra ==" not in text and (matched := re.match(r"[\w.-]+", text))
    }
    return sorted(names & found.keys())


def purl(one: Distribution) -> str:
    """The address of a package in the notation of package URLs."""
    return f"pkg:pypi/{name_of(one.metadata['Name'])}@{one.version}"


def name_of(name: str) -> str:
    """The name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes_in(wheels: Iterable[Path]) -> dict[tuple[str, str], str]:
    """By name and version, the hash of each wheel."""
    found = {}
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        found[name_of(name), version] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
