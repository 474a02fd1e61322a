# make repro · make report · make test · make bench — each sets up .venv by itself the first time
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
# Stages call `python`: it must be the one of .venv.
export PATH := $(BIN):$(PATH)
# The code of this very folder, also in a copy of it.
export PYTHONPATH := src

.PHONY: help repro report test lint bench
help:
	@echo "make repro   run the whole pipeline on real data (about 8 minutes on 2 cores)"
	@echo "make report  open the page of results"
	@echo "make test    lint and test (about 3 minutes)"
	@echo "make bench   measure speed and memory on an idle machine (about 6 minutes)"

.venv/installed: requirements.lock requirements-numerics.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: $(PYTHON) is Python %d.%d; resablate needs 3.11 or newer: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@# So that `python -m resablate...` works in the activated environment too.
	@$(BIN)/python -c 'import pathlib, site; pathlib.Path(site.getsitepackages()[0], "resablate.pth").write_text("$(CURDIR)/src\n")'
	@touch $@

repro: .venv/installed
	python -m resablate.sweep

report: .venv/installed
	python -m resablate report

lint: .venv/installed
	ruff check .
	ruff format --check .

test: lint
	python -m pytest

bench: .venv/installed
	python -m resablate.bench
