"""The script that builds images finds or installs HAProxy with a Python that has no packages."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_haproxy_is_found_by_a_python_without_packages_or_its_command_is_told(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-S", "-m", "hifi_infra.colours.haproxy_program"],
        env={
            "PYTHONPATH": f"{ROOT}/libs:{ROOT}/infra",
            "PATH": str(tmp_path),
        },  # no apt-get: nothing is installed
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        assert "apt-get install haproxy" in completed.stderr
    else:
        assert Path(completed.stdout.strip()).name == "haproxy"
