"""Makes base images out of this machine's own files, for places that reach no image registry.

    python3.12 infra/docker/base_images.py python TAG     # of the Python that runs it
    python3.12 infra/docker/base_images.py compiler TAG   # the same with its headers and this machine's gcc (Debian)
    python3.12 infra/docker/base_images.py jdk TAG        # of JAVA_HOME, or of the `java` on PATH
    python3.12 infra/docker/base_images.py haproxy TAG    # of the HAProxy that is installed

Each is one layer, imported into the Docker engine that `docker` talks to: a shell and the usual small tools,
the C library, the CA certificates that this machine trusts, and the Python (in /usr/local) or the JDK (in
/opt/java/openjdk), where the public images keep them. Pass the tags to `docker build` as BASE_IMAGE, COMPILER_IMAGE
and JDK_IMAGE. Needs nothing but the standard library.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from trim import without_sections

TOOLS: Final = (
    *(
        "bash",
        "sh",
        "cat",
        "cp",
        "mv",
        "rm",
        "ln",
        "ls",
        "mkdir",
        "rmdir",
        "mktemp",
        "touch",
        "chmod",
        "chown",
        "readlink",
    ),
    *(
        "cut",
        "grep",
        "head",
        "sed",
        "sort",
        "tail",
        "tr",
        "uniq",
        "wc",
        "find",
        "xargs",
        "dirname",
        "date",
        "sleep",
    ),
    *("true", "false", "test", "env", "id", "hostname", "uname", "ldd", "ldconfig"),
)
DLOPENED: Final = (
    *(
        "libnss_files.so.2",
        "libnss_dns.so.2",
        "libresolv.so.2",
        "libpthread.so.0",
        "libdl.so.2",
        "librt.so.1",
    ),
    *("libm.so.6", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libz.so.1"),
)
"""Libraries that the resolver, threads and binary wheels open by name."""
FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
LEFT_OUT_OF_PYTHON: Final = shutil.ignore_patterns(
    *("__pycache__", "test", "tests", "idlelib", "turtledemo", "tkinter", "_tkinter*", "_test*", "config-*"),
    *("site-packages", "_bundled", "*.a"),
)
LEFT_OUT_OF_JDK: Final = shutil.ignore_patterns("src.zip", "ct.sym", "man", "demo", "docs", "include")
COMPILER_PACKAGES: Final = re.compile(
    r"gcc(-\d+)?(-[a-z0-9-]+-gnu)?|cpp(-\d+)?(-[a-z0-9-]+-gnu)?|libgcc-\d+-dev|binutils(-common|-[a-z0-9-]+-gnu)?"
    r"|libbinutils|libctf.*|libc6-dev|linux-libc-dev|libcrypt-dev"
)
"""Debian's packages of a C compiler; their libraries follow from what they link."""
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
JAVA_HOME: Final = "/opt/java/openjdk"


