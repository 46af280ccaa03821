"""Read-only commands that programmers type all day, and similar ones that do more.

Each line is a command; `SPREAD` and `SPREAD_NEAR` have commands of several lines.
"""

HARMLESS = r"""
tr a-z A-Z < f
echo $HOME
echo "$PWD"
echo "I am $USER in ${PWD}, my shell is $SHELL"
echo $PATH
printf '%s\n' "$HOME"
basename "$PWD"
ls "$PWD/src"
ls $PWD
find "$PWD" -name '*.toml' -maxdepth 2
cd "$PWD/src" && ls
time ls -R src
time -p grep -rn needle src | wc -l
time LC_ALL=C ls
LC_ALL=C ls -la
LC_ALL=C sort f | uniq -c
LANG=en_US.UTF-8 date
TZ=UTC date +%H:%M
TZ=Europe/Berlin date
NO_COLOR=1 grep -rn foo src
GIT_PAGER=cat git log -3
PAGER= git diff
COLUMNS=200 git status
find . -name '*.py' | xargs grep -n foo
find . -name '*.py' -print0 | xargs -0 wc -l
find . -name '*.py' -print0 | xargs -0 -n 20 grep -l foo | sort
git ls-files | xargs wc -l | tail -1
git ls-files '*.py' | xargs -I{} grep -c foo {}
git diff --name-only | xargs ls -la
grep -rl foo src | xargs head -n 5
rg -l foo | xargs -n1 basename | sort -u
find . -name '*.sh' -exec grep -l foo {} \;
find . -name '*.sh' -exec grep -l foo {} +
find src -type f -exec wc -l {} + | sort -n | tail -5
find . -type f -exec ls -la {} ';'
find . -newer f -type f -not -path './.git/*'
git submodule status
git submodule status --recursive
git submodule
git cherry -v
git cherry -v main feature
git config user.name
git config --get remote.origin.url
git config --list --show-origin
git config -l
git config --get-regexp '^alias'
git symbolic-ref --short HEAD
git bisect log
git notes show HEAD
git check-attr -a f
git diff-index --name-status HEAD
git diff-files --stat
git range-diff main~3..main topic~3..topic
git whatchanged -3
git log --oneline --graph --decorate --all -20
git log -p -1 -- src/a.py
git log -S'def main' --oneline
git log --author='A B' --since=yesterday --format='%an %s'
git log main..HEAD --oneline
git diff main...HEAD --stat
git diff --cached
git diff HEAD~2 HEAD -- '*.py'
git show --stat HEAD
git show HEAD:src/a.py | head -20
git blame -L 10,20 -- src/a.py
git branch -vv
git remote get-url origin
git worktree list
git rev-list --count HEAD
git rev-parse --abbrev-ref HEAD
git shortlog -sn HEAD
git ls-tree -r --name-only HEAD
git cat-file -p HEAD
git merge-base main HEAD
git stash list && git status -sb
git for-each-ref --sort=-committerdate --format='%(refname:short)' refs/heads
git check-ignore -v build
git count-objects -vH
git reflog -10
grep -c a <<< 'a b'
wc -l < src/a.py
sort < f | head -3
jq .name < package.json
jq -r '.scripts | keys[]' package.json
jq '.dependencies' package.json 2>/dev/null || echo none
for f in a b c; do echo "$f"; done
for f in src/a.py src/b.py; do echo "== $f"; head -n 3 "$f"; done
for f in *.py; do wc -l "$f"; done
for d in src tests; do find "$d" -name '*.py' | wc -l; done 2>/dev/null
for i in {1..3}; do echo $i; done
for b in main topic; do git log --oneline -1 $b; done && echo ok
for t in jq rg fd; do command -v "$t"; done
for f in a b; do test -f "$f" && echo "$f is there"; done
rg -n --hidden -g '!.git' 'fn main' src
rg -tpy -l 'import os' | sort
rg -c needle --sort path
fd -e py . src
fd -H -t f '^test_' tests
grep -R foo src
grep -rnE 'foo|bar' --include='*.py' --exclude-dir=.git .
grep -A3 -B1 -n 'def main' src/a.py
sed -n '10,20p' src/a.py
sed -n '/^## /p' README.md
awk -F, '{print $2}' f | sort | uniq -c | sort -rn
awk 'END {print NR}' f
awk 'length($0) > 100 {print FILENAME": "FNR}' src/a.py
head -c 200 f
tail -n 50 log.txt 2>&1 | grep -i error
ls -lat --color=never | head
ls -1 src | wc -l
tree -L 2 -I 'node_modules|.git'
du -sh * | sort -h
du -h -d1 src 2>/dev/null
df -h
stat -c '%s %n' f
file src/a.py
diff -u a b
diff -rq src tests
diff -ru src tests | head -50
cmp a b && echo same
md5sum f; sha256sum f
python --version
python3 -V && pip --version
node -v; npm -v
npm ls --depth=0
npm ls -g --depth 0
npm list --all --json | jq .version
pip list
pip list --format=json
pip show requests
pip3 list | grep -i django
cd src && cat "$PWD/x"
ps aux | head
ps -ef | grep -c python
tar tzf a.tgz | head
tar -tvf a.tar
unzip -l a.zip
which python3 node && type ls
test -d src && ls src || echo missing
[ -f Makefile ] && grep -n '^[a-z]*:' Makefile
echo "rc=$?"
seq 1 5 | paste -sd,
xxd f | head -2
cat f | tr -d '\r' | cut -c1-80
cat package.json 2>/dev/null | head -20; echo ---; ls
nl -ba f | sed -n '5,10p'
column -t -s, f
comm -12 a b
date -u +%FT%TZ
uname -a; whoami; id -un; nproc
cal
locale
echo *
strings -n 8 f | head
od -c f | head -3
""".strip().split("\n")

