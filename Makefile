# `make demo` and `make test` set everything up by themselves, in .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-lowest fuzz lint check bench study zoo docs clean

demo: .venv/for-demo
	$(BIN)/pfnm demo
	@echo "pfnm is in $(BIN): type  . $(BIN)/activate  first. README.md goes on from there."

# Three test processes for two cores, a thread each: one of them mostly waits, for Flower or a browser.
# Who is done takes over what others have left.
test: export OPENBLAS_NUM_THREADS = 1
test: export OMP_NUM_THREADS = 1

test: .venv/for-test
	$(BIN)/pytest -n 3 --dist worksteal

# Damaged files and extreme options: ten minutes, or `make fuzz CASES=20000`; what fails is kept in
# fuzz-failures, from a first seed on (SEED=1000).
SECONDS := 600
SEED := 0
fuzz: export OPENBLAS_NUM_THREADS = 1
fuzz: export OMP_NUM_THREADS = 1

fuzz: .venv/for-test
	$(BIN)/python tests/fuzz/fuzz_engine.py --seed $(SEED) \
		$(if $(CASES),--cases $(CASES),--seconds $(SECONDS))

# The lowest versions that pyproject.toml admits; their own warnings are not ours to mend. PyTorch is
# left out, for PyPI's 2.6 brings gigabytes of CUDA.
test-lowest: .venv-lowest/for-test
	.venv-lowest/bin/python -m pytest -W default tests/networks tests/matching tests/fusing tests/test_api.py \
		tests/formats/test_sites.py tests/formats/test_tables.py tests/test_cli_evaluate.py

lint: .venv/for-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

bench: .venv/for-test
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/joint.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/polishing.py
	$(BIN)/python benchmarks/busy.py
	$(BIN)/python benchmarks/loading.py

# The deep study (docs/deep.md); an interrupted one goes on where it stopped, into results/deep.
study: .venv/for-test
	$(BIN)/python studies/deep.py
	$(BIN)/python studies/pair.py
	$(BIN)/python studies/choosing.py
	$(BIN)/python studies/polish.py
	$(BIN)/python studies/ranking.py

# Networks of other libraries, traced, proved and fused (docs/zoo.md), in an environment of their own.
zoo: export OPENBLAS_NUM_THREADS = 1
zoo: export OMP_NUM_THREADS = 1

zoo: .venv-zoo/for-zoo
	.venv-zoo/bin/python studies/zoo.py

# README and docs/ as a site, in build/site; a warning is an error.
docs: .venv/for-docs
	$(BIN)/python docs/build.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/for-demo: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable '.[sklearn,report]'
	touch $@

# Python comes with a pip that may not know dependency groups yet.
.venv/for-test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) 'pip>=25.1'
	$(PIP) --editable '.[all,dask,flower,mlflow,private,ray,tensorboard]' --group dev
	touch $@

.venv/for-docs: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) 'pip>=25.1'
	$(PIP) --editable . --group docs
	touch $@

.venv-lowest/for-test: pyproject.toml
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct \
		--editable '.[onnx,sklearn,plot,tables]'
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest pytest hypothesis
	touch $@

# None of them may bring a PyTorch of its own.
.venv-zoo/for-zoo: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-zoo
	.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		torch==2.13.0 --editable .
	.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check --no-deps monai==1.6.1 einops \
		transformers==5.22.2 packaging regex huggingface_hub==2.4.0 safetensors tokenizers==0.23.3 pyyaml tqdm \
		httpx2 httpcore2 idna truststore h11 rtdl_revisiting_models==0.0.2 torch-geometric==2.8.1 xxhash psutil \
		requests urllib3 certifi
	touch $@

clean:
	rm -rf .venv .venv-lowest .venv-zoo fuzz-failures pfnm-demo
