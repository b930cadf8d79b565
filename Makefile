# make run | test | check; `make help` lists the rest. Needs Python >= 3.11 only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FILE ?= deploy/samples/kraftcluster.yaml
DATA ?= .kraft
NODE_DATA ?= .kraft/data
SEEDS ?= 200
JOBS ?= 4
RERUNS ?= 0
MINUTES ?= 10
BUDGET ?= 8h
PICK ?=
PORT ?= 9092

# Keep compiled files, also if the shell forbids them: otherwise each of the tests' hundreds of processes compiles all.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run cluster node pipeline-demo test test-bare test-random test-slow test-properties suites test-alone test-pipeline test-spark42 test-lake table-kills matrix check check-style check-types check-tidy format sim sim-groups sim-rare sim-secured sim-transactions sim-whole sim-operator sim-night planted planted-raft planted-migration planted-operator detection exhaustive bench bench-quick faults migration-faults crash-points soak peers clean fuzz-pipeline fuzz-early e2e e2e-smoke e2e-chaos e2e-kind docs reference olm-bundle release release-check release-images locks

help: ## list the targets
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

run: $(VENV)/.cli ## start the cluster of FILE: three controllers, three brokers from localhost:9092 on, data in .kraft; Ctrl-C stops it
	@exec $(BIN)/kraftcluster up --file $(FILE) --data $(DATA)

cluster: run ## the same as run

$(VENV)/.pipeline: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,pipeline,delta,report]'
	@touch $@ $(VENV)/.node $(VENV)/.cli

pipeline-demo: $(VENV)/.pipeline ## start a cluster, write data, make a table and reports in .kraft/demo, stop everything; needs Java
	@$(BIN)/python -m tools.pipeline_demo --out $(DATA)/demo --port $(PORT)

node: $(VENV)/.node ## start one node on localhost:9092, data in .kraft/data; Ctrl-C stops it
	@exec $(BIN)/python -m kraft_node.cli.local --data $(NODE_DATA)

ON_SPARK := tests/compat/pipeline tests/pipeline
FOREIGN := .pytest_cache/foreign-tests

test: $(VENV)/.dev ## run the everyday tests: all but the tests of the pipeline on Spark, and those of make check
	-@$(BIN)/python tools/peers.py suite
	$(BIN)/python -m pytest -p tests.foreign --foreign-tests $(FOREIGN) -n $(JOBS) --dist loadgroup --reruns $(RERUNS) -m 'not slow' --durations=15 \
		$(ON_SPARK:%=--ignore-glob='%') --ignore=tests/tidy tests

test-bare: $(VENV)/.dev ## run the everyday tests as on a machine with Python and make only: without Java, Maven, kcat and Apache Kafka
	$(BIN)/python -m tools.bare $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --reruns $(RERUNS) -m 'not slow' $(ON_SPARK:%=--ignore-glob='%') $(or $(PICK),tests)

ORDER ?= 1
test-random: $(VENV)/.dev ## run the everyday tests, or PICK of them, in the random order ORDER=n: no test may need another test
	$(BIN)/python -m pytest -p randomly --randomly-seed=$(ORDER) --randomly-dont-reset-seed -n $(JOBS) --dist loadgroup -m 'not slow' \
		$(ON_SPARK:%=--ignore-glob='%') $(or $(PICK),tests)

test-slow: $(VENV)/.dev ## run the tests of the night, or PICK of them; those that bugs are planted for have their own targets
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow -rs --durations=15 --ignore=tests/sim/test_planted.py $(or $(PICK),tests)

suites: $(VENV)/.dev ## run the test suites of franz-go, sarama, librdkafka, rskafka and others, or SUITE, against clusters of ours; needs Go, Rust, npm, a C++ compiler and Java
	-@$(BIN)/python tools/peers.py install 4.3.1
	$(BIN)/python -m tests.suites $(SUITE)

TIMES ?= 10
test-properties: $(VENV)/.dev ## run the properties with TIMES=n times their examples; every day a third of the examples is tried
	KRAFT_TIMES=$(TIMES) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --timeout 3600 tests/property

test-alone: $(VENV)/.dev ## run each of the everyday tests, or PICK of them, in a process of its own
	$(BIN)/python -m pytest -p tests.alone -n $(JOBS) --dist loadgroup -m 'not slow' $(ON_SPARK:%=--ignore-glob='%') $(or $(PICK),tests)

test-pipeline: $(VENV)/.dev ## run the tests of the pipeline against both servers: Spark, tables, archive, scrub; needs Java
	$(BIN)/python -m pytest -n 2 --dist loadgroup --reruns $(RERUNS) -m 'not slow' -rs --durations=15 $(ON_SPARK)

SPARK42 := .spark/4.2
$(SPARK42)/.installed: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(SPARK42) 'pyspark==4.2.*'
	@touch $@

