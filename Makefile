# `make` alone lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
INSTALLED := .venv/.installed
DEV_TOOLS := .venv/.dev-tools
UV_VERSION := 0.13.9
SEED := 1
SECONDS := 60
MINUTES := 60
# The newest of those that run: a version manager's stand-in for a Python it does not have fails.
PYTHON = $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

.PHONY: help
help: ## List the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -nE 's/^([a-z0-9-]+):.*## (.*)/  \1: \2/p' Makefile

$(INSTALLED): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: none of python3.13 ... python3 runs." >&2; exit 1; }
	@$(PYTHON) -m resources.java
	@echo "Create .venv with $(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv \
		|| { rm -rf .venv; echo "$(PYTHON) cannot create .venv: install its venv module (Debian: python3-venv)." >&2; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "Install deltamirror and $$(grep -c == requirements.lock) packages: 1 to 3 minutes, 1.4 GB"
	@UV_HTTP_TIMEOUT=300 $(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@# If PYTHONDONTWRITEBYTECODE is set, as in many containers, each start would compile it all.
	@$(BIN)/python -m compileall -q -j 0 .venv/lib assets deltamirror demo pipeline resources schemas \
		|| echo "Some modules could not be compiled: starts may take longer." >&2
	@touch $@

$(DEV_TOOLS): $(INSTALLED) requirements-dev.lock
	@echo "Install development tools"
	@UV_HTTP_TIMEOUT=300 $(BIN)/uv pip install --quiet --python $(BIN)/python --requirement requirements-dev.lock
	@touch $@

.PHONY: jars
jars: $(INSTALLED)
	@$(BIN)/python -m resources.spark.jars
	@$(BIN)/python -m demo.kafka.jars
	@$(BIN)/python -m resources.spark.session || echo "Spark's classes are not archived: starts take longer." >&2

.PHONY: setup
setup: jars $(DEV_TOOLS) ## Make .venv and fetch everything the project needs

.PHONY: demo
demo: jars ## Mirror real flights between two local clusters, move a group, verify
	@$(BIN)/python -m demo

.PHONY: ui
ui: jars ## Open Dagster's UI on the demo's clusters
	@$(BIN)/python -m demo.dagster_ui

.PHONY: pictures
pictures: setup ## Draw the README's pictures: the architecture, and a recording of the demo
	@$(BIN)/python -m tools.architecture_picture
	@$(BIN)/python -m demo.recording

.PHONY: down
down: $(INSTALLED) ## Stop what the demo left running
	@$(BIN)/python -m demo down

.PHONY: check
check: setup ## Format, lint, types, import rules, wording, Dagster definitions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.word_list
	@# Dagster would like another of its tools to be used here, which needs one more package.
	PYTHONWARNINGS='ignore:Function' $(BIN)/dagster definitions validate --workspace workspace.yaml --log-level error

.PHONY: test
test: setup ## Tests, with real Kafka brokers; two files at a time
	$(BIN)/python -m pytest -m "not story" --numprocesses 2 --dist loadfile --durations 25

.PHONY: story
story: setup ## Long stories: failovers, crashes, the demo, Dagster; two files at a time
	$(BIN)/python -m pytest -m story --numprocesses 2 --dist loadfile --durations 40

.PHONY: crash
crash: setup ## Of the stories: a real kill -9 at each step of staging and replay
	$(BIN)/python -m pytest -m crash --durations 25

.PHONY: chaos
chaos: setup ## Kill, freeze and cut a running mirror, count every record (SEED=1 SECONDS=60)
	@$(BIN)/python -m tests.chaos --seed $(SEED) --seconds $(SECONDS)

.PHONY: bench
bench: setup ## Measure stage, replay, delay and memory on real brokers
	@$(BIN)/python -m benchmarks

.PHONY: bench-mm2
bench-mm2: setup ## Measure beside MirrorMaker 2 on the same brokers, in turn (under 30 minutes)
	@$(BIN)/python -m benchmarks.mm2

.PHONY: bench-mm2-full
bench-mm2-full: setup ## The same with every size, codec and rate, growth, and where CPU time goes (hours)
	@$(BIN)/python -m benchmarks.mm2 --full

.PHONY: bench-soak
bench-soak: setup ## Measure what grows in an hour: files, log entries, memory, CPU (MINUTES=60)
	@$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

.PHONY: wheel-test
wheel-test: setup ## Test the built wheel, with the source out of reach
	@$(BIN)/python tools/wheel_test.py

.NOTPARALLEL:

.PHONY: ci
ci: check wheel-test story test ## What CI runs after setup

.PHONY: docs
docs: setup ## Write the pages that are made from the code
	@$(BIN)/python -m tools.docs

.PHONY: lock
lock: $(INSTALLED) ## Write both lock files from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra demo \
		--custom-compile-command "make lock" pyproject.toml --output-file requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --group dev --constraint requirements.lock \
		--custom-compile-command "make lock" --output-file requirements-dev.lock

.PHONY: clean
clean: ## Delete what can be made again, except .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
