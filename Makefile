.DEFAULT_GOAL := help
PYTHON ?= python3
PACKAGES := $(shell $(PYTHON) requirements/members.py)
ARGS ?=

.PHONY: help setup wheels demo demo-control demo-colours demo-cdc demo-state bench bench-quick bench-connectors bench-rows test test-fast s3-server test-more test-containers images compose chaos chaos-quick chaos-connectors chaos-control chaos-colours equivalence roundtrips mutations fuzz soak lint format audit types release release-images publish lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed  ## create .venv, compile modules, find or install Java, download the jars; provides .venv/bin/hifi
	.venv/bin/python -m hifi_infra.compile
	.venv/bin/python -m hifi_infra.java.jdk
	.venv/bin/python -m hifi_infra.java.jars
	.venv/bin/python -m hifi_infra.kafka.class_archive
	.venv/bin/python -m hifi_enrich.spark.make_class_archive

wheels:  ## as setup, but packages are wheels as in a release: CI runs everything so; undo with `make clean`
	rm -f .venv/.installed
	$(MAKE) --no-print-directory .venv/.installed
	.venv/bin/python -m hifi_infra.compile
	HIFI_RELEASE_COMPILED=$$(.venv/bin/python -m hifi_infra.compile --which) \
		.venv/bin/uv pip install --quiet --python .venv/bin/python --reinstall --no-build-isolation --no-deps $(addprefix ./,$(PACKAGES))
	.venv/bin/python release/same_as_sources.py
	$(MAKE) --no-print-directory setup

demo: setup  ## send recorded flights through a mesh on this machine (ARGS="--rate 500 --for 60")
	.venv/bin/hifi demo $(ARGS)

demo-control: setup  ## take a tour of the control plane under load, in four to ten minutes (ARGS="--report FILE")
	.venv/bin/hifi demo --control $(ARGS)

demo-colours: setup  ## take a tour of two colours under load, in about six minutes (ARGS="--report FILE")
	.venv/bin/hifi demo --colours $(ARGS)

demo-cdc: setup  ## deliver the changes of a PostgreSQL table to a webhook, a database and an Iceberg table, in about three minutes (ARGS="--kill")
	.venv/bin/hifi demo --cdc $(ARGS)

demo-state: setup  ## compute steps over a day of flights with late events, and compare the results with another program's, in about five minutes (ARGS="--kill")
	.venv/bin/hifi demo --state $(ARGS)

# Without ARGS some pytest processes share the work; with ARGS one does, which suits a selection.
test: setup  ## run all tests with a real Kafka (ARGS="-k name", KAFKA=HOST:PORT or KAFKA=testcontainers)
	$(if $(ARGS),.venv/bin/pytest --durations=10,.venv/bin/python -m tests.runners.run_groups) $(if $(KAFKA),--kafka=$(KAFKA)) $(ARGS)

test-fast: .venv/.installed  ## run the quick tests, which need no Kafka, Java and other programs, in less than a minute (ARGS="-k name")
	.venv/bin/python -m tests.runners.run_groups --fast $(ARGS)

s3-server: .venv/.installed  ## build the S3 server that tests of object destinations use, with Go, in about five minutes
	GOBIN=$(CURDIR)/.venv/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

test-more: setup  ## run the tests marked "more", which CI leaves out; adds the result to tests/more-runs.md
	.venv/bin/python -m tests.runners.run_more $(ARGS)

images:  ## build the images, without lake, state and view (ARGS="all", or names such as ARGS="egest view"; HIFI_TAG=...)
	HIFI_TAG=$(or $(HIFI_TAG),latest) DOCKER_HOST=$$(infra/docker/engine.sh) infra/docker/images.sh $(ARGS)

compose:  ## start the whole mesh in containers, wait until it is ready, print its addresses (ARGS="--scale normalize=3"; HIFI_CONTROL=hifi-control)
	$(MAKE) images ARGS=
	infra/docker/up.sh $(ARGS)

test-containers: setup  ## build every image, run the mesh in containers, inject faults (ARGS="-k name"; HIFI_TEST_TAG: of images that exist)
	$(if $(HIFI_TEST_TAG),,$(MAKE) --no-print-directory images HIFI_TAG=test ARGS=)
	HIFI_TEST_CONTAINERS=1 HIFI_TEST_TAG=$(or $(HIFI_TEST_TAG),test) .venv/bin/python -m tests.runners.run_twice tests/containers $(ARGS)

chaos: setup  ## inject random faults into a mesh under load (ARGS="--seconds 600 --seed 7"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.chaos --seconds 600 --report bench/results/chaos.ndjson $(ARGS)

