"""Replaces the package `keyring` by a module of that name, which a test can lock."""

import importlib
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
import json, pathlib, time

FILE = pathlib.Path(__file__).with_name("keyring.json")


class NoKeyringError(RuntimeError):
    pass


def _read():
    found = json.loads(FILE.read_text())
    found["asked"] += 1
    FILE.write_text(json.dumps(found))
    match found["mode"]:
        case "locked":
            raise RuntimeError("the collection is locked")
        case "absent":
            raise NoKeyringError("Install a recommended 3rd party backend package")
        case "hangs":
            time.sleep(0.5)
    return found


def get_password(service_name, username):
    return _read()["keys"].get(f"{service_name}/{username}")


def set_password(service_name, username, password):
    found = _read()
    if found["mode"] != "off":
        found["keys"][f"{service_name}/{username}"] = password
        FILE.write_text(json.dumps(found))


def delete_password(service_name, username):
    found = _read()
    del found["keys"][f"{service_name}/{username}"]
    FILE.write_text(json.dumps(found))
"""


class Ring:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "keyring.json"
        self.put()

    def put(self, mode: str = "open", **keys: str) -> None:
        """Store these keys, each by the name of a provider."""
        data = {f"refold/{name}": key for name, key in keys.items()}
        self._file.write_text(json.dumps({"mode": mode, "asked": 0, "keys": data}))

    @property
    def keys(self) -> dict[str, str]:
        return self._read()["keys"]

    @property
    def request_count(self) -> int:
        return self._read()["asked"]

    def _read(self) -> dict[str, Any]:
        return json.loads(self._file.read_text())


@contextmanager
def keyring_of(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Ring]:
    directory.mkdir()
    (directory / "keyring.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(directory))
    real = sys.modules.pop("keyring", None)
    importlib.invalidate_caches()
    try:
        yield Ring(directory)
    finally:
        sys.modules.pop("keyring", None)
        if real is not None:
            sys.modules["keyring"] = real
