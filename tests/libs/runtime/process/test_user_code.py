"""Processes that run users' code have bounded memory, and end before those that started them."""

import subprocess
import sys
from typing import Final

_PROGRAM: Final = """
from pathlib import Path
from hifi.runtime.process.user_code import limit_memory
limit_memory(64 * 2**20)
try:
    bytearray(80 * 2**20)
except MemoryError:
    print("refused", Path("/proc/self/oom_score_adj").read_text())
"""


def test_a_limited_process_is_refused_more_memory_and_is_the_first_that_the_kernel_ends() -> None:
    run = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["refused", "1000"]
