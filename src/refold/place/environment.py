"""Builds the environment of a command from an allow list of variables.

Variables with keys and tokens are not on the list. A listed variable is left out if its value
contains a password.

Directories of the user's PATH are passed, unless they are world-writable, so that the user's
Python, Node or Rust is found. Commands that run without asking the user do not find programs of
the workspace, because one of them could be named `ls`.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence

from refold.values.path_names import below

_PERSONAL_VARIABLES = """
    EMAIL GIT_AUTHOR_EMAIL GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_NAME
    HOME LANG LANGUAGE LOGNAME PATH SHLVL TMPDIR TZ USER
"""
_BUILD_VARIABLES = """
    ANDROID_HOME AR BUN_INSTALL CARGO_HOME CARGO_TARGET_DIR CC CFLAGS CLASSPATH
    CMAKE_PREFIX_PATH CONDA_DEFAULT_ENV CONDA_EXE CONDA_PREFIX CONDA_PYTHON_EXE COREPACK_HOME
    CPATH CPPFLAGS CXX CXXFLAGS C_INCLUDE_PATH DENO_DIR DOTNET_ROOT GEM_HOME GEM_PATH
    GOBIN GOCACHE GOMODCACHE GOPATH GOROOT GOTOOLCHAIN GRADLE_HOME GRADLE_USER_HOME
    JAVA_HOME LD LDFLAGS LD_LIBRARY_PATH LIBRARY_PATH MAKEFLAGS MAVEN_HOME M2_HOME
    NIX_PATH NIX_PROFILES NODE_PATH NVM_BIN NVM_DIR PERL5LIB PKG_CONFIG_PATH PNPM_HOME
    POETRY_HOME PYENV_ROOT PYENV_VERSION PYTHONPATH RBENV_ROOT RBENV_VERSION RUSTFLAGS
    RUSTUP_HOME RUSTUP_TOOLCHAIN SOURCE_DATE_EPOCH UV_CACHE_DIR UV_PYTHON VIRTUAL_ENV
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_STATE_HOME
"""
_NETWORK_VARIABLES = """
    ALL_PROXY CARGO_HTTP_CAINFO CURL_CA_BUNDLE GIT_SSL_CAINFO GOPROXY HTTPS_PROXY HTTP_PROXY
    NODE_EXTRA_CA_CERTS NO_PROXY NPM_CONFIG_REGISTRY PIP_CERT PIP_INDEX_URL
    REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE UV_DEFAULT_INDEX UV_INDEX_URL
    all_proxy http_proxy https_proxy no_proxy npm_config_registry
"""
_MAY_PASS = frozenset(
    f"{_PERSONAL_VARIABLES} {_BUILD_VARIABLES} {_NETWORK_VARIABLES}".split()
)
_PASSWORD_PATTERN = r"://[^/\s]*@"  # as in https://user:password@host

# A person's own shell also gets these: their editor, their desktop, their key agent.
_SHELL_VARIABLES = """
    COLORTERM DBUS_SESSION_BUS_ADDRESS DISPLAY EDITOR LESS PAGER SHELL SSH_AUTH_SOCK
    VISUAL WAYLAND_DISPLAY XAUTHORITY XDG_CONFIG_DIRS XDG_DATA_DIRS XDG_SESSION_TYPE ZDOTDIR
"""
_MAY_PASS_TO_SHELL = _MAY_PASS | frozenset(_SHELL_VARIABLES.split())

# No person uses this terminal, so editors, pagers and questions must end instead of
# waiting.
_UNATTENDED_VARIABLES = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "SHELL": "/bin/bash",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
}
# Without this setting, git in a sparse checkout examines files that its index marks as
# skipped.
_SPARSE_SETTING = ("sparse.expectFilesOutsideOfPatterns", "true")
KEEPS_HIDDEN = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": _SPARSE_SETTING[0],
    "GIT_CONFIG_VALUE_0": _SPARSE_SETTING[1],
}
# Read-only commands run without asking the user. So git must not start programs that a
# repository names, and programs in Python or JavaScript must load only their installed
# modules.
READ_ONLY_GIT_ENVIRONMENT = {
    "GIT_CONFIG_COUNT": "7",
    **{
        f"GIT_CONFIG_{part}_{n}": word
        for n, setting in enumerate((
            ("core.fsmonitor", "false"), ("core.hooksPath", "/dev/null"),
            ("core.pager", "cat"), ("log.showSignature", "false"),
            ("safe.directory", "*"), ("safe.bareRepository", "explicit"), _SPARSE_SETTING,
        ))
        for part, word in zip(("KEY", "VALUE"), setting, strict=True)
    },
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "PYTHONPATH": "",
    "NODE_PATH": "",
}  # fmt: skip
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(environ: Mapping[str, str], without: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a command. `environ` is the environment of our process.

    PATH directories below one of `without` are left out.
    """
    passed = _allowed_variables(environ, _MAY_PASS)
    trusted = [
        name
        for name in environ.get("PATH", "").split(":")
        if os.path.isabs(name) and _is_trusted_directory(name, without)
    ]
    # Each directory once, in order.
    path = ":".join(dict.fromkeys([*trusted, *_DEFAULT_PATH.split(":")]))
    return passed | {"PATH": path} | _UNATTENDED_VARIABLES


def shell_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a shell for the user, without keys and tokens.

    PATH is passed unchanged. The shell's own startup files set the rest.
    """
    passed = _allowed_variables(environ, _MAY_PASS_TO_SHELL)
    return (
        {"PATH": _DEFAULT_PATH}
        | passed
        | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    )


def _allowed_variables(environ: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """Return the variables in `names` and those of the locale, but none with a password."""
    return {
        name: value
        for name, value in environ.items()
        if (name in names or name.startswith("LC_"))
        and not re.search(_PASSWORD_PATTERN, value)
    }


def _is_trusted_directory(name: str, without: Sequence[str]) -> bool:
    """Whether a PATH directory is outside of `without` and not world-writable.

    A missing directory counts as not world-writable.
    """
    real = os.path.realpath(name)
    if any(below(path, root) for path in (name, real) for root in without):
        return False
    try:
        return not os.stat(real).st_mode & stat.S_IWOTH
    except OSError:  # it does not exist, but may be created
        return True
