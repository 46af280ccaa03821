"""What `refold --help` and `refold tui --help` print: the daily options, on one screen.

`refold --help all` prints every option and subcommand, from the parser (`flags`).
"""

REFOLD_HELP = """\
usage: refold [OPTIONS] [MESSAGE], or refold COMMAND ...

A coding agent that asks before it acts and records what it does.

  refold                       start a session in this directory
  refold "fix the test"        start it with a first message
  refold -c                    resume the newest session of this directory
  refold -r [ID]               resume a session by id or name, or choose one
  refold -p "fix the test"     run one task, print the answer, exit
  refold tui, refold web       the same on the whole screen, or in a browser

options:
  -m, --model PROVIDER/MODEL   the model; refold models lists them
  --effort LEVEL               reasoning effort: off, low, medium, high, max
  --permission-mode MODE       what runs without asking: default, accept-edits,
                               sandbox, plan, rules-only, bypass
  -C, --cwd DIR                work in this directory
  --add-dir DIR                add a directory to the workspace
  -w, --worktree [NAME]        work in a new git worktree
  -i, --image FILE             attach an image to the message
  -a, --agent NAME             the agent: its prompt, tools and rights
  --output-format FORMAT       what -p prints: text, json, stream-json
  -V, --version                print the version

commands:
  sessions   list, search, rename, delete, export and import sessions
  rewind     rewind the conversation, the files, or both
  models     list models and prices
  auth       set, list, test and remove API keys
  config     show and change settings
  doctor     check this installation

refold --help all        every option and command
refold --help COMMAND    the options of a command
"""

TUI_HELP = """\
usage: refold tui [OPTIONS] [MESSAGE]

Start a session on the whole screen. It takes the options of refold, and:

  --attach ID   join the session that another terminal has open

refold --help        the daily options
refold --help all    every option
"""
