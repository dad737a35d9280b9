# Redbatch: targets for development. `make` without a target lists them; .ci/run calls the same ones.
# Most targets create the environment in .venv on first use, and update it when a lock file has changed: `make run`
# installs what running needs, the others what tests and checks need too. After that, neither installs anything again.

PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
READY_RUN := .venv/.ready-run
PIP_TOOLS := pip-tools==7.6.2
AUDIT_TOOLS := pip-audit==2.10.1 cyclonedx-bom==7.5.0

# If PYTHON is given, only that one is tried; the default has an alternative.
CANDIDATES := $(if $(filter file,$(origin PYTHON)),$(PYTHON) python3,$(PYTHON))
# Some containers forbid Python to write bytecode. pip compiles nothing here (requirements/install.sh), so every process
# would compile its modules again: 6 s for torch and transformers.
unexport PYTHONDONTWRITEBYTECODE

PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input

# The tests run in one process more than there are cores, at most four, because they wait for other processes for a third
# of their time. JOBS=0 runs them in a single process, in which -s and --pdb work.
JOBS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 1)))
PYTEST = $(BIN)/pytest -n $(JOBS) --maxprocesses 4 --dist worksteal

# make ignores unknown variables. Those that somebody gives `make run` are meant for `redbatch up`.
IGNORED = $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(filter-out ARGS PYTHON JOBS,$(name))))
ifneq ($(filter run,$(MAKECMDGOALS)),)
$(foreach name,$(IGNORED),$(error $(name) has no effect; give options in ARGS: make run \
    ARGS="--$(shell printf %s '$(name)' | tr A-Z_ a-z-) $($(name))"))
endif

.DEFAULT_GOAL := help
.PHONY: help setup run docs manifests chart test test-long test-images test-engine test-browser stress chaos soak bench bench-peers bench-overload bench-cache bench-jobs bench-embed bench-rerank bench-gpu bench-simulation bench-autoscaling bench-sweep bench-guard bench-scale bench-replay bench-console recording screenshots test-redis7 test-valkey test-redis8 test-frameworks fuzz check fmt lock audit sbom clean FORCE

help: ## List the targets (this page)
	@printf 'Redbatch: a dynamic-batching cluster for embedding models, on Redis.\n\n'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@printf '\nThe first use creates the environment in .venv, which takes a few minutes; later uses reuse it.\n'
	@printf 'ARGS passes arguments to the command:     make run ARGS="--workers 2"    make test ARGS="-k batching -x"\n'
	@printf 'Another Python (3.11 or newer):           make run PYTHON=/path/to/python3\n'

setup: $(READY) ## Create the environment for tests and checks, and nothing else
	@echo 'The environment in .venv is ready. To put its commands on the PATH of a terminal: source .venv/bin/activate'

run: $(READY_RUN) ## Start a complete cluster in this terminal (Ctrl-C stops it)
	@exec $(BIN)/redbatch up $(ARGS)

test: $(READY) ## Run all tests, with the Redis 6.2 of the environment
	@echo 'Running the tests: first pytest collects thousands of them, which takes up to a minute without a line ...'
	@$(PYTEST) $(ARGS)

docs: $(READY) ## Write the generated parts of the documents: tables of keys, settings and pure modules, OpenAPI
	@$(BIN)/python -m tools.documents

manifests: ## Render k8s/redbatch.yaml from k8s/overlays/gpu; needs kubectl, but no cluster
	@{ printf '# Rendered by `make manifests` from k8s/overlays/gpu: change it there.\n'; \
	    kubectl kustomize k8s/overlays/gpu; } >k8s/.redbatch.yaml && mv k8s/.redbatch.yaml k8s/redbatch.yaml

chart: $(READY) ## Write the Helm chart in helm/redbatch from k8s/; needs kubectl, but no cluster
	@$(BIN)/python -m tools.helm_chart

test-long: $(READY) ## Run the tests that are too slow for each change, except chaos and images (ten minutes)
	@$(BIN)/pytest -m long --ignore tests/chaos --ignore tests/deploy/test_images.py $(ARGS)

test-images: $(READY) ## Install the packages of the images in fresh environments and serve requests (five minutes, 3 GB)
	@$(BIN)/pytest -m slow tests/deploy/test_images.py $(ARGS)

test-engine: $(READY) ## Build the images and run them on engines, also on a Swarm of three nodes; needs root, and 8 GB of disk
	@$(BIN)/pytest -m engine tests/engine $(ARGS)

test-browser: $(READY) ## Look at the console with Chromium, which has to be installed, in a separate environment
	@$(BIN)/pytest -m browser tests/browser $(ARGS)

