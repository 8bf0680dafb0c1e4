"""The contract suite of destinations is shared with the connectors."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "connectors"))
pytest.register_assert_rewrite("destination_contract", "kind_under_test")
