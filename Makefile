# make run | test | check; `make help` lists the rest. Needs Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FILE ?= deploy/samples/kraftcluster.yaml
DATA ?= .kraft
NODE_DATA ?= .kraft/data
SEEDS ?= 200
SEED_FROM ?= 100000
JOBS ?= 4
MINUTES ?= 10
PICK ?=
PORT ?= 9092

# What was compiled is kept, whatever the shell says: without it each of the tests' hundreds of processes compiles all.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run cluster node pipeline-demo test test-bare test-random test-alone test-pipeline test-spark42 test-lake table-kills matrix check format sim sim-operator sim-night planted planted-raft planted-operator exhaustive bench bench-quick faults peers clean fuzz-pipeline e2e e2e-smoke e2e-chaos e2e-kind docs reference olm-bundle release release-check release-images locks

help: ## what can be made
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.node: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.cli: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli]'
	@touch $@ $(VENV)/.node

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.node $(VENV)/.cli

run: $(VENV)/.cli ## the cluster of FILE (three controllers, three brokers from localhost:9092 on; data in .kraft); Ctrl-C stops it
	@exec $(BIN)/kraftcluster up --file $(FILE) --data $(DATA)

cluster: run ## the same

$(VENV)/.pipeline: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,pipeline,delta,report]'
	@touch $@ $(VENV)/.node $(VENV)/.cli

pipeline-demo: $(VENV)/.pipeline ## a cluster, data in, a table and reports out (in .kraft/demo), all stopped at the end; needs Java
	@$(BIN)/python -m tools.pipeline_demo --out $(DATA)/demo --port $(PORT)

node: $(VENV)/.node ## one node on localhost:9092 (data in .kraft/data); Ctrl-C stops it
	@exec $(BIN)/python -m kraft_node.cli.local --data $(NODE_DATA)

ON_SPARK := tests/compat/test_pipeline_*.py tests/pipeline

test: $(VENV)/.dev ## the everyday tests: all but those of the pipeline on Spark
	-@$(BIN)/python tools/peers.py suite
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m 'not slow' --durations=15 $(ON_SPARK:%=--ignore-glob='%') tests

test-bare: $(VENV)/.dev ## the everyday tests as on a machine with Python and make, without Java, Maven, kcat and Apache Kafka
	$(BIN)/python -m tools.bare $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m 'not slow' $(ON_SPARK:%=--ignore-glob='%') $(or $(PICK),tests)

ORDER ?= 1
test-random: $(VENV)/.dev ## the everyday tests in the random order ORDER=n, or PICK of them: no test may need another one
	$(BIN)/python -m pytest -p randomly --randomly-seed=$(ORDER) --randomly-dont-reset-seed -n $(JOBS) --dist loadgroup -m 'not slow' \
		$(ON_SPARK:%=--ignore-glob='%') $(or $(PICK),tests)

test-alone: $(VENV)/.dev ## each of the everyday tests alone, in a process of its own, or PICK of them
	$(BIN)/python -m pytest -p tests.alone -n $(JOBS) --dist loadgroup -m 'not slow' $(ON_SPARK:%=--ignore-glob='%') $(or $(PICK),tests)

test-pipeline: $(VENV)/.dev ## the everyday tests of the pipeline: Spark, tables, archive and scrub beside both servers
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not slow' -rs --durations=15 $(ON_SPARK)

SPARK42 := .spark/4.2
$(SPARK42)/.installed: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(SPARK42) 'pyspark==4.2.*'
	@touch $@

test-spark42: $(SPARK42)/.installed peers ## the everyday tests of the pipeline on PySpark 4.2
	PYTHONPATH=$(SPARK42) $(BIN)/python -m pytest -n 2 --dist loadgroup -m 'not slow' -rs $(PICK) \
		tests/compat/test_pipeline_spark.py tests/compat/test_pipeline_connector.py

test-lake: peers ## what KafkaTable writes, as Spark with Delta's and Iceberg's own jars reads it
	$(BIN)/python -m pytest -n 1 -rs tests/compat/test_pipeline_lake.py

table-kills: $(VENV)/.dev ## the writer of a KafkaTable killed fifty times for each format, in folders and in an object store; brokers, too
	KRAFT_KILLS=50 $(BIN)/python -m pytest -n 2 -rs -k 'killed or away' tests/compat/test_pipeline_table.py \
		tests/compat/test_pipeline_table_life.py tests/pipeline

FUZZ_VALUES ?= 100000
FUZZ_SEED ?= 0
fuzz-pipeline: $(VENV)/.dev ## FUZZ_VALUES=n random values of each format from FUZZ_SEED=n into each kind of table: none stops it
	$(BIN)/python -m tests.fuzz.pipeline.tables --values $(FUZZ_VALUES) --seed $(FUZZ_SEED)

matrix: $(VENV)/.dev peers ## docs/compatibility.md from a run of every client against us and Apache Kafka
	$(BIN)/python tools/peers.py suite
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --matrix docs/compatibility.md tests/compat

