# Every target runs from a plain shell: nothing has to be activated.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN       := $(VENV)/bin
STAMP     := $(VENV)/.installed
NOTEBOOKS  = $(wildcard notebooks/*.ipynb)
NBVAL      = $(if $(NOTEBOOKS),--nbval-lax --nbval-current-env --nbval-cell-timeout=300 $(NOTEBOOKS))

.DEFAULT_GOAL := help
.PHONY: help venv lab demo test test-slow check format bench bench-quick constraints screenshots clean

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
	@echo "Installing exact versions into $(VENV), about a minute and a half the first time."
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[lab,test,dev]'
	@touch $@

lab: $(STAMP) ## Open JupyterLab on the quickstart notebook.
	$(BIN)/dqlab lab $(ARGS)

demo: $(STAMP) ## Run the quickstart notebook here, without a browser.
	$(BIN)/python -m dqlab demo $(ARGS)

test: $(STAMP) ## Run every test but the slow ones, and the notebooks.
	$(BIN)/python -m pytest -m 'not slow and not bench' tests $(NBVAL) $(ARGS)

test-slow: $(STAMP) ## Run the slow tests.
	$(BIN)/python -m pytest -m slow --timeout=600 tests $(ARGS)

check: $(STAMP) ## Lint, formatting, types and the order of the rooms.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Put the code in form, and mend what ruff can mend.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## Measure dqlab beside its peers (10 minutes).
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(STAMP) ## The same with fewer messages (90 seconds).
	$(BIN)/python -m benchmarks --quick $(ARGS)

bench-%: $(STAMP)
	$(BIN)/python -m benchmarks $* $(ARGS)

screenshots: $(STAMP) ## Take the pictures of README.md anew, in a real browser.
	$(BIN)/python docs/screenshots.py

constraints: $(STAMP) ## Write the versions now in .venv to constraints.txt.
	@head -n 1 constraints.txt > constraints.new
	@$(BIN)/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' | LC_ALL=C sort -f >> constraints.new
	@mv constraints.new constraints.txt

clean: ## Remove .venv and all that the tools left behind.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
