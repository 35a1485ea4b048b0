# `make demo` and `make test` need Python 3.11 or newer, make, and nothing else: the rest is installed into .venv.
#
#   PYTHON=python3.12   the Python to build .venv from (default: the first of python3.11, .12, .13, python3 that runs)
#   TORCH=cuda          the CUDA build of PyTorch, several gigabytes (default: the CPU build; macOS has only one)
#   ARGS=...            passed on to `redraft demo` or to pytest

PYTHON ?=
TORCH ?=
ARGS ?=
WORKERS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
# The same pins for what is installed and for what builds it. Relative: pip splits these at spaces.
PINS := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
PIP := $(PINS) $(PY) -m pip --disable-pip-version-check --no-input
PYTEST := $(PY) -m pytest -rs
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)

unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help demo install dev test test-long lint format wheel clean FORCE
.NOTPARALLEL:

help: ## show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

demo: $(VENV)/.core ## install what is missing and run the demo
	@$(VENV)/bin/redraft demo $(ARGS)

install: $(VENV)/.core ## install the package into .venv

dev: $(VENV)/.dev ## install the package and the development tools into .venv

test: lint ## formatting, lint, types and the fast tests
	$(PYTEST) -m "not long" -n $(WORKERS) --dist worksteal $(ARGS)

test-long: $(VENV)/.dev ## the long tests
	@$(PYTEST) -m long $(ARGS) || { status=$$?; \
	  [ $$status -ne 5 ] || echo "redraft: no long test was collected, so nothing was tested." >&2; exit $$status; }

lint: $(VENV)/.dev ## formatting, lint and types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pyright

format: $(VENV)/.dev ## format, and mend what ruff can mend
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

wheel: $(VENV)/.dev ## build a wheel into dist/
	$(PINS) $(PY) -m build --wheel

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# --- .venv, in four steps, each with a stamp ---

# A .venv that works is kept, unless another Python is asked for by name.
$(VENV)/.python: $(if $(PYTHON),FORCE)
	@probe='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
	version='import sys; print(sys.version_info[:3])'; python=; \
	for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
	  if "$$candidate" -c "$$probe" >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if $(PY) -m pip --version >/dev/null 2>&1 && $(PY) -c "$$probe" >/dev/null 2>&1 && { [ -z "$(PYTHON)" ] || \
	  [ "$$($(PY) -c "$$version")" = "$$("$$python" -c "$$version" 2>/dev/null)" ]; }; then \
	  [ -e $@ ] || touch $@; exit 0; \
	fi; \
	if [ -z "$$python" ]; then \
	  echo "redraft: $(if $(PYTHON),'$(PYTHON)' is not,found no) Python 3.11 or newer that runs and has its venv module; install one, or name one: make $(or $(MAKECMDGOALS),demo) PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV) && touch $@

# The CPU build comes first and alone, so that no dependency can pull in gigabytes of CUDA. A build once chosen stays.
$(VENV)/.torch: $(VENV)/.python constraints.txt $(if $(TORCH),FORCE)
	@had="$$(cat $@ 2>/dev/null)"; build="$(TORCH)"; build="$${build:-$${had%% *}}"; build="$${build:-cpu}"; \
	want="$$build $(TORCH_VERSION)"; log=$(VENV)/torch.log; \
	case "$$build" in cpu|cuda) ;; *) echo "redraft: TORCH is cpu or cuda, not '$$build'." >&2; exit 1;; esac; \
	if [ "$$had" = "$$want" ]; then [ $@ -nt constraints.txt ] || touch $@; exit 0; fi; \
	rm -f $@; $(PIP) uninstall -qq -y torch; \
	echo "Installing PyTorch $(TORCH_VERSION) ($$build build)"; \
	if [ "$$build" = cuda ] || [ "$$(uname -s)" = Darwin ]; then \
	  $(PIP) install -qq "torch==$(TORCH_VERSION)" || exit 1; \
	elif ! $(PY) -m pip install --no-deps "torch==$(TORCH_VERSION)+cpu" >$$log 2>&1 && \
	  ! $(PY) -m pip install --no-deps --retries 1 --timeout 30 --index-url https://download.pytorch.org/whl/cpu \
	    "torch==$(TORCH_VERSION)+cpu" >>$$log 2>&1; then \
	  echo "redraft: no CPU build of PyTorch $(TORCH_VERSION) for $$($(PY) --version) could be installed ($$log says why): try another Python (make $(or $(MAKECMDGOALS),demo) PYTHON=python3.11) or the CUDA build of several gigabytes (make $(or $(MAKECMDGOALS),demo) TORCH=cuda)." >&2; \
	  rm -f $(VENV)/.python; exit 1; \
	fi; \
	echo "$$want" >$@

$(VENV)/.core: $(VENV)/.torch pyproject.toml constraints.txt
	@echo "Installing redraft and what it needs"
	@$(PIP) install -qq -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Installing the development tools"
	@$(PIP) install -qq -e ".[dev]"
	@touch $@

FORCE:
