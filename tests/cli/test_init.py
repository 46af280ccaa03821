"""`refold init`: an AGENTS.md whose every line is true of the folder it lies in."""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from refold.cli.main import main

Told = tuple[int, str, str]


@pytest.fixture
def refold(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Told]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(*arguments: str) -> Told:
        code = main(["init", *arguments])
        return (code, *capfd.readouterr())

    return run


def made(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def commands(text: str) -> list[str]:
    return re.findall(r"^\| [^|]+ \| `(.*)` \|$", text, re.MULTILINE)


def bullets(text: str) -> list[str]:
    return re.findall(r"^- (.*)$", text, re.MULTILINE)


PROJECTS: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "only words": (
        {"README.md": "", "CONTRIBUTING.md": "", "assets/x.bin": ""},
        [],
        ["`assets/`", "See `README.md`, `CONTRIBUTING.md`."],
    ),
    "a Makefile over a language": (
        {"Makefile": "test:\nlint:\n", "go.mod": "module g\n"},
        ["make test", "make lint", "go build ./...", "go test ./DIR -run NAME", "go vet ./..."],
        [],
    ),
    "python with uv": (
        {
            "pyproject.toml": "[project]\nname = 'p'\nrequires-python = '>=3.12'\n"
            "[tool.ruff]\nline-length = 88\n[tool.mypy]\nstrict = true\n"
            "[tool.pytest.ini_options]\n",
            "uv.lock": "",
            "src/p.py": "",
            "tests/test_p.py": "",
        },
        ["uv sync", "uv run pytest", "uv run pytest FILE -k WORDS", "uv run ruff check .",
         "uv run ruff format .", "uv run mypy ."],
        ["`src/`: Python", "`tests/`: Python",
         "Python >=3.12 (pyproject.toml).", "Lines have at most 88 characters (pyproject.toml).",
         "Types are checked strictly (mypy)."],
    ),
    "python with requirements only": (
        {"requirements.txt": "pytest==9\n", "tests/x.py": ""},
        ["pip install -r requirements.txt", "python -m pytest", "python -m pytest FILE -k WORDS"],
        ["`tests/`: Python"],
    ),
    "python without tests": (
        {"pyproject.toml": "[build-system]\nrequires = []\n"}, ["pip install -e ."], [],
    ),
    "node with pnpm": (
        {
            "package.json": json.dumps({
                "name": "n", "type": "module",
                "scripts": {"test": "vitest", "build": "tsc", "weird": "x", "lint:fix": "eslint"},
            }),
            "pnpm-lock.yaml": "",
            "tsconfig.json": '{"compilerOptions": {"strict": true}} // yes',
            ".prettierrc": '{"semi": false, "singleQuote": true}',
            "eslint.config.js": "",
            "node_modules/x/y.js": "",
        },
        ["pnpm install", "pnpm run build", "pnpm run test", "pnpm run lint:fix"],
        ["TypeScript, strict (tsconfig.json).", "ESLint decides on style (eslint.config.js).",
         "Prettier formats: no semicolons, single quotes (.prettierrc).",
         "Modules are ES modules (package.json)."],
    ),
    "node that only says it has no test": (
        {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
        ["npm install"], [],
    ),
    "make": (
        {
            "Makefile": "VAR := test\n.PHONY: all test\nall: build\nbuild test: x.c\n\tcc: no\n"
            "fmt: ; true\n%.o: %.c\nodd:=1\n",
            ".editorconfig": "root = true\n[*]\nindent_style = tab\n[*.md]\nmax_line_length = 9\n",
        },
        ["make build", "make test", "make fmt"],
        ["Indent with tabs (.editorconfig)."],
    ),
    "rust": (
        {"Cargo.toml": "[package]\nname = 'r'\n", "rustfmt.toml": "max_width = 99\n", "src/main.rs": ""},
        ["cargo build", "cargo test", "cargo test NAME", "cargo fmt"],
        ["`src/`: Rust", "Lines of Rust have at most 99 characters (rustfmt.toml)."],
    ),
    "go": (
        {"go.mod": "module example.org/g\n\ngo 1.23\n", ".github/workflows/ci.yml": ""},
        ["go build ./...", "go test ./...", "go test ./DIR -run NAME", "go vet ./..."],
        ["Go 1.23 (go.mod).", "What CI runs stands in .github/workflows/."],
    ),
    "maven": (
        {"pom.xml": "<project/>", "mvnw": ""},
        ["./mvnw package", "./mvnw test", "./mvnw test -Dtest=NAME"], [],
    ),
    "gradle": (
        {"build.gradle.kts": ""}, ["gradle build", "gradle test", "gradle test --tests NAME"], [],
    ),
    "cmake": (
        {"CMakeLists.txt": "project(x)\nenable_testing()\n", ".clang-format": "BasedOnStyle: LLVM\n"},
        ["cmake -B build && cmake --build build", "ctest --test-dir build --output-on-failure"],
        ["C and C++ are formatted by clang-format, style LLVM (.clang-format)."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTS)
def test_what_is_written_is_what_is_there(
    refold: Callable[..., Told], tmp_path: Path, name: str
) -> None:
    files, words, said = PROJECTS[name]
    made(tmp_path, files)

    code, out, _ = refold()

    text = (tmp_path / "AGENTS.md").read_text()
    assert (code, out.startswith("AGENTS.md is written: ")) == (0, True)
    assert commands(text) == words
    assert bullets(text) == said
    assert not list(tmp_path.glob(".AGENTS*"))


@pytest.mark.parametrize(
    "broken", ["{", "[1]", "\ud800", '{"scripts": 3}', "\0", "x" * 300_000]
)
def test_files_that_make_no_sense_are_passed_over(
    refold: Callable[..., Told], tmp_path: Path, broken: str
) -> None:
    for name in (
        "pyproject.toml",
        "package.json",
        "Makefile",
        ".editorconfig",
        "tsconfig.json",
    ):
        (tmp_path / name).write_bytes(broken.encode("utf-8", "surrogatepass"))

    assert refold("--print")[0] == 0


def test_where_nothing_can_be_seen_nothing_is_written(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    code, out, err = refold()

    assert (code, out) == (1, "")
    assert err.startswith("refold: there is nothing here yet that AGENTS.md could say: ")
    assert os.listdir(tmp_path) == []


def test_names_that_order_a_screen_about_do_not(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    made(tmp_path, {"package.json": json.dumps({
        "name": "\x1b[2J", "description": "a\nb | `c`", "scripts": {"test;rm -rf": "x", "test": "y"},
    }), "pyproject.toml": ""})  # fmt: skip

    _, out, _ = refold("--print")

    assert "\x1b" not in out
    assert out.startswith("# For agents that work on \\x1b[2J\n")
    assert commands(out) == ["npm install", "npm run test"]


def test_printing_writes_nothing(refold: Callable[..., Told], tmp_path: Path) -> None:
    code, out, err = refold("--print")

    assert (code, out, err) == (0, f"# For agents that work on {tmp_path.name}\n", "")
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_there_is_left_unless_somebody_says_otherwise(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    made(
        tmp_path, {"AGENTS.md": "# Mine\nRun `make test`.\n", "Makefile": "test:\nlint:\n"}
    )

    code, out, err = refold()

    assert (code, out) == (1, "")
    assert err.startswith("refold: AGENTS.md is there already: --add adds what it lacks")
    assert (tmp_path / "AGENTS.md").read_text() == "# Mine\nRun `make test`.\n"


def test_what_it_lacks_is_added_once_and_what_it_says_stays(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    made(
        tmp_path, {"AGENTS.md": "# Mine\nRun `make test`.\n", "Makefile": "test:\nlint:\n"}
    )

    first = refold("--add")[1]
    text = (tmp_path / "AGENTS.md").read_text()
    second = refold("--add")[1]

    assert (first, second) == (
        "AGENTS.md has more now: Commands.\n", "AGENTS.md stays as it is.\n",
    )  # fmt: skip
    assert text == (
        "# Mine\nRun `make test`.\n\n## Commands\n\n| what | command |\n|---|---|\n"
        "| lint | `make lint` |\n"
    )
    assert (tmp_path / "AGENTS.md").read_text() == text


def test_line_ends_of_windows_stay(refold: Callable[..., Told], tmp_path: Path) -> None:
    made(tmp_path, {"Makefile": "test:\n"})
    (tmp_path / "AGENTS.md").write_bytes(b"# Mine\r\n")

    refold("--add")

    text = (tmp_path / "AGENTS.md").read_bytes()
    assert text.startswith(b"# Mine\r\n\r\n## Commands\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")


@pytest.mark.parametrize("name", ["AGENTS.md", ".AGENTS.md.new"])
def test_a_link_that_leads_out_of_the_folder_writes_nothing_there(
    refold: Callable[..., Told], tmp_path: Path, name: str, home: Path
) -> None:
    made(tmp_path, {"Makefile": "test:\n"})
    (tmp_path / name).symlink_to(home / ".profile")

    code, _, err = refold()

    assert not (home / ".profile").exists()
    if name == "AGENTS.md":
        assert (code, err) == (
            1,
            f"refold: {tmp_path}/AGENTS.md is a link to {home}/.profile, outside of this "
            "folder: remove it first\n",
        )
    else:
        assert commands((tmp_path / "AGENTS.md").read_text()) == ["make test"]


def test_all_of_it_is_replaced_when_that_is_asked_for(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    made(tmp_path, {"AGENTS.md": "# Mine\n", "Makefile": "test:\n"})

    assert refold("--force") == (0, "AGENTS.md is replaced.\n", "")
    assert commands((tmp_path / "AGENTS.md").read_text()) == ["make test"]


def test_a_folder_that_cannot_be_written_is_one_sentence(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    made(tmp_path, {"Makefile": "test:\n"})
    (tmp_path / ".AGENTS.md.new").mkdir()

    code, out, err = refold()

    assert (code, out) == (1, "")
    assert err == f"refold: {tmp_path}/AGENTS.md cannot be written: Is a directory\n"


def test_what_a_project_says_of_itself_is_a_sentence(
    refold: Callable[..., Told], tmp_path: Path
) -> None:
    made(tmp_path, {"pyproject.toml": "[project]\nname = 'p'\ndescription = 'Adds up'\n"})

    assert "\n\nAdds up. Python.\n" in refold("--print")[1]
