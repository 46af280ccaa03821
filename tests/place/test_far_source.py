"""The program that is sent to a place: what it needs there, and that it is the modules of here."""

import ast
import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.place.elsewhere.address import parse_address
from refold.place.elsewhere.far_source import far_modules, far_program, first_bytes
from refold.place.elsewhere.older_python import rewrite_module
from refold.place.far import msgspec_records

pytestmark = pytest.mark.slow  # it rewrites eighty modules

_IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
print(*sorted(name for name in sys.modules if "site-packages" in str(getattr(sys.modules[name], "__file__", ""))))
"""


def test_each_module_that_is_sent_elsewhere_is_valid_in_python_3_8() -> None:
    invalid = list[str]()
    for name, source in far_modules().items():
        try:
            ast.parse(source, feature_version=(3, 8))
        except SyntaxError as error:
            invalid.append(f"{name}: {error}")

    assert invalid == []


def test_each_module_that_is_sent_elsewhere_loads_with_the_standard_library_alone(
    tmp_path: Path,
) -> None:
    sources = far_modules()
    for name, source in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    names = [
        name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        for name in sources
    ]

    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _IMPORT_ALL, str(tmp_path), *names],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (loaded.stdout.strip(), loaded.stderr) == ("", "")


def test_modules_that_are_sent_elsewhere_use_only_msgspec_names_that_the_stand_in_has() -> (
    None
):
    """It may be used in a function that runs once in a year."""
    missing = set[str]()
    for name, source in far_modules().items():
        for node in ast.walk(ast.parse(source)):
            used = list[str]()
            if isinstance(node, ast.Attribute) and "(" not in (chain := ast.unparse(node)):
                used = [chain]
            elif isinstance(node, ast.ImportFrom) and node.module:
                used = [f"{node.module}.{alias.name}" for alias in node.names]
            parts = [name.split(".")[1:] for name in used if name.startswith("msgspec.")]
            lacking = (part for part in parts if not has_attribute(msgspec_records, part))
            missing.update(f"{name}: {part[0]}" for part in lacking)

    # States of guarded paths are stored on this machine alone.
    assert missing == {"refold/place/guard_watch.py: msgpack"}


def has_attribute(value: object, names: list[str]) -> bool:
    for name in names:
        if not hasattr(value, name):
            return False
        value = getattr(value, name)
    return True


def test_the_program_that_is_sent_elsewhere_is_cached_until_a_module_changes(
    tmp_path: Path,
) -> None:
    """The test marks the cached program, and the mark is sent."""
    program = far_program(tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    head = json.loads(file.read_bytes().partition(b"\n")[0])
    marked = program + b"marked"

    def write(**fields: object) -> None:
        file.write_bytes(json.dumps({**head, **fields}).encode() + b"\n" + marked)

    own_hash = sha256(marked).hexdigest()
    write(program=own_hash)
    assert first_bytes(tmp_path / "cache") == f"{len(marked):010d}".encode() + marked
    write()  # the zip is damaged
    assert far_program(tmp_path / "cache") == program
    write(program=own_hash, files={**head["files"], "refold/errors.py": "older"})
    assert far_program(tmp_path / "cache") == program
    write(program=own_hash, files={})
    assert far_program(tmp_path / "cache") == program
    assert far_program() == program


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("a = list[str]()", []),
        ("a = {1: 2} | {3: 4}", {1: 2, 3: 4}),
        ("a = {1: 2}\na |= {3: 4}", {1: 2, 3: 4}),
        ("a = 'abc'.removeprefix('a')", "bc"),
        ("a = 'abc'.removesuffix('c')", "ab"),
        ("a = 5 | 2", 7),
        ("def f(x: int | None) -> list[int | None]: return [x]\na = f(1)", [1]),
    ],
)
def test_code_rewritten_for_python_3_8_gives_the_same_result(
    source: str, result: object
) -> None:
    scope = dict[str, object]()

    exec(rewrite_module(source), scope)

    assert scope["a"] == result


@pytest.mark.parametrize(
    ("text", "argv", "directory"),
    [
        ("docker://web/srv/app", ("docker", "exec", "-i", "web", "/bin/sh"), "/srv/app"),
        ("podman://web/~/app", ("podman", "exec", "-i", "web", "/bin/sh"), "~/app"),
        (
            "k8s://team/pod-1/app",
            ("kubectl", "exec", "-i", "-n", "team", "pod-1", "--", "/bin/sh"),
            "/app",
        ),
        ('cmd:"ssh -J a b sh # /x y"', ("ssh", "-J", "a", "b", "sh"), "/x y"),
    ],
)
def test_a_workspace_address_becomes_a_shell_command_and_a_directory(
    text: str, argv: tuple[str, ...], directory: str
) -> None:
    address = parse_address(text)

    assert (address.argv, address.directory) == (argv, directory)


def test_the_host_of_an_ssh_address_is_never_an_option_of_ssh() -> None:
    address = parse_address("ssh://me@host:2222/srv")

    assert address.argv[-5:] == ("-p", "2222", "--", "me@host", "/bin/sh")


@pytest.mark.parametrize(
    "text",
    ["ssh://", "ssh://-oProxyCommand=x/y", "ftp://host/x", "cmd:", "cmd:sh # x", "k8s://a"],
)
def test_an_invalid_workspace_address_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_address(text)

    assert text in str(caught.value)
