"""Makes the modules of the round trips importable by their package's name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "connectors" / "postgres"))
