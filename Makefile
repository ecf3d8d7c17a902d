# `make demo` and `make test` set everything up by themselves, in .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check bench study clean

demo: .venv/for-demo
	$(BIN)/pfnm demo

# Two test processes, a thread each: more would wait for each other.
test check: export OPENBLAS_NUM_THREADS = 1
test check: export OMP_NUM_THREADS = 1

test: .venv/for-test
	$(BIN)/pytest -n 2

check: .venv/for-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

bench: .venv/for-test
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/joint.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/polishing.py

# The deep study (docs/deep.md); an interrupted one goes on where it stopped, into results/deep.
study: .venv/for-test
	$(BIN)/python studies/deep.py
	$(BIN)/python studies/pair.py
	$(BIN)/python studies/choosing.py
	$(BIN)/python studies/polish.py
	$(BIN)/python studies/ranking.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/for-demo: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable '.[sklearn]'
	touch $@

.venv/for-test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv pfnm-demo
