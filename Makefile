# Two commands: `make demo` shows the main job, `make test` runs all tests.
# They need Python 3.11 or newer and make; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROJECTS := packages/ahwire packages/ahrules packages/ahwal packages/ahcollector packages/ahnotify reference-server testkit
MANIFESTS := pyproject.toml constraints.txt $(addsuffix /pyproject.toml,$(PROJECTS))

.DEFAULT_GOAL := help
.PHONY: help demo demo-check test setup clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

demo: setup ## run the main job on this machine's real metrics; Ctrl-C stops it
	@$(BIN)/ah-server demo

demo-check: setup ## run the main job with a failure in the middle, check every step, exit 0 or 1
	@$(BIN)/ah-server demo --check

test: setup ## run every gate and test
	@$(BIN)/nox

setup: $(STAMP) ## build .venv with everything in it

$(STAMP): $(MANIFESTS) Makefile
	@sh testkit/venv.sh "$(PYTHON)" "$(VENV)"
	@echo "setup: installing the workspace into $(VENV)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt \
	  --group dev --group services \
	  -e packages/ahwire[zstd] -e packages/ahrules \
	  -e packages/ahwal[host,prometheus,opentelemetry,cli,http2,fast] \
	  -e packages/ahcollector[http,redis,nats,metrics] \
	  -e packages/ahnotify[postgres,sqlite,rabbitmq,clickhouse,redis,email,web,secrets] \
	  -e reference-server -e testkit
	@touch $@
	@echo "setup: done"

clean: ## remove .venv and all that was built
	rm -rf $(VENV) .nox dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
