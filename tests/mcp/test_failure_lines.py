"""The reason why a program exited is its error, and not the last line of its trace."""

import pytest

from refold.mcp.failure_lines import failure_line

NODE = """node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: Cannot find module '/srv/x.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v24.21.0
"""
NODE_CODE = """node:internal/errors:540
      throw error;
      ^

TypeError [ERR_INVALID_ARG_TYPE]: The "path" argument must be of type string
    at Object.mkdirSync (node:fs:1364:26)

Node.js v20.20.2
"""
NODE_LOGGED = """Connecting to 1 source
Fatal error: Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite
    at ModuleLoader.builtinStrategy (node:internal/modules/esm/translators:391:11)
    at async ModuleJob._link (node:internal/modules/esm/module_job:148:19) {
  code: 'ERR_UNKNOWN_BUILTIN_MODULE'
}
"""
PYTHON = """starting
Traceback (most recent call last):
  File "/srv/x.py", line 3, in <module>
    main()
sqlite3.OperationalError: unable to open database file
closing
"""
CHAINED = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 3, in <module>
ValueError: no such key
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "x.py", line 9, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "x.py", line 5, in work
    | OSError: [Errno 30] Read-only file system: '/root/.serena'
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (NODE, "Error: Cannot find module '/srv/x.js'"),
        (NODE_CODE, 'TypeError [ERR_INVALID_ARG_TYPE]: The "path" argument must be of type string'),
        (NODE_LOGGED, "Fatal error: Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite"),
        ("{\n}", "}"),
        (PYTHON, "sqlite3.OperationalError: unable to open database file"),
        (CHAINED, "ValueError: no such key"),
        (GROUP, "OSError: [Errno 30] Read-only file system: '/root/.serena'"),
        ("usage: x\nx: error: the following arguments are required: db\n\n", "x: error: the following arguments are required: db"),
        ("Node.js v24.21.0\n", ""),
        ("", ""),
        ("x" * 1000, "x" * 300),
    ],
)  # fmt: skip
def test_the_failure_reason_is_the_error_that_the_program_printed(
    printed: str, line: str
) -> None:
    assert failure_line(printed) == line
