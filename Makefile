# make demo   FedPURIN and FedFrugal against FedAvg and Separate on the bundled data, with a table and an HTML report
# make test   all tests but the slow ones; CI=true make test runs those too
# make docs   the documentation as a site in build/site; a warning is an error
# make lint   ruff, mypy, layers      make format   ruff format      make bench   benchmarks
# make HASHES=1 ...   install only wheels whose hash is in hashes.txt (CPython 3.11, Linux x86_64, torch for CPUs)
# make torture MINUTES=20 SEED=7   kills, full disks and broken files, many times (docs/reliability.md)

PYTHON ?= python3
MINUTES ?= 20
SEED ?= 7
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
BY_HASH = $(PIP) --require-hashes --no-deps -r hashes.txt && $(PIP) --no-deps --no-build-isolation -e .

.PHONY: demo test lint format bench docs torture clean

demo: .venv/demo-ready
	rm -rf runs/demo
	$(BIN)/fedpurin compare --preset quickstart --methods separate,fedavg,fedpurin,fedfrugal --out runs/demo --report runs/demo/report.html

test: lint
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

lint: .venv/dev-ready
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check --no-cache .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: .venv/dev-ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev-ready
	$(BIN)/python -m benchmarks

docs: .venv/dev-ready
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -b html -d build/doctrees docs build/site
	@echo "The documentation is in build/site/index.html"

torture: .venv/dev-ready
	$(BIN)/python tests/faults/torture.py --minutes $(MINUTES) --seed $(SEED)

.venv/bin/python:
	@echo "setting up .venv (once)"
	$(PYTHON) -m venv .venv

.venv/demo-ready: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing fedpurin and its report (once; torch is large)"
	$(PIP) -e '.[report]'
	@touch $@

.venv/dev-ready: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing fedpurin with everything its tests need (once)"
	$(if $(HASHES),$(BY_HASH),$(PIP) -e '.[report,flower,ray,tensorboard,images,docs,dev]')
	@touch $@ .venv/demo-ready

clean:
	rm -rf .venv runs build dist
