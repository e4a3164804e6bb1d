# Everything a newcomer needs: make demo, make test. Only Python (3.11 or later) and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: setup demo test test-slow test-seeds mutants bench docs format clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/bellmanifold demo --out out/demo

test: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet --numprocesses 2

test-slow: setup
	$(BIN)/python -m pytest --quiet --numprocesses 2 -m slow

test-seeds: setup
	for seed in $$(seq 1 20); do \
	    $(BIN)/python -m pytest --quiet --numprocesses 2 -m 'statistical and not slow' --master-seed $$seed || exit 1; \
	done

mutants: setup
	$(BIN)/python validation/mutation.py --out out/mutants.json

bench: setup
	$(BIN)/python benchmarks/run.py --out out/bench.json

docs: setup
	$(BIN)/mkdocs build --strict --quiet
	@echo "docs: site/index.html"

format: setup
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

clean:
	rm -rf $(VENV) site out .mypy_cache .ruff_cache .pytest_cache .hypothesis
