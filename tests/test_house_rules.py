"""House rules that no linter can check."""

import ast
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

import refold
from tests.source_tree import nodes, parse_file

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Without the programs of the course, which beginners read and write.
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "learn/course" not in str(path))
LONGEST = 500  # raise it only with a decision record
MAY_BE_LONGER = {
    "src/refold/client/session.py": "one class, the handle, which has no joint to cut at",
}
FRONT_DOOR = {
    "events",
    "Agent",
    "BadInput",
    "Budget",
    "Checklist",
    "Context",
    "Diff",
    "Effect",
    "Entry",
    "Final",
    "Frame",
    "JournalError",
    "Note",
    "Output",
    "Profile",
    "Progress",
    "ProviderError",
    "Question",
    "RefoldError",
    "Reply",
    "Result",
    "Session",
    "TextCame",
    "ThinkingCame",
    "Todo",
    "Tool",
    "ToolFailed",
    "Usage",
    "tool",
}

# refold never runs these: they are joined to programs that run without it.
PROGRAM_PARTS = "refold/declared/parts/"

# Words that say nothing about what a thing is.
HOLLOW = re.compile(r"(Manager|Handler|Helper|Base|Abstract\w*|Util|Utils)$")


@cache
def project_files() -> tuple[Path, ...]:
    """Return the text files of the project, without what tools install or generate in its
    directory.
    """
    paths = list[Path]()
    for directory, names, file_names in os.walk(ROOT):
        names[:] = [
            name
            for name in names
            if name not in {"__pycache__", "build", "dist", "results", "node_modules"}
            and not name.startswith(
                (".venv", ".peers", ".git", ".hypothesis", ".ruff", ".pytest")
            )
        ]
        paths += (Path(directory, name) for name in file_names)
    suffixes = {".py", ".md", ".toml", ".jinja", ".txt", ".json", ".sh", ""}
    return tuple(
        path for path in sorted(paths) if path.suffix in suffixes and path.is_file()
    )


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def offenders(wrong: Callable[[Path], object]) -> list[str]:
    """Return the modules of which something is wrong, each with what it is."""
    return [f"{name(path)}: {problem}" for path in MODULES if (problem := wrong(path))]


def test_modules_do_not_exceed_the_maximum_length() -> None:
    lengths = {
        name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES
    }

    longer = [module for module, length in lengths.items() if length > LONGEST]

    assert longer == list(MAY_BE_LONGER)


def test_no_class_is_split_into_a_base_class_of_its_own_package() -> None:
    """A class without instances and with one subclass in its package is half a class."""
    bases = dict[str, Path]()
    subclasses = defaultdict[str, list[Path]](list)
    texts = set[str]()
    for path in MODULES:
        for node in nodes(path):
            match node:
                case ast.ClassDef(name=title, bases=above):
                    names = {ast.unparse(base).partition("[")[0] for base in above}
                    if not names:
                        bases[title] = path
                    for base in names:
                        subclasses[base].append(path)
                case ast.Call(func=ast.Name(title)):
                    texts.add(title)
                case _:
                    pass

    halves = [
        title
        for title, path in bases.items()
        if title not in texts
        and [other.parent for other in subclasses[title]] == [path.parent]
        and subclasses[title] != [path]
    ]

    assert halves == []


def test_every_module_has_a_docstring() -> None:
    """The docstring says what the module is, what it is not, and which module does that."""
    assert (
        offenders(lambda path: len(ast.get_docstring(parse_file(path)) or "") <= 20) == []
    )


def test_class_names_have_no_meaningless_suffix() -> None:
    def wrong(path: Path) -> list[str]:
        classes = [n for n in nodes(path) if isinstance(n, ast.ClassDef)]
        return [c.name for c in classes if HOLLOW.search(c.name)]

    assert offenders(wrong) == []


def test_only_cli_terminal_and_headless_modules_print() -> None:
    def prints(path: Path) -> list[int]:
        return [
            node.lineno
            for node in nodes(path)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
            and not {"cli", "terminal", "headless"} & set(path.parts)
            and PROGRAM_PARTS not in str(path)
        ]

    assert offenders(prints) == []


def test_importing_a_module_has_no_side_effects() -> None:
    """A module only defines names when it is imported: it makes no calls, runs no loops and
    opens no files.
    """

    def lines_with_effects(path: Path) -> list[int]:
        return [
            node.lineno
            for node in parse_file(path).body
            if path.name != "__main__.py"
            and (
                isinstance(node, ast.For | ast.While | ast.With | ast.Try)
                or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
            )
        ]

    assert offenders(lines_with_effects) == []


def test_no_module_imports_asyncio() -> None:
    """Task groups and cancel scopes hold only if no code bypasses them."""
    bare = {"asyncio"}

    assert offenders(lambda p: [i for i, _ in imports(p) if i.split(".")[0] in bare]) == []


@pytest.mark.parametrize("wrong", [lambda _: True, lambda path: [path.name]])
def test_modules_that_break_a_rule_are_listed(wrong: Callable[[Path], object]) -> None:
    assert len(offenders(wrong)) == len(MODULES)


