# Everything a newcomer needs: make demo, make test. Only Python (3.11 or later) and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Bytecode is kept even where the environment says otherwise: the tests start this program many times.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test types fast-tests test-slow test-all test-newest coverage test-seeds test-oldest test-wheel mutants audit bench docs dist format clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/bellmanifold demo --out out/demo

# Types are checked beside the tests; if either fails, the other is still brought to an end.
test: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(MAKE) --no-print-directory --keep-going --jobs 2 types fast-tests

types: setup
	$(BIN)/mypy --no-error-summary

# Most of these tests compile a program, run it once and forget it, so they compile without optimisation, unless
# XLA_FLAGS is set; words that this version of XLA does not know are left out. Two processes on two cores compute on one thread
# each: threads of NumPy and XLA that wait for one another took up to twenty times as long. Checks of shapes and dtypes
# cost more than small problems do, so only modules whose arrays go through compiled programs are checked. coverage,
# test-slow, test-seeds and test-oldest compile as users do and check every module (addopts in pyproject.toml).
QUICK_TO_COMPILE := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 \
    --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false
CHECKED := bellmanifold.chart,bellmanifold.gaussian,bellmanifold.posteriors.weight,bellmanifold.posteriors.cut_weight,bellmanifold.posteriors.system,bellmanifold_paper
fast-tests: setup
	known() { XLA_FLAGS="$$1" $(BIN)/python -c 'import jax; jax.devices()' > /dev/null 2>&1; }; \
	flags="$${XLA_FLAGS-$(QUICK_TO_COMPILE)}"; \
	known "$$flags" || { words="$$flags"; flags=; for word in $$words; do known "$$word" && flags="$$flags $$word"; done; }; \
	XLA_FLAGS="$$flags" OMP_NUM_THREADS=1 NPROC=1 $(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadfile \
	    --jaxtyping-packages=$(CHECKED),beartype.beartype

# THIRD=0, 1 or 2 runs one third of them (tests/by_turns.py; an empty third is no fault), STOP_AFTER=SECONDS begins none later.
test-slow: setup
	$(BIN)/python -m pytest --quiet --numprocesses 2 -m slow $(THIRD:%=--third %) $(STOP_AFTER:%=--stop-after %) $(if $(THIRD),|| test $$? = 5)

test-all: setup
	$(BIN)/python -m pytest --quiet --numprocesses 2 -m 'slow or not slow'

# The fast tests (or TESTS=test-slow) on the newest Python there is, in an environment of its own.
TESTS ?= fast-tests
test-newest: setup
	@newest=$$($(BIN)/python tests/newest_python.py) && \
	    $(MAKE) --no-print-directory PYTHON=$$newest VENV=.venv-newest-$$(basename $$newest) $(TESTS)

# What the fast tests miss; the last line counts branches alone.
coverage: setup
	$(BIN)/python -m pytest --quiet --numprocesses 2 --cov --cov-report term-missing:skip-covered --cov-report json:out/coverage.json
	@$(BIN)/python -c "import json; found = json.load(open('out/coverage.json'))['totals']; \
	    print('branches: {covered_branches} of {num_branches}, {percent_branches_covered:.1f}%'.format(**found))"

# The statistical tests with twenty other seeds.
test-seeds: setup
	for seed in $$(seq 1 20); do \
	    $(BIN)/python -m pytest --quiet --numprocesses 2 -m 'statistical and not slow' --master-seed $$seed || exit 1; \
	done

# Would the tests notice? Small changes to the code, one at a time; takes hours on two cores.
mutants: setup
	$(BIN)/python validation/mutation.py --out out/mutants.json

# The fast tests with the oldest versions that pyproject.toml allows.
test-oldest: .venv-oldest/.installed
	.venv-oldest/bin/python -m pytest --quiet --numprocesses 2

.venv-oldest/.installed: pyproject.toml tests/oldest_versions.py
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --upgrade pip
	$(PYTHON) tests/oldest_versions.py > .venv-oldest/constraints.txt
	.venv-oldest/bin/python -m pip install --quiet --constraint .venv-oldest/constraints.txt --editable '.[dev]'
	touch $@

# Known vulnerabilities of what is installed; needs PyPI's JSON interface. Strict: what cannot be looked up is a failure.
audit: setup
	test -x .venv-audit/bin/pip-audit || ($(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit)
	$(BIN)/python -m pip freeze --exclude-editable > .venv-audit/installed.txt
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement .venv-audit/installed.txt

bench: setup
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/run.py --out out/bench.json

# Not --quiet: MkDocs then counts no warnings, and --strict lets dead links pass.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: site/index.html"

# Wheel and source archive in dist/, built in environments of their own (PyPI has to be reachable) and checked.
dist: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

# The wheel in a fresh environment without the repository: env, posterior, Python, explore, demo; says what it takes on the disk.
test-wheel: dist
	$(BIN)/python tests/fresh_install.py dist/*.whl .venv-wheel

format: setup
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

clean:
	rm -rf $(VENV) .venv-*/ site dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
