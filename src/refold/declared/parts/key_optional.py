"""The key of a server of one's own, which may need none."""

import os

from refold.declared.parts.settings import API_KEY_VARIABLE


def api_key() -> str:
    """The key, from the environment. A server without keys takes anything."""
    return os.environ.get(API_KEY_VARIABLE, "").strip() or "none"
