"""Builds the sandbox profile of macOS for `sandbox-exec`. Pure.

It has not been run on a Mac yet. It follows Apple's own profiles, in which the last matching
rule decides.
"""

from refold.place.sandbox_rules import SandboxRules

PROGRAM_PATH = "/usr/bin/sandbox-exec"
_DEVICE_PATHS = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/dtracehelper", "/dev/fd")


def profile(rules: SandboxRules) -> str:
    """Return the rules in the language of seatbelt, where later lines have precedence."""
    lines = ["(version 1)", "(allow default)", "(deny file-write*)"]
    lines += [f"(allow file-write* (literal {_quote(path)}))" for path in _DEVICE_PATHS]
    lines += [
        f"(allow file-write* {_subpath_filter(p)})" for p in (*rules.open, rules.private)
    ]
    lines += [f"(deny file-write* {_subpath_filter(path)})" for path in rules.shut]
    lines += [
        f"(deny file-read* file-write* {_subpath_filter(path)})"
        for path in (*rules.covered, *rules.hidden, *rules.unread, *rules.denied)
    ]
    # A workspace below a covered directory, such as a settings directory, stays visible.
    lines += [
        f"(allow file-read* {_subpath_filter(root)})"
        for root in (*rules.roots, *rules.seen)
        if any(root.startswith(path + "/") for path in rules.covered)
    ]
    if not rules.network:
        lines += ["(deny network*)", "(deny system-socket)"]
    lines += ["(deny signal (target others))", "(allow signal (target same-sandbox))"]
    return "\n".join(lines) + "\n"


def _subpath_filter(path: str) -> str:
    return f"(subpath {_quote(path)})"


def _quote(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
