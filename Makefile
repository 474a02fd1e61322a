# make repro · make report · make test · make bench — each sets up .venv by itself the first time
PYTHON ?= python3
# Relative, where make would cut a folder's name at its spaces.
BIN := .venv/bin
# Stages call `python`: it must be the one of .venv.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# The code of this very folder, also in a copy of it.
export PYTHONPATH := src

.PHONY: help repro report studies phase1 phase2 phase3 test lint bench
help:
	@echo "make repro   run the whole pipeline on real data (about 8 minutes on 2 cores)"
	@echo "make report  open the page of results"
	@echo "make studies run the open questions' studies (under 4 hours on 2 cores)"
	@echo "make phase1  the paper's first phase as an experiment of this name; also phase2, phase3"
	@echo "make test    lint and test (about 10 minutes)"
	@echo "make bench   measure speed and memory on an idle machine (about 15 minutes)"

.venv/installed: requirements.lock requirements-numerics.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: $(PYTHON) is Python %d.%d; resablate needs 3.11 or newer: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@# So that `python -m resablate...` works in the activated environment too.
	@$(BIN)/python -c 'import pathlib, site; pathlib.Path(site.getsitepackages()[0], "resablate.pth").write_text(str(pathlib.Path("src").absolute()) + "\n")'
	@touch $@

repro: .venv/installed
	python -m resablate.sweep

report: .venv/installed
	python -m resablate report

studies: .venv/installed
	python -m resablate.sweep --pipeline studies/dvc.yaml

# Section 6: the kernels, the configurations and the seeds of each phase. DVC warns of every run of
# the studies that has not been made.
phase1 phase2 phase3: SHELL := /bin/bash
phase1 phase2: NUMERICS = native
phase1: KERNELS = default
phase1: SEEDS = [1337]
phase2: SEEDS = [1337,42,123]
phase3: NUMERICS = portable
phase3: SEEDS = [1337,42,123,0,7,99,2024,512]
phase2 phase3: KERNELS = deterministic
phase1 phase2: CONFIGS = [attn_only]
phase3: CONFIGS = [full,attn_only,ffn_only,no_res]
phase1 phase2 phase3: .venv/installed
	dvc exp run --temp -f -n $@ -S base.kernels=$(KERNELS) -S base.numerics=$(NUMERICS) \
		-S 'grid.impl=[residualgpt]' -S 'grid.config=$(CONFIGS)' -S 'grid.seed=$(SEEDS)' \
		2> >(grep -v 'No file hash info' >&2)

lint: .venv/installed
	ruff check .
	ruff format --check .

test: lint
	python -m pytest

bench: .venv/installed
	python -m resablate.bench
