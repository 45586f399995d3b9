# Every target sets up what it needs: system packages, .venv, an editable build. Up to date, that
# costs one call of ninja. PYTHON=python3.12 picks the interpreter that .venv is made from.
# SAN=address,undefined or SAN=thread builds with sanitizers (build, test*, test-native).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

PYTHON ?= python3
SAN ?=
DEMO ?=
MINUTES ?= 20
TARGET ?=
SOAK ?=
# Tests run at once, each in one of so many processes: most of them wait most of the time.
JOBS ?= 2
comma := ,

# .venv holds absolute paths, so a moved or copied tree sets itself up anew.
STAMPS := .venv/stamps$(subst /,-,$(CURDIR))
BUILD := build/editable
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Run a command in silence, but show what it said if it fails.
quietly = $(1) >build/log 2>&1 || { cat build/log >&2; exit 1; }
# A sanitized extension needs its run-time library before Python starts.
ifneq ($(SAN),)
RUN := ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$$(cc -print-file-name=lib$(if \
	$(findstring thread,$(SAN)),tsan,asan).so)
endif
NATIVE_SANITIZERS := $(or $(SAN),address$(comma)undefined thread)

PY_DIRS := $(wildcard fabricio tests examples benchmarks scripts typings)
C_FILES = $(shell find fabricio tests benchmarks -name '*.[ch]' 2>/dev/null)

.PHONY: help setup build fmt lint test test-fast test-native soak fuzz docs bench check demo clean

help:
	@echo "make demo | test | test-fast | test-native | soak | fuzz | lint | fmt | docs | bench |" \
		"check | build | setup | clean"

# --- set-up -----------------------------------------------------------------------------------

$(STAMPS)/system: scripts/setup-system
	@scripts/setup-system $(PYTHON)
	@mkdir -p $(@D)
	@touch $@

$(STAMPS)/venv: | $(STAMPS)/system
	@echo "Creating .venv"
	@find .venv -mindepth 1 -maxdepth 1 ! -path $(STAMPS) -exec rm -rf {} +
	@rm -rf build
	@$(PYTHON) -m venv .venv
	@touch $@

$(STAMPS)/requirements: pyproject.toml scripts/requirements.py $(STAMPS)/system | $(STAMPS)/venv
	@echo "Installing Python packages into .venv"
	@$(BIN)/python scripts/requirements.py build project test >$@.txt
	@$(PIP) install -r $@.txt
	@touch $@

$(STAMPS)/editable: pyproject.toml meson.build meson.options $(STAMPS)/requirements
	@echo "Building fabricio"
	@rm -rf $(BUILD)
	@$(PIP) install --no-deps --no-build-isolation --config-settings=build-dir=$(BUILD) \
		--editable .
	@touch $@

$(STAMPS)/dev $(STAMPS)/docs: pyproject.toml $(STAMPS)/requirements
	@echo "Installing $(@F) tools into .venv"
	@$(BIN)/python scripts/requirements.py $(@F) >$@.txt
	@$(PIP) install -r $@.txt
	@touch $@

setup: build $(STAMPS)/dev
	@if [ -d .git ] && [ -z "$$(git config core.hooksPath)" ]; then \
		$(BIN)/pre-commit install; \
	else echo "No hooks installed: not a plain git checkout, or core.hooksPath is set"; fi

build: $(STAMPS)/editable
	@if [ "$$(cat $(BUILD)/sanitizers 2>/dev/null)" != "$(SAN)" ]; then \
		meson configure $(BUILD) -Db_sanitize=$(or $(SAN),none) && \
		echo "$(SAN)" >$(BUILD)/sanitizers; fi
	@$(call quietly,ninja -C $(BUILD))

# --- tests ------------------------------------------------------------------------------------

PYTEST = $(RUN) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test: build test-native
	@$(PYTEST)

test-fast: build
	@$(PYTEST) -m "not slow" -k "not shm and not uvloop" tests/unit $(wildcard tests/loopback)

# Address space randomisation with many bits is more than older ThreadSanitizers can take.
# The programs use the libfabric that Python uses.
test-native: build
	@export LD_LIBRARY_PATH=$$($(BIN)/python -c \
		'from fabricio._ffi.loader import load; print(load().path.parent)'); \
	wrapper=$$(setarch -R true 2>/dev/null && echo "--wrapper=setarch -R"); \
	for san in $(NATIVE_SANITIZERS); do \
		dir=build/native-$${san/,/-}; \
		[ -f $$dir/build.ninja ] || $(call quietly,meson setup $$dir -Dnative_tests=true \
			-Db_sanitize=$$san -Dbuildtype=debugoptimized); \
		$(call quietly,ninja -C $$dir); \
		echo "C tests, -fsanitize=$$san"; \
		meson test -C $$dir --no-rebuild --print-errorlogs $${wrapper:+"$$wrapper"} || exit 1; \
	done

soak: build
	@$(RUN) $(BIN)/python -m tests.soak --minutes $(MINUTES) $(SOAK)

fuzz: build
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(TARGET)

# --- demo, benchmarks -------------------------------------------------------------------------

demo: build
	@$(RUN) $(BIN)/python examples/random_fill.py $(DEMO)

bench: build
	@mkdir -p build/bench
	@for case in pages messages submit idle engine; do \
		$(RUN) $(BIN)/python -m benchmarks.$$case --quick --json build/bench/$$case.json || exit 1; \
	done

# --- quality ----------------------------------------------------------------------------------

fmt: $(STAMPS)/dev
	@ruff format --quiet $(PY_DIRS)
	@clang-format -i $(C_FILES)

lint: $(STAMPS)/editable $(STAMPS)/dev
	@ruff format --quiet --check $(PY_DIRS)
	@clang-format --dry-run --Werror $(C_FILES)
	@ruff check --quiet $(PY_DIRS)
	@mypy $(filter-out typings,$(PY_DIRS))
	@codespell
	@[ -f build/lint/build.ninja ] || $(call quietly,meson setup build/lint -Dwerror=true)
	@$(call quietly,ninja -C build/lint)

docs: $(STAMPS)/docs
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

check: lint test docs

clean:
	rm -rf .venv build
