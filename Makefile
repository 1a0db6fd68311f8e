PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(VENV)/.torch
ARGS ?=
QUICK := not slow
# Tests that judge times: they have the machine to themselves.
TIMED := $(addprefix tests/live/test_,collector.py contention.py watcher.py) \
	tests/hardware/test_measure_torch.py tests/test_startup.py tests/trials/test_for_real.py

.DEFAULT_GOAL := help

.PHONY: help install torch test lint tests quick timed nightly demo bench format clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-9s %s\n", $$1, $$2}'

install: $(STAMP) ## create .venv with the pinned versions and gobrrr itself (again only when the pins change)

# --no-deps: the pins are the whole environment; --no-build-isolation: the build backend is pinned too.
$(STAMP): pyproject.toml requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

$(TORCH): $(STAMP) requirements-torch.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-torch.txt
	touch $(TORCH)

# The checks take one processor: the tests that judge no times run beside them.
test: $(STAMP) $(TORCH) ## everything that CI checks: lint, format, types, layers, sizes, tests
	$(MAKE) --no-print-directory --jobs 2 lint quick
	$(MAKE) --no-print-directory timed

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py src

tests: quick ## the tests alone
	$(MAKE) --no-print-directory timed

# A thread for each of the two processes.
quick: $(STAMP) $(TORCH)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "$(QUICK)" $(TIMED:%=--ignore %) $(ARGS)

timed: $(STAMP) $(TORCH)
	$(BIN)/python -m pytest -m "$(QUICK)" $(TIMED) $(ARGS)

torch: $(TORCH)

nightly: $(STAMP) $(TORCH) ## all tests, the slow ones too and with more examples each, and 10,000 damaged inputs
	GOBRRR_TESTS=night $(BIN)/python -m pytest $(ARGS)
	$(BIN)/python -m tests.fuzz.run --inputs 10000

demo: $(STAMP) ## diagnose the shipped traces
	$(BIN)/gobrrr demo

bench: $(STAMP) ## time the trace door on two traces of some 380 MB and update the table in docs/manual.md
	$(BIN)/python -m bench.bench_trace $(ARGS)
	$(BIN)/python -m bench.speed_table

format: $(STAMP) ## rewrite the files as ruff formats them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist bench/work .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
