"""The key of an API that needs one."""

import os

from refold.declared.parts.program_messages import BackendError
from refold.declared.parts.settings import API_KEY_VARIABLE


def api_key() -> str:
    """The key, from the environment: it must not be in a file that is passed on."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not key:
        raise BackendError(f"there is no key: set {API_KEY_VARIABLE}")
    return key
