# make demo    a heatmap from this machine alone, in a few minutes
# make test    lint, types, and all tests but the long ones, on real Slurm and in a browser too. As root on Debian or
#              Ubuntu these are installed first; elsewhere what needs them is left out, and listed at the end
# make docs    the documentation as pages in build/docs; a broken link is an error
# make test-long, make check, make format
# make mutants     small changes to the pure packages that no test notices, and a score per package; long. SEED=2, SAMPLE=50
# make accuracy    errors of predicted step times on the published tables in the folder that SWEEP_REFERENCE_DATA names, by
#                  trainer, GPU and dtype; ACCURACY="--tables --rows" for more
# make accept-anchors    accept changed predictions of the anchor layouts (tests/physics/anchors.csv); with the accuracy
#                        before and after in the commit
#
# Another torch:     make demo TORCH=torch==2.11.0
# CPU build (Linux): make demo PIP_OPTIONS="--extra-index-url URL", URL being PyTorch's index of CPU builds. With
#                    --index-url the other packages, which the same options install, would not be found.
# As in CI:          make test SWEEP_REQUIRE_SLURM=1 SWEEP_REQUIRE_BROWSER=1 (what is missing is a failure)

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
PIP_OPTIONS ?=
DEMO_DIR ?= sweeps/demo
PYTEST_OPTIONS ?=
SEED ?= 1
SAMPLE ?= 30

# Hundreds of processes import the code: it is compiled once, also where the environment says not to keep it
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := sweep analysis bench_workloads benchmarks tests docs

.PHONY: demo test all-tests system-packages test-long test-parallel mutants accuracy accept-anchors docs check format lint types clean
.DELETE_ON_ERROR:

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	touch $@

# On Linux pip's usual index has the CUDA build of torch (gigabytes); PIP_OPTIONS can name one that has the CPU build too,
# which is taken where there is no NVIDIA GPU.
$(VENV)/.torch: $(VENV)/.made
	wanted="$(TORCH)"; test -e /proc/driver/nvidia/version || \
	    ! $(PIP) install --quiet --dry-run --no-deps $(PIP_OPTIONS) "$$wanted+cpu" >/dev/null 2>&1 || wanted="$$wanted+cpu"; \
	$(PIP) install $(PIP_OPTIONS) "$$wanted"
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	@echo "installing sweep and the other packages it needs (README.md has their size), a minute or more without output"
	@$(PIP) install --quiet $(PIP_OPTIONS) --editable .
	touch $@

# --use-pep517: an old pip warns about a package that has no wheel
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests and the documentation need besides, a minute or more without output"
	@$(PIP) install --quiet --use-pep517 $(PIP_OPTIONS) --editable ".[dev]"
	touch $@

# The tests as pytest compiles them: each of its workers would do that for itself
$(VENV)/.compiled: $(VENV)/.installed-dev $(shell find tests -name '*.py')
	@$(BIN)/python -m pytest --collect-only -qq -m "not long" >/dev/null || true
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/sweep demo --dir $(DEMO_DIR)

system-packages:
	tests/support/system-packages

# Most of the time passes in waiting for schedulers and deadlines, so that types are checked meanwhile: two workers have
# the tests on Slurm, four the others
test: system-packages $(VENV)/.installed-dev
	$(MAKE) --no-print-directory --jobs=2 lint $(VENV)/.compiled
	$(MAKE) --no-print-directory --jobs=2 types all-tests

all-tests:
	$(BIN)/python -m pytest -m "not long" -n 6 --dist loadgroup --no-loadscope-reorder $(PYTEST_OPTIONS)

test-long: $(VENV)/.installed-dev
	SWEEP_REQUIRE_SLURM=$${SWEEP_REQUIRE_SLURM:-1} $(BIN)/python -m pytest -m long --timeout=3600 $(PYTEST_OPTIONS)

# Every layout against one process, fp32, bf16 and 8 bits: the distances, and their summary in docs/research
test-parallel: $(VENV)/.installed-dev
	SWEEP_TRUTH_TABLE=docs/data/parallel_truth.csv $(BIN)/python -m pytest tests/bench_workloads -m parallel --timeout=600 $(PYTEST_OPTIONS); \
	    status=$$?; $(BIN)/python -m docs.generated && exit $$status

# PACKAGES="state search" for some of them
mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.mutants --seed $(SEED) --sample $(SAMPLE) $(PACKAGES)

accuracy: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.accuracy $(ACCURACY)

accept-anchors: $(VENV)/.installed-dev
	SWEEP_UPDATE_GOLDENS=1 $(BIN)/python -m pytest tests/physics/test_anchors.py
	$(BIN)/python -m benchmarks.accuracy

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "The pages: $(CURDIR)/build/docs/index.html"

check: format test

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
