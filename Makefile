# What there is to do here. Everything lives in this directory: nothing is installed
# outside of it. `make help` lists the targets.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Bytecode is part of a fast start: somebody's habit must not switch it off here.
unexport PYTHONDONTWRITEBYTECODE
# A virtual environment of somebody else's must not be taken for ours.
unexport VIRTUAL_ENV

BIN := .venv/bin
WORKERS ?= 2
# The slow tests wait for other programs half of the time.
PEER_WORKERS ?= 4
MODEL ?= local/qwen2.5-coder-1.5b

.PHONY: help run test test-peers cluster-test test-again check bench bench-peers eval format lock docs site wheel release clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*##/\1 /p' Makefile | awk '{n=$$1; $$1=""; printf "  make %-12s%s\n", n, $$0}'

run: .venv/.ready-run  ## set up and start refold; without a terminal: do one real task
	@if [ -t 0 ] && [ -t 1 ]; then exec $(BIN)/refold; else exec $(BIN)/refold demo; fi

test: .venv/.ready-dev  ## the tests everybody runs: offline, some minutes
	@$(BIN)/pytest -n $(WORKERS)

test-peers: .venv/.ready-peers  ## the slow ones: SDKs, fault servers, crash matrices, the real model
	@scripts/peers
	@REFOLD_MODELS=$${REFOLD_MODELS:-$(CURDIR)/.peers/models} $(BIN)/pytest -m "peer or slow or property" -n $(PEER_WORKERS) --timeout 1200

cluster-test: .venv/.ready-peers  ## end workers and servers again and again: LONG_SECONDS=600 SEED=N
	@$(BIN)/python -m tests.cluster.outages --seconds $(or $(LONG_SECONDS),300) $(if $(SEED),--seed $(SEED))

test-again: .venv/.ready-peers  ## what failed last, one by one: does it fail alone too?
	@REFOLD_MODELS=$${REFOLD_MODELS:-$(CURDIR)/.peers/models} $(BIN)/pytest -m "" -n 0 --last-failed --last-failed-no-failures none --timeout 600

check: .venv/.ready-dev  ## style, types, layers, house rules, spelling
	@scripts/check

bench: .venv/.ready-dev  ## measure; prints figures and ratios, asserts nothing
	@$(BIN)/python -m bench

bench-peers: .venv/.ready-dev  ## the same, beside another agent from the registries
	@scripts/peers bench
	@$(BIN)/python -m bench --peers

format: .venv/.ready-dev  ## let ruff put the code in order
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

eval: .venv/.ready-dev  ## give our tasks to the embedded model, or to MODEL=provider/model
	@mkdir -p .peers
	@for set in seen everyday unseen; do \
	  echo "$$set tasks:"; \
	  $(BIN)/refold eval bench/tasks/$$set.toml -m $(MODEL) -o .peers/eval-$$set.json || true; \
	done
	@$(BIN)/python -m bench.injections -o .peers/eval-injections.json

docs: .venv/.ready-dev  ## write the generated parts of docs/ again
	@$(BIN)/python -m scripts.reference

lock: ## bring uv.lock up to date with pyproject.toml
	@scripts/setup lock

site: .venv/.ready-site  ## build the documentation site, which refold docs serves
	@$(BIN)/python -m scripts.site

wheel: site  ## build the wheel in dist/; uv tool install or pipx install it
	@scripts/setup wheel

release:  ## prepare VERSION=X.Y.Z: set it, and collect changelog.d/ into CHANGELOG.md
	@scripts/release "$(VERSION)"

clean:  ## remove what the other targets made
	rm -rf .venv .venv-tools .peers .ruff_cache .pytest_cache .hypothesis build dist

.venv/.ready-%: pyproject.toml uv.lock scripts/setup
	@scripts/setup $*
	@touch $@
