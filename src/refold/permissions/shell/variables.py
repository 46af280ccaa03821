"""Lists the variables that may be set for one command, and their possible values.

A command that sets another variable needs approval: the variables that decide what runs cannot
be listed completely. `plain_script` uses the lists.
"""

# These only change output.
_LOCALE_PATTERN = r"(?:C|POSIX|C\.(?:UTF-8|utf8)|[a-z]{2,3}_[A-Z]{2}(?:\.(?:UTF-8|utf8))?)?"
_COUNT, _CAT = r"\d{0,5}", r"(?:cat)?"
HARMLESS_SETTINGS = {
    **dict.fromkeys((
        "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LANG",
        "LANGUAGE",
    ), _LOCALE_PATTERN),
    "TZ": r"(?:[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)?",
    **dict.fromkeys(("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"), _COUNT),
    **dict.fromkeys(("COLUMNS", "LINES"), _COUNT),
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER"), _CAT),
    **dict.fromkeys(("GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"), "0"),
}  # fmt: skip
# Settings that a rule can cover by spelling them out. They change what programs do, but
# name no program, and no directory outside the workspace.
_INNER_PATH = r"(?:\.|(?!\.\.)[\w.-]+)(?:/(?!\.\.)[\w.-]+)*/?"
SPELLED_SETTINGS = {
    "CI": r"(?:true|false|\d)?",
    **dict.fromkeys((
        "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONUTF8",
    ), _COUNT),
    **dict.fromkeys(("PYTHONPATH", "MYPYPATH"), f"{_INNER_PATH}(?::{_INNER_PATH})*"),
    "RUST_BACKTRACE": r"(?:full|\d)?",
    **dict.fromkeys((
        "NODE_ENV", "APP_ENV", "FLASK_ENV", "RAILS_ENV", "RACK_ENV", "HYPOTHESIS_PROFILE",
        "CARGO_TERM_COLOR", "GOOS", "GOARCH",
    ), r"[a-z0-9]{0,20}"),
    **dict.fromkeys((
        "DEBUG", "VERBOSE", "LOG_LEVEL", "LOGLEVEL", "RUST_LOG", "HEADLESS",
    ), r"[\w:=,.-]{0,40}"),
    **dict.fromkeys((
        "PORT", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONFAULTHANDLER", "CGO_ENABLED",
        "CARGO_INCREMENTAL", "RUST_TEST_THREADS", "DO_NOT_TRACK", "NEXT_TELEMETRY_DISABLED",
        "PIP_DISABLE_PIP_VERSION_CHECK",
    ), _COUNT),
    "PYTHONIOENCODING": r"[\w-]{0,20}(?::\w{1,20})?", "DJANGO_SETTINGS_MODULE": r"[\w.]{0,80}",
}  # fmt: skip
