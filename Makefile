# make repro   set up and run the whole pipeline on the embedded default
# make test    set up and run the tests
# make lint    set up and run ruff and mypy
# make bundle  build the explorer's script and style anew (needs node and npm; nobody else does)
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that starts and is 3.11 to 3.13 (a version manager's shim may exist and not start).
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$python && break; done)
STAMP := $(VENV)/.installed
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: repro test bundle lint format setup clean help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# make /make /p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "gapscope needs Python 3.11, 3.12 or 3.13 on PATH, or PYTHON=/path/to/python" >&2; exit 1; }
	@echo "== Setting up $(VENV) with $(PYTHON) (once; about two minutes and 2 GB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --progress-bar $$(test -t 1 && echo on || echo off) --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

repro: $(STAMP)
	@echo "== Running the pipeline (dvc repro); finished stages are not run again"
	@dvc repro
	@gapscope summary

test: $(STAMP)
	@echo "== Running the tests"
	@python -m pytest

lint: $(STAMP)
	@ruff check . && ruff format --check . && mypy

bundle:
	@cd gapscope/report/explorer/source && npm ci --ignore-scripts --no-audit --no-fund && npm run build

format: $(STAMP)
	@ruff check --fix . && ruff format .

clean:
	rm -rf $(VENV) .work
