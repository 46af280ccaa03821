"""Sends requests to a model's API, with the key from the environment."""

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from refold.declared.parts.messages import BackendError
from refold.declared.parts.settings import API_KEY_VARIABLE, TIMEOUT


def api_key() -> str:
    """Return the key from the environment. Raises `BackendError` if it is not set."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not key:
        raise BackendError(f"there is no key: set {API_KEY_VARIABLE}")
    return key


def optional_api_key() -> str:
    """Return the key from the environment, or "none": a server may need no key."""
    return os.environ.get(API_KEY_VARIABLE, "").strip() or "none"


BUSY = (429, 500, 502, 503, 504, 529)  # answers after which it is worth trying again


def post(url: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """Send a JSON request, and return the response. If the server is busy, try again.

    Raises `BackendError` after the fourth try, or for any other error.
    """
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    for pause in (1, 2, 4, 0):  # 0 is the last try
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
