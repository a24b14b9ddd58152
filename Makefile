# Plain `make` lists what there is. Everything runs inside .venv, which the first target that needs it sets up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := .cache/.extras
JAVA := .cache/.java
COMPILED := .cache/.compiled
NEWEST := .cache/newest-python
PYTEST_WORKERS ?= 2
LONG_TIMEOUT_S := 3600
UNIT := -m "not apache and not spark" --ignore tests/compat --ignore tests/crash

.DEFAULT_GOAL := help
.PHONY: help demo demo-cluster demo-agent test test-long unit-newest check format bench unit apache compile clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ottla needs Python 3.11 or newer, and $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable '.[test,check,bench]'
	@touch $@

# What the tests need beyond Python: each step that cannot be done here is named, and its tests skip.
$(EXTRAS): scripts/extras.sh $(READY)
	@mkdir -p $(dir $@)
	@sh scripts/extras.sh
	@touch $@

# What Spark needs: where it cannot be had, the demo says what to install.
$(JAVA): scripts/extras.sh
	@mkdir -p $(dir $@)
	@sh scripts/extras.sh java
	@touch $@

# The loops that run once per record as C extensions; without a compiler they stay plain Python.
$(COMPILED): $(addprefix src/ottla/client/codec/,batch_builder.py batch_builder.pxd inline_functions.pxd column_writer.py record_reader.py record_reader.pxd) \
		$(addprefix src/ottla/,client/network/receiving.pyx log/offset_map.pyx) $(READY)
	@mkdir -p $(dir $@)
	@$(BIN)/python scripts/compile.py || true
	@touch $@

compile: $(COMPILED) ## Compile the loops that run once per record (done by test and bench)

demo: $(READY) $(JAVA) $(COMPILED) ## User behaviour, live: a broker, Spark, a kill in the middle, a report (two minutes)
	@$(BIN)/python -m scripts.demo

demo-cluster: $(READY) $(JAVA) $(COMPILED) ## The same on three brokers and a Spark cluster, and a leader is killed too
	@$(BIN)/python -m scripts.demo --cluster

demo-agent: $(READY) $(JAVA) $(COMPILED) ## A log that grows and is rotated, its agent killed, status codes on Spark
	@$(BIN)/python -m scripts.agent_demo

test: $(READY) $(EXTRAS) $(COMPILED) check ## Set up, run the checks and all tests
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup

test-long: $(READY) $(EXTRAS) $(COMPILED) check ## All tests with soaks and many seeds, then unit-newest (hours)
	@OTTLA_LONG=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup --timeout $(LONG_TIMEOUT_S)
	@$(MAKE) unit-newest

# An environment of its own, without PySpark and without the compiled codec.
$(NEWEST)/.ready: pyproject.toml scripts/newest_python.py $(READY)
	@found=$$($(BIN)/python scripts/newest_python.py) && echo "setting up $(NEWEST) with $$found (once)" && \
	  rm -rf $(NEWEST) && $$found -m venv $(NEWEST)
	@OTTLA_PURE=1 $(NEWEST)/bin/python -m pip install --quiet --editable '.[unit]'
	@touch $@

unit-newest: $(NEWEST)/.ready ## The unit tests on the newest Python of this machine
	@$(NEWEST)/bin/python --version
	@OTTLA_PURE=1 $(NEWEST)/bin/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup $(UNIT) \
	  $(addprefix --ignore tests/,spark demo examples)

unit: $(READY) ## The tests that need nothing but Python, quickest first
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup $(UNIT)

check: $(READY) ## ruff, ruff format, mypy --strict on src
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary

format: $(READY) ## Put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) $(EXTRAS) $(COMPILED) ## Measure side by side with Apache Kafka (long; see benchmarks/README.md)
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.cluster_measures
	@$(BIN)/python -m benchmarks.spark_measures
	@$(BIN)/python -m benchmarks.spark_connectors
	@$(BIN)/python -m benchmarks.spark_pipeline
	@$(BIN)/python -m benchmarks.agent_measures

clean: ## Remove what the set-up made
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .hypothesis
