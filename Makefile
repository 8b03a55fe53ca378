# `make demo` and `make test` set everything up from a clean clone; they need python3 and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv

SECONDS := 300

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz integration check bench clean

help:  ## show this
	@echo "Flyball. What you can make:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(VENV)/.run  ## run the whole loop on this machine, with a live page on http://127.0.0.1:8080
	@$(BIN)/flyball demo $(ARGS)

test: $(VENV)/.dev  ## run the tests that need no server (ARGS="tests/models -x" for some of them)
	@$(BIN)/pytest -m "not integration" $(or $(ARGS),-n 4 --dist loadfile --no-loadscope-reorder)

# What never ends is found, too: a signal would only make hypothesis try the same input again.
fuzz: $(VENV)/.dev  ## search for inputs that break the property tests, for SECONDS=300 (ARGS="tests/contracts" for some)
	@ends=$$(( $$(date +%s) + $(SECONDS) )); while [ $$(date +%s) -lt $$ends ]; do \
	  FLYBALL_FUZZ=1 FLYBALL_FUZZ_UNTIL=$$ends $(BIN)/pytest -q -m "hypothesis and not integration" --timeout-method=thread \
	    $(or $(ARGS),-n 2) \
	    || exit 1; done

integration: $(VENV)/.dev  ## run the tests on real servers; infra/kafka/fetch and infra/victoria/fetch get them
	@$(BIN)/pytest -m integration $(ARGS)

check: $(VENV)/.dev  ## the house checks: format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## measure what a core carries, quickly (ARGS= for the full run); bench/README.md has the others
	$(BIN)/python bench/spine.py $(if $(filter undefined,$(origin ARGS)),--quick,$(ARGS))

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

# uv installs from its cache in seconds; where it cannot reach an index that pip can, pip does the same.
$(VENV)/.base: constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt uv
	@touch $@

$(VENV)/.run: $(VENV)/.base pyproject.toml
	@echo "setting up (once)"
	@$(UV) pip install -q -p $(BIN)/python -c constraints.txt -e '.[all]' \
	  || $(BIN)/python -m pip install -q -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(UV) pip install -q -p $(BIN)/python -c constraints.txt --group dev \
	  || { $(BIN)/python -m pip install -q -U pip && $(BIN)/python -m pip install -q -c constraints.txt --group dev; }
	@touch $@