SPREAD = [
    "cat <<'END'\na $HOME `x` line\nEND",
    "cat <<END\nplain lines\nEND",
    "cat <<-'END' | wc -l\n\ta\n\tEND",
    'cat <<"END"\n$(not run)\nEND\nls',
    'for i in 1 2 3\ndo\n  for k in a b; do echo "$i$k"; done\ndone | sort',
    "ls &&\n  cat f |\n  head -3",
]

NEAR = r"""
tr a-z A-Z < /etc/passwd
tr a-z A-Z < ../f
cat < ~/.ssh/id_rsa
cat < "$HOME/.ssh/id_rsa"
cat < *.txt
cat < /dev/tcp/127.0.0.1/80
cat <> f
cat 0< f
cat <&3
tr a b < f > g
sort < f -o g
bash < f
python3 < f
cat "$HOME/.netrc"
ls $HOME
cd "$HOME" && ls
cd $OLDPWD && ls
cat "$PWD/../x"
cd src; cat "$PWD/x"
echo $SECRET
echo "${HOME:-x}"
echo ${!HOME}
echo "${PWD#$HOME}"
cat $FILE
sort -$USER f
printf "$USER" x
printf '%s%n' abc PATH
$SHELL -c ls
HOME=/etc ls
PATH=. ls
LD_PRELOAD=./x.so ls
GIT_PAGER=./x git log
GIT_SSH_COMMAND=./x git status
GIT_CONFIG_COUNT=0 git status
GIT_DIR=/x git log
GIT_EXTERNAL_DIFF=./x git diff
RIPGREP_CONFIG_PATH=x rg foo
POSIXLY_CORRECT=1 ls f -o
LC_ALL=ja_JP.SJIS echo x
LC_ALL=$x ls
LC_ALL=C
LC_ALL=C; ls
export LC_ALL=C; ls
TZ=:/etc/passwd date
TZ=../x date
LC_ALL=C rm f
LC_ALL=C X=1 ls
time rm f
time
ls | time cat
time -o x ls
/usr/bin/time -o x ls
find . -name '*.py' | xargs rm
find . | xargs sort
find . | xargs sed -n 1p
find . | xargs rg foo
find . | xargs -I{} sh -c 'cat {}'
find . | xargs -Icat cat x
find . | xargs -a f cat
find . | xargs -I{} cat ../{}
find . | xargs cat /etc/passwd
find . | xargs -- cat
find . | xargs env cat
find . | xargs -p cat
find . -exec rm {} \;
find . -exec sh -c 'cat {}' \;
find . -exec cat {} /etc/passwd \;
find . -exec grep x {} \; -delete
find . -exec sort {} +
find . -execdir cat {} \;
find . -exec {} \;
find . -exec grep x {}
find .. -exec cat {} +
git submodule update
git submodule foreach ls
git submodule status ../x
git submodule add x
git config user.name x
git config --unset user.name
git config --add user.name x
git config edit
git config --edit
git config -f /etc/x a.b
git config --file x --get a.b
git config set a.b c
git config --get a.b --add a.b
git config --replace-all core.pager ./x
git symbolic-ref HEAD refs/heads/x
git symbolic-ref -d HEAD
git bisect run ./x
git bisect start
git bisect
git notes add -m x
git notes remove HEAD
cat <<< $(touch PWNED)
for f in a b; do rm "$f"; done
for f in a b; do cat ../$f; done
for f in -o; do sort $f x; done
for f in -delete; do find . $f; done
for f in /etc/passwd; do cat "$f"; done
for f in $(ls); do cat $f; done
for f in 'a b'; do cat $f; done
for f in a '*'; do cat $f; done
for f in *.py; do sort $f; done
for f in *; do cat "/etc/$f"; done
for PATH in . x; do ls; done
for HOME in /etc; do cat $HOME/passwd; done
for f in a; do for f in /etc/passwd; do echo; done; cat $f; done
for f in a; do echo; done; cat $f
for f in a b; do cd $f; done
for f in rm; do $f x; done
for f in a b; do echo $f > $f; done
for f in a b; do echo x; done > g
for f in "$(touch PWNED)"; do echo; done
for f; do echo $f; done
for i in {1..9}{a,b}; do cat $i; done
while read f; do cat "$f"; done < f
while true; do ls; done
if ls; then rm f; fi
[[ -f x ]] && rm x
fd -x rm
fd --exec rm
fd foo -X cat
fd foo /etc
rg --pre ./x foo
grep -R foo /etc
npm ls --prefix /x
npm ls --userconfig x
npm ls --script-shell ./x
npm install
npm config set a b
npm root --prefix x
pip install x
pip list --outdated
pip --python ./x list
pip freeze
pip list --log x
python -m pip list
uv pip list
cargo tree
tar xf a.tar
tar tf a.tar -I ./x
tar -tf a.tar --to-command=./x
tar tf host:a.tar
tar cf a.tar f
tar tf /etc/a.tar
unzip a.zip
unzip -o a.zip
unzip -l /etc/a.zip
ls &
ls > f
echo x >> f
ls 2> err
cat f | tee g
diff -r src /etc
diff --to-file=/etc/passwd a
diff <(cat a) b
echo `id`
echo "$(id)"
env LC_ALL=C ls
sudo ls
(cd .. && cat x)
echo $((1+1))
echo {a,b}
python --version; python x.py
make -n
go version
""".strip().split("\n")

SPREAD_NEAR = [
    "cat <<END\n$(touch PWNED)\nEND",
    "cat <<END\n`touch PWNED`\nEND",
    "cat <<'END'\nnever ended",
    "cat <<'END'\nx\nEND\nrm f",
    "cat > g <<'END'\nx\nEND",
    "bash <<'END'\ntouch PWNED\nEND",
    "python3 - <<'END'\nprint(1)\nEND",
    "cat <<'A' 'x\nA\nrm f'",
    "for f in a\ndo\nrm $f\ndone",
    "cat <<'END'\nx\n END\nrm f\nEND\nrm f",
]
