# Palimpsest: what a person types. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := --disable-pip-version-check --no-deps --require-hashes

.DEFAULT_GOAL := help
# Each test process has a PostgreSQL server of its own. With TEST_DATABASE_URL there is one server, and one process.
WORKERS ?= $(if $(TEST_DATABASE_URL),0,2)
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help install run test test-long coverage lint types bench eval check docs lock clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null || true

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "python3 was not found: install Python 3.11 or newer, or set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Palimpsest needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "==> creating the virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 cannot make virtual environments: on Debian and Ubuntu run 'apt-get install python3-venv'"; exit 1; }

$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@echo "==> installing what the service needs (once; about 60 packages)"
	@sed '/^# development/,$$d' requirements.lock > $(VENV)/runtime.lock
	@$(BIN)/python -m pip install $(PIP_FLAGS) -r $(VENV)/runtime.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.development: requirements.lock $(VENV)/.runtime
	@echo "==> installing what tests and lint need (once)"
	@$(BIN)/python -m pip install --quiet $(PIP_FLAGS) -r requirements.lock
	@touch $@

install: $(VENV)/.runtime ## set up .venv alone

run: $(VENV)/.runtime ## start the service: API and worker, with an embedded PostgreSQL unless DATABASE_URL is set
	@exec $(BIN)/palimpsest serve --demo

test: $(VENV)/.development ## run every test against a real PostgreSQL
	@$(PYTEST) $(ARGS)

test-long: $(VENV)/.development ## the same with long model tests, kill tests and generated tests at full size
	@PALIMPSEST_LONG=1 $(PYTEST) $(ARGS)

coverage: $(VENV)/.development ## run every test and report which lines and branches of app/ it ran
	@$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage $(ARGS)

lint: $(VENV)/.development ## ruff, import contracts and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --config pyproject.toml --no-cache
	@$(BIN)/basedpyright --level error
	@$(BIN)/basedpyright --level error --project tests

types: $(VENV)/.development ## the type check alone: strict in app/, basic in tests/
	@$(BIN)/basedpyright --level error
	@$(BIN)/basedpyright --level error --project tests

bench: $(VENV)/.development ## measure: ratios to a floor in the same run, as a table and JSON
	@$(BIN)/python -m tests.bench $(ARGS)

eval: $(VENV)/.development ## how good recall is on public questions (data in ../shared/eval), as a table and JSON
	@$(BIN)/python -m tests.eval $(ARGS)

check: lint test ## lint and test

docs: $(VENV)/.development ## write the generated pages of the documentation (settings, commands)
	@$(BIN)/python -m tests.docs.generate

lock: $(VENV)/.development ## resolve the newest allowed versions into requirements.lock
	@$(BIN)/python .ci/lock

clean: ## remove the virtual environment and caches (data in .palimpsest/ stays)
	@rm -rf $(VENV) build *.egg-info .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.*
