# The verbs of this repository; CI uses the same ones. `make` alone lists them.
# Paths are relative and recipes name .venv/bin/python, so a checkout may live in "My Projects".

PYTHON3 ?= python3
PYTHON  := .venv/bin/python
READY   := .venv/ready
SERVING := .venv/serving

.DEFAULT_GOAL := help
.PHONY: help server test check fix cover sim fuzz chaos bench docs image

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

server: $(SERVING) ## Run Corvo on 127.0.0.1:8080 with its data in ./data; more with FLAGS="--bind …"
	@exec $(PYTHON) -m corvo server $(FLAGS)

# Some kills need strace, the examples their languages, the compose files their load balancer, and
# alerts and dashboards a Prometheus. There is a worker more than cores, for many tests wait for processes.
test: $(READY) ## Run every test
	$(call HAVE,strace:strace node:nodejs go:golang-go haproxy:haproxy prometheus:prometheus promtool:prometheus,some tests are not covered)
	$(PYTHON) -m pytest --numprocesses $$(($$(nproc) + 1)) --maxprocesses 8

check: $(READY) ## Check format, lint, types, imports, house rules and docs
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m ruff check
	$(PYTHON) -m mypy
	.venv/bin/lint-imports
	$(PYTHON) -m pytest --quiet tests/test_tidy.py tests/test_docs.py tests/test_texts.py tests/test_floors.py

fix: $(READY) ## Format the code, and fix lint errors that can be fixed automatically
	$(PYTHON) -m ruff format
	$(PYTHON) -m ruff check --fix

# Without the tests that roll dice: what is covered must not depend on luck.
cover: $(READY) ## Check that tests cover every line and branch of the Raft core
	$(PYTHON) -m coverage run -m pytest --quiet tests/raft \
	    --ignore tests/raft/test_fuzz_step.py --ignore tests/raft/test_machine.py
	$(PYTHON) -m coverage report

sim: $(READY) ## Simulate Raft groups, and whole clusters, MINUTES=1 each; SHARDS=yes or CLUSTERS=yes: only those, or one SEED
	$(PYTHON) -m tests.sim$(if $(SHARDS),.shards)$(if $(CLUSTERS),.clusters) $(if $(SEED),$(SEED),--minutes $(or $(MINUTES),1))
	$(if $(SHARDS)$(CLUSTERS)$(SEED),,$(PYTHON) -m tests.sim.clusters --minutes $(or $(MINUTES),1))

fuzz: $(READY) ## Test a node's HTTP API against its OpenAPI document for MINUTES=4; SEED= repeats a run
	$(PYTHON) -m tests.router.judging --minutes $(or $(MINUTES),4)$(if $(SEED), --seed $(SEED))

chaos: $(READY) ## Break a real cluster for MINUTES=2, and check the history; more with FLAGS="--nodes 5 …"
	$(call HAVE,ip:iproute2 mkfs.ext4:e2fsprogs mount:mount cc:gcc cc:libc6-dev,some faults are not covered)
	$(PYTHON) -m chaos run --minutes $(or $(MINUTES),2)$(if $(SEED), --seed $(SEED)) $(FLAGS)

bench: $(READY) ## Measure the speed
	$(call HAVE,wrk:wrk,three parts of the node are not measured)
	$(PYTHON) -m bench

docs: $(READY) ## Write the generated parts of the docs
	$(PYTHON) -m tests.test_docs --rewrite
	$(PYTHON) -m tests.test_floors --rewrite
	$(PYTHON) -m tests.raft.conformance
	$(PYTHON) -m tests.router.test_openapi
	$(PYTHON) -m tests.helm.test_values
	$(PYTHON) -m tests.alerts.rules
	$(PYTHON) -m tests.alerts.boards

image: ## Build the container image with docker, podman or buildah; BASE=, TAG=, TOOL=; WHEELS=yes: packages of pip here
	@$(PYTHON3) deploy/image/build.py $(if $(TOOL),--tool "$(TOOL)") $(if $(BASE),--base $(BASE)) \
	    $(if $(TAG),--tag $(TAG)) $(if $(WHEELS),--wheels) -- $(FLAGS)

# What the server needs, and no more: it is there sooner than all the tools.
$(SERVING): pyproject.toml requirements/constraints.txt
	$(MAKE_VENV)
	$(INSTALL) --editable .
	@touch $@

$(READY): pyproject.toml requirements/constraints.txt
	$(MAKE_VENV)
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(SERVING)

INSTALL = PIP_CONSTRAINT=requirements/constraints.txt $(PYTHON) -m pip install --quiet

# What Debian asks before a package starts its service.
SERVICES ?= /usr/sbin/policy-rc.d

# Install the packages of commands that are missing, given as command:package, or say what follows.
# Tests need programs only: meanwhile no package starts a service.
define HAVE
@missing=; for each in $(1); do \
    command -v "$${each%%:*}" >/dev/null || missing="$$missing $${each#*:}"; \
done; \
if [ -z "$$missing" ]; then :; \
elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    if [ ! -e $(SERVICES) ]; then \
        trap 'rm -f $(SERVICES)' EXIT; \
        printf '#!/bin/sh\nexit 101\n' >$(SERVICES) && chmod +x $(SERVICES); \
    fi; \
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
        apt-get install -qy --no-install-recommends $$missing; } \
    || echo "Without$$missing $(2)" >&2; \
else \
    echo "Without$$missing $(2); on Debian: sudo apt-get install$$missing" >&2; \
fi
endef

# Debian keeps a part of `venv` in a package of its own. Root may install it; others are told how.
define MAKE_VENV
@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "Corvo needs Python 3.11 or newer; name one with: make PYTHON3=/path/to/python3 ..." >&2; exit 1; }
@$(PYTHON3) -c 'import ensurepip; ensurepip.version()' 2>/dev/null || { \
    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
        apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy python3-venv; \
    else \
        echo "Python's venv is not whole here; on Debian: sudo apt-get install python3-venv" >&2; exit 1; \
    fi; }
$(PYTHON3) -m venv .venv
endef
