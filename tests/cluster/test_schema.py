"""The migrations are one chain, so that two changes of the tables cannot be mistaken for each other."""

import ast
from pathlib import Path

from refold.cluster import schema

VERSIONS = Path(schema.__file__).parent / "versions"


def test_migrations_are_one_chain_that_ends_with_the_revision_of_the_schema() -> None:
    links = list[tuple[str, str | None, str]]()
    for file in sorted(VERSIONS.glob("r*.py")):
        values = {
            target.id: ast.literal_eval(statement.value)
            for statement in ast.parse(file.read_text(encoding="utf-8")).body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name) and target.id in ("revision", "down_revision")
        }
        links.append((file.name[1:5], values["down_revision"], values["revision"]))

    numbers = [f"{number:04}" for number in range(1, len(links) + 1)]
    before = [None, *numbers[:-1]]
    assert links == list(zip(numbers, before, numbers, strict=True))
    assert numbers[-1] == schema.SCHEMA_REVISION
