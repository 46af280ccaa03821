"""`docs_lookup` reads what is installed in the workspace, and runs none of it."""

import json
import re

import anyio
import pytest

from refold.errors import ToolFailed
from refold.place.files import DiskFiles
from refold.testing.places import ToolDirectory
from refold.tools.package_docs import DOCUMENTATION_SITES
from refold.tools.web import docs_lookup

INIT = '''"""Tea for programs."""
raise SystemExit("nothing is imported")
from teapot._brew import Pot, pour
__all__ = ["Pot", "pour"]
'''
BREW = '''
class Pot(Vessel):
    """A pot.

    It holds tea.
    """

    async def fill(self, water: "float | None" = None, *, hot: bool = True) -> "Pot":
        """Fill it with water."""

def pour(pot: Pot, /, *cups: int) -> None:
    """Pour tea into cups."""

def _pour(pot): ...
'''
README = """# Teapot

A pot.

## Pouring slowly

Pour slowly, or it spills.

## Licence

MIT
"""
METADATA = f"""Metadata-Version: 2.4
Name: Tea_Pot
Version: 1.2.3
Summary: Tea for programs
Project-URL: Documentation, https://teapot.example/docs

{README}"""


def write(place: ToolDirectory, path: str, text: str) -> None:
    file = place.directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def python(place: ToolDirectory) -> ToolDirectory:
    site = ".venv/lib/python3.11/site-packages"
    write(place, f"{site}/teapot/__init__.py", INIT)
    write(place, f"{site}/teapot/_brew.py", BREW)
    write(place, f"{site}/teapot/broken.py", "def pour(")
    write(place, f"{site}/tea_pot-1.2.3.dist-info/METADATA", METADATA)
    rows = (
        "teapot/__init__.py",
        "teapot/_brew.py",
        "teapot/broken.py",
        "../../../../secret.py",
    )
    write(
        place,
        f"{site}/tea_pot-1.2.3.dist-info/RECORD",
        "".join(f"{r},sha256=x,1\n" for r in rows),
    )
    write(place, "secret.py", "def pour(): 'the secret'")
    return place


def look_up(place: ToolDirectory, package: str, query: str = "") -> str:
    return anyio.run(place.use, docs_lookup, {"package": package, "query": query}).text


@pytest.mark.parametrize("name", ["tea-pot", "Tea.Pot", "teapot"])
def test_a_python_package_is_found_by_its_distribution_or_import_name(
    python: ToolDirectory, name: str
) -> None:
    text = look_up(python, name)

    assert (
        "Tea_Pot 1.2.3: Tea for programs\nDocumentation, https://teapot.example/docs\n"
        in text
    )
    assert "offers: Pot, pour\n\n# Teapot" in text
    assert re.match(
        r"\[outside \w+: from \.venv/lib/python3\.11/site-packages/teapot\. It is material",
        text,
    )


def test_a_function_is_shown_with_its_signature_and_documentation(
    python: ToolDirectory,
) -> None:
    text = look_up(python, "teapot", "pour")

    assert (
        "teapot._brew.pour (.venv/lib/python3.11/site-packages/teapot/_brew.py:11)\n"
        "  def pour(pot: Pot, /, *cups: int) -> None\n"
        "    Pour tea into cups."
    ) in text
    assert text.index("teapot._brew.pour (") < text.index(
        "from its readme:\n## Pouring slowly"
    )
    assert "the secret" not in text


def test_a_method_is_found_by_its_class(python: ToolDirectory) -> None:
    text = look_up(python, "teapot", "Pot.fill")

    assert (
        "async def fill(self, water: 'float | None'=None, *, hot: bool=True) -> 'Pot'"
        in text
    )
    assert "Fill it with water." in text


def test_docs_lookup_without_a_match_lists_what_exists(python: ToolDirectory) -> None:
    text = look_up(python, "teapot", "coffee")

    assert "Nothing in it is about 'coffee'.\nIt offers: Pot, pour" in text
    assert "https://docs.python.org/3/search.html?q=coffee" in text


DECLARED = """
/** Options of a pot. */
export interface Options {
  /** How hot, in degrees. */
  heat?: number;
  fill(water: number): Promise<void>;
}
/**
 * Pour tea.
 * @param cups how many
 */
export declare function pour(
  cups: number,
): void;
"""


@pytest.fixture
def npm(place: ToolDirectory) -> ToolDirectory:
    about = {
        "name": "@tea/pot",
        "version": "2.0.0",
        "description": "Tea",
        "homepage": "https://t",
    }
    write(place, "node_modules/@tea/pot/package.json", json.dumps(about))
    write(place, "node_modules/@tea/pot/readme.md", README)
    write(place, "node_modules/@tea/pot/dist/index.d.ts", DECLARED)
    write(
        place, "node_modules/@types/tea__pot/index.d.ts", "export function lid(): void;\n"
    )
    return place


def test_an_npm_package_is_documented_by_its_type_declarations(npm: ToolDirectory) -> None:
    text = look_up(npm, "@tea/pot", "pour")

    assert "@tea/pot 2.0.0: Tea\nhttps://t\n" in text
    assert (
        "pour (node_modules/@tea/pot/dist/index.d.ts:12)\n"
        "  export declare function pour( cups: number, ): void;\n"
        "    Pour tea.\n    @param cups how many"
    ) in text
    assert "## Pouring slowly" in text


def test_members_and_type_declarations_of_an_npm_package_are_found(
    npm: ToolDirectory,
) -> None:
    assert "Options.heat (" in look_up(npm, "@tea/pot", "heat")
    assert "fill(water: number): Promise<void>;" in look_up(npm, "@tea/pot", "Options.fill")
    assert "export function lid(): void;" in look_up(npm, "@tea/pot", "lid")
    assert "offers: Options, pour, lid" in look_up(npm, "@tea/pot")


def test_for_a_missing_package_the_documentation_sites_of_its_language_are_named(
    place: ToolDirectory,
) -> None:
    write(place, "deps.edn", "{}")

    text = look_up(place, "ring/ring-core", "wrap session")

    assert text == (
        "ring/ring-core is not installed in this workspace (.venv, venv, node_modules). Its "
        "documentation may be at:\n- Clojure: https://clojuredocs.org/search?q=wrap%20session "
        "https://cljdoc.org/d/ring/ring-core"
    )


def test_without_a_known_language_all_documentation_sites_are_named(
    place: ToolDirectory,
) -> None:
    text = look_up(place, "serde", "Serialize")

    assert [row.partition(":")[0].removeprefix("- ") for row in text.splitlines()[1:]] == [
        *DOCUMENTATION_SITES
    ]
    assert "https://docs.rs/serde/latest/?search=Serialize" in text


@pytest.mark.parametrize(
    "name", ["", "..", "../secret", "a/../../b", "/etc/passwd", "a b", "~", "@../x", "x\0y"]
)
def test_a_package_name_that_is_invalid_or_a_path_is_refused(
    place: ToolDirectory, name: str
) -> None:
    with pytest.raises(ToolFailed, match="is not the name of a package"):
        look_up(place, name)


def test_an_environment_outside_of_the_workspace_is_not_read(
    python: ToolDirectory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "venv"
    (python.directory / ".venv").rename(outside)
    (python.directory / "venv").symlink_to(outside)
    python.files = python.files.only(())

    assert "teapot is not installed in this workspace" in look_up(python, "teapot")


def test_a_link_to_a_protected_file_is_not_read(place: ToolDirectory) -> None:
    write(place, "node_modules/x/package.json", '{"name": "x", "version": "1.0.0"}')
    write(place, ".env", "SECRET=4711")
    (place.directory / "node_modules/x/README.md").symlink_to("../../.env")

    def protect(real: str) -> str:
        return "it is protected" if real.endswith(".env") else ""

    place.files = DiskFiles(place.directory, why_hidden=protect)

    assert "4711" not in look_up(place, "x")
