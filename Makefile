# make demo    a heatmap from this machine alone, in a few minutes
# make test    lint, types, and all tests but the long ones; real Slurm included (needs root and Debian's Slurm)
# make test-long, make check, make format
# make accuracy    errors of predicted step times on the published tables in the folder that SWEEP_REFERENCE_DATA names
# make accept-anchors    accept changed predictions of the anchor layouts (tests/physics/anchors.csv); with the accuracy
#                        before and after in the commit
#
# Another torch:     make demo TORCH=torch==2.11.0
# CPU build (Linux): make demo PIP_OPTIONS="--extra-index-url URL", URL being PyTorch's index of CPU builds. With
#                    --index-url the other packages, which the same options install, would not be found.
# Without Slurm:     make test SWEEP_REQUIRE_SLURM=0

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
PIP_OPTIONS ?=
DEMO_DIR ?= sweeps/demo
PYTEST_OPTIONS ?=
SWEEP_REQUIRE_SLURM ?= 1
export SWEEP_REQUIRE_SLURM

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := sweep analysis bench_workloads benchmarks tests

.PHONY: demo test test-long test-parallel accuracy accept-anchors check format lint types clean
.DELETE_ON_ERROR:

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	touch $@

# On Linux pip's usual index has the CUDA build of torch (gigabytes); PIP_OPTIONS can name one that has the CPU build too.
$(VENV)/.torch: $(VENV)/.made
	$(PIP) install $(PIP_OPTIONS) "$(TORCH)"
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) install --quiet $(PIP_OPTIONS) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --quiet $(PIP_OPTIONS) --editable ".[dev]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/sweep launch examples/laptop.yaml --yes --executor local --dir $(DEMO_DIR)
	$(BIN)/sweep heatmap $(DEMO_DIR)
	@echo "The heatmap: $$(ls -1 $(CURDIR)/$(DEMO_DIR)/figures/*.png | head -1)"

# Most of the time passes in waiting for schedulers and deadlines: two workers have the tests on Slurm, one the others
test: lint types
	$(BIN)/python -m pytest -m "not long" -n 3 --dist loadgroup --no-loadscope-reorder $(PYTEST_OPTIONS)

test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m long --timeout=3600 $(PYTEST_OPTIONS)

# Every layout against one process, fp32 and bf16, and a table of the distances
test-parallel: $(VENV)/.installed-dev
	SWEEP_TRUTH_TABLE=docs/parallel-truth.md $(BIN)/python -m pytest tests/bench_workloads -m parallel --timeout=600 $(PYTEST_OPTIONS)

accuracy: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.accuracy

accept-anchors: $(VENV)/.installed-dev
	SWEEP_UPDATE_GOLDENS=1 $(BIN)/python -m pytest tests/physics/test_anchors.py
	$(BIN)/python -m benchmarks.accuracy

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
