"""Which Java is taken, and what is said where none fits."""

import os
from pathlib import Path

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_infra.java import jdk
from hifi_infra.java.jdk import ensure_java, find_java

RELEASE = 'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="java.base {module}"\n'


def program(path: Path, script: str = "exit 1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java_home(home: Path, version: str, module: str = "jdk.incubator.vector") -> Path:
    program(home / "bin" / "java")
    (home / "release").write_text(RELEASE.format(version=version, module=module))
    return home


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without Java: its root, with an empty `bin` as PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(jdk, "SYSTEM_ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_java_home_comes_first_then_path_then_the_systems_folders(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_home(bare / "usr/lib/jvm/newest", "25.0.1")
    assert find_java().version == 25
    (bare / "bin" / "java").symlink_to(java_home(bare / "on-path", "17.0.15") / "bin" / "java")
    assert find_java().version == 17
    monkeypatch.setenv("JAVA_HOME", str(java_home(bare / "home", "21.0.2")))
    assert find_java().home == bare / "home"
    assert find_java().executable == bare / "home" / "bin" / "java"


def test_one_that_is_too_old_or_trimmed_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(bare / "old", "11.0.20")))
    java_home(bare / "usr/lib/jvm/a-trimmed", "21.0.2", module="java.sql")
    with pytest.raises(Misconfigured) as refusal:
        find_java()
    assert "old is version 11" in str(refusal.value)
    assert "a-trimmed lacks the module jdk.incubator.vector" in str(refusal.value)
    java_home(bare / "usr/lib/jvm/b-whole", "17.0.1")
    assert find_java().home == bare / "usr/lib/jvm/b-whole"


def test_one_that_describes_itself_in_no_file_is_asked(bare: Path) -> None:
    script = 'echo "java.base@17.0.2"; echo "jdk.incubator.vector@17.0.2"'
    program(bare / "usr/lib/jvm/x/bin/java", f'[ "$1" = --list-modules ] && {{ {script}; exit; }}; exit 1')
    assert find_java().version == 17


def test_an_ancient_one_that_knows_no_modules_is_passed_over(bare: Path) -> None:
    program(bare / "usr/lib/jvm/x/bin/java", "echo 'Unrecognized option: --list-modules' >&2; exit 1")
    with pytest.raises(Misconfigured, match="Java 17 or newer"):
        find_java()


@pytest.mark.parametrize(
    ("tool", "command"), [("apt-get", "apt-get install -y openjdk-17"), ("brew", "brew install openjdk@21")]
)
def test_the_command_that_installs_one_on_this_system_is_told(bare: Path, tool: str, command: str) -> None:
    program(bare / "bin" / tool)
    with pytest.raises(Misconfigured, match=command):
        find_java()


def test_an_unknown_system_is_told_what_is_needed(bare: Path) -> None:
    with pytest.raises(Misconfigured, match="a full OpenJDK 17 or newer"):
        find_java()


@pytest.fixture
def debian(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with an apt-get that knows Java 21 only and writes down how it was called."""
    release = RELEASE.format(version="21.0.5", module="jdk.incubator.vector")
    home = bare / "usr/lib/jvm/java-21"
    program(
        bare / "bin" / "apt-get",
        f'echo "$@" >> {bare}/calls\n'
        f'case "$*" in *install*) /bin/mkdir -p {home}/bin; echo > {home}/bin/java; '
        f"printf '%s' '{release}' > {home}/release;; esac",
    )
    program(bare / "bin" / "apt-cache", '[ "$2" = openjdk-21-jdk-headless ]')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return bare


def test_where_apt_may_be_used_the_oldest_that_fits_is_installed(debian: Path) -> None:
    assert ensure_java().version == 21
    update, install = (debian / "calls").read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends openjdk-21-jdk-headless")


def test_nothing_is_installed_where_one_is_there(debian: Path) -> None:
    java_home(debian / "usr/lib/jvm/there", "17.0.1")
    assert ensure_java().version == 17
    assert not (debian / "calls").exists()


def test_nothing_is_installed_where_that_takes_a_password(
    debian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(debian / "bin" / "sudo")  # says no
    with pytest.raises(Misconfigured, match="sudo apt-get install"):
        ensure_java()
    assert not (debian / "calls").exists()


def test_an_installation_that_fails_is_told(debian: Path) -> None:
    program(debian / "bin" / "apt-get", "echo no network >&2; exit 100")
    with pytest.raises(
        Misconfigured, match=r"Java could not be installed: `apt-get .*update` failed: no network"
    ):
        ensure_java()
