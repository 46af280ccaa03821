"""Pairs of a rule and a command, which the `*` of the rule matches or not."""

BEYOND = r"""
npm * :: npm c set script-shell ./x
npm * :: npm set script-shell ./x
npm * :: npm --silent c set script-shell ./x
npm * :: npm --loglevel silent config set script-shell ./x
npm * :: npm create ./x
npm * :: npm pkg set scripts.test=./x
npm * :: npm x ./y
python3 -m pytest * :: python3 -m pytest --basetemp /work
python3 -m pytest * :: python3 -m pytest -p evil
python3 -m pytest * :: python3 -m pytest --rootdir=/x
python3 -m pytest * :: python3 -m pytest -c /x/pytest.ini
python3 -m pytest * :: python3 -m pytest -o pythonpath=/x
python3 -m pytest * :: python3 -m pytest -W error::evil.Category
python3 * :: python3 -m pytest -p evil
python3.11 -m pytest * :: python3.11 -m pytest -pevil
pytest * :: pytest -qc /x/pytest.ini
pytest * :: pytest --override-ini=addopts=-pevil
uv run pytest * :: uv run pytest -p evil
poetry run pytest * :: poetry run pytest --rootdir /x
poetry run python * :: poetry run python -c 1
bundle exec rspec * :: bundle exec rspec -r ./x
eslint * :: eslint -c ./x.js
eslint * :: eslint --parser ./x.js .
eslint * :: eslint --format ./x.js
eslint * :: eslint --inspect-config
npx eslint * :: npx eslint --plugin ./x
yarn eslint * :: yarn eslint -c ./x.js
pnpm exec eslint * :: pnpm exec eslint --config ./x.js
node_modules/.bin/eslint * :: node_modules/.bin/eslint -c ./x.js
jest * :: jest --globalSetup ./x.js
jest * :: jest --transform=./x.js
vitest * :: vitest --config ./x.ts
mocha * :: mocha -r ./x.js
prettier * :: prettier --plugin ./x.js .
stylelint * :: stylelint --custom-formatter ./x.js
git * :: git merge -s ../../x main
git merge * :: git merge -s ../../x main
git merge * :: git merge --strategy=../../x main
git pull * :: git pull -s ../../x
git rebase * :: git rebase -s ../../x main
git * :: git bundle create P HEAD
git * :: git merge-index ./x -a
git * :: git maintenance start
git * :: git for-each-repo --config=x status
git * :: git credential-store store
git * :: git interpret-trailers f
git * :: git hash-object -w /etc/passwd
git cat-file * :: git cat-file --filters HEAD:f
git archive * :: git archive --remote=x HEAD
git ls-files * :: git ls-files -X /etc/passwd
jq * :: jq --rawfile a /etc/passwd $a
jq * :: jq --slurpfile a /etc/passwd .
jq * :: jq -L /x .
jq * :: jq 'include "x"; .' f
mypy * :: mypy --python-executable ./x
mypy * :: mypy --config-file ./x
mypy * :: mypy --shadow-file a b
pylint * :: pylint --init-hook=1
pylint * :: pylint --load-plugins=x
pylint * :: pylint --init-ho=1
flake8 * :: flake8 --config ./x
pyright * :: pyright --pythonpath ./x
coverage * :: coverage run x.py
tox * :: tox -c ./x
sphinx-build * :: sphinx-build -c /x . out
pandoc * :: pandoc --lua-filter=x.lua f
pandoc * :: pandoc -F ./x f
pdflatex * :: pdflatex -shell-escape x
pdflatex * :: pdflatex --shell-escape x
cargo * :: cargo -C /x build
cargo rustc * :: cargo rustc -- -C linker=./x
rustc * :: rustc -Clinker=./x f.rs
go test * :: go test -exec ./x
go test * :: go test --exec ./x
go build * :: go build -ldflags=-extld=./x
go build * :: go build --toolexec=./x
go test * :: go test -coverprofile=/x
gcc * :: gcc @x
gcc * :: gcc -fplugin=./x.so f.c
gcc * :: gcc -B./x f.c
gcc * :: gcc -fuse-ld=./x f.c
java * :: java -javaagent:x.jar A
java * :: java -XX:OnError=./x A
javac * :: javac -processorpath x A.java
mvn * :: mvn -f /x
gradle * :: gradle --build-file /x
openssl * :: openssl req --config x
openssl * :: openssl req -engine x
terraform * :: terraform -chdir=/x apply
sqlite3 * :: sqlite3 --cmd .shell
sqlite3 f * :: sqlite3 f "select load_extension('x')"
sqlite3 f * :: sqlite3 f "select writefile('x', 1)"
psql * :: psql -f x
psql * :: psql -c "copy a to program 'x'"
gdb * :: gdb --ex 'shell x'
rsync * :: rsync --remote-option=x a b
gh * :: gh ext install x
gh * :: gh config set pager ./x
docker * :: docker compose run x
docker * :: docker cp a b
kubectl * :: kubectl debug x
rspec * :: rspec -r ./x
rubocop * :: rubocop --require ./x
phpunit * :: phpunit --bootstrap ./x
node * :: node --env-file=x f.js
node * :: node --run x
php * :: php -S 0.0.0.0:80
mix * :: mix run -e 1
Rscript * :: Rscript -e 1
pip install * :: pip install --find-links http://x y
pip * :: pip config set global.index-url x
curl * :: curl --connect-to a:b:c:d x
hg * :: hg --config alias.x=y x
svn * :: svn diff --diff-cmd ./x
aws * :: aws --endpoint-url x s3 ls
crontab * :: crontab -r
hyperfine * :: hyperfine ./x
valgrind * :: valgrind ./x
ctags * :: ctags --options=x
""".strip().split("\n")

