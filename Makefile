# Every target does its own set-up: nothing has to be installed before.
ifndef PYTHON
PYTHON := $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.14 python3,$(shell $(p) -c 'import sys; (3, 11) <= sys.version_info < (3, 15) and print("$(p)")' 2>/dev/null)))
endif
VENV := .venv
BIN := $(VENV)/bin
DATA ?= .cache/demo
# compiled once and kept in .venv: without that each start of the engine compiles torch and vLLM again (30 s)
unexport PYTHONDONTWRITEBYTECODE
# the engine's tests in one process, beside them the others, file by file
BESIDE := -n logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder
CHECK_PYTHON = test -n "$(PYTHON)" || { echo "make: error: no Python 3.11 to 3.14 was found: install one, or name one with make PYTHON=/path/to/python" >&2; exit 1; }
.DEFAULT_GOAL := help
.PHONY: help demo test check lint types layers unit bench install install-dev clean

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: install ## serve a small real model, load it, show where the time went (PIPELINE=rag or agent)
	@model=$$($(BIN)/python scripts/prepare_model.py) && \
	exec $(BIN)/python examples/demo/run.py --model "$$model" --data-dir $(DATA) \
		$(if $(PIPELINE),--pipeline $(PIPELINE))

test: install-dev ## unit, contract and end-to-end tests (real engine, real ClickHouse)
	@$(BIN)/python -m pytest tests $(BESIDE)

check: install-dev lint types layers ## lint, types, layer contract and all tests
	@$(BIN)/python -m pytest tests $(BESIDE)

lint: install-dev ## ruff
	@$(BIN)/python -m ruff check .

types: install-dev ## mypy --strict
	@$(BIN)/python -m mypy

layers: install-dev ## which package may import which
	@$(BIN)/lint-imports

unit: install-dev ## the unit tests alone
	@$(BIN)/python -m pytest tests/unit $(BESIDE)

bench: install-dev ## the project's own numbers, as ratios measured in one run
	@model=$$($(BIN)/python scripts/prepare_model.py) && \
	exec $(BIN)/python benchmarks/all.py --model "$$model" $(BENCH)

install:
	@$(CHECK_PYTHON)
	@$(PYTHON) scripts/install.py --for demo --venv $(VENV)

install-dev:
	@$(CHECK_PYTHON)
	@$(PYTHON) scripts/install.py --for dev --venv $(VENV)

clean: ## remove the environment, the demo's data and the caches (the model stays)
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