test-spark42: $(SPARK42)/.installed peers ## run the tests of the pipeline on PySpark 4.2
	PYTHONPATH=$(SPARK42) $(BIN)/python -m pytest -n 2 --dist loadgroup --reruns $(RERUNS) -m 'not slow' -rs $(PICK) \
		tests/compat/pipeline/test_pipeline_spark.py tests/compat/pipeline/test_pipeline_connector.py

test-lake: peers ## read tables of KafkaTable by a Spark with Delta's and Iceberg's own jars
	$(BIN)/python -m pytest -n 1 -rs tests/compat/pipeline/test_pipeline_lake.py

table-kills: $(VENV)/.dev ## kill writers of a KafkaTable, and brokers, fifty times for each format, in folders and in an object store, from SEED=n
	KRAFT_KILLS=50 KRAFT_SEED=$(SEED) $(BIN)/python -m pytest -n 2 -rs -k 'killed or away' tests/compat/pipeline/test_pipeline_table.py \
		tests/compat/pipeline/test_pipeline_table_life.py tests/pipeline

FUZZ_VALUES ?= 100000
FUZZ_SEED ?= 0
fuzz-pipeline: $(VENV)/.dev ## write FUZZ_VALUES=n random values of each format, from FUZZ_SEED=n, into each kind of table
	$(BIN)/python -m tests.fuzz.pipeline.tables --values $(FUZZ_VALUES) --seed $(FUZZ_SEED)

FUZZ_INPUTS ?= 1000000
fuzz-early: $(VENV)/.dev ## send FUZZ_INPUTS=n hostile inputs of FUZZ_SEED=n to listeners of SASL and TLS before authentication
	$(BIN)/python -m tests.fuzz.security.early --inputs $(FUZZ_INPUTS) --seed $(FUZZ_SEED)

matrix: $(VENV)/.dev peers ## run every client against us and Apache Kafka, and write docs/compatibility.md
	$(BIN)/python tools/peers.py suite
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --matrix docs/compatibility.md tests/compat

check: check-style check-types check-tidy ## run ruff, mypy, import contracts and tidy tests; with -j 2 at the same time

check-style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

check-types: $(VENV)/.dev
	$(BIN)/mypy

check-tidy: $(VENV)/.dev
	$(BIN)/python -m pytest tests/tidy

format: $(VENV)/.dev ## format the sources with ruff, and apply its automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

sim: $(VENV)/.dev ## simulate the raft core, a node and a cluster of nodes under SEEDS=n seeds of faults
	$(BIN)/python -m kraft_node.testing.raft --seeds $(SEEDS)
	$(BIN)/python -m kraft_node.testing.sim --seeds $(SEEDS)
	$(BIN)/python -m kraft_node.testing.sim --scenario cluster --seeds $(SEEDS)

sim-groups: $(VENV)/.dev ## simulate clusters with consumer groups of both protocols under SEEDS=n seeds of faults
	$(BIN)/python -m kraft_node.testing.sim --scenario groups --seeds $(SEEDS)

sim-secured: $(VENV)/.dev ## simulate clusters with SASL on all listeners, changing passwords and intruders under SEEDS=n seeds of faults
	$(BIN)/python -m kraft_node.testing.sim --scenario secured --seeds $(SEEDS)

sim-transactions: $(VENV)/.dev ## simulate clusters with transactional producers, copiers and readers under SEEDS=n seeds of faults
	$(BIN)/python -m kraft_node.testing.sim --scenario transactions --seeds $(SEEDS)

sim-rare: $(VENV)/.dev ## simulate nodes and clusters that often take paths which are rare in production, under SEEDS=n seeds of each scenario
	for kind in node cluster groups transactions secured whole; do $(BIN)/python -m kraft_node.testing.sim --scenario $$kind --rare --seeds $(SEEDS) || exit 1; done

sim-whole: $(VENV)/.dev ## simulate clusters with all clients, administrators and faults in one world under SEEDS=n seeds
	$(BIN)/python -m kraft_node.testing.sim --scenario whole --seeds $(SEEDS)

planted: $(VENV)/.dev ## plant known bugs into copies of the node: the laws must find each, alone and in a cluster
	$(BIN)/python -m tests.sim.planted_bugs

exhaustive: $(VENV)/.dev ## try every order of events of three voters, up to bounds: two million states, a minute or two
	$(BIN)/python -m kraft_node.testing.raft.exhaustive

planted-raft: $(VENV)/.dev ## plant known bugs into copies of the raft core: the simulator must find each
	$(BIN)/python -m tools.planted tests/sim/raft/planted

planted-migration: $(VENV)/.dev ## plant known bugs into copies of the migration: the simulator must find each
	$(BIN)/python -m tools.planted tests/sim/migration/planted

planted-operator: $(VENV)/.dev ## plant known bugs into copies of the operator: the tests must find each
	$(BIN)/python -m tools.planted tests/sim/operator/planted