chaos-quick: setup  ## as chaos, in two to three minutes with one broker: kills of each service and Kafka, a freeze, a bad destination
	.venv/bin/python -m tests.chaos --seconds 240 --rate 300 --brokers 1 --freeze 6 --within 90 \
		--faults kill=6 --faults freeze=1 --faults kill_all_brokers=1 --faults misbehave=1 $(ARGS)

chaos-connectors: setup s3-server  ## faults under sources and destinations of every kind, each twice (ARGS="--seed 7 --renew"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.chaos.connectors --report bench/results/chaos-connectors.ndjson $(ARGS)

chaos-control: setup  ## kill and freeze the services of a control plane while they work (ARGS="--times 20"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.chaos.control_plane --report bench/results/chaos-control.ndjson $(ARGS)

chaos-colours: setup  ## change Kafka, partitions, Spark and a release under two colours (ARGS="--change kafka"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.chaos.colours --report bench/results/chaos-colours.ndjson $(ARGS)

roundtrips: setup  ## send random values from each source to each destination, and compare what stands there (ARGS="--values 20000")
	.venv/bin/python -m tests.values $(ARGS)

mutations: setup  ## break each guarantee in a copy of the tree, and expect its test to fail (ARGS="--only NAME")
	.venv/bin/python -m tests.mutations $(ARGS)

fuzz: setup  ## change inputs of each decoder for ten minutes, guided by the code that they reach (ARGS="request pipe --seconds 60")
	.venv/bin/python -m tests.fuzz $(ARGS)

equivalence: setup  ## change random tables at random, and compare the rows at source and destination (ARGS="--seeds 20")
	.venv/bin/python -m tests.equivalence $(ARGS)

soak: setup  ## ten minutes of recorded flights, observe checked against request logs (ARGS="--restart"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.soak --report bench/results/soak.ndjson $(ARGS)

bench: setup .venv-bench/.installed  ## compare the mesh with a FastStream chain and plain Kafka; writes docs/benchmarks.md and bench/notes/benchmarks.md (ARGS="--runs 1")
	.venv/bin/python bench/run.py $(ARGS)

bench-quick: setup .venv-bench/.installed  ## measure cost at a small load in about two minutes; ends with a line of JSON, fails when cost has multiplied
	.venv/bin/python bench/quick.py

bench-connectors: setup  ## compare each connector's step with a loop by hand (ARGS="kafka --rounds 1 --whole"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python bench/connectors.py --report bench/results/connectors.ndjson $(ARGS)

bench-rows: setup  ## measure growth of cost, starts and restarts, a few minutes each (ARGS="pipes dead --fresh"); adds to bench/results
	.venv/bin/python bench/rows.py $(ARGS)

lint: .venv/.installed  ## check style, format, docstrings, imports between packages, and repeated code
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/interrogate --config pyproject.toml libs connectors services infra cli
	.venv/bin/lint-imports --no-logo
	.venv/bin/pylint --disable=all --enable=duplicate-code,cyclic-import libs/hifi libs/aiokafka_cooperative connectors/*/hifi_* services/*/hifi_* infra/hifi_infra cli/hifi_cli

format: .venv/.installed  ## correct style and format where a tool can
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

audit: .venv/.installed  ## check the pinned packages for known vulnerabilities, where the package index lists them
	.venv/bin/python -m hifi_infra.vulnerability_audit

types: .venv/.installed  ## check types (mypy --strict)
	.venv/bin/mypy

release: .venv/.installed  ## build all of a release into dist/, twice, and compare: wheels, constraints, SBOM, checksums
	.venv/bin/python release/build.py

release-images: .venv/.installed  ## build the images of a release twice, and compare and list what they hold (dist/images)
	.venv/bin/python release/build.py --images

publish: .venv/.installed  ## upload a release to INDEX, REGISTRY and CHARTS (docs/releases.md; ARGS=--dry-run prints the commands)
	.venv/bin/python release/publish.py $(ARGS)

lock: .venv/.installed  ## resolve all pins again: Python packages and jars
	requirements/lock.sh
	.venv/bin/python -m hifi_infra.java.jars --lock

clean:  ## remove the environments and tool caches, but no data of a mesh
	rm -rf .venv .venv-bench .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: requirements/build.lock requirements/all.lock $(addsuffix /pyproject.toml,$(PACKAGES))
	@$(PYTHON) requirements/members.py >/dev/null
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.lock
	.venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python --no-build-isolation --require-hashes -r requirements/all.lock
	.venv/bin/uv pip install --quiet --python .venv/bin/python --no-build-isolation --no-deps $(addprefix -e ,$(PACKAGES))
	touch $@

.venv-bench/.installed: requirements/bench.lock .venv/.installed
	$(PYTHON) -m venv --without-pip .venv-bench
	.venv/bin/uv pip install --quiet --compile-bytecode --python .venv-bench/bin/python --require-hashes -r requirements/bench.lock
	touch $@
