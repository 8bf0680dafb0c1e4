.DEFAULT_GOAL := help
PYTHON ?= python3
PACKAGES := libs services/ingest services/normalize services/enrich services/egest services/retrier services/observe infra cli
ARGS ?=

.PHONY: help setup demo bench bench-quick bench-rows test test-containers images compose chaos chaos-quick soak lint audit types lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed  ## make the environment, find or install Java, get the jars; leaves .venv/bin/hifi
	.venv/bin/python -m hifi_infra.java.jdk
	.venv/bin/python -m hifi_infra.java.jars
	.venv/bin/python -m hifi_infra.kafka.class_archive
	.venv/bin/python -m hifi_enrich.spark.make_class_archive

demo: setup  ## send real flights through a real mesh on this machine (ARGS="--rate 500 --for 60")
	.venv/bin/hifi demo $(ARGS)

test: setup  ## run all tests against a real broker (ARGS="-k name", KAFKA=HOST:PORT or KAFKA=testcontainers)
	.venv/bin/pytest $(if $(KAFKA),--kafka=$(KAFKA)) $(ARGS)

images:  ## build an image of every service (ARGS="egest" for one; HIFI_TAG=...)
	DOCKER_HOST=$$(infra/docker/engine.sh) infra/docker/images.sh $(ARGS)

compose: images  ## start the whole mesh in containers, wait until it is ready, and say where
	infra/docker/up.sh

test-containers: setup  ## build every image, run the mesh in containers, break it (ARGS="-k name")
	HIFI_TEST_CONTAINERS=1 .venv/bin/pytest tests/containers $(ARGS)

chaos: setup  ## break a loaded mesh at random, once more (ARGS="--seconds 600 --seed 7"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.chaos --seconds 600 --report bench/results/chaos.ndjson $(ARGS)

chaos-quick: setup  ## the same in about four minutes, on one broker
	.venv/bin/python -m tests.chaos --seconds 90 --rate 300 --brokers 1 --freeze 6 --within 90 $(ARGS)

soak: setup  ## ten minutes of real flights, observe beside the books (ARGS="--restart"); adds to bench/results
	mkdir -p bench/results
	.venv/bin/python -m tests.soak --report bench/results/soak.ndjson $(ARGS)

bench: setup .venv-bench/.installed  ## rate the mesh beside a FastStream chain and raw Kafka; writes docs/benchmarks.md (ARGS="--runs 1")
	.venv/bin/python bench/run.py $(ARGS)

bench-quick: setup .venv-bench/.installed  ## compare costs at a small load in about two minutes; fails on a drop by a factor
	.venv/bin/python bench/quick.py

bench-rows: setup  ## how costs grow, starts and restarts, some minutes a kind (ARGS="pipes dead --fresh"); adds to the results
	.venv/bin/python bench/rows.py $(ARGS)

lint: .venv/.installed  ## check style, format and that every public name is documented
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/interrogate --config pyproject.toml libs services infra cli

audit: .venv/.installed  ## look the pinned packages up for known vulnerabilities, where the package index knows any
	.venv/bin/python -m hifi_infra.vulnerability_audit

types: .venv/.installed  ## check types, strictly
	.venv/bin/mypy

lock: .venv/.installed  ## resolve all pins anew: Python packages and jars
	requirements/lock.sh
	.venv/bin/python -m hifi_infra.java.jars --lock

clean:  ## remove the environment and all caches of tools; no data of any mesh
	rm -rf .venv .venv-bench .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: requirements/build.lock requirements/all.lock $(addsuffix /pyproject.toml,$(PACKAGES))
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.lock
	.venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python --no-build-isolation --require-hashes -r requirements/all.lock
	.venv/bin/uv pip install --quiet --python .venv/bin/python --no-build-isolation --no-deps $(addprefix -e ,$(PACKAGES))
	touch $@

.venv-bench/.installed: requirements/bench.lock .venv/.installed
	$(PYTHON) -m venv --without-pip .venv-bench
	.venv/bin/uv pip install --quiet --compile-bytecode --python .venv-bench/bin/python --require-hashes -r requirements/bench.lock
	touch $@
