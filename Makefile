.DEFAULT_GOAL := help
PYTHON ?= python3
PACKAGES := libs services/ingest services/normalize services/enrich services/egest services/retrier infra cli

.venv/.installed: requirements/build.lock requirements/all.lock $(addsuffix /pyproject.toml,$(PACKAGES))
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.lock
	.venv/bin/uv pip install --quiet --python .venv/bin/python --no-build-isolation --require-hashes -r requirements/all.lock
	.venv/bin/uv pip install --quiet --python .venv/bin/python --no-build-isolation --no-deps $(addprefix -e ,$(PACKAGES))
	touch $@
