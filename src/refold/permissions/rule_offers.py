"""The allow rules that a user is offered with a question: the most useful first.

A rule for exactly this call saves only its own repetition. So for programs of everyday
development the program and its subcommand are offered first, and for edits the folder. For
programs that run whatever they are told (interpreters, shells, wrappers), and for commands
that delete, discard changes or use the network, only the call itself is offered. A ` *` at
the end never covers options that write or run something else
(`command_patterns.dangerous`), and deny rules, protected files and catastrophes come before
any allow rule.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from refold.permissions.facts import Access, Facts, Target
from refold.permissions.rules import DOMAIN, EDITS, WEB, is_command
from refold.values.path_globs import literally

if TYPE_CHECKING:
    from refold.permissions.shell.plain_script import SimpleCommand

_UNUSUAL = set("*?[]{}\\")
# What is kept of a command; `?` keeps the word that stands there.
_USEFUL = tuple(
    tuple(each.split())
    for each in """
    pytest, ruff, mypy, pyright, basedpyright, black, isort, flake8, pylint, tox, nox
    python -m pytest, python -m unittest, python -m mypy, python -m ruff
    python3 -m pytest, python3 -m unittest, python3 -m mypy, python3 -m ruff
    uv run pytest, uv run ruff, uv run mypy, poetry run pytest
    npm test, npm run ?, pnpm test, pnpm run ?, yarn test, yarn run ?
    npx tsc, npx eslint, npx prettier, npx jest, npx vitest
    tsc, eslint, prettier, jest, vitest, mocha
    cargo build, cargo test, cargo check, cargo clippy, cargo fmt, cargo bench, cargo doc
    go build, go test, go vet, go fmt, gofmt, make ?, cmake, ctest, ninja
    dotnet build, dotnet test, mvn test, rspec, phpunit
    git add, git commit, git merge, git tag, git mv, git cherry-pick, git revert
    """.replace("\n", ",").split(",")
    if each.strip()
)


def offers(access: Access, facts: Facts) -> tuple[str, ...]:
    """Rules that cover this call: the most useful, then the narrowest.

    None where no rule can: none sees a command with operators whole, and a name that
    holds `*` cannot be written as one.
    """
    if is_command(access):
        found = _of_parts(_acting(access, facts))
    else:
        found = (_folder(access, facts), narrowest(access, facts))
    return tuple(dict.fromkeys(rule for rule in found if rule))


def narrowest(access: Access, facts: Facts) -> str:
    """The rule that covers this call and as little else as can be, or ""."""
    if is_command(access):
        parts = _acting(access, facts)
        return _exact(parts[0]) if len(parts) == 1 else ""
    if access.files:
        return _for_file(access, access.files[0], facts) if len(access.files) == 1 else ""
    if not access.subject or access.tool.startswith("mcp__"):
        return access.tool
    if access.tool in WEB:
        from refold.values.web_address import host_of

        host = host_of(access.subject)
        return f"{access.tool}({DOMAIN}{host})" if host and not set(host) & _UNUSUAL else ""
    plain = access.subject.strip() == access.subject and not set(access.subject) & _UNUSUAL
    return (
        f"{access.tool}({access.subject})" if plain and "\0" not in access.subject else ""
    )


def _for_file(access: Access, target: Target, facts: Facts) -> str:
    real, root = target.real, facts.roots[0].rstrip("/")
    inside = real.removeprefix(root + "/") if real.startswith(root + "/") else ""
    if not real.strip() or real.endswith("/") or real != real.strip():
        return ""
    path = literally(inside or real)
    name = access.tool
    return f"{name}({path})" if inside and "/" in path else f"{name}({_rooted(path)})"


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"./{path}"


def _folder(access: Access, facts: Facts) -> str:
    """A rule for all edits in the folder of this file, if that is below the workspace."""
    if access.tool not in EDITS or not (rule := narrowest(access, facts)):
        return ""
    path = rule[len(access.tool) + 1 : -1]
    folder, slash, _ = path.rpartition("/")
    plain = slash and not any(name[:1] in ("", ".") for name in folder.split("/"))
    return f"{access.tool}({folder}/**)" if plain else ""


def _of_parts(parts: "Sequence[SimpleCommand]") -> tuple[str, ...]:
    """Rules each of which covers all of `parts`."""
    from refold.permissions.shell.command_patterns import covers

    if len(parts) == 1:
        return (_useful(parts[0]), _exact(parts[0]))
    return tuple(
        rule
        for one in parts
        if (rule := _useful(one))
        and all(covers(rule.removeprefix("bash(")[:-1], part) for part in parts)
    )


def _acting(access: Access, facts: Facts) -> "tuple[SimpleCommand, ...]":
    """The commands that do more than look; none if one of them has patterns."""
    from refold.permissions.shell.read_only import survey

    looked = survey(
        access.subject,
        access.cwd or facts.roots[0],
        facts,
        lambda real: not facts.outside(real),
    )
    acting = [found.part for found in looked if found.problem] or [f.part for f in looked][
        :1
    ]
    if any(word.glob or part.values[0] == "[" for part in acting for word in part.words):
        return ()
    return tuple(acting)


def _useful(part: "SimpleCommand") -> str:
    """The program, its subcommand and whatever follows."""
    from refold.permissions.shell.command_patterns import covers

    given = part.values
    for known in _USEFUL:
        if len(given) > len(known) - 1 and all(
            want in (word, "?") for want, word in zip(known, given, strict=False)
        ):
            kept = given[: len(known)]
            text = f"{' '.join(map(_quoted, kept))} *"
            named = not any(word.startswith("-") for word in kept[-1:])
            return f"bash({text})" if named and covers(text, part) else ""
    return ""


def _exact(part: "SimpleCommand") -> str:
    from refold.permissions.shell.command_patterns import covers

    text = " ".join(_quoted(word.value) for word in part.words)
    fits = bool(text) and "\n" not in text and not text.endswith(":*")
    return f"bash({text})" if fits and covers(text, part) else ""


def _quoted(word: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./:,@%+=^-]+", word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