detection: $(VENV)/.dev ## hunt random mutants of the cores with random seeds, and write docs/detection; takes many hours
	$(BIN)/python -m tools.mutants run
	$(BIN)/python -m tools.mutants page

sim-operator: $(VENV)/.dev ## simulate the operator over whole nodes, and its planner over Raft cores, under SEEDS=n seeds; then deaths after every write
	$(BIN)/python -m tests.sim.operator.nodes --seeds $(SEEDS)
	$(BIN)/python -m tests.sim.operator --seeds $(SEEDS)
	$(BIN)/python -m tests.sim.operator --seeds 3 --crashes

sim-night: $(VENV)/.dev ## simulate seeds that have not run before for BUDGET=8h, and record them in docs/detection/nights
	$(BIN)/python -m tools.nights run --budget $(BUDGET); status=$$?; $(BIN)/python -m tools.nights page; exit $$status

peers: $(VENV)/.dev ## fetch Apache Kafka (4.3.1, and 3.9.2 with ZooKeeper), Connect, Spark's connector, a Spark with Delta and Iceberg, Azurite and sslyze into .peers; needs Java, Maven, npm
	$(BIN)/python tools/peers.py install 4.3.1 3.9.2
	$(BIN)/python tools/peers.py connect
	$(BIN)/python tools/peers.py connector
	$(BIN)/python tools/peers.py lakehouse
	-$(BIN)/python tools/peers.py azurite
	$(BIN)/python tools/peers.py sslyze

faults: $(VENV)/.dev ## run real processes under real faults for MINUTES=n
	$(BIN)/python -m tests.faults --minutes $(MINUTES)

POINTS ?= 500

crash-points: $(VENV)/.dev ## cut the power of a node on a real file system POINTS=500 times; needs fuse3
	$(BIN)/python -m tests.crash --points $(POINTS)

RUNS ?= 1
SEED ?= 1
migration-faults: $(VENV)/.dev ## migrate RUNS=n clusters of Apache Kafka 3.9.2 from ZooKeeper under faults, from SEED=n; there and back with REVERT=any, reading, or 0 to 3 replaced brokers; needs Java
	-@$(BIN)/python tools/peers.py install 3.9.2
	$(BIN)/python -m tests.faults.migration --runs $(RUNS) --seed $(SEED) $(if $(REVERT),--revert $(REVERT))

bench: $(VENV)/.dev peers ## measure our server beside Apache Kafka on this machine: two hours; bench-quick checks that every row works
	$(BIN)/python -m bench run
	$(BIN)/python -m bench page

bench-quick: $(VENV)/.dev peers
	$(BIN)/python -m bench quick

e2e: $(VENV)/.dev ## test the operator on the lab: every behaviour, with clients at work; half an hour
	e2e/lab.sh

e2e-smoke: $(VENV)/.dev ## test a first start and a roll on the lab: a few minutes
	e2e/lab.sh smoke

MACHINE ?= 2
e2e-chaos: $(VENV)/.dev ## test the operator on the lab under MINUTES=n of chaos (60 for the proof), SEED=n; the machine MACHINE=2 or 3 is cut off now and then
	E2E_CHAOS_MINUTES=$(MINUTES) E2E_CHAOS_SEED=$(SEED) E2E_CHAOS_MACHINE=$(MACHINE) e2e/lab.sh chaos

e2e-kind: $(VENV)/.dev ## run e2e on kind (PICK=smoke: test_smoke.py alone); starts its own Docker on a machine without Docker
	e2e/kind.sh $(PICK)

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs ## build the documentation's site in build/site and check links; open build/site/index.html, or with its search: python -m http.server -d build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

olm-bundle: $(VENV)/.dev ## write a bundle of the operator for OLM to build/olm-bundle; needs Helm
	$(BIN)/python -m tools.olm

reference: $(VENV)/.dev ## write the generated pages and pictures of the documentation again
	$(BIN)/python -m tools.config_docs
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.diagrams
	$(BIN)/python -m tools.raft_roles

$(VENV)/.release: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

release-check: $(VENV)/.release ## check that all files state one version, and that the changelog has it
	@$(BIN)/python -m tools.release check

release: $(VENV)/.release ## build wheel, charts, bills of materials and sums in build/release; see docs/project/releases.md
	rm -rf build/release
	@for step in wheel charts sbom sums; do $(BIN)/python -m tools.release $$step || exit 1; done

release-images: $(VENV)/.release ## build the three images, tagged with the version; needs Docker
	@$(BIN)/python -m tools.release images

locks: ## write the locks of the images' packages, with hashes, again
	$(PYTHON) -m venv .locks && .locks/bin/pip install --quiet pip-tools
	$(PYTHON) tools/locks.py .locks/bin/pip-compile
	rm -rf .locks

soak: $(VENV)/.dev ## load three controllers and three brokers for MINUTES=n as users do, roll them, draw memory and latencies to build/soak
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

clean: ## delete the virtual environment and caches, never the data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