class Root:
    """The root file system of an image in the making."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in ("etc/ssl/certs", "proc", "sys", "dev", "run", "root", "usr/local/bin", "opt"):
            (path / folder).mkdir(parents=True)
        for folder in ("tmp", "var/tmp"):
            (path / folder).mkdir(parents=True)
            (path / folder).chmod(0o1777)
        for folder in ("bin", "sbin", "lib", "lib64"):  # one tree, as Debian has it
            (path / "usr" / folder).mkdir(parents=True)
            (path / folder).symlink_to(f"usr/{folder}")
        for name, content in FILES.items():
            (path / name).write_text(content)
        for name in ("/etc/os-release", CERTIFICATES):
            if Path(name).exists():
                self.add(Path(name).resolve(), name)

    def at(self, target: str) -> Path:
        """The file of an absolute path of the image, with `/lib` and the like led to `/usr`."""
        return self.path / re.sub(r"^/(bin|sbin|lib|lib64)/", r"/usr/\1/", target).lstrip("/")

    def add(self, source: Path, target: str) -> None:
        """Copy one file; a link is followed."""
        path = self.at(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            shutil.copy2(source, path)

    def add_tools(self) -> None:
        """The shell and its friends."""
        for name in TOOLS:
            program = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
            if program is not None:
                # Debian's ldconfig is a script around the real one.
                real_program = Path(f"{program}.real")
                self.add(
                    real_program if real_program.exists() else Path(program).resolve(), f"/usr/bin/{name}"
                )

    def add_libraries(self) -> None:
        """Add every shared library that a program of the image asks for, and the loader."""
        system = next(
            Path(line).parent for line in _linked([Path(sys.executable).resolve()]) if "libc.so" in line
        )
        for name in DLOPENED:
            if (system / name).exists():
                self.add(system / name, str(system / name))
        root_prefix = str(self.path)
        copied_names = {path.name for path in (self.path / "usr/local/lib").glob("*.so*")}
        for line in _linked(_programs(self.path)):
            if not line.startswith(root_prefix) and Path(line).name not in copied_names:
                self.add(Path(line), line)
        (self.path / "etc/ld.so.conf").write_text(f"/usr/local/lib\n{system}\n/usr/lib\n")
        subprocess.run(["/sbin/ldconfig", "-r", root_prefix], check=True)


def _programs(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as content:
                if content.read(4) == b"\x7fELF":
                    yield path


def _linked(programs: Iterable[Path]) -> set[str]:
    libraries: set[str] = set()
    for program in programs:
        output = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        libraries |= set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", output, re.MULTILINE))
    return libraries


def add_python(root: Root) -> list[str]:
    """The Python that runs this, as /usr/local, with pip; returns changes for the image's configuration."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    stdlib = Path(sysconfig.get_path("stdlib"))
    target = root.path / "usr/local"
    shutil.copytree(stdlib, target / "lib" / version, ignore=LEFT_OUT_OF_PYTHON)
    root.add(Path(sys.executable).resolve(), f"/usr/local/bin/{version}")
    for name in ("python3", "python"):
        (target / "bin" / name).symlink_to(version)
    shared_library = Path(sysconfig.get_config_var("LIBDIR"), str(sysconfig.get_config_var("INSTSONAME")))
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        root.add(shared_library, f"/usr/local/lib/{shared_library.name}")
    for path in _programs(target):  # as the public images have it: no symbols (48 MB of them are 10)
        path.write_bytes(without_sections(path.read_bytes()))
    import pip

    pip_folder = Path(pip.__file__).parent
    site = target / "lib" / version / "site-packages"
    shutil.copytree(pip_folder, site / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    for pip_metadata in pip_folder.parent.glob("pip-*.dist-info"):
        shutil.copytree(pip_metadata, site / pip_metadata.name)
    for name in ("pip", "pip3"):
        script = target / "bin" / name
        start = "from pip._internal.cli.main import main\nraise SystemExit(main())\n"
        script.write_text(f"#!/usr/local/bin/python3\n{start}")
        script.chmod(0o755)
    return ["ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", 'CMD ["python3"]']


def add_compiler(root: Root) -> list[str]:
    """The Python that runs this with its header files, gcc and the headers of the C library."""
    changes = add_python(root)
    include = Path(sysconfig.get_path("include"))
    shutil.copytree(include, root.path / "usr/local/include" / include.name)
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\n"], capture_output=True, text=True, check=True
    )
    for package in filter(COMPILER_PACKAGES.fullmatch, query.stdout.split()):
        files = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=True).stdout
        for name in files.splitlines():
            if Path(name).is_file() and not name.startswith("/usr/share"):
                root.add(Path(name), name)
    return changes


def add_jdk(root: Root) -> list[str]:
    """A whole JDK, with jlink, as /opt/java/openjdk; returns changes for the image's configuration."""
    java = shutil.which("java")
    home = Path(os.environ.get("JAVA_HOME") or (Path(java).resolve().parent.parent if java else ""))
    if not (home / "bin/jlink").exists() or not (home / "jmods").exists():
        sys.exit(f"base_images.py: {home} is no whole JDK (no jlink or no jmods); set JAVA_HOME to one")
    # Debian keeps the configuration elsewhere and links to it: the copy has no links, and no dangling one.
    shutil.copytree(home, root.path / JAVA_HOME[1:], ignore=LEFT_OUT_OF_JDK, ignore_dangling_symlinks=True)
    path = f"{JAVA_HOME}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return [f"ENV JAVA_HOME={JAVA_HOME}", f"ENV PATH={path}"]


def add_haproxy(root: Root) -> list[str]:
    """HAProxy as /usr/sbin/haproxy; returns changes for the image's configuration."""
    program = shutil.which("haproxy", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
    if program is None:
        sys.exit(
            "base_images.py: HAProxy is not installed; install it, on Debian with `apt-get install haproxy`"
        )
    root.add(Path(program).resolve(), "/usr/sbin/haproxy")
    return ["ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]


def main() -> None:
    """The command."""
    kinds = {"python": add_python, "compiler": add_compiler, "jdk": add_jdk, "haproxy": add_haproxy}
    if len(sys.argv) != 3 or sys.argv[1] not in kinds:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(kinds)} TAG")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "root")
        path.mkdir(mode=stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        root = Root(path)
        changes = kinds[sys.argv[1]](root)
        root.add_tools()
        root.add_libraries()
        # These variables make OpenSSL, and clients with bundled certificates, use the system's certificates.
        changes += [f"ENV {name}={CERTIFICATES}" for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
        options = [argument for change in changes for argument in ("--change", change)]
        archive = subprocess.Popen(
            ["tar", "-C", path, "--numeric-owner", "--owner=0", "--group=0", "-c", "."],
            stdout=subprocess.PIPE,
        )
        subprocess.run(["docker", "import", *options, "-", sys.argv[2]], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            sys.exit("base_images.py: tar failed")


if __name__ == "__main__":
    main()
