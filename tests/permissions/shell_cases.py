"""Command lines that other agents let through, or stopped for nothing, as data.

Each is told by what it tries. `allow` and `deny` are rules of the person; the marker
of success of an attack is a file PWNED, or a directory that is gone.
"""

from typing import Literal, NamedTuple


class Case(NamedTuple):
    what: str
    command: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    verdict: Literal["allow", "ask", "deny"] = "ask"


# What a person allowed is a simple command; these bring something else along.
SMUGGLED = (
    Case("and", "git status && touch PWNED", ("git status",)),
    Case("a job in the background", "npm test --silent & touch PWNED", ("npm test *",)),
    Case("a pipe into a shell", "ls | xargs -I{} sh -c 'touch PWNED'", ("ls *", "xargs *")),
    Case("a substitution", "ls $(touch PWNED)", ("ls *",)),
    Case("backticks", "ls `touch PWNED`", ("ls *",)),
    Case("a second line", "ls\ntouch PWNED", ("ls *",)),
    Case("a carriage return", "ls\rtouch PWNED", ("ls *",)),
    Case("a subscript that bash evaluates", "test -v 'a[$(touch PWNED)]'", ("test *",)),
    Case("a subscript in a test", "[[ 'a[$(touch PWNED)]' -eq 0 ]]", ("[[ *",)),
    Case("an option that runs", "tar -tf a.tar --checkpoint=1 "
         "--checkpoint-action=exec='touch PWNED'", ("tar -tf *",)),
    Case("an alias given with the call", "git -c alias.st='!touch PWNED' st",
         ("git status", "git log *", "git diff *")),
    Case("a variable before the call", "GIT_EXTERNAL_DIFF=./x.sh git diff", ("git diff *",)),
    Case("a variable, where any command may run", "LD_PRELOAD=./x.so ls", ("*",)),
    Case("a redirection", "ls nosuch 2>PWNED", ("ls *",)),
    Case("a connection by redirection", "cat < /dev/tcp/127.0.0.1/9", ("cat *",)),
    Case("blanks out of a variable", "find .${IFS}-name${IFS}x${IFS}-delete", ("find *",)),
    Case("an option in ANSI quotes", r"find . $'\x2dexec' touch PWNED \;", ("find *",)),
    Case("an option out of braces", r"find . {-exec,touch,PWNED,\;}", ("find *",)),
    Case("a glob that finds an option", "sort *", ("sort *",)),
    Case("a program in a text", "awk 'BEGIN{system(\"touch PWNED\")}'", ("awk *",)),
    Case("another directory first", "cd bare && git status", ("cd *", "git status")),
    Case("a namesake in this folder", "./ls", ("ls *",)),
    Case("a quote that never ends", 'ls "unterminated', ("ls *",)),
    Case("a history expansion", "ls !!", ("ls *",)),
)  # fmt: skip

# In mode accept-edits a shell is still a shell.
EDITS = (
    Case("a settings file", 'cd .agent && echo \'{"allow":["*"]}\' > settings.json'),
    Case("a piped editor", "echo '{\"allow\":[\"*\"]}' | sed -n 'w .agent/settings.json'"),
    Case("a plain write", "touch PWNED"),
)

# Everything is allowed but this, and it comes in disguise.
DENIED = (
    Case("in a shell of its own", "bash -c 'curl -s http://127.0.0.1:9/'",
         deny=("curl *",), verdict="deny"),
    Case("by its path, over two lines", "/bin/r\\\nm -rf build", deny=("rm *",),
         verdict="deny"),
    Case("in a loop, quoted", 'for d in build; do "rm" -rf $d; done', deny=("rm *",),
         verdict="deny"),
    Case("after blanks out of a variable", "rm${IFS}-rf${IFS}build", deny=("rm *",),
         verdict="deny"),
    Case("in a here document", "bash <<EOF\nrm -rf build\nEOF", deny=("rm *",),
         verdict="deny"),
    Case("after a long chain", "; ".join(["true"] * 60) + "; rm -rf build", deny=("rm *",),
         verdict="deny"),
)  # fmt: skip

HARMLESS = (
    Case("odd blanks", "git   status\t", ("git status",), verdict="allow"),
    Case("options of its own", "npm test -- --watch=false", ("npm test *",),
         verdict="allow"),
)  # fmt: skip