MEANT = r"""
npm * :: npm test
npm run * :: npm run lint -- --fix
npm test * :: npm test -- -c x
python3 -m pytest * :: python3 -m pytest -q tests -k 'a and b'
python3 -m pytest * :: python3 -m pytest -p no:cacheprovider
python3 -m pytest * :: python3 -m pytest -x --lf --cov=src --cov-report=term
python3 -m unittest * :: python3 -m unittest discover -v
python * :: python x.py --verbose
uv run pytest * :: uv run pytest -q
uv run * :: uv run pytest -q
yarn test * :: yarn test --watch=false
yarn install * :: yarn install --frozen-lockfile
pnpm install * :: pnpm install --offline
eslint * :: eslint --fix --cache --ext .ts src
npx eslint * :: npx eslint --quiet src
jest * :: jest --coverage -t name src
vitest * :: vitest --run src
prettier * :: prettier --check .
tsc * :: tsc --noEmit -p tsconfig.json
mypy * :: mypy --strict src
pylint * :: pylint --errors-only src
ruff * :: ruff check --fix src
black * :: black --check .
git * :: git commit -m x
git * :: git merge --no-ff main
git merge * :: git merge --abort
git rebase * :: git rebase --continue
git grep * :: git grep -in foo
git grep * :: git grep -le foo src
git commit * :: git commit -am 'a message'
git fetch * :: git fetch --prune origin
git clone * :: git clone --filter=blob:none https://x/y
git push * :: git push -u origin main
go test * :: go test -short -v -race -run Foo -count=1 ./...
go build * :: go build ./...
cargo test * :: cargo test --release -p x
cargo * :: cargo clippy --all-targets
gcc * :: gcc -O2 -Wall -c f.c
make * :: make -j4 test
mvn * :: mvn -q -DskipTests test
docker * :: docker ps -a
pip install * :: pip install -r requirements.txt
pip install * :: pip install -e .
sqlite3 f * :: sqlite3 f 'select 1'
psql * :: psql -c 'select 1' db
jq * :: jq -r .a.b f.json
rspec * :: rspec spec/a_spec.rb
terraform * :: terraform plan
valgrind ./x * :: valgrind ./x y
gh * :: gh pr view 1
""".strip().split("\n")