def test_the_agent_loop_has_at_most_150_lines() -> None:
    loop = SOURCE / "refold" / "engine" / "loop.py"

    assert len(loop.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_public_names_of_the_package_are_exactly_the_listed_ones() -> None:
    """A new public name must be added to this list, too."""
    assert set(refold.__all__) == FRONT_DOOR
    assert len(refold.__all__) <= 30
    assert [n for n in refold.__all__ if not hasattr(refold, n)] == []


def test_no_file_names_a_path_outside_the_project() -> None:
    # Put together here, so that this file does not hold them.
    outside = [
        "/".join(["", "work", "main"]),
        "/".join(["", "work", "shared"]),
        "/".join(["..", "shared"]),
        "/".join(["", "tmp", "refold", ""]),
    ]

    pairs = [
        (name(path), place)
        for path in project_files()
        for place in outside
        if place in path.read_bytes().decode("utf-8", errors="replace")
    ]

    assert pairs == []


def test_no_source_file_contains_a_todo_mark() -> None:
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
    code = [path for path in project_files() if path.suffix == ".py"]

    assert [name(p) for p in code if marks.search(p.read_text(encoding="utf-8"))] == []


def test_the_lock_file_names_only_public_registries() -> None:
    """The address of a private mirror would work on one machine only."""
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")

    registries = set(re.findall(r'registry = "([^"]+)"', text))
    hosts = set(re.findall(r'url = "(https?://[^/"]+)', text))

    assert registries == {"https://pypi.org/simple"}
    assert hosts == {"https://files.pythonhosted.org"}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno


STARTS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput"},
    "anyio": {"open_process", "run_process"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "shutil": {"which"},
    "os": {"system", "popen", "posix_spawn", "posix_spawnp", "fork", "forkpty", "execv",
        "execve", "execvp", "execvpe", "execl", "execlp", "startfile"},
}  # fmt: skip
MAY_START = {
    "refold/programs.py": "it is the one that does",
    "refold/place/command_starter.py": "looks for a program on the PATH of commands, in the sandbox",
    "refold/skills/shipped": "scripts that are run by commands, in the sandbox",
    PROGRAM_PARTS: "programs that run without refold",
}


def offending_nodes(may: Collection[str], wrong: Callable[[ast.AST], bool]) -> list[str]:
    """Return where in modules that are not among `may` something wrong stands."""
    return [
        f"{name(path)}:{node.lineno} {ast.unparse(node)[:60]}"
        for path in MODULES
        if not any(part in str(path) for part in may)
        for node in nodes(path)
        if isinstance(node, ast.Call | ast.ImportFrom) and wrong(node)
    ]


def test_only_one_module_finds_and_starts_programs() -> None:
    """A program started by its name alone could be one of the workspace, outside the
    sandbox.
    """

    def starts(node: ast.AST) -> bool:
        match node:
            case ast.Call(ast.Attribute(ast.Name(module), attribute)):
                return attribute in STARTS.get(module, ())
            case ast.ImportFrom(module):
                return bool(
                    {alias.name for alias in node.names} & STARTS.get(module or "", set())
                )
            case _:
                return False

    assert offending_nodes(MAY_START, starts) == []


MAY_PARSE = {
    "refold/values/python_syntax.py": "it is the one that does, in one thread at a time",
    "refold/rlm/worker_side/": "a program of its own, with one thread",
    PROGRAM_PARTS: "programs that run without refold",
}


def test_python_is_parsed_in_one_thread_at_a_time() -> None:
    def parses(node: ast.AST) -> bool:
        match node:
            case ast.Call(ast.Attribute(ast.Name("ast"), "parse")):
                return True
            case _:
                return False

    assert offending_nodes(MAY_PARSE, parses) == []


OPENS = {
    "os": {"open", "rename", "replace", "renames", "link", "symlink", "unlink", "remove", "rmdir",
        "mkdir", "makedirs", "removedirs", "truncate", "chmod", "chown"},
    "shutil": {"move", "copy", "copy2", "copyfile", "copytree", "rmtree"},
}  # fmt: skip
METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "symlink_to", "hardlink_to",
    "unlink", "rmdir", "mkdir",
}  # fmt: skip
MAY_OPEN = {
    "refold/place/": "files of the workspace, beneath its roots, and what is kept of them",
    "refold/safe_open.py": "our own, through no link",
    "refold/journal/": "the sessions, in our data directory",
    "refold/cluster/sealing.py": "a file of keys that an operator names",
    "refold/cluster/sessions.py": "the copy of a session, in a temporary directory",
    "refold/cluster/workspace_packs.py": "packs and notes among our snapshots",
    "refold/logs/": "our log",
    "refold/config/": "settings and instructions, which a person writes and may link",
    "refold/provider/": "models, cassettes and lists, in our directories or named by a person",
    "refold/memory/": "notes, in our data directory, and a prompt of ours",
    "refold/prompts/": "prompts of ours",
    "refold/agents/builtin.py": "prompts of ours",
    "refold/agents/worktree.py": "working trees in our data directory",
    "refold/app/project_memory.py": "when the notes were looked through",
    "refold/mcp/server_home.py": "the directory of an MCP server, in our data directory",
    "refold/mcp/package_install.py": "what a package manager left there",
    "refold/tools/images.py": "a picture that a person names",
    "refold/rlm/worker_side/": "runs in the sandbox",
    "refold/rlm/": "prompts of ours, and what is remembered of questions",
    "refold/console/": "what a person names at the prompt, and the history of it",
    "refold/tui/screen_modes.py": "the modes of a terminal, in our state directory",
    "refold/client/host.py": "notes on conversations, in our state directory",
    "refold/client/clones.py": "clones that it makes, in our data directory",
    "refold/client/nodes/following_files.py": "directories that it makes for files of sessions",
    "refold/client/own_workspace.py": "workspaces that it makes, in our state directory",
    "refold/server/": "its secret in our state directory, and pages of ours",
    "refold/client/session_socket.py": "sockets in the runtime directory",
    "refold/client/session_holder.py": "what the kernel says of a process",
    "refold/client/storage.py": "files of caches, in our directories",
    "refold/client/export.py": "a file that a person names for an export",
    "refold/headless/": "what a person names on the command line",
    "refold/cli/": "what a person names on the command line, and our own",
    "refold/learn/": "texts of ours, and the folder of a reader of the course",
    "refold/evaluation/tasks.py": "what a person names on the command line",
    "refold/evaluation/report.py": "what a person names on the command line",
    "refold/process_groups.py": "what the kernel says of processes",
    "refold/views/export/html.py": "its own style sheet",
    "refold/testing/": "for tests",
    "refold/skills/shipped": "scripts that are run by commands, in the sandbox",
    PROGRAM_PARTS: "programs that run without refold",
    "refold/declared/compose.py": "modules of ours, to be joined",
    "refold/declared/generate.py": "a directory that a person names on the command line",
}


