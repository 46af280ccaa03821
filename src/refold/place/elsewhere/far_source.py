"""The program that refold sends through a pipe: the modules of the far side, as a zip.

They are the modules that `place` consists of on this machine, rewritten for old versions of
Python by `older_python`. Nothing is installed there: `BOOTSTRAP_PROGRAM` reads the zip from its
input and imports from memory.
"""

import ast
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from refold.place.elsewhere.older_python import rewrite_module

MAIN_MODULE = "refold.place.far.server"
# They are imported where they are used, so that `server` does not name them.
_STAND_INS = {"msgspec": "refold.place.far.msgspec_records"}
_LATER_MODULE = "refold.place.far.later_python"
_FOR_OLDER_PYTHON = frozenset((*_STAND_INS.values(), _LATER_MODULE))
_OUR_PACKAGE = "refold"

# Reads the length of the zip and the zip from standard input, and runs it from memory. The words
# after it are for the program.
BOOTSTRAP_PROGRAM = (
    "import sys,io,zipfile,importlib.abc,importlib.util as u\n"
    "b=sys.stdin.buffer.raw\n"
    "def r(n):\n"
    " d=b''\n"
    " while len(d)<n:\n"
    "  p=b.read(n-len(d))\n"
    "  if not p: raise SystemExit(1)\n"
    "  d+=p\n"
    " return d\n"
    "z=zipfile.ZipFile(io.BytesIO(r(int(r(10)))))\n"
    "N=set(z.namelist())\n"
    "class F(importlib.abc.MetaPathFinder,importlib.abc.InspectLoader):\n"
    " def find_spec(s,n,p=None,t=None):\n"
    "  f=n.replace('.','/')\n"
    "  if f+'/__init__.py' in N: return u.spec_from_loader(n,s,is_package=True)\n"
    "  if f+'.py' in N: return u.spec_from_loader(n,s)\n"
    " def is_package(s,n): return n.replace('.','/')+'/__init__.py' in N\n"
    " def get_source(s,n):\n"
    "  f=n.replace('.','/')\n"
    "  return z.read(f+('/__init__.py' if f+'/__init__.py' in N else '.py')).decode()\n"
    "sys.meta_path.insert(0,F())\n"
    "from refold.place.far.server import main\n"
    "main()\n"
)


@cache
def far_program() -> bytes:
    """The zip, the same bytes for the same modules."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(far_modules().items()):
            archive.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def first_bytes() -> bytes:
    """What is written into the pipe before the first frame."""
    program = far_program()
    return f"{len(program):010d}".encode() + program


def far_modules() -> dict[str, str]:
    """The rewritten source of each module, by its file in the zip."""
    sources, waiting = dict[str, str](), [MAIN_MODULE, *_FOR_OLDER_PYTHON]
    done = set[str]()
    while waiting:
        module = waiting.pop()
        if module in done:
            continue
        done.add(module)
        path, is_package = _file_of(module)
        if path is None:
            continue
        source = path.read_text(encoding="utf-8")
        if module not in _FOR_OLDER_PYTHON:
            source = rewrite_module(source)
        file = module.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        if module == "refold":
            source = ""  # its exports are for programs on this machine
        sources[file] = source
        parts = module.split(".")
        waiting += (".".join(parts[:count]) for count in range(1, len(parts)))
        waiting += _imports_of(source)
    for name, module in _STAND_INS.items():
        sources[f"{name}/__init__.py"] = sources[module.replace(".", "/") + ".py"]
        sources[f"{name}/structs.py"] = f"from {name} import replace\n"
    return sources


def _file_of(module: str) -> tuple[Path | None, bool]:
    folder = Path(str(resources.files(_OUR_PACKAGE))).parent
    path = folder.joinpath(*module.split("."))
    if module.partition(".")[0] != _OUR_PACKAGE:
        return None, False
    if (init := path / "__init__.py").is_file():
        return init, True
    file = path.with_suffix(".py")
    return (file, False) if file.is_file() else (None, False)


def _imports_of(source: str) -> Iterator[str]:
    """The modules that a module may import, except those that only a type checker reads."""
    tree = ast.parse(source)
    only_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in only_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
