"""`refold init`: by a model in a session, or from the build files alone."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.cli import init
from refold.cli.build_files import Project
from refold.cli.main import main
from tests.cli.running import call, script
from tests.sandbox_notice import without_sandbox_notice

Ran = tuple[int, str, str]
UNTRUSTED = "To let agents read AGENTS.md, trust this directory: refold trust add\n"


@pytest.fixture
def refold(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ran]]:
    """Without a terminal, and with no model set up."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Ran:
        code = main(["init", *arguments])
        return (code, *capfd.readouterr())

    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield run


def write_files(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = Path(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def read_agents_file() -> str:
    return Path("AGENTS.md").read_text()


def commands(text: str) -> list[str]:
    return re.findall(r"^\| [^|]+ \| `(.*)` \|$", text, re.MULTILINE)


def writing_script(directory: Path, text: str = "# By the model\n") -> str:
    """Return a script of a model that looks at the directory and writes the file."""
    return script(
        directory,
        call("list_files", path="."),
        call("write_file", path="AGENTS.md", content=text),
        {"text": "Written."},
    )


def test_init_lets_the_model_write_agents_md_in_a_session(
    refold: Callable[..., Ran], tmp_path: Path
) -> None:
    write_files({"README.md": "# Adder\n"})

    code, out, err = refold("--script", writing_script(tmp_path))

    sandbox_notices = (code, out, without_sandbox_notice(err))
    assert sandbox_notices == (0, f"Written.\n{UNTRUSTED}", "")
    assert read_agents_file() == "# By the model\n"


def test_init_session_begins_with_the_init_template(
    refold: Callable[..., Ran], tmp_path: Path, home: Path
) -> None:
    refold("--script", writing_script(tmp_path))

    (journal,) = home.rglob("events.jsonl")
    assert "Write the file AGENTS.md for this repository" in journal.read_text()


def test_init_allows_the_model_to_write_only_agents_md(
    refold: Callable[..., Ran], tmp_path: Path
) -> None:
    other = script(
        tmp_path,
        call("write_file", path="setup.py", content="import os\n"),
        {"text": "Not written."},
    )

    code, out, err = refold("--script", other)

    assert (code, out) == (1, "Not written.\n")
    assert err.endswith("refold: the model did not write AGENTS.md\n")
    assert os.listdir() == []


def test_init_changes_an_existing_agents_md_without_a_user_only_with_force(
    refold: Callable[..., Ran], tmp_path: Path
) -> None:
    write_files({"AGENTS.md": "# Mine\n", "Makefile": "test:\n"})
    updating = script(
        tmp_path,
        call("read_file", path="AGENTS.md"),
        call("edit_file", path="AGENTS.md", old="# Mine", new="# Mine, and the model's"),
        {"text": "Updated."},
    )

    rans = [refold(*flags) for flags in ((), ("--script", updating), ("--no-model",))]
    text = read_agents_file()
    by_model = refold("--script", updating, "--force")[0], read_agents_file()
    by_build_files = refold("--force")[0], commands(read_agents_file())

    file = Path("AGENTS.md").absolute()
    assert set(rans) == {
        (
            1,
            "",
            f"refold: {file} exists: --force changes it, --print only prints the text\n",
        )
    }
    assert text == "# Mine\n"
    assert by_model == (0, "# Mine, and the model's\n")
    assert by_build_files == (0, ["make test"])


def test_init_with_no_model_writes_agents_md_from_the_build_files(
    refold: Callable[..., Ran], tmp_path: Path
) -> None:
    write_files({"Makefile": "test:\n"})

    code, out, _ = refold("--no-model", "--script", writing_script(tmp_path))

    assert (code, out) == (
        0,
        f"Wrote AGENTS.md from the build files: 1 command.\n{UNTRUSTED}",
    )
    assert commands(read_agents_file()) == ["make test"]


PROJECTS: dict[str, tuple[dict[str, str], list[str], str]] = {
    "a Makefile over a language": (
        {"Makefile": "test:\nlint:\n", "go.mod": "module g\n"},
        ["make test", "make lint", "go build ./...", "go test ./DIR -run NAME", "go vet ./..."],
        "Go.",
    ),
    "python with uv": (
        {
            "pyproject.toml": "[project]\nname = 'p'\ndescription = 'Adds up'\n"
            "[tool.ruff]\n[tool.mypy]\nstrict = true\n[tool.pytest.ini_options]\n",
            "uv.lock": "",
        },
        ["uv sync", "uv run pytest", "uv run ruff check .", "uv run mypy ."],
        "Adds up. Python.",
    ),
    "python with requirements only": (
        {"requirements.txt": "pytest==9\n", "pytest.ini": ""},
        ["pip install -r requirements.txt", "pytest"],
        "Python.",
    ),
    "python without tests": (
        {"pyproject.toml": "[build-system]\nrequires = []\n"}, ["pip install -e ."], "Python.",
    ),
    "node with pnpm": (
        {
            "package.json": json.dumps({
                "scripts": {"test": "vitest", "build": "tsc", "weird": "x", "lint:fix": "eslint"},
            }),
            "pnpm-lock.yaml": "",
            "tsconfig.json": "",
        },
        ["pnpm install", "pnpm run build", "pnpm run test", "pnpm run lint:fix"],
        "TypeScript.",
    ),
    "node that only says it has no test": (
        {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
        ["npm install"],
        "JavaScript.",
    ),
    "make": (
        {
            "Makefile": "VAR := test\n.PHONY: all test\nall: build\nbuild test: x.c\n\tcc: no\n"
            "fmt: ; true\n%.o: %.c\nodd:=1\n",
        },
        ["make build", "make test", "make fmt"],
        "",
    ),
    "just": ({"justfile": "set shell := x\n@test *args:\n  run: no\n"}, ["just test"], ""),
    "rust": (
        {"Cargo.toml": "[package]\nname = 'r'\ndescription = 'Runs.'\n"},
        ["cargo build", "cargo test", "cargo test NAME"],
        "Runs. Rust.",
    ),
    "maven with its wrapper": (
        {"pom.xml": "<project/>", "mvnw": ""},
        ["./mvnw package", "./mvnw test", "./mvnw test -Dtest=NAME"],
        "Java.",
    ),
    "gradle": ({"build.gradle.kts": ""}, ["gradle build", "gradle test"], "Java or Kotlin."),
    "cmake": (
        {"CMakeLists.txt": "project(x)\n"},
        ["cmake -B build && cmake --build build"],
        "C or C++.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTS)
def test_init_without_a_model_copies_the_commands_of_build_files_to_agents_md(
    refold: Callable[..., Ran], name: str
) -> None:
    files, lines, about = PROJECTS[name]
    write_files(files)

    code, out, _ = refold()

    assert (code, out.partition(":")[0]) == (0, "Wrote AGENTS.md from the build files")
    assert commands(read_agents_file()) == lines
    assert read_agents_file().split("## Commands")[0].split("\n", 1)[1].strip() == about
    assert not list(Path().glob(".AGENTS*"))


@pytest.mark.parametrize(
    "broken", ["{", "[1]", "\ud800", '{"scripts": 3}', "\0", "x" * 300_000]
)
def test_init_ignores_build_files_that_do_not_parse(
    refold: Callable[..., Ran], broken: str
) -> None:
    for name in ("pyproject.toml", "Cargo.toml", "package.json", "Makefile", "justfile"):
        Path(name).write_bytes(broken.encode("utf-8", "surrogatepass"))

    assert refold("--print")[0] == 0


def test_init_without_a_model_and_build_commands_writes_no_file(
    refold: Callable[..., Ran],
) -> None:
    code, out, err = refold()

    assert (code, out) == (1, "")
    assert err.startswith("refold: no build file here defines a command")
    assert os.listdir() == []


def test_init_with_print_writes_no_file(refold: Callable[..., Ran]) -> None:
    write_files({"AGENTS.md": "# Mine\n"})

    assert refold("--print") == (0, "# project\n", "")
    assert read_agents_file() == "# Mine\n"


def test_init_escapes_control_characters_of_a_build_file(
    refold: Callable[..., Ran],
) -> None:
    write_files({"package.json": json.dumps({
        "name": "\x1b[2J", "description": "a\nb | `c`", "scripts": {"test;rm -rf": "x", "test": "y"},
    }), "pyproject.toml": ""})  # fmt: skip

    _, out, _ = refold("--print")

    assert "\x1b" not in out
    assert out.startswith("# \\x1b[2J\n")
    assert commands(out) == ["npm install", "npm run test"]


@given(st.text() | st.sampled_from(["\x1b[2J", "a\nb", "\u202eab", "\r", "\x9b1m"]))
def test_init_keeps_project_name_and_command_on_one_line(text: str) -> None:
    result = init.agents_md_text(Project(text, text))

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", result)
    assert result.count("\n") <= 3


@pytest.mark.parametrize("name", ["AGENTS.md", ".AGENTS.md.new"])
def test_init_does_not_write_through_a_symlink_that_leaves_the_directory(
    refold: Callable[..., Ran], name: str, home: Path
) -> None:
    write_files({"Makefile": "test:\n"})
    Path(name).symlink_to(home / ".profile")

    code, _, err = refold("--force")

    assert not (home / ".profile").exists()
    if name == "AGENTS.md":
        file = Path("AGENTS.md").absolute()
        assert (code, err) == (
            1,
            f"refold: {file} is a link to {home}/.profile, outside of this directory: "
            "remove it first\n",
        )
    else:
        assert commands(read_agents_file()) == ["make test"]


def test_init_reports_an_unwritable_agents_md_in_one_sentence(
    refold: Callable[..., Ran],
) -> None:
    write_files({"Makefile": "test:\n"})
    Path(".AGENTS.md.new").mkdir()

    code, out, err = refold()

    file = Path("AGENTS.md").absolute()
    assert (code, out, err) == (
        1,
        "",
        f"refold: {file} cannot be written: Is a directory\n",
    )