stress: $(READY) ## Run the long stress tests: 100,000 requests under faults (two minutes)
	@$(BIN)/pytest -m slow tests/integration/cluster/test_stress.py $(ARGS)

chaos: $(READY) ## Kill, hang and disconnect processes, check every request, and write docs/reliability.md (18 minutes)
	@$(PYTEST) --dist load --maxschedchunk 1 -m slow tests/chaos -o timeout=900 -v $(or $(ARGS),--document)

soak: $(READY) ## Inject random faults for MINUTES (30), and plot what grows over time
	@exec $(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),30) $(ARGS)

bench: $(READY) ## Benchmark this machine, and write its tables into the documents (30 minutes)
	@exec $(BIN)/python -m bench.suite $(ARGS)

bench-peers: $(READY) ## Compare with FastAPI, mosec, LitServe, BentoML, Ray Serve, Infinity and Triton (50 minutes)
	@exec $(BIN)/python -m bench.peers.suite $(ARGS)

bench-overload: $(READY) ## Overload Redbatch, FastAPI and mosec by up to ten times their capacity (eight minutes)
	@exec $(BIN)/python -m bench.peers.overload $(ARGS)

bench-cache: $(READY) ## Measure the vector cache with texts of Zipf-distributed frequency (eight minutes)
	@exec $(BIN)/python -m bench.cache $(ARGS)

bench-jobs: $(READY) ## Measure latency of requests beside a job of 100,000 texts (seven minutes)
	@exec $(BIN)/python -m bench.jobs $(ARGS)

bench-embed: $(READY) ## Compare redbatch embed on a file with the model offline (ten minutes)
	@exec $(BIN)/python -m bench.embed_file $(ARGS)

bench-rerank: $(READY) ## Compare reranking with the model offline, Infinity and CrossEncoder.predict (an hour)
	@exec $(BIN)/python -m bench.rerank $(ARGS)

bench-gpu: $(READY) ## Compare a served GPU with the same GPU offline (eight minutes); needs a GPU, no network
	@exec $(BIN)/python -m bench.gpu $(ARGS)

bench-simulation: $(READY) ## Simulate the adaptive wait and fixed waits (four minutes); ARGS=--check-real: compare with a real cluster
	@exec $(BIN)/python -m bench.simulation $(ARGS)

bench-autoscaling: $(READY) ## Simulate a day with a tenfold peak under the autoscalers of k8s/ (five minutes)
	@exec $(BIN)/python -m bench.autoscaling $(ARGS)

bench-sweep: $(READY) ## Compare batch sizes and waits with the maximum of a simulated model (five minutes)
	@exec $(BIN)/python -m bench.sweep $(ARGS)

bench-guard: $(READY) ## Compare the speed with the last tag v*, or ARGS="--against COMMIT", in turns (two minutes)
	@exec $(BIN)/python -m bench.guard $(ARGS)

bench-scale: $(READY) ## Compare the cost of a request on 1 to 8 gateways and workers, at the same rate (eight minutes)
	@exec $(BIN)/python -m bench.scale $(ARGS)

bench-replay: $(READY) ## Measure what a request costs 1, 2 and 3 Redis, without HTTP and a model (one minute)
	@exec $(BIN)/python -m bench.replay $(ARGS)

bench-console: $(READY) ## Measure what viewers of the console cost a gateway and its requests (four minutes)
	@exec $(BIN)/python -m bench.console $(ARGS)

recording: $(READY) ## Record the terminal of the README: a worker and Redis killed under load (half a minute)
	@exec $(BIN)/python -m bench.recording

screenshots: $(READY) ## Write the pictures of the console in docs/images, of a cluster that it starts (a minute); needs Chromium
	@exec $(BIN)/python -m tests.browser.screenshots

# The redis-server (6.2) of an activated environment comes first on the PATH: the search skips it.
test-redis7: $(READY) ## Run the tests that use Redis with the redis-server (7 or newer) on the PATH
	@set -eu; \
	server=$$(PATH=$$(printf '%s' "$$PATH" | tr ':' '\n' | grep -vxF '$(CURDIR)/$(BIN)' | paste -sd: -) && \
	    command -v redis-server) || { \
	    echo 'make test-redis7 needs a redis-server (7 or newer) on the PATH, and found none.' >&2; exit 1; }; \
	version=$$("$$server" --version | sed -n 's/.* v=\([0-9][0-9.]*\).*/\1/p'); \
	if [ "0$${version%%.*}" -lt 7 ]; then \
	    echo "make test-redis7 needs Redis 7 or newer; $$server is $${version:-of an unknown version}." >&2; exit 1; fi; \
	echo "Running the tests that use Redis with $$server ($$version) ..."; \
	REDBATCH_TEST_REDIS_SERVER="$$server" REDBATCH_TEST_USERS="$${REDBATCH_TEST_USERS-1}" exec $(PYTEST) -m redis $(ARGS)

