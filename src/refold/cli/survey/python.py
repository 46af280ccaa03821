"""Python projects: how one is installed, tested and checked, by what is configured."""

from collections.abc import Iterator

from refold.cli.survey.findings import Command
from refold.cli.survey.folder import Folder

_RUNNERS = (
    ("uv.lock", "uv run ", "uv sync"),
    ("poetry.lock", "poetry run ", "poetry install"),
    ("pdm.lock", "pdm run ", "pdm install"),
    ("Pipfile", "pipenv run ", "pipenv install --dev"),
)
_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "manage.py")


def is_one(folder: Folder) -> bool:
    return folder.has(*_FILES)


def commands(folder: Folder) -> Iterator[Command]:
    project = folder.toml("pyproject.toml")
    runner, install = next(
        ((words, how) for file, words, how in _RUNNERS if folder.has(file)), ("", "")
    )
    if install:
        yield Command("install", install)
    elif project.table("build-system") or folder.has("setup.py"):
        yield Command("install", "pip install -e .")
    if not install and folder.has("requirements.txt"):
        yield Command("install", "pip install -r requirements.txt")
    yield from _tests(folder, runner)
    yield from _checks(folder, runner)


def conventions(folder: Folder) -> Iterator[str]:
    project = folder.toml("pyproject.toml")
    if needs := project.table("project").word("requires-python"):
        yield f"Python {needs} (pyproject.toml)."
    for file, table in (
        ("ruff.toml", folder.toml("ruff.toml")),
        ("pyproject.toml", project.table("tool", "ruff")),
        ("pyproject.toml", project.table("tool", "black")),
    ):
        if isinstance(wide := table.value("line-length"), int):
            yield f"Lines have at most {wide} characters ({file})."
            break
    if project.table("tool", "mypy").value("strict") is True:
        yield "Types are checked strictly (mypy)."
    for name, key in (
        ("basedpyright", "typeCheckingMode"),
        ("pyright", "typeCheckingMode"),
    ):
        if project.table("tool", name).word(key) == "strict":
            yield f"Types are checked strictly ({name})."


def _tests(folder: Folder, runner: str) -> Iterator[Command]:
    project = folder.toml("pyproject.toml")
    if folder.has("manage.py"):
        yield Command("test", f"{runner}python manage.py test")
    elif (
        project.table("tool", "pytest")
        or folder.has("pytest.ini", "conftest.py")
        or (_depends(folder, "pytest") and folder.has("tests", "test"))
    ):
        yield from _pytest(runner)
    elif folder.has("tests/__init__.py", "test/__init__.py"):
        yield Command("test", f"{runner}python -m unittest")
    if folder.has("tox.ini"):
        yield Command("test in all environments", f"{runner}tox")
    if folder.has("noxfile.py"):
        yield Command("test in all environments", f"{runner}nox")


def _pytest(runner: str) -> Iterator[Command]:
    words = f"{runner}pytest" if runner else "python -m pytest"
    yield Command("test", words)
    yield Command("one test", f"{words} FILE -k WORDS")


def _checks(folder: Folder, runner: str) -> Iterator[Command]:
    tools = folder.toml("pyproject.toml").table("tool")
    if tools.table("ruff") or folder.has("ruff.toml", ".ruff.toml"):
        yield Command("check", f"{runner}ruff check .")
        if not tools.table("black"):
            yield Command("format", f"{runner}ruff format .")
    if tools.table("black"):
        yield Command("format", f"{runner}black .")
    if folder.has(".flake8"):
        yield Command("check", f"{runner}flake8")
    if tools.table("mypy") or folder.has("mypy.ini", ".mypy.ini"):
        yield Command("check types", f"{runner}mypy .")
    if tools.table("basedpyright"):
        yield Command("check types", f"{runner}basedpyright")
    elif tools.table("pyright") or folder.has("pyrightconfig.json"):
        yield Command("check types", f"{runner}pyright")


def _depends(folder: Folder, name: str) -> bool:
    texts = (folder.text(n) for n in folder.names if n.startswith("requirements"))
    return folder.toml("pyproject.toml").holds(name) or any(name in text for text in texts)