check: $(VENV)/.dev ## ruff, mypy, import contracts, tidy tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/tidy

format: $(VENV)/.dev ## mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sim: $(VENV)/.dev ## the raft core, a node and a cluster of nodes under SEEDS=n seeds of simulated faults
	$(BIN)/python -m kraft_node.testing.raft --seeds $(SEEDS)
	$(BIN)/python -m kraft_node.testing.sim --seeds $(SEEDS)
	$(BIN)/python -m kraft_node.testing.sim --scenario cluster --seeds $(SEEDS)

planted: $(VENV)/.dev ## plant known bugs into copies of the node: which law finds which, alone and in a cluster
	$(BIN)/python -m tests.sim.planted_bugs

exhaustive: $(VENV)/.dev ## every order of events of three voters, up to bounds (two million states: a minute or two)
	$(BIN)/python -m kraft_node.testing.raft.exhaustive

planted-raft: $(VENV)/.dev ## plant known bugs into a copy of the raft core: each must be noticed
	$(BIN)/python -m tools.planted tests/sim/raft/planted

planted-operator: $(VENV)/.dev ## plant known bugs into a copy of the operator: each must be noticed
	$(BIN)/python -m tools.planted tests/sim/operator/planted

sim-operator: $(VENV)/.dev ## the operator's planner over real Raft cores under SEEDS=n seeds: chaos, then deaths after every write
	$(BIN)/python -m tests.sim.operator --seeds $(SEEDS)
	$(BIN)/python -m tests.sim.operator --seeds 3 --crashes

sim-night: $(VENV)/.dev ## seeds of the raft core, of nodes and of clusters without end, from SEED_FROM on; Ctrl-C stops it
	@$(BIN)/python -m kraft_node.testing.raft --seeds 0 --seed-from $(SEED_FROM) & raft=$$!; \
	trap 'kill $$raft 2>/dev/null' INT TERM EXIT; \
	$(BIN)/python -m kraft_node.testing.sim --scenario both --seeds 0 --first $(SEED_FROM) --jobs 1

peers: $(VENV)/.dev ## Apache Kafka, Spark's connector, and a Spark with Delta and Iceberg into .peers (needs Java and Maven)
	$(BIN)/python tools/peers.py install
	$(BIN)/python tools/peers.py connector
	$(BIN)/python tools/peers.py lakehouse

faults: $(VENV)/.dev ## real processes under real faults for MINUTES=n
	$(BIN)/python -m tests.faults --minutes $(MINUTES)

bench: $(VENV)/.dev peers ## ours beside Apache Kafka on this machine: two hours; bench-quick: does every row work?
	$(BIN)/python -m bench run
	$(BIN)/python -m bench page

bench-quick: $(VENV)/.dev peers
	$(BIN)/python -m bench quick

e2e: $(VENV)/.dev ## the operator on the lab: every behaviour, with clients working through it (half an hour)
	e2e/lab.sh

e2e-smoke: $(VENV)/.dev ## of that, from nothing to Ready and a roll: a few minutes
	e2e/lab.sh smoke

e2e-chaos: $(VENV)/.dev ## the operator on the lab under MINUTES=n of chaos, SEED=n: nothing is lost, all settles (MINUTES=60 for the proof)
	E2E_CHAOS_MINUTES=$(MINUTES) E2E_CHAOS_SEED=$(SEED) e2e/lab.sh chaos

e2e-kind: $(VENV)/.dev ## the same as e2e on kind (PICK=smoke: test_smoke.py alone); brings Docker along where there is none
	e2e/kind.sh $(PICK)

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs ## the documentation's site into build/site, links checked; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

olm-bundle: $(VENV)/.dev ## a bundle of the operator for OLM into build/olm-bundle; needs Helm
	$(BIN)/python -m tools.olm

reference: $(VENV)/.dev ## the generated pages and pictures of the documentation, anew
	$(BIN)/python -m tools.config_docs
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.diagrams
	$(BIN)/python -m tools.raft_roles

$(VENV)/.release: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

release-check: $(VENV)/.release ## do all files state one version, and does the changelog have it?
	@$(BIN)/python -m tools.release check

release: $(VENV)/.release ## wheel, charts, bills of materials and sums into build/release; docs/project/releases.md has the rest
	rm -rf build/release
	@for step in wheel charts sbom sums; do $(BIN)/python -m tools.release $$step || exit 1; done

release-images: $(VENV)/.release ## the three images, tagged with the version; needs Docker
	@$(BIN)/python -m tools.release images

locks: ## what the images are made of, by hash, anew
	$(PYTHON) -m venv .locks && .locks/bin/pip install --quiet pip-tools
	$(PYTHON) tools/locks.py .locks/bin/pip-compile
	rm -rf .locks

clean: ## forget the virtual environment and caches (never the data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
