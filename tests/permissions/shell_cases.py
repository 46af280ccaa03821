"""Command lines that other agents let through, or stopped for nothing, as data.

Each is told by what it tries. `allow` and `deny` are rules of the person; the marker of
success of an attack is a file PWNED, or a directory that is gone.
"""

from typing import Literal, NamedTuple

from refold.values.rights import Mode


class Case(NamedTuple):
    what: str
    command: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    verdict: Literal["allow", "ask", "deny"] = "ask"
    mode: Mode = "default"


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
    Case("a subscript in brackets", "[ 'a[$(touch PWNED)]' -eq 0 ]", ("[ *",)),
    Case("a subscript in a declaration", "declare 'a[$(touch PWNED)]=1'", ("declare *",)),
    Case("a subscript in let", "let 'a[$(touch PWNED)]=1'", ("let *",)),
    Case("a subscript in printf", "printf -v 'a[$(touch PWNED)]' x", ("printf *",)),
    Case("a subscript in read", "read 'a[$(touch PWNED)]'", ("read *",)),
    Case("a subscript in unset", "unset 'a[$(touch PWNED)]'", ("unset *",)),
    Case("a subscript in wait", "wait -p 'a[$(touch PWNED)]'", ("wait *",)),
    Case("a callback of mapfile", "mapfile -C 'touch PWNED' -c 1 x", ("mapfile *",)),
    Case("arithmetic", "echo $((a[$(touch PWNED)]))", ("echo *",)),
    Case("a trap", "trap 'touch PWNED' EXIT", ("trap *",)),
    Case("eval", "eval 'touch PWNED'", ("eval *",)),
    Case("a process substitution", "cat <(touch PWNED)", ("cat *",)),
    Case("a prompt command", "PROMPT_COMMAND='touch PWNED' bash x.sh", ("bash *",)),
    Case("a file for the shell's start", "BASH_ENV=x.sh ls", ("ls *",)),
    Case("an exported setting", "export GIT_EXTERNAL_DIFF=./x.sh", ("export *",)),
    Case("a function", "ls() { touch PWNED; }; ls", ("ls *",)),
    Case("an alias", "alias ls='touch PWNED'", ("alias *",)),
    Case("an operand of a parameter", "echo ${x:=$(touch PWNED)}", ("echo *",)),
    Case("a prompt string", "echo ${x@P}", ("echo *",)),
    Case("a coprocess", "coproc touch PWNED", ("coproc *",)),
    Case("a built-in told to run", "builtin eval 'touch PWNED'", ("builtin *",)),
    Case("a command told to run", "command -p touch PWNED", ("command *",)),
    Case("an option that runs", "tar -tf a.tar --checkpoint=1 "
         "--checkpoint-action=exec='touch PWNED'", ("tar -tf *",)),
    Case("an option that runs, shortened", "tar -tf a.tar --checkpoint-a=exec=x", ("tar *",)),
    Case("an option that filters", "tar -tf a.tar -I x.sh", ("tar -tf *",)),
    Case("find that runs", "find . -exec touch PWNED ';'", ("find *",)),
    Case("find that deletes", "find . -name f -delete", ("find *",)),
    Case("find that writes", "find . -fprintf PWNED x", ("find *",)),
    Case("sort that writes", "sort f -oPWNED", ("sort *",)),
    Case("sort that runs", "sort --compress-prog=x.sh f", ("sort *",)),
    Case("sed that writes", "sed -n 'w PWNED' f", ("sed *",)),
    Case("sed that runs", "sed '1e touch PWNED' f", ("sed *",)),
    Case("sed that changes the file", "sed -i s/a/b/ f", ("sed *",)),
    Case("a search that runs", "rg --pre ./x.sh a f", ("rg *",)),
    Case("a manual that runs", "man --html='touch PWNED;' ls", ("man *",)),
    Case("uniq that writes", "uniq f PWNED", ("uniq *",)),
    Case("curl that writes", "curl -oPWNED http://127.0.0.1/", ("curl *",)),
    Case("wget that writes", "wget --output-d=PWNED http://127.0.0.1/", ("wget *",)),
    Case("ssh that runs", "ssh -o ProxyCommand='touch PWNED' host", ("ssh *",)),
    Case("a copy of the output", "ls | tee PWNED", ("ls *", "tee *")),
    Case("a program in a word", "python3 -c 'open(\"PWNED\",\"w\")'", ("python3 *",)),
    Case("perl in a word", "perl -e 'system(1)'", ("perl *",)),
    Case("node in a word", "node --eval 'x'", ("node *",)),
    Case("a shell in a word", "bash -c 'touch PWNED'", ("bash *",)),
    Case("a wrapper", "env touch PWNED", ("env *",)),
    Case("a wrapper with a time", "timeout 5 touch PWNED", ("timeout *",)),
    Case("a wrapped program's option", "timeout 5 find . -delete", ("timeout 5 find *",)),
    Case("a variable for make", "make test 'X=$(shell touch PWNED)'", ("make test *",)),
    Case("a shell for npm", "npm test --script-shell=./x.sh", ("npm test *",)),
    Case("a template for git", "git clone --template=t a b", ("git clone *",)),
    Case("a helper for git", "git ls-remote --upload-pa='touch PWNED;' .", ("git *",)),
    Case("a rebase that runs", "git rebase -x 'touch PWNED' HEAD~1", ("git rebase *",)),
    Case("a pager for git grep", "git grep -O'touch PWNED' a", ("git grep *",)),
    Case("an alias given with the call", "git -c alias.st='!touch PWNED' st",
         ("git status", "git log *", "git diff *")),
    Case("an alias, where all of git is allowed", "git -c alias.st='!x' st", ("git *",)),
    Case("a setting of git", "git config alias.st '!touch PWNED'", ("git *",)),
    Case("a variable before the call", "GIT_EXTERNAL_DIFF=./x.sh git diff", ("git diff *",)),
    Case("a variable, where any command may run", "LD_PRELOAD=./x.so ls", ("*",)),
    Case("a redirection", "ls nosuch 2>PWNED", ("ls *",)),
    Case("a redirection at the start", ">PWNED ls", ("ls *",)),
    Case("a redirection of everything", "ls &>PWNED", ("ls *",)),
    Case("a connection by redirection", "cat < /dev/tcp/127.0.0.1/9", ("cat *",)),
    Case("a text as input", "cat <<< x", ("cat *",)),
    Case("blanks out of a variable", "find .${IFS}-name${IFS}x${IFS}-delete", ("find *",)),
    Case("an option in ANSI quotes", r"find . $'\x2dexec' touch PWNED \;", ("find *",)),
    Case("an option in translated quotes", 'find . $"-delete"', ("find *",)),
    Case("an option out of braces", r"find . {-exec,touch,PWNED,\;}", ("find *",)),
    Case("an option behind a backslash", r"find . \-delete", ("find *",)),
    Case("a glob that finds an option", "sort *", ("sort *",)),
    Case("a glob after another", "ls src [a-z]*", ("ls *",)),
    Case("a program in a text", "awk 'BEGIN{system(\"touch PWNED\")}'", ("awk *",)),
    Case("another directory first", "cd bare && git status", ("cd *", "git status")),
    Case("a namesake in this folder", "./ls", ("ls *",)),
    Case("a namesake by its path", "/tmp/ls", ("ls *",)),
    Case("a quote that never ends", 'ls "unterminated', ("ls *",)),
    Case("a history expansion", "ls !!", ("ls *",)),
    Case("a letter that looks like another", "l\u0455", ("l\u0455", "ls *")),
    Case("a blank that is none", "ls\u00a0x", ("ls *",)),
    Case("a control character", "ls \x1b[2K", ("ls *",)),
    Case("a NUL", "ls " + chr(0) + "x", ("ls *",)),
    Case("turned writing", "ls 'a\u202eb'", ("ls *",)),
    Case("more than anyone reads", "ls " + "a" * 10_001, ("ls *",)),
    Case("deep nesting", "(" * 300 + "ls" + ")" * 300, ("ls *",)),
    Case("grouping", "{ ls; }", ("ls *",)),
    Case("a negation", "! ls", ("ls *",)),
    Case("both outputs piped", "ls |& cat", ("ls *", "cat *")),
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
    Case("after more than anyone reads", "true;" * 4000 + "rm -rf build", deny=("rm *",),
         verdict="deny"),
    Case("under git's own options", "git -C . --no-pager push", deny=("git push *",),
         verdict="deny"),
    Case("as an alias of git", "git -c alias.x='!rm -rf build' x", deny=("rm *",),
         verdict="deny"),
)  # fmt: skip