def test_only_listed_modules_open_or_move_files_by_path() -> None:
    """A path can lead to another file by the time that it is opened."""

    def opens_a_file(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _is_file_function(node.func)

    assert offending_nodes(MAY_OPEN, opens_a_file) == []


def _is_file_function(called: ast.expr) -> bool:
    match called:
        case ast.Name("open"):
            return True
        case ast.Attribute(ast.Name(module), attribute) if attribute in OPENS.get(
            module, ()
        ):
            return True
        case ast.Attribute(_, attribute):
            return attribute in METHODS
        case _:
            return False


@pytest.mark.parametrize(
    "code", ["open(p)", "os.rename(a, b)", "Path(p).read_text()", "shutil.rmtree(p)"]
)
def test_calls_that_open_by_path_are_detected(code: str) -> None:
    (call,) = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)][:1]

    assert _is_file_function(call.func)


def test_test_modules_have_unique_names() -> None:
    """pytest imports them by that name, and reports a second one as an error."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []


def test_no_test_name_begins_with_test_what() -> None:
    """A name says the feature and what holds; one that begins with "test_what_" says
    neither.
    """
    names = [
        f"{name(path)}: {test}"
        for path in [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]
        for test in re.findall(r"def (test_what_\w+)", path.read_text("utf-8"))
    ]

    assert names == []


# Words that are verbs in this form, too, are not in it.
PARTICIPLE = re.compile(
    r"\w{2,}ed|begun|born|bound|broken|brought|built|caught|chosen|done|drawn|driven|fallen|felt|"
    r"found|given|gone|got|grown|held|kept|known|laid|led|left|lent|lost|made|met|paid|said|seen|"
    r"sent|shown|sought|stood|stuck|swept|taken|taught|thought|told|torn|understood|won|written"
)
NO_PARTICIPLES = frozenset(("embed", "feed", "need", "seed", "shed", "speed"))
CONSTANTS_LEFT = 106  # with a name of one word; lower it with each that gets a better one


def _begins_with_participle(name: str) -> bool:
    word = name.strip("_").partition("_")[0].lower()
    return word not in NO_PARTICIPLES and PARTICIPLE.fullmatch(word) is not None


def test_function_names_do_not_begin_with_a_past_participle() -> None:
    """Past tense is for events: `renew_token`, not `renewed`; `blocked_tools` is an exception."""
    functions = [
        (node, f"{name(path)}: {node.name}")
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    participles = [
        (n, location) for n, location in functions if _begins_with_participle(n.name)
    ]

    assert [
        location for n, location in participles if isinstance(n, ast.AsyncFunctionDef)
    ] == []
    assert len(participles) < 0.01 * len(functions), [
        location for _, location in participles
    ]


def test_the_number_of_one_word_constant_names_does_not_grow() -> None:
    """`MAX_LINE_CHARS`, not `LONGEST`: one word says neither what is bounded nor the unit."""
    short = [
        f"{name(path)}: {target.id}"
        for path in MODULES
        if PROGRAM_PARTS not in path.as_posix()  # their names are those of the programs
        for statement in parse_file(path).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in getattr(statement, "targets", None)
        or [getattr(statement, "target", None)]
        if isinstance(target, ast.Name) and target.id.isupper() and len(target.id) > 1
        if "_" not in target.id.strip("_")
    ]

    assert len(short) <= CONSTANTS_LEFT, short
