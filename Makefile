# `make demo` and `make test` set everything up from a clean clone; they need python3 and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv

SECONDS := 300
# How many processes share the tests: two cores carry five, of which some wait; see tests/order.py.
PROCESSES := 5
# How many processes fuzz.
FUZZERS := 2

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz integration check bench hashes clean

help:  ## show this
	@echo "Flyball. What you can make:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(VENV)/.run  ## run the whole loop on this machine, with a live page on http://127.0.0.1:8080
	@$(BIN)/flyball demo $(ARGS)

test: $(VENV)/.dev  ## run the tests that need no server (ARGS="tests/models -x" for some of them)
	@$(BIN)/pytest -m "not integration" $(or $(ARGS),-n $(PROCESSES) --dist loadfile --no-loadscope-reorder)

# What never ends is found, too: a signal would only make hypothesis try the same input again.
fuzz: $(VENV)/.dev  ## search for inputs that break the property tests, for SECONDS=300 (ARGS="tests/contracts" for some)
	@ends=$$(( $$(date +%s) + $(SECONDS) )); while now=$$(date +%s) && [ $$now -lt $$ends ]; do \
	  FLYBALL_FUZZ=1 FLYBALL_FUZZ_SEED=$$now FLYBALL_FUZZ_TIME=$$(( ends - now )) \
	    $(BIN)/pytest -q -m "hypothesis and not integration" --timeout-method=thread \
	    $(or $(ARGS),-n $(FUZZERS) $$(grep -rl --include='test_*.py' hypothesis tests)) || exit 1; done

integration: $(VENV)/.dev  ## run the tests on real servers; infra/kafka/fetch and infra/victoria/fetch get them
	@$(BIN)/pytest -m integration --timeout=600 --durations=15 --durations-min=5 $(ARGS)

check: $(VENV)/.dev  ## the house checks: format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## measure what a core carries, quickly (ARGS= for the full run); bench/README.md has the others
	$(BIN)/python bench/spine.py $(if $(filter undefined,$(origin ARGS)),--quick,$(ARGS))

hashes: $(VENV)/.base  ## write hashes.txt anew: the packages of constraints.txt, as an index has them now
	$(UV) pip compile -q --no-deps --no-header --no-annotate --universal --python-version 3.11 --generate-hashes \
	  constraints.txt -o hashes.txt

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

# All packages are held to hashes.txt, by uv as constraints. Where uv cannot reach an index that pip can, pip, which takes
# hashes only of all that it installs, installs all of the list.
$(VENV)/.base: hashes.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' hashes.txt >$(VENV)/uv.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	@touch $@

$(VENV)/.run: $(VENV)/.base pyproject.toml
	@echo "setting up (once)"
	@$(UV) pip install -q -p $(BIN)/python -c hashes.txt -b hashes.txt --require-build-hashes -e '.[all]' \
	  || { $(BIN)/python -m pip install -q --no-deps --require-hashes -r hashes.txt \
	    && $(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .; }
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(UV) pip install -q -p $(BIN)/python -c hashes.txt --group dev \
	  || $(BIN)/python -m pip install -q --no-deps --require-hashes -r hashes.txt
	@touch $@
