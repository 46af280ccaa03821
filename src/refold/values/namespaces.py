"""Recognizes that a program failed because the sandbox forbids it to make namespaces.

The kernel reports only "Operation not permitted", so the messages of programs are searched:
browsers and programs that start them, container engines, other sandboxes, unshare(1).
"""

import re

NAMESPACES_REFUSED = (
    "the sandbox lets no program make namespaces (sandbox.user_namespaces = true in your "
    "settings permits it)"
)
_REFUSAL_PATTERN = re.compile(
    r"no usable sandbox|sandboxing failed|target\.setDiscoverTargets\): target closed|failed to move to new namespace|namespace sandbox|"
    r"creating new namespace failed|no permissions to creat\w+ (?:a )?new namespace|"
    r"(?:unshare|clone|setns|newuidmap|re-exec|user ?ns|namespaces?)\b[^\n]{0,80}"
    r"(?:operation not permitted|EPERM)|"
    r"(?:unshare|newuidmap|user ?ns|namespaces?)\b[^\n]{0,80}permission denied|"
    r"(?:operation not permitted|EPERM)[^\n]{0,40}\b(?:unshare|clone|namespaces?)\b",
    re.IGNORECASE,
)


def reports_no_namespaces(text: str) -> bool:
    """Whether a failed program printed that it could make no namespaces."""
    return _REFUSAL_PATTERN.search(text) is not None
