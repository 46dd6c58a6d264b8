# The front door of affinitypool.  `make help` lists the targets.
#
# PYTHON=...      the interpreter to make VENV with; default: the first that will do
#                 (tools/find_python.sh); where VENV is there already, its own interpreter is used
# VENV=...        the virtual environment; default: .venv-VERSION, made when it is missing; with a
#                 version in its name, .venv-3.13t say, and without PYTHON it is one of that version
# BENCH_ARGS=...  for `make bench`, --short say; `make bench BENCH_ARGS=--help` lists them
# TESTS=...       the files or folders that `make test-python` runs; default: tests
# PYTEST_ARGS=... for `make test`, -k map say
# BRIDGE_ARGS=... for test-debug, leaks, test-asan, memcheck: tools/bridge.py --help
# MIX_ARGS=...    for `make mix`, --seconds 10 --seed 1 say
# SOAK_ARGS=...   for `make soak`, --rounds 5 --pythons 3.13 say; `make soak SOAK_ARGS=--help`
# LIVENESS_ARGS=... for `make liveness`, --only shutdown say
# FUZZ_RUNS=... FUZZ_SEED=... FUZZ_ONLY=... for `make fuzz` (tests/fuzz/run.py)
# STRESS_SECONDS=600 for `make sanitize` and `make stress`: again with other seeds, until then;
#                 AP_STRESS_SEED=... is the seed of a run that failed
# MODEL_ARGS=... for `make model`, model_park say; MUTANTS="NAME..." for `make mutants`
# CC=... CLANG=... CLANG_FORMAT=... for `make lint`

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

ifeq ($(origin CC),default)
CC := gcc
endif
CLANG ?= $(shell command -v clang-14 || command -v clang)
CLANG_FORMAT ?= $(shell command -v clang-format-14)

# Targets that need no Python do not look for one.
ifneq ($(filter-out help clean ci test-c sanitize stress controls format-c,$(or $(MAKECMDGOALS),help)),)
ifeq ($(wildcard $(and $(VENV),$(VENV)/bin/python)),)
ASKED := $(PYTHON)
NAMED := $(if $(ASKED),,$(VENV))
override PYTHON := $(shell sh tools/find_python.sh "$(PYTHON)")
ifeq ($(PYTHON),)
$(error no usable Python, see above)
endif
VENV ?= .venv-$(shell $(PYTHON) -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")))')
ifneq ($(and $(filter 0,$(MAKELEVEL)),$(ASKED),$(wildcard $(VENV)/bin/python)),)
$(info $(VENV) is there: what runs is its interpreter, $(shell $(VENV)/bin/python -V), whatever PYTHON says)
endif
endif
endif

# Stamps lie in the environment; they go with it.
IN_VENV := $(VENV)/bin/python
PIP := $(IN_VENV) -m pip --disable-pip-version-check
BUILT := $(VENV)/.affinitypool-built
NEEDS := $(VENV)/.affinitypool-needs
TESTS ?= tests
C_SOURCES := $(sort $(shell find csrc -name '*.[ch]' 2>/dev/null))
BUILD_SOURCES := $(C_SOURCES) $(wildcard build_ffi.py setup.py pyproject.toml MANIFEST.in)

.PHONY: help test test-c test-python mix soak liveness liveness-deep bench bench-micro lint lint-c lint-python format sanitize build environment clean ci fuzz stress controls test-debug leaks test-asan memcheck model model-deep mutants

help: ## list the targets
	@echo "make TARGET, all set-up included:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-15s %s\n", $$1, $$2 }'
	@echo "Variables: PYTHON, VENV, BENCH_ARGS, PYTEST_ARGS, MIX_ARGS, SOAK_ARGS, CC, CLANG (the head of the Makefile says more)"

test: ## C tests, then the Python tests
	@rm -f build/log/test-*.log
	@c=0; py=0; $(MAKE) test-c || c=1; $(MAKE) test-python || py=1; \
	echo; printf "in all: "; $(IN_VENV) tools/tally.py build/log/test-*.log; exit $$((c + py))

test-c: ## the C tests alone, with gcc and, if it is here, clang
	@sh tools/logged.sh build/log/test-c.log $(MAKE) -C tests/c check
	@[ -n "$(CLANG)" ] || echo "clang is not installed: the C tests ran with gcc only"

test-python: $(NEEDS)-test $(BUILT) ## the Python tests alone
	@echo "running the tests with $$($(IN_VENV) --version), $(VENV)"
	@sh tools/logged.sh build/log/test-python.log $(IN_VENV) -m pytest $(TESTS) $(PYTEST_ARGS)

fuzz: | $(IN_VENV) ## libFuzzer on each structure of the C core, and on planted defects
	@sh tools/logged.sh build/log/fuzz.log $(IN_VENV) tests/fuzz/run.py
# What each of them does, and its planted faults: tools/bridge.py.  BRIDGE_ARGS goes to it.
test-debug leaks test-asan memcheck: $(NEEDS)-test $(BUILT)
	@echo "$@ with $$($(IN_VENV) --version), $(VENV)"
	@sh tools/logged.sh build/log/$@.log $(IN_VENV) tools/bridge.py $(@:test-%=%) $(BRIDGE_ARGS)
test-debug: ## Python tests under the debug allocator and development mode
leaks: ## Python tests again and again, what each leaves behind counted (tests/leaks.py)
test-asan: ## some Python tests with the extension under Address- and UBSanitizer
memcheck: ## every entry point of the C types under valgrind

