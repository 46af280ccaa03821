"""Builds the program that refold sends to a place: a zip of Python modules.

They are the modules that `place` needs, rewritten for old versions of Python by `older_python`.
Nothing is installed in the place: `BOOTSTRAP_PROGRAM` reads the zip from its stdin and imports
the modules from memory.

Rewriting takes a second, so the zip is cached, with hashes of its source files.
"""

import ast
import io
import os
import shlex
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.place.elsewhere.older_python import rewrite_module
from refold.place.far.frames import END_OF_SCRIPT, NO_PYTHON_MARK, READY_MARK
from refold.place.private_files import make_directories
from refold.safe_open import create_file, read_regular
from refold.values.python_syntax import parse_module

MAIN_MODULE = "refold.place.far.server"
# These modules are replaced in the zip, so `server` does not have to name the replacements.
_STAND_INS = {"msgspec": "refold.place.far.msgspec_records"}
_LATER_MODULE = "refold.place.far.later_python"
_FOR_OLDER_PYTHON = frozenset((*_STAND_INS.values(), _LATER_MODULE))
_OUR_PACKAGE = "refold"
_REWRITING_FILES = tuple(
    f"refold/place/elsewhere/{name}.py" for name in ("far_source", "older_python")
)
_CACHE_FILE = "program"
_MAX_CACHE_BYTES = 8 * 1024 * 1024

# Reads the length of the zip and the zip from standard input, and runs it from memory.
# Further words on the command line are arguments of the program.
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


# The script starts no program of the workspace, whose directories may be on PATH: a
# repository could have added one. python3 may be a script that starts other programs by
# name, as pyenv's is, so it gets a PATH without these directories; commands of the session
# get the complete PATH again. An installed refold reads this script and skips it. `-I` and
# `-S` ignore variables and directories that packages add. The braces make sh read the whole
# script before it runs any of it.
_START_SCRIPT = (
    """{{
place() {{ (cd -- "$1" 2>/dev/null && pwd -P); }}
root={root}
case $root in "~"|"~/"*) root=$HOME${{root#?}};; esac
root=$(place "$root")
set -f; IFS=:
trusted=
for folder in $PATH; do
  case $folder in /*) ;; *) continue;; esac
  case $(place "$folder")/ in "$root"/*) continue;; esac
  trusted=$trusted:$folder
done
{whole_path}=$PATH PATH=${{trusted#:}}
export {whole_path} PATH
for folder in $PATH; do
  [ -x "$folder/python3" ] || continue
  target=$(readlink -f -- "$folder/python3" 2>/dev/null || echo "$folder/python3")
  case $target in "$root"/*) continue;; esac
  exec "$folder/python3" -I -S -c {bootstrap}
done
echo {no_python}; exit
}}
"""
    + END_OF_SCRIPT
)
_WHOLE_PATH_VARIABLE = "REFOLD_WHOLE_PATH"
# Some installations, for example Debian's python3-minimal, have only a part of the standard
# library.
_NEEDED_MODULES = "zipfile,shutil,pwd,subprocess,ctypes,json,threading,importlib.abc"
_PART_OF_PYTHON = (
    "its python3 has no module %s, because only a part of Python is installed: install the "
    "package python3 there (python3-minimal is not enough)"
)
_OLD_PYTHON = "its python3 is Python %s, and refold needs 3.8 or later there"


def start_script(directory: str) -> bytes:
    """Return the script that starts Python in a place, or reports that Python is missing.

    The script is the first input of the shell in the place. It runs no program from
    `directory`, the workspace.
    """
    python = (
        f"import sys;sys.version_info<(3,8)and sys.exit({_OLD_PYTHON!r}"
        "%sys.version.split()[0])\n"
        f"try:\n import {_NEEDED_MODULES}\n"
        f"except ImportError as e: sys.exit({_PART_OF_PYTHON!r}%e.name)\n"
        f"import os;os.environ['PATH']=os.environ.pop({_WHOLE_PATH_VARIABLE!r})\n"
        f"sys.stdout.write({READY_MARK.decode()!r});sys.stdout.flush();"
        f"exec({BOOTSTRAP_PROGRAM!r})"
    )
    script = _START_SCRIPT.format(
        root=shlex.quote(directory),
        whole_path=_WHOLE_PATH_VARIABLE,
        bootstrap=shlex.quote(python),
        no_python=NO_PYTHON_MARK.decode().strip(),
    )
    return script.encode()


def first_bytes(cache: Path | None = None) -> bytes:
    """Return the bytes that are sent before the first frame: the program and its length.

    `cache` is the directory in which the program is cached.
    """
    program = far_program(cache)
    return f"{len(program):010d}".encode() + program


def far_program(cache: Path | None = None) -> bytes:
    """Return the zip with the program; the same modules always give the same bytes.

    `cache` is the directory in which the zip is cached. With None, it is not cached.
    """
    if cache is None:
        _, program = _pack_program()
        return program
    file = cache / _CACHE_FILE
    program = _read_program(file)
    if program is None:
        files, program = _pack_program()
        _store_program(file, files, program)
    return program


class _CachedProgram(Struct, frozen=True):
    """The first line of the cache file. `files` maps source files to their hashes."""

    files: dict[str, str]
    program: str  # the hash of the zip, which follows this line


@cache
def _pack_program() -> tuple[dict[str, str], bytes]:
    """Build the zip. Return the hashes of its source files, and the bytes of the zip."""
    modules = far_modules()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(modules.items()):
            archive.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
    names = (*filter(_is_ours, modules), *_REWRITING_FILES)
    return {name: _hash_of_file(name) for name in names}, packed.getvalue()


def _read_program(file: Path) -> bytes | None:
    """Return the cached zip; None if a source file has changed or the cache is damaged."""
    try:
        data, _ = read_regular(file, _MAX_CACHE_BYTES, follow=False)
        head, _, program = data.partition(b"\n")
        stored = msgspec.json.decode(head, type=_CachedProgram)
        # The program also depends on the modules that rewrite it.
        if not set(_REWRITING_FILES) <= stored.files.keys():
            return None
        current = {name: _hash_of_file(name) for name in stored.files}
    except (OSError, msgspec.MsgspecError):
        return None
    is_complete = sha256(program).hexdigest() == stored.program
    return program if is_complete and current == stored.files else None


def _store_program(file: Path, files: dict[str, str], program: bytes) -> None:
    """Write the zip to the cache. Errors are ignored."""
    head = msgspec.json.encode(_CachedProgram(files, sha256(program).hexdigest()))
    new = file.with_name(f"{file.name}.{os.getpid()}.new")
    with suppress(OSError):
        make_directories(file.parent)
        new.unlink(missing_ok=True)
        create_file(new, head + b"\n" + program)
        new.replace(file)


def _is_ours(name: str) -> bool:
    return name.startswith(f"{_OUR_PACKAGE}/")


def _hash_of_file(name: str) -> str:
    return sha256(_source_folder().joinpath(name).read_bytes()).hexdigest()


def far_modules() -> dict[str, str]:
    """Return the source of each module of the program, by its path in the zip.

    Most are rewritten for old versions of Python.
    """
    sources = dict[str, str]()
    waiting = [MAIN_MODULE, *_FOR_OLDER_PYTHON]
    done = set[str]()
    while waiting:
        module = waiting.pop()
        if module in done:
            continue
        done.add(module)
        path, is_package = _file_of(module)
        if path is None:
            continue
        if module == _OUR_PACKAGE:
            source = ""  # its exports are only used by programs on this machine
        else:
            source = path.read_text(encoding="utf-8")
            if module not in _FOR_OLDER_PYTHON:
                source = rewrite_module(source)
        path_in_zip = module.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        sources[path_in_zip] = source
        parts = module.split(".")
        # the packages that contain the module
        waiting += (".".join(parts[:count]) for count in range(1, len(parts)))
        waiting += _imports_of(source)
    # Modules of ours take the names of packages that the other machine may not have.
    for name, module in _STAND_INS.items():
        sources[f"{name}/__init__.py"] = sources[module.replace(".", "/") + ".py"]
        sources[f"{name}/structs.py"] = f"from {name} import replace\n"
    return sources


def _file_of(module: str) -> tuple[Path | None, bool]:
    """Return the source file of a module of refold, and whether the module is a package.

    The file is None for a name that is not a module of refold.
    """
    path = _source_folder().joinpath(*module.split("."))
    if module.partition(".")[0] != _OUR_PACKAGE:
        return None, False
    if (init := path / "__init__.py").is_file():
        return init, True
    file = path.with_suffix(".py")
    return (file, False) if file.is_file() else (None, False)


def _source_folder() -> Path:
    return Path(str(resources.files(_OUR_PACKAGE))).parent


def _imports_of(source: str) -> Iterator[str]:
    """Yield names that `source` may import as modules, except below `if TYPE_CHECKING`."""
    tree = parse_module(source)
    nodes_for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in nodes_for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
