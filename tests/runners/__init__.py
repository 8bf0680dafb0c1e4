"""Programs that run the test suite: `make test`, `make test-fast`, `make test-more`, `make test-containers`."""
