"""Prints the short help of `refold` and `refold tui`: common options on one screen.

`refold --help all` prints all options and subcommands, from the parsers in `flags`.
"""

REFOLD_HELP = """\
usage: refold [OPTIONS] [MESSAGE], or refold COMMAND ...

A coding agent that asks before it acts and records what it does.

  refold ["fix the test"]      start a session here, with a first message
  refold -c, refold -r [ID]    resume the newest session, or one by id or name
  refold -p "fix the test"     run one task, print the answer, exit
  refold tui, refold web       the same on the whole screen, or in a browser

options:
  -m, --model PROVIDER/MODEL   the model; refold models lists them
  --permission-mode MODE       what runs without asking: default, accept-edits,
                               sandbox, plan, rules-only, bypass
  -C, --cwd DIR                work in this directory
  -w, --worktree [NAME]        work in a new git worktree
  --output-format FORMAT       what -p prints: text, json, stream-json

commands:
  sessions   list, search, rename, delete, export and import sessions
  models     list models and prices
  auth       set, list, test and remove API keys
  doctor     check this installation

refold --help all            every option and command
refold --help COMMAND        the options of a command
"""

TUI_HELP = """\
usage: refold tui [OPTIONS] [MESSAGE]

Start a session on the whole screen. It takes the options of refold, and:

  --attach ID   join the session that another terminal has open

refold --help        the daily options
refold --help all    every option
"""
