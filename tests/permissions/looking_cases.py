"""Read-only commands, and commands that seem read-only, one on each line."""

LOOKS = r"""
ls -la 2>/dev/null || true
ls -la src
cat a.txt && echo done
cat -n a.txt b.txt
sed -n '1,40p' f
sed -n '/start/,/end/p' f
sed -n -e '1p;3p' f
sed 's/a/b/g' f
sed -nE 's/^([[:alpha:]]+).*/\1/p' f
cd src && ls
cd src && cat ../README.md
cd /ws/src && ls ..
grep -rn "foo(bar)" src
grep -c 'é' f
grep -E '^(a|b)$' f
grep "foo\.bar" f
grep -e a -e b f
find . -name '*.py' | wc -l
find . -type f '(' -name a -o -name b ')' -print
find src -maxdepth 2 -mtime -1
find . -newermt '2 days ago' -type f
git log --oneline -5 | head -3
git status
git diff HEAD~1 -- src/*.py
git show HEAD:src/a.py
git blame -L 1,5 src/a.py
git branch --list
git branch -a
git branch --show-current
git stash list
git remote -v
git rev-parse --show-toplevel
git grep -n foo -- src
git ls-files | head
git tag -l 'v*'
git log --since='2 days ago' --format='%h %s'
git -P log
git --no-pager diff --stat
git describe --tags
rg -n 'x y' src
rg --files | head
cat src/*.py | wc -l
sort f | uniq -c | sort -rn | head -20
test -f x && echo yes
[ -f x ] && cat x
[ "a" = "b" ] || echo no
head -n 20 f
tail -n +5 f
tail -20 f
jq '.a | keys' f.json
jq -r --arg a b '.x' f.json
echo 'a b' "c"
printf '%s\n' a
wc -l < /dev/null
pwd; ls; whoami
cut -d: -f1 f
tr a-z A-Z < /dev/null
ls -- *
date +%Y
diff -u a b
stat -c %s f
tree -L 2
du -sh .
command -v python3
which python
ls # what is there
file f
xxd f | head
xxd -l 64 -c16 f
tree -aL 2 -I x
tree -L2
cat ./-x
awk '{print $1}' f
awk -F: '{print $1}' f
awk 'NR>=10 && NR<=20' f
awk 'NR>5 {print $2, $NF}' f
awk '/foo|bar/' f
awk '{s+=$1} END {print s}' f
ls -la | awk '{print $5}'
ls *.py
head -n 5 *.md
wc -l *
cat [a-c]*
grep -l foo *.py
ls -d */
find . ! -name '*.py'
find . \( -name "*.py" -o -name "*.js" \) -type f
[ ! -f x ] && echo none
grep "foo$" f
grep -E "^(a|b)$|c" f
ls x; echo "rc=$?"
ls x; echo $?
git -C src status
git -C src log --oneline -3
git show HEAD@{1}
git stash show -p stash@{0}
git diff-tree --no-commit-id --name-only -r HEAD
python --version
node -v
ls --help
rg --version
base64 f
join a b
cat -- -x
ls src/ 2>&1 | head
basename /a/b/c.txt .txt
realpath src
md5sum f
nl f | tac
""".strip().split("\n")

ACTS = r"""
cd / && cat etc/hostname
cd .. && ls
cd
cd -
cd src/.. && cat ../x
cd src; cat ../x
cd /ws/src; ls ..
cat /etc/passwd
cat ../x
cat src/../../x
cat src/*/../../../x
cat ~/.ssh/id_rsa
cat $HOME/x
cat /proc/self/environ
ls ~
ls /
find / -name x
sort -o x f
sort -ox f
sort --outp=x f
sort --output=x f
sort -T /tmp f
sort *
uniq a b
uniq a*
xxd a b
xxd -r a
xxd f -l1
xxd -oo f -l1
xxd -ac f x
xxd -c f x y
tree -Po x y
tree -IPo x y z
strings @f
tree -o x
tree -R -H . -L 1
find . -fls x
find . -name x -delete
find . -name x -ok ls ';'
find . -files0-from f
date -s 1
date 01010101
file -C
file -m f
rg --pre x y
rg --hostname-bin x y
rg -z x
rg -L x
sed -n '1w x' f
sed -n 'e' f
sed 's/a/b/e' f
sed 's/a/b/w x' f
sed -i s/a/b/ f
sed -f x f
sed -n '1r f' f
./ls
/bin/ls
src/ls
git -c a=b status
git -C / status
git --git-dir=x status
git diff --output=x
git diff --outp=x
git diff --ext-diff
git branch x
git branch -d x
git log --format=%G?
git log --show-signature
git grep -O x
git tag v1
git remote add x y
git remote show origin
git stash
git reflog expire --all
git worktree add x
git ls-remote .
git fetch
git st
tail -f x
tail --pid=1 f
tail --follow f
ls > x
ls 2>x
ls >| x
cat <> f
test -v 'a[1]'
test 'a[1]' -eq 1
[ 'a[$(x)]' -eq 0 ]
[[ -f x ]]
printf -v x y
echo $x
echo "$x"
echo `x`
echo a &
A=1 ls
A=1
export A=1
{ ls; }
{ ls; }
! ls
ls | sh
env ls
env A=1
env ls
printenv -0
tee f
tee -p /dev/null
python3 -m json.tool a b
python3 -m json.tool < .env
python3 -m json
git diff --no-index a
xargs ls
cat x | xargs rm
awk 'BEGIN{system("touch PWNED")}'
awk '{print > "PWNED"}' f
awk '{print|"sh"}' f
awk '{print "}" > "PWNED"}' f
awk '/"/ {system("touch PWNED")} /"/' f
awk '"touch PWNED"|getline' f
awk 'BEGIN{ARGV[1]="/etc/passwd";ARGC=2} 1'
awk '@load "x"' f
awk -f x f
awk -i inplace 1 f
awk 1 /etc/passwd
awk -v x=1
awk *.awk f
git -C .. status
git -C / log
git -C src diff ../../x
git -C src -C .. status
git -C src config a.b c
git clone 'ext::sh -c x' y
cargo --version
yarn --version
python --version x
node -v -e x
python -c x --version
echo $?x > f
cat $?
sed -n "$?p" f
! ls
\( ls \)
find . ! -delete
find . \( -delete \)
find . \! -exec x {} \;
cat f@{1,2}
cat @{a,b}
cat "a$(x)"
cat "a$[1]"
cat "a${x}"
cat "a$x"
cat "$HOME"
cat "$'x'"
cat a$
cat src/\*
base64 a b
join a b c
man ls
less f
vi f
tee x
touch x
mkdir x
python x.py
jq -f x
jq 'import "a" as $x; .' f
hostname x
comm -o x
wc --files0-from=x
grep -f /etc/passwd x
git diff /etc/passwd f
cat {a,b}
cat .en?
ls !!
cat \-x
echo a|&cat
type -x
type a; eval b
command ls
exec ls
source x
. x
cat /dev/tcp/127.0.0.1/9
echo ok > /dev/null > x
echo a 3>x
sleep 5
nslookup x
curl x
""".strip().split("\n")
