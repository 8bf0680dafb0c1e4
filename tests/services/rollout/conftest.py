"""Lets the tests of the rollout service import the modules beside them: test folders are not packages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