mix: $(BUILT) ## a minute of everything at random, checked to the last task (tests/faults/mix.py)
	@$(IN_VENV) tests/faults/mix.py $(MIX_ARGS)

soak: | $(IN_VENV) ## tests/faults 50 times, on two Pythons, in three settings: hours (tools/soak.py)
	@$(IN_VENV) tools/soak.py $(SOAK_ARGS)

liveness: | $(IN_VENV) ## models of the idle word in spin, and its controls (tests/liveness)
	@sh tools/logged.sh build/log/liveness.log $(IN_VENV) tests/liveness/run.py $(LIVENESS_ARGS)

liveness-deep: | $(IN_VENV) ## the same with more workers, pushers and tasks: the better part of an hour
	@$(IN_VENV) tests/liveness/run.py --deep $(LIVENESS_ARGS)

bench: $(NEEDS)-bench $(BUILT) ## the head-to-head with the stdlib's pool: table, JSON, plot
	@$(IN_VENV) -m bench $(BENCH_ARGS)

bench-micro: $(NEEDS)-test $(NEEDS)-bench $(BUILT) ## micro rows under pytest-benchmark
	@$(IN_VENV) -m pytest bench $(PYTEST_ARGS)

lint: lint-c lint-python ## formatters, linters, types, compiler warnings, layers

PYTHON_INCLUDE = $$($(IN_VENV) -c 'import sysconfig; print(sysconfig.get_path("include"))')
lint-c: | $(IN_VENV)
	@sh tools/check_layers.sh
	@sh tools/check_warnings.sh $(CC) $(PYTHON_INCLUDE)
	@if [ -n "$(CLANG)" ]; then sh tools/check_warnings.sh $(CLANG) $(PYTHON_INCLUDE); \
	else echo "clang is not installed: its warnings were not looked at"; fi
	@if [ -n "$(CLANG_FORMAT)" ]; then find csrc tests -name '*.[ch]' | xargs -r $(CLANG_FORMAT) --dry-run -Werror && echo "clang-format: C files are formatted"; \
	else echo "clang-format-14 is not installed: the C formatting was not looked at"; fi

lint-python: $(NEEDS)-dev $(BUILT)
	@$(IN_VENV) -m ruff check .
	@$(IN_VENV) -m ruff format --check .
	@MYPYPATH=tests/mutants $(IN_VENV) -m mypy --strict affinitypool bench examples tools tests/liveness tests/model tests/mutants/*.py

format: $(NEEDS)-dev ## format the C and Python files
	@if [ -n "$(CLANG_FORMAT)" ]; then find csrc tests -name '*.[ch]' | xargs -r $(CLANG_FORMAT) -i; \
	else echo "clang-format-14 is not installed: C files left as they are"; fi
	@$(IN_VENV) -m ruff format .

sanitize: ## the C tests under Thread-, Address-, UB- and LeakSanitizer, by gcc and clang
	@sh tools/logged.sh build/log/sanitize.log $(MAKE) -j2 -C tests/c sanitize

stress: ## the C tests under seeded delays, faults in futex calls, one CPU, many threads
	@sh tools/logged.sh build/log/stress.log $(MAKE) -j2 -C tests/c stress

controls: ## defects planted in the C core, which the tools of sanitize and stress must find
	@sh tools/logged.sh build/log/controls.log $(MAKE) -C tests/c controls

model: | $(IN_VENV) ## the model checker's own tests, and every model up to its bound
	@sh tools/logged.sh build/log/model.log $(IN_VENV) tests/model/run.py $(MODEL_ARGS)

model-deep: | $(IN_VENV) ## the same with one more switch between threads, some minutes for each case
	@$(IN_VENV) tests/model/run.py --deep --seconds 600 $(MODEL_ARGS)

mutants: | $(IN_VENV) ## defects planted in the protocols, which the models have to notice
	@sh tools/logged.sh build/log/mutants.log $(IN_VENV) tests/mutants/run.py $(MUTANTS)

environment: $(NEEDS)-test $(BUILT) # what the tests need, without running them

build: $(BUILT) ## make the environment and build the package into it

ci: ## everything that CI runs
	@bash .ci/run

clean: ## remove what was built, keep the environments
	@rm -rf build dist *.egg-info affinitypool/_core*.so affinitypool/_core.c .venv*/.affinitypool-built
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

$(IN_VENV):
	@if echo "$(NAMED)" | grep -Eqx '[.]venv-3[.][0-9]+t?'; then \
		bash tools/environment.sh "$(NAMED:.venv-%=%)"; \
	else \
		echo "making $(VENV) with $(PYTHON)"; \
		$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no virtual environment: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }; \
	fi

# What a part of the project needs, `build` or an extra of pyproject.toml.
$(NEEDS)-%: pyproject.toml tools/requirements.py | $(IN_VENV)
	@echo "installing what '$*' needs into $(VENV)"
	@$(IN_VENV) tools/requirements.py $* > $@.txt
	@if $(PIP) install -qq --prefer-binary -r $@.txt; then touch $@; \
	elif [ $* = bench ]; then echo "not everything could be installed: the benchmark runs, perhaps without a plot"; \
	else exit 1; fi

# In place: `python -m bench` and the tests start in this directory, where the package's sources
# would otherwise hide an installed copy.  The extension's name carries the interpreter's tag.
$(BUILT): $(BUILD_SOURCES) $(NEEDS)-build
	@echo "building affinitypool into $(VENV)"
	@$(PIP) install -qq --no-build-isolation --no-deps --editable .
	@touch $@
