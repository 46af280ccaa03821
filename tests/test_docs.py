"""The documents match the code: their examples run, and what they name exists."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from refold.cli.schema import document_types
from refold.journal.events import codec, kinds
from refold.views.stream_json import (
    documents,
    live_documents,
    snapshot,
    turn_result,
)
from scripts import package_map, reference

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")]
)
SHELVES = ("start", "guides", "reference", "explain")
MAX_GUIDE_WORDS = 900
KINDS = {"added", "changed", "fixed", "removed", "security"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "one-sentence.md"], ids=name
)
def test_generated_parts_match_the_source(page: Path) -> None:
    """`make docs` writes them again."""
    text = page.read_text(encoding="utf-8")

    assert reference.replace_blocks(text) == text


@pytest.mark.slow
def test_the_page_about_one_sentence_shows_a_real_run_that_has_just_been_made() -> None:
    text = (ROOT / "docs/explain/one-sentence.md").read_text(encoding="utf-8")

    assert reference.replace_blocks(text) == text


def test_the_page_about_one_sentence_names_every_package() -> None:
    page = (ROOT / "docs/explain/one-sentence.md").read_text(encoding="utf-8")
    text = (
        page.partition("## Who was not there")[0]
        + page.partition("<!-- end -->\n\nPython")[2]
    )

    assert [package for package in packages() if f"`{package}" not in text] == []


@pytest.mark.slow
def test_the_map_of_packages_matches_the_imports() -> None:
    text = (ROOT / "docs/images/packages.svg").read_text(encoding="utf-8")

    assert text == package_map.draw()
    assert [package for package in packages() if f">{package}<" not in text] == []


def packages() -> list[str]:
    return [p.name for p in (ROOT / "src/refold").iterdir() if (p / "__init__.py").exists()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_point_to_existing_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))

    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_every_page_is_in_the_index_of_documents() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = [
        f"{shelf}/{page.name}"
        for shelf in SHELVES
        for page in ROOT.glob(f"docs/{shelf}/*.md")
    ]

    assert [name for name in pages if f"({name}" not in index] == []


def test_every_page_stands_on_a_shelf() -> None:
    pages = [name(page) for page in ROOT.glob("docs/*.md")]

    assert pages == ["docs/README.md"]


def test_a_guide_has_fewer_than_900_words() -> None:
    """A longer page is reference, and belongs to that shelf."""
    sizes = {
        page.name: len(page.read_text(encoding="utf-8").split())
        for page in ROOT.glob("docs/guides/*.md")
    }

    assert {page: size for page, size in sizes.items() if size >= MAX_GUIDE_WORDS} == {}


def test_every_page_begins_with_a_sentence_about_its_purpose() -> None:
    pages = [page for shelf in SHELVES for page in ROOT.glob(f"docs/{shelf}/*.md")]
    begins = {
        page.name: page.read_text(encoding="utf-8").partition("\n\n")[2] for page in pages
    }

    assert [name for name, text in begins.items() if not re.match(r"(`?\w|\[)", text)] == []


def test_settings_tables_use_toml_values_and_no_python_syntax() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    table = page.split("<!-- generated: settings -->")[1].split("<!-- end -->")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    python = re.compile(r"tuple|dict|Literal|\bNone\b|\bTrue\b|\bFalse\b|\(\)|'")

    unclear = [
        name
        for name, kind, default, meaning in rows
        if python.search(f"{kind} {default}") or not meaning.strip(" |")
    ]
    unwritable = [
        name
        for name, _, default, _ in rows
        if default.startswith("`") and not tomllib.loads(f"x = {default.strip('`')}")
    ]

    assert rows
    assert (unclear, unwritable) == ([], [])
    assert "| `allow` | list of strings or tables | `[]` |" in table
    assert "| `dollars` | number, at least 0 | `5` |" in table
    assert "### `[commands.NAME.usage]`" in table


def test_every_kind_of_event_is_in_the_journal_s_page() -> None:
    page = (ROOT / "docs/reference/journal.md").read_text(encoding="utf-8")

    assert [kind for kind in codec.KINDS_BY_NAME if f"\n### {kind}\n" not in page] == []


def test_the_headless_page_lists_exactly_the_existing_flags() -> None:
    page = (ROOT / "docs/reference/headless.md").read_text(encoding="utf-8")
    table = page.split("## Flags")[1].split("##")[0]
    output = subprocess.run(
        [sys.executable, "-m", "refold", "--help", "all"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout

    flags = r"(?<![\w-])--?[A-Za-z][A-Za-z-]*"
    options = "\n".join(
        re.findall(r"^  (-.*?)(?:  |$)", output.split("\noptions:")[1], re.MULTILINE)
    )
    rows = "\n".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))

    assert set(re.findall(flags, rows)) == set(re.findall(flags, options))


def test_every_outcome_has_its_exit_code_in_the_headless_page() -> None:
    page = (ROOT / "docs/reference/headless.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (\d+) \| (.*) \|$", page.split("## Exit codes")[1], re.MULTILINE
    )

    data = {
        name: int(code)
        for code, names in rows
        for name in re.findall(r"`([a-z_]+)`", names)
    }

    assert data == dict(turn_result.EXIT_CODES)


def test_every_stream_document_is_in_the_page_of_the_stream() -> None:
    pages = ("docs/reference/stream.md", "docs/reference/headless.md")
    page = "".join((ROOT / name).read_text(encoding="utf-8") for name in pages)
    kinds = {
        str(item.__struct_config__.tag)
        for item in document_types(documents, live_documents, snapshot)
    }
    fields = set(documents.Result.__struct_fields__)

    assert [name for name in sorted(kinds | fields) if f"`{name}`" not in page] == []


def blocks() -> list[object]:
    result: list[object] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        # A fence ends on a line of its own, because the block may contain other fences.
        texts = re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        result += [
            pytest.param(text, id=f"{name(page)}-{n}")
            for n, text in enumerate(texts, start=1)
        ]
    return result


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks())
def test_console_examples_print_what_they_show(block: str, tmp_path: Path) -> None:
    """A `$` line is run; what follows must be what it prints, where … stands for anything.

    `[1]` is the exit code, where it is not 0.
    """
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        output = (
            done.stdout
            + done.stderr
            + (f"[{done.returncode}]\n" if done.returncode else "")
        )
        pattern = ".*".join(re.escape(piece) for piece in expected.split("…"))
        assert re.fullmatch(pattern, output, re.DOTALL), (command, output)


SHAPE = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n"
    r"Status: (accepted|superseded by \d{4})(; .+)?\n\n"
    r"## Context\n\n.+\n\n## Decision\n\n.+\n\n## Alternatives considered\n\n- .+\n\n"
    r"## Consequences\n\n.+We would revisit this if .+\n",
    re.DOTALL,
)


def decision_faults(name: str, record: str, index: str) -> list[str]:
    """Return what is wrong with a decision record: its shape, its number, or its row in the
    index.
    """
    match = SHAPE.fullmatch(record)
    if match is None:
        return [f"{name}: not in the shape that docs/decisions/README.md describes"]
    number, title = int(match["number"]), match["title"]
    faults = [f"{name}: its title has number {number}"] if number != int(name[:4]) else []
    if f"| [{name[:4]}]({name}) | {title} |" not in index:
        faults.append(
            f"{name}: its title and file name are not in docs/decisions/README.md"
        )
    return faults


def test_every_decision_record_has_the_standard_shape_and_a_row_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    paths = sorted(folder.glob("[0-9]*.md"))

    faults = [
        fault
        for file in paths
        for fault in decision_faults(file.name, file.read_text(encoding="utf-8"), index)
    ]

    assert faults == []
    numbers = [file.name[:4] for file in paths]
    assert numbers == sorted(set(numbers))  # each once; a number may stay unused


def is_explained(number: str, file: str, numbers: Sequence[str]) -> bool:
    """Return whether the place that the index names for a decision exists."""
    folder = ROOT / "docs/decisions"
    paths = re.findall(r"`(.+?)`", file)
    if not all((ROOT / path).is_file() for path in paths):
        return False
    if superseded := re.match(r"superseded by (\d{4})", file):
        return superseded[1] in numbers
    if part := re.fullmatch(r"part of (\d{4})", file):
        return any(folder.glob(f"{part[1]}-*.md"))
    return any(folder.glob(f"{number}-*.md")) if file == "record" else file[0] == "`"


@pytest.mark.parametrize(
    ("file", "exists"),
    [
        ("record", True),
        ("part of 0001", True),
        ("part of 0004", False),  # has no record
        ("superseded by 0004", True),
        ("superseded by 9999", False),
        ("`Makefile`", True),
        ("`src/refold/none.py`", False),
        ("elsewhere", False),
    ],
)
def test_a_decision_without_an_explanation_is_reported(file: str, exists: bool) -> None:
    assert is_explained("0001", file, ["0001", "0004"]) == exists


def test_index_of_decisions_names_an_existing_explanation_for_each_number() -> None:
    folder = ROOT / "docs/decisions"
    rows = [
        line.strip("| ").split(" | ")
        for line in (folder / "README.md").read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \[?\d{4}", line)
    ]
    numbers = [re.sub(r"\[|\].*", "", row[0]) for row in rows]
    lost = [
        number
        for number, (_, _, file) in zip(numbers, rows, strict=True)
        if not is_explained(number, file, numbers)
    ]

    assert numbers == sorted(set(numbers))
    assert lost == []
    records = [row for row in rows if row[2] == "record"]
    assert len(records) == len(list(folder.glob("[0-9]*.md")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Status: accepted\n", "Status: perhaps\n"),
        ("# 7. ", "# 8. "),
        ("## Alternatives considered", "## Instead of"),
        ("We would revisit this if", "We will know it was wrong when"),
        ("# 7. The ", "# 7. A "),
    ],
)
def test_a_decision_record_of_a_wrong_shape_is_reported(old: str, new: str) -> None:
    name = "0007-a.md"
    record = (
        "# 7. The title\n\nStatus: accepted\n\n## Context\n\nA.\n\n## Decision\n\nB.\n\n"
        "## Alternatives considered\n\n- C.\n\n"
        "## Consequences\n\nD.\n\nWe would revisit this if E.\n"
    )
    index = f"| [0007]({name}) | The title |\n"

    assert decision_faults(name, record, index) == []
    assert len(decision_faults(name, record.replace(old, new), index)) == 1


def test_every_changelog_fragment_has_a_kind() -> None:
    fragments = [f for f in (ROOT / "changelog.d").iterdir() if f.name != "README.md"]

    assert [
        f.name for f in fragments if f.name.split(".")[1:] not in [[k, "md"] for k in KINDS]
    ] == []


def test_every_field_of_an_event_that_a_page_names_exists() -> None:
    events = {arg.__name__: set(arg.__struct_fields__) for arg in get_args(kinds.Event)}
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]

    unknown = [
        (page.name, f"{kind}.{name}")
        for page in pages
        for kind, name in re.findall(r"`(\w+)\.(\w+)", page.read_text(encoding="utf-8"))
        if kind in events and name not in events[kind]
    ]

    assert unknown == []


def test_every_package_is_in_the_layers_of_the_architecture() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    layers = page.partition("## The layers")[2].partition("## The tour")[0]

    assert [name for name in packages() if f"`{name}/`" not in layers] == []


def paths_named(page: str) -> set[str]:
    """Return what a page names in code marks that looks like one of our files or folders."""
    matches = re.findall(
        r"`([\w./-]+)`", re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    )
    return {
        name for name in matches if name.endswith((".py", "/")) or name.startswith("docs/")
    }


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_every_path_that_a_page_about_the_source_names_exists(name: str) -> None:
    known = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    places = [f"/{path}" for path in known] + [f"/{Path(path).parent}/" for path in known]

    missing = [
        text
        for text in paths_named((ROOT / name).read_text(encoding="utf-8"))
        if not any(place.endswith(f"/{text}") for place in places)
        and not any(f"/{text}" in place for place in places if text.endswith("/"))
    ]

    assert missing == []


def test_each_module_in_a_table_of_the_architecture_is_in_the_package_named_before_it() -> (
    None
):
    source, missing = ROOT / "src/refold", list[str]()
    for row in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        package = source
        for text in re.findall(r"`([\w/]+(?:/|\.py))`", row) if row.startswith("|") else ():
            if text.endswith("/"):
                package = source / text if (source / text).is_dir() else package
            elif not (source / text).exists() and not any(package.rglob(text)):
                missing.append(f"{package.name}: {text}")

    assert missing == []


def test_every_event_that_a_page_of_explanations_names_exists() -> None:
    types = {"Effect"}  # no events
    unknown = {
        f"{page.name}: {text}"
        for page in ROOT.glob("docs/explain/*.md")
        for text in re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", page.read_text("utf-8"))
        if text not in codec.KINDS_BY_NAME.keys() | types
    }

    assert unknown == set()


def test_every_test_that_the_security_page_names_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    matches = set(re.findall(r"\btest_\w+(?!\w|\.py)", page))
    files = ROOT.glob("tests/**/test_*.py")
    defined = {
        test
        for file in files
        for test in re.findall(
            r"^ *(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }

    assert "## Tests of these promises" in page
    assert len(matches) > 100
    assert sorted(matches - defined) == []
