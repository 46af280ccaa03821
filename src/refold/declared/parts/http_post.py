"""Requests of a generated program to an API, and the key that they carry."""

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from refold.declared.parts.messages import BackendError
from refold.declared.parts.settings import API_KEY_VARIABLE, TIMEOUT


def api_key() -> str:
    """The key, from the environment: it must not be in a file that is passed on."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not key:
        raise BackendError(f"there is no key: set {API_KEY_VARIABLE}")
    return key


def optional_api_key() -> str:
    """The key, from the environment. A server without keys takes anything."""
    return os.environ.get(API_KEY_VARIABLE, "").strip() or "none"


BUSY = (429, 500, 502, 503, 504, 529)  # answers after which it is worth trying again


def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """Send a request, again if the server is busy, and return what it answers."""
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    for pause in (1, 2, 4, 0):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code not in BUSY or not pause:
                reason = error.read(500).decode(errors="replace")
                raise BackendError(f"{url} answered {error.code}: {reason}") from error
        except OSError as error:
            raise BackendError(f"{url} cannot be reached: {error}") from error
        except ValueError as error:
            raise BackendError(f"{url} has not answered in JSON: {error}") from error
        time.sleep(pause)
    raise BackendError(f"{url} is busy: try again later")
