"""values.yaml is the one source: of the table in README.md, of the schema, and of the templates.

`make docs` writes the first two: `python -m tests.helm.test_values`.
"""

import re

import yaml

from tests.helm.values_reference import (
    CHART,
    README,
    SCHEMA,
    TABLE,
    VALUES,
    leaves,
    schema,
    table,
    values,
)


def test_every_value_is_documented_once() -> None:
    documented = [value.name for value in values()]

    assert sorted(documented) == sorted(set(documented))
    assert documented == list(leaves(yaml.safe_load(VALUES.read_text()), set(documented)))


def test_the_table_in_the_readme_is_that_of_the_values() -> None:
    [written] = TABLE.findall(README.read_text())

    assert written == table(), "run `make docs`"


def test_the_schema_is_that_of_the_values() -> None:
    assert SCHEMA.read_text() == schema(), "run `make docs`"


def test_the_templates_use_every_value_and_no_other() -> None:
    documented = {value.name for value in values()}
    text = "\n".join(
        path.read_text() for path in sorted(CHART.glob("templates/**/*")) if path.is_file()
    )
    # Parts of these are passed on as a whole, or have a shorter name.
    short = {"$worker": "worker", "$metrics": "metrics", "$v": ""}
    for name, whole in short.items():
        text = text.replace(f"{name}.", f".Values.{whole}." if whole else ".Values.")
    used = set(re.findall(r"\.Values\.([A-Za-z][\w.]*[\w])", text))
    groups = {name.rpartition(".")[0] for name in documented}
    inside = {name for name in used if any(name.startswith(f"{one}.") for one in documented)}
    whole_groups = {name for name in used if name in groups}

    passed_on = {
        name for name in documented if any(name.startswith(f"{one}.") for one in whole_groups)
    }
    assert used - documented - inside - whole_groups == set()
    assert documented - used - inside - passed_on == set()


def rewrite() -> None:
    """Write the table and the schema."""
    SCHEMA.write_text(schema())
    README.write_text(TABLE.sub(lambda _: table(), README.read_text()))


if __name__ == "__main__":
    rewrite()
