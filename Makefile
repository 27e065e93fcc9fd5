# Everything a clone needs: `make demo`, `make test`. The environment lives in .venv.

PYTHON ?= python3
VENV   ?= .venv
PIP_FLAGS ?=
# Python compiles the modules that are imported, and keeps them for the processes that the tests
# start. So pip need not compile the tens of thousands of modules that nothing imports.
PIP_FLAGS += --no-compile
unexport PYTHONDONTWRITEBYTECODE
BENCH_FLAGS ?=

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
PLOT  := $(VENV)/.installed-plot
TEST  := $(VENV)/.installed-test
DOCS  := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-all test-tensors lint viewer viewer-check bench docs wheels sanitize clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

# Reinstalled when the package's metadata, the pinned versions or the compiled kernel change.
NEEDS := pyproject.toml paper/pyproject.toml constraints.txt hatch_build.py $(wildcard src/splinecam/kernels/*.[ch])

comma := ,
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; call make PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(VENV) || \
	  { echo "Could not create $(VENV): is the venv module (Debian: python3-venv) there?"; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[$(1)]' $(2)
	@touch $@
endef

# What pictures need, what `make test` needs, what the site and its live pages need (pictures and
# the digits of scikit-learn), and all that developers need, which takes much longer.
$(PLOT): $(NEEDS)
	$(call install,plot)

$(TEST): $(NEEDS)
	$(call install,test)
	@touch $(PLOT)

$(DOCS): $(NEEDS)
	$(call install,docs$(comma)examples)
	@touch $(PLOT)

$(STAMP): $(NEEDS)
	$(call install,dev,-e paper)
	@touch $(PLOT) $(TEST) $(DOCS)

demo: $(PLOT)  ## train a small classifier, compute its partition, write pictures and a page to out/
	$(BIN)/splinecam demo --out out

# Each process has tests that follow each other, so that what they share is made once.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal
BRIEFLY := HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-brief} $(PYTEST)
test: $(TEST)  ## run the tests, in minutes; random networks are few
	$(BRIEFLY) -m "not slow" tests src

# The second run is that of the tests that the first leaves out or draws few random networks for.
test-slow: $(STAMP)  ## run the rest: pages, browsers, clusters, processes, more random networks
	$(PYTEST) -m "slow or hypothesis" tests
	$(PYTEST) paper

test-all: test  ## run all tests, with all packages
	$(MAKE) test-slow

test-tensors: $(STAMP)  ## run the tests of the geometry without the compiled kernel
	SPLINECAM_KERNEL=off $(BRIEFLY) -m "not slow" tests/engine/test_line_values.py \
	  $(addprefix tests/arrangement/test_,properties.py degenerate.py refine.py blocks.py)

lint: $(STAMP) viewer-check  ## check format, style, types and the order of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# The viewer is built with node; its build is committed, so that only who changes it needs node.
NODE := viewer/node_modules/.package-lock.json
$(NODE): viewer/package-lock.json
	cd viewer && npm install --no-save --ignore-scripts --no-audit --no-fund

viewer: $(NODE)  ## build the viewer in the browser into the package; needs node
	cd viewer && npm run -s build

viewer-check:  ## check the viewer's types, format and style, and test its mathematics, with node
	@command -v npm > /dev/null || { echo "The viewer's sources are not checked: there is no npm."; exit 0; }; \
	$(MAKE) $(NODE) && cd viewer && npm run -s check && npm run -s test

bench: $(STAMP)  ## time the workloads against plain forward passes; options: BENCH_FLAGS
	$(BIN)/python benchmarks/bench.py $(BENCH_FLAGS)

docs: $(DOCS)  ## build the documentation into out/docs, and the table of operations anew
	$(BIN)/python -c 'from splinecam.network.ops.registry import op_table_markdown; print(op_table_markdown(), end="")' > docs/ops.md
	$(BIN)/python -m sphinx -q -n -W --keep-going -d out/doctrees docs out/docs
	@echo "The documentation is in out/docs/index.html"

TARGETS := x86_64-linux-gnu.2.17 aarch64-linux-gnu.2.17 x86_64-macos.11.0 aarch64-macos.11.0 x86_64-windows-gnu
wheels: $(STAMP)  ## build wheels for Linux, macOS and Windows into dist/
	for target in $(TARGETS); do SPLINECAM_TARGET=$$target \
	  $(BIN)/python -m pip wheel --no-deps -c constraints.txt -w dist . || exit 1; done
	$(BIN)/python -m pip install --no-deps -c constraints.txt -e .

WATCHED := gcc -std=c11 -g -O1 -fPIC -shared $(wildcard src/splinecam/kernels/*.c)
sanitize: $(STAMP)  ## run the kernel's tests with its memory and its threads watched; needs gcc
	mkdir -p out
	$(WATCHED) -fsanitize=address,undefined -fno-sanitize-recover -o out/address.so
	$(WATCHED) -fsanitize=thread -o out/thread.so
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
	  SPLINECAM_KERNEL=$(CURDIR)/out/address.so $(BIN)/python -m pytest -q tests/kernels/test_kernel.py tests/engine/test_overlaying.py tests/solid/test_cells.py
	LD_PRELOAD=$$(gcc -print-file-name=libtsan.so) TSAN_OPTIONS=ignore_noninstrumented_modules=1 \
	  SPLINECAM_KERNEL=$(CURDIR)/out/thread.so $(BIN)/python -m pytest -q tests/kernels/test_kernel.py tests/engine/test_overlaying.py

clean:  ## remove the environment and everything that was generated
	rm -rf $(VENV) viewer/node_modules viewer/out out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
