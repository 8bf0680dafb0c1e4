"""Files, programs and addresses that hostile pipes have hifi open, change, execute and reach, in each service.

The kernel tells, the JVM and other processes included.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.libs.check.test_hostile_pipes import GRANTS

from hifi.spark.jars import user_cache_folder

ROOT: Final = Path(__file__).parents[3]
LIMITS: Final = {
    "HIFI_EGRESS_ALLOW": "",
    "HIFI_PIPES_SECRET_FOLDERS": "/run/secrets",
    "HIFI_PIPES_SECRET_GRANTS": GRANTS,
    "HIFI_PIPES_LOOKUP_FOLDERS": "/pipes",
    "HIFI_PIPES_OBJECT_FOLDERS": "/objects",
    "HIFI_PIPES_SOURCE_FOLDERS": "/sources",
    "HIFI_PIPES_LAKE_WAREHOUSES": "s3://b/w",
}
_FILE_CALLS: Final = (
    *("open", "openat", "openat2", "creat", "truncate", "unlink", "unlinkat", "rmdir", "rename", "renameat"),
    *("renameat2", "link", "linkat", "symlink", "symlinkat", "mkdir", "mkdirat", "chmod", "fchmodat"),
)
_CALLS: Final = (*_FILE_CALLS, "execve", "connect", "sendto", "sendmsg")
_CALL: Final = re.compile(rf"(?:\d+ +)?({'|'.join(_CALLS)})\((.*)")
_PATH: Final = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
"""Folder, if the call names one, and path of a file."""
_ADDRESS: Final = re.compile(r"sin6?_port=|sun_path=")
"""In the arguments of what sends: without it the socket is connected, or of the kernel."""
_LOOPBACK: Final = re.compile(r'sin6?_port=htons\((\d+)\).*"(?:127\.0\.0\.1|::ffff:127\.0\.0\.1|::1)"')
_EPHEMERAL: Final = 32_768
_RESOLVER: Final = re.compile(r'_port=htons\(53\)|sun_path="/(?:var/)?run/(?:nscd|systemd/resolve)/')
_OF_SERVICES: Final = (
    *(f"{sys.base_prefix}/bin/", "/etc/localtime", "/usr/share/locale/"),
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"),
    *("/etc/ssl/", "/usr/lib/ssl/", "/usr/share/ca-certificates/", "/etc/ld.so.cache", "/lib/", "/usr/lib/"),
)
"""Files that Python, the resolver of names, TLS and the loader of programs read."""


def own_folders(folder: Path) -> tuple[str, ...]:
    """Folders that hifi, Python and Java read of themselves, and the folders of the operator."""
    java = Path(shutil.which("java") or "/").resolve().parents[1]
    prefixes = {
        sys.prefix,
        sys.base_prefix + "/lib",
        str(java),
        str(ROOT),
        str(folder),
        "/etc/java-17-openjdk",
    }
    prefixes.add(str(user_cache_folder()))  # compiled modules
    system = (
        "/proc/",
        "/sys/",
        "/dev/",
        "/usr/share/zoneinfo/",
        "/tmp/hifi-",
        "/tmp/hsperfdata",
        "/tmp/spark",
    )
    return (*prefixes, *system, *LIMITS.values())


def escapes(calls: str, folder: Path, broker: str = "") -> Iterator[str]:
    """Kind of each system call that reaches anything else.

    Args:
        calls: as strace writes them.
        folder: of the test.
        broker: port of the mesh's own Kafka, of a service; it resolves names, reads what certificates are trusted and
            starts Python. Empty: of a command, which does not.
    """
    folders = own_folders(folder) + (_OF_SERVICES if broker else ())
    allowed_prefixes = tuple(prefix for prefix in folders if prefix.startswith("/"))
    for line in calls.splitlines():
        call = _CALL.match(line)
        if call is None:
            continue
        kind, arguments = call.groups()
        if kind in _FILE_CALLS:
            paths = [
                os.path.normpath(os.path.join(ROOT, path_folder, path))  # noqa: PTH118 - the text of the call
                for path_folder, path in _PATH.findall(arguments)
            ]
            if paths and all(path.startswith(allowed_prefixes) for path in paths):
                continue
        if kind in {"sendto", "sendmsg"} and _ADDRESS.search(arguments) is None:
            continue
        if kind == "connect" and (port := _LOOPBACK.search(arguments)) and int(port[1]) >= _EPHEMERAL:
            continue  # between Python and Spark
        if broker and (
            (
                kind in {"connect", "sendto", "sendmsg"}
                and (f"htons({broker})" in arguments or _RESOLVER.search(arguments))
            )
            or (kind == "execve" and arguments.startswith(f'"{sys.executable}"'))
        ):
            continue
        yield f"{kind} {arguments[:160]}"


def test_a_path_that_leads_out_of_a_folder_is_an_escape(tmp_path: Path) -> None:
    inner_calls = [
        f'7 openat(AT_FDCWD</>, "{tmp_path}/a", O_RDONLY)',
        f'openat(5<{tmp_path}>, "b/../c", O_RDONLY) = 6',
        f'openat(AT_FDCWD<{ROOT}>, "libs", O_RDONLY)',
        f'rename("{tmp_path}/a", "{tmp_path}/b") = 0',
        'sendto(5<TCP:[127.0.0.1:40000->127.0.0.1:40001]>, "x", 1, 0, NULL, 0) = 1',
    ]
    escaping_calls = [
        f'openat(AT_FDCWD</>, "{ROOT}/../../../../etc/passwd", O_RDONLY)',
        f'openat(5<{tmp_path}>, "../../../../../../etc/passwd", O_RDONLY)',
        'openat(AT_FDCWD</>, "etc/passwd", O_RDONLY)',
        'execve("/bin/sh", ["sh"], 0x7ffc)',
        f'rename("{tmp_path}/a", "/etc/a") = 0',
        f'unlinkat(5<{tmp_path}>, "../../../../../../etc/a", 0) = 0',
        'unlink("../../../../../../../../etc/a") = 0',
        'sendto(5<UDP:[1]>, "x", 1, 0, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("127.0.0.1")}, 16)',
    ]
    assert list(escapes("\n".join(inner_calls), tmp_path)) == []
    assert len(list(escapes("\n".join(escaping_calls), tmp_path))) == len(escaping_calls)


def traced(folder: Path, program: str, *arguments: str) -> tuple[str, str]:
    """System calls of a program between its first marks, and after a planted escape."""
    log = folder / "calls"
    strace = ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-s", "300"]
    completed = subprocess.run(
        [*strace, "-e", f"trace={','.join(_CALLS)}", "-o", log, sys.executable, "-m", program, *arguments],
        cwd=ROOT,
        env=os.environ | LIMITS,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout[-2000:] + completed.stderr[-3000:]
    sections = re.split(r".*mark-\d.*\n", log.read_text(errors="replace"))
    assert len(sections) == 4
    return sections[1], sections[2]


def require_seen(calls: Sequence[str]) -> None:
    """The planted escapes are among these."""
    assert any(call.startswith("openat") and "/etc/passwd" in call for call in calls)
    assert any(call.startswith("execve") and "/bin/true" in call for call in calls)
    assert any(call.startswith("connect") and "htons(9)" in call for call in calls)
    assert any(call.startswith("unlink") and "/etc/hifi-planted" in call for call in calls)
    assert any(call.startswith("rename") and "/etc/hifi-planted" in call for call in calls)
    assert any(call.startswith("send") and "htons(9)" in call for call in calls)


@pytest.mark.more
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_hostile_pipes_open_execute_and_connect_to_nothing_and_a_planted_escape_is_seen(
    tmp_path: Path,
) -> None:
    hostile, planted = traced(tmp_path, "tests.support.programs.hostile_evaluation", str(tmp_path))
    assert sorted(set(escapes(hostile, tmp_path))) == []
    require_seen(list(escapes(planted, tmp_path)))


@pytest.mark.more
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("service", ["egest", "collect"])
def test_a_service_that_reads_hostile_pipes_from_its_topic_reaches_nothing_and_a_planted_escape_is_seen(
    kafka: str, tmp_path: Path, service: str
) -> None:
    hostile, planted = traced(
        tmp_path, "tests.support.programs.hostile_services", service, kafka, str(tmp_path)
    )
    broker = kafka.rpartition(":")[2]
    assert sorted(set(escapes(hostile, tmp_path, broker))) == []
    assert f"htons({broker})" in hostile  # the recorder has seen the service at work
    require_seen(list(escapes(planted, tmp_path, broker)))