test-valkey: $(READY) ## Run the tests that use Redis with the valkey-server on the PATH (Debian: bookworm-backports)
	@set -eu; \
	server=$$(command -v valkey-server) || { \
	    echo 'make test-valkey needs a valkey-server on the PATH, and found none.' >&2; exit 1; }; \
	echo "Running the tests that use Redis with $$("$$server" --version | cut -d' ' -f1-3) ..."; \
	REDBATCH_TEST_REDIS_SERVER="$$server" REDBATCH_TEST_USERS="$${REDBATCH_TEST_USERS-1}" exec $(PYTEST) -m redis $(ARGS)

test-redis8: $(READY) ## Nightly: run the tests that use Redis with the redis-server (8 or newer) in REDBATCH_TEST_REDIS_SERVER
	@set -eu; \
	server="$${REDBATCH_TEST_REDIS_SERVER-}"; \
	[ -x "$$server" ] || { \
	    echo 'make test-redis8 needs the path of a redis-server in REDBATCH_TEST_REDIS_SERVER.' >&2; exit 1; }; \
	version=$$("$$server" --version | sed -n 's/.* v=\([0-9][0-9.]*\).*/\1/p'); \
	if [ "0$${version%%.*}" -lt 8 ]; then \
	    echo "make test-redis8 needs Redis 8 or newer; $$server is $${version:-of an unknown version}." >&2; exit 1; fi; \
	echo "Running the tests that use Redis with $$server ($$version) ..."; \
	REDBATCH_TEST_USERS="$${REDBATCH_TEST_USERS-1}" exec $(PYTEST) -m redis $(ARGS)

test-frameworks: $(READY) ## Run the clients and frameworks of retrieval against a gateway, in separate environments
	@$(BIN)/pytest -m frameworks tests/integration/clients $(ARGS)

fuzz: $(READY) ## Send CASES (1,000,000) generated streams of bytes to a gateway; check answers, logs and memory (half an hour to an hour)
	@exec $(BIN)/python -m tests.fuzz --cases $(or $(CASES),1000000) $(ARGS)

check: $(READY) ## Check format, lint, types, import rules and language
	@echo 'Format (ruff) ...'
	@$(BIN)/ruff format --check
	@echo 'Lint (ruff) ...'
	@$(BIN)/ruff check
	@echo 'Types (mypy) ...'
	@$(BIN)/mypy
	@echo 'Import rules (import-linter) ...'
	@$(BIN)/lint-imports --no-logo
	@echo 'Language (tools/plain_language.py) ...'
	@$(BIN)/python -m tools.plain_language

fmt: $(READY) ## Format the code and apply the automatic fixes of the linter
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

lock: $(READY) ## Update the lock files from pyproject.toml (pins that still fit stay)
	@if [ "$$($(BIN)/python -m pip freeze | grep '^pip-tools==')" != '$(PIP_TOOLS)' ]; then \
	    echo 'Installing $(PIP_TOOLS) ...'; $(PIP) install '$(PIP_TOOLS)'; fi
	@PATH="$(CURDIR)/$(BIN):$$PATH" requirements/lock.sh

# Their tools need other versions of packages than the lock files have, hence the separate environment.
AUDIT_READY := .audit/.ready

$(AUDIT_READY): Makefile | $(READY)
	@echo 'Installing $(AUDIT_TOOLS) in .audit ...'
	@rm -rf .audit && $(BIN)/python -m venv .audit && .audit/bin/python -m pip --quiet --disable-pip-version-check --no-input install $(AUDIT_TOOLS) && touch $@

audit: $(AUDIT_READY) ## Compare the lock files with the known vulnerabilities of PyPI; needs its JSON API
	@$(BIN)/python -m tools.audit

sbom: $(AUDIT_READY) ## Write dist/sbom: what Python packages each image contains (CycloneDX)
	@$(BIN)/python -m tools.sbom

clean: ## Remove the environment and the files that tools create
	@echo 'Removing .venv, .audit, .bench, caches and reports ...'
	@rm -rf .venv .audit .bench .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .infinity_cache .coverage .coverage.* htmlcov dist
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# FORCE: the environment was moved, or its Python no longer exists.
ifneq ($(shell test -x $(BIN)/python && cat $(READY_RUN) 2>/dev/null),$(CURDIR))
$(READY_RUN): FORCE
endif

$(READY_RUN): requirements/torch.txt requirements/local.lock
	@PYTHONS='$(CANDIDATES)' exec requirements/install.sh

$(READY): requirements/dev.lock $(READY_RUN)
	@PYTHONS='$(CANDIDATES)' exec requirements/install.sh dev
