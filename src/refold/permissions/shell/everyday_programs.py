"""Lists how commands of everyday development begin. A rule for one of them may end in ` *`.

`dangerous_words` has the dangerous options that a ` *` never covers.
"""

import re
from collections.abc import Sequence

# The first words of such commands; `?` is any word.
_FIRST_WORDS = tuple(
    tuple(beginning.split())
    for beginning in """
    pytest, ruff, mypy, pyright, basedpyright, black, isort, flake8, pylint, tox, nox
    python -m pytest, python -m unittest, python -m mypy, python -m ruff
    python3 -m pytest, python3 -m unittest, python3 -m mypy, python3 -m ruff
    python -m py_compile, python3 -m py_compile
    uv run pytest, uv run ruff, uv run mypy, poetry run pytest
    npm test, npm run ?, pnpm test, pnpm run ?, yarn test, yarn run ?
    npx tsc, npx eslint, npx prettier, npx jest, npx vitest
    tsc, eslint, prettier, jest, vitest, mocha
    cargo build, cargo test, cargo check, cargo clippy, cargo fmt, cargo bench, cargo doc
    go build, go test, go vet, go fmt, gofmt, make ?, cmake, ctest, ninja
    dotnet build, dotnet test, mvn test, rspec, phpunit
    git add, git commit, git merge, git tag, git mv, git cherry-pick, git revert
    """.replace("\n", ",").split(",")
    if beginning.strip()
)


# An environment of Python or Node, which may contain a program under its own name.
_IN_ENVIRONMENT = re.compile(r"(?:[\w./-]*/)?(?:\.?venv|env|node_modules)/\.?bin/([\w.-]+)")
_ACTIVATION_FILE = re.compile(r"(?:\./)?(?:[\w-]+/)*(?:\.?venv|env)/bin/activate")


def activates_environment(words: Sequence[str]) -> bool:
    """Whether the words are `source .venv/bin/activate` or the like, for an environment in the
    workspace.
    """
    return (
        len(words) == 2
        and words[0] in ("source", ".")
        and bool(_ACTIVATION_FILE.fullmatch(words[1]))
    )


def beginning_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the first words of a command, such as its program and subcommand, that a rule must
    name.

    Return () if the command is not one of everyday development.
    """
    in_environment = _IN_ENVIRONMENT.fullmatch(words[0]) if words else None
    # The program of a virtual environment counts as the program of that name.
    names = (in_environment[1], *words[1:]) if in_environment else words
    for first_words in _FIRST_WORDS:
        count = len(first_words)
        if len(words) < count:
            continue
        if all(want in (name, "?") for want, name in zip(first_words, names, strict=False)):
            start = tuple(words[:count])
            # An option in place of `?` is not a subcommand.
            return () if start[-1].startswith("-") else start
    return ()
