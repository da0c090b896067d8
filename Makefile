# Everything runs in environments that this file makes: .venv, and .venv-vllm for real vLLM.
# Variables: PYTHON, VLLM_PYTHON_BASE (what they are made with), VLLM_PIP_ARGS, DEMO_ARGS.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The first of these on PATH that really starts, and is new enough.
working = $(shell for one in $(1); do \
	"$$one" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 \
	&& echo "$$one" && break; done)
ifndef PYTHON
PYTHON := $(call working,python3.11 python3.12 python3.10 python3.13 python3)
endif
ifndef VLLM_PYTHON_BASE
VLLM_PYTHON_BASE := $(call working,python3.11 $(PYTHON))
endif

BIN := .venv/bin
DEV := .venv/.complete
VLLM := .venv-vllm
PIP := -m pip -qq --disable-pip-version-check install

# Recipes start with this: it names vLLM's Python when that environment could be built.
WITH_VLLM = if [ -f $(VLLM)/.complete ]; then \
	export LLM_TRACE_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python; fi;

.PHONY: help demo test lint types contracts bench agree pictures vllm try-vllm python clean

help:
	@echo 'make demo       a RAG app on vLLM under load: where the time to first token goes'
	@echo 'make test       lint, types, contracts and all tests with coverage'
	@echo 'make lint       ruff: rules and format'
	@echo 'make types      mypy, strict'
	@echo 'make contracts  import-linter: which module may import which'
	@echo 'make bench      the cost of the middleware, against its budgets'
	@echo 'make agree      outside clients (aiperf, guidellm; 3 GB) against our numbers, on real vLLM'
	@echo 'make pictures   the boards as docs/images shows them (needs Node and Chromium)'
	@echo 'make vllm       the environment in which real vLLM serves on a CPU (3.5 GB)'
	@echo 'make clean      remove the environments and what tests leave'

demo: $(DEV) try-vllm
	@$(WITH_VLLM) $(BIN)/llm-trace demo $(DEMO_ARGS)

test: lint types contracts try-vllm
	@echo 'test: every test, with branch coverage'
	@$(WITH_VLLM) $(BIN)/coverage run -m pytest -q && $(BIN)/coverage report

lint: $(DEV)
	@echo 'lint: ruff'
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .

types: $(DEV)
	@echo 'types: mypy'
	@$(BIN)/mypy

contracts: $(DEV)
	@echo 'contracts: import-linter'
	@$(BIN)/lint-imports

agree: $(DEV) vllm
	@$(WITH_VLLM) $(BIN)/python -m tests.outside_client $(AGREE_ARGS)
	@$(WITH_VLLM) $(BIN)/python -m tests.outside_client.bench

pictures: $(DEV)
	@$(BIN)/python -m dashboards.render

bench: $(DEV)
	@echo 'bench: the cost of the middleware'
	@$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

vllm: python
	@$(VLLM_PYTHON_BASE) integrations/vllm/cpu/build.py --into $(VLLM) --pip-args='$(VLLM_PIP_ARGS)'

try-vllm: python
	@$(VLLM_PYTHON_BASE) integrations/vllm/cpu/build.py --into $(VLLM) \
	--pip-args='$(VLLM_PIP_ARGS)' || \
	echo 'make: goes on without vLLM: the demo SIMULATES the engine, the vllm tests are skipped'

# The stamp is written last, so an interrupted run is taken up again.
$(DEV): pyproject.toml | python
	@echo 'venv: makes .venv and installs llm-trace with what its tests need'
	@rm -f $@
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python $(PIP) -e '.[dev]'
	@touch $@

python:
	@test -n '$(PYTHON)' || { echo 'make: no Python from 3.10 on was found: install one, or name \
	it: make PYTHON=/path/to/python3'; exit 1; }

clean:
	rm -rf .venv $(VLLM) .cache .coverage* .hypothesis .import_linter_cache .mypy_cache \
	.pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