HARMLESS = (
    Case("odd blanks", "git   status\t", ("git status",), verdict="allow"),
    Case("options of its own", "npm test -- --watch=false", ("npm test *",),
         verdict="allow"),
    Case("two that are allowed, piped", "git log --oneline -5 | head -3",
         ("git log *", "head *"), verdict="allow", mode="rules-only"),
    Case("a quoted word", "git commit -m 'fix (a) & b'", ("git commit -m *",), verdict="allow"),
    Case("beside what only looks", "npm test 2>&1 | tail -20", ("npm test *",),
         verdict="allow"),
    Case("in a folder", "cd src && npm test", ("npm test *",), verdict="allow"),
    Case("an option the rule spells", "find . -name a -delete", ("find . -name a -delete",),
         verdict="allow"),
    Case("a wrapped one the rule spells", "timeout 60 npm test", ("timeout 60 npm test *",),
         verdict="allow"),
    Case("a module", "python -m pytest -q tests/a.py::test_x", ("python -m pytest *",),
         verdict="allow"),
    Case("a program in a word, spelt", "python3 -c 'print(1)'", ("python3 -c *",),
         verdict="allow"),
    Case("a script", "bash build.sh --fast", ("bash build.sh *",), verdict="allow"),
    Case("a tab and a line", "make\ttest\n", ("make test",), verdict="allow"),
)  # fmt: skip
