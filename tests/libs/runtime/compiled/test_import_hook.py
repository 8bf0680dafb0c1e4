"""Compiled modules are imported only if they were made from exactly the sources at hand."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from hifi.runtime.compiled.import_hook import MODULES, SOURCES

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
CALCULATE = "from shop.rates import RATE\n\ndef total(net):\n    return net * RATE\n"
RATES = "RATE = 2\n"
USE = """
import json, sys
from hifi.runtime.compiled import import_hook
{before}
import_hook.install({folder!r})
import shop.calculate
print(json.dumps([shop.calculate.total(10), shop.calculate.__file__, import_hook.in_use()]))
"""


@dataclass
class Shop:
    """A package with one module that has a compiled form, which returns another value."""

    packages: Path
    build: Path

    def total(self, *, before: str = "", **environment: str) -> tuple[int, str, bool]:
        """The value that a new process computes, its file, and whether the process uses compiled modules."""
        code = USE.format(folder=str(self.build), before=before)
        path = os.pathsep.join([str(self.packages), *filter(None, sys.path)])
        completed = subprocess.run(
            [sys.executable, "-S", "-c", code],
            env=os.environ
            | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HIFI_COMPILED": "1"}
            | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        total, file, is_compiled = json.loads(completed.stdout)
        return total, Path(file).name, is_compiled


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An extension module `calculate` that multiplies by a thousand, so that it cannot be taken for its source."""
    folder = tmp_path_factory.mktemp("extension")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no C compiler with Python's header files")
    source = folder / "calculate.c"
    source.write_text(
        "#include <Python.h>\n"
        "static PyObject *total(PyObject *self, PyObject *net) {\n"
        "    return PyLong_FromLong(1000 * PyLong_AsLong(net)); }\n"
        'static PyMethodDef methods[] = {{"total", total, METH_O, NULL}, {NULL}};\n'
        'static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "calculate", NULL, -1, methods};\n'
        "PyMODINIT_FUNC PyInit_calculate(void) { return PyModule_Create(&module); }\n"
    )
    extension = folder / f"calculate{SUFFIX}"
    include = sysconfig.get_path("include")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{include}", source, "-o", extension], check=True)
    return extension


@pytest.fixture
def shop(tmp_path: Path, extension: Path) -> Shop:
    packages, build = tmp_path / "packages", tmp_path / "build"
    (packages / "shop").mkdir(parents=True)
    (packages / "shop/__init__.py").write_text("")
    (packages / "shop/calculate.py").write_text(CALCULATE)
    (packages / "shop/rates.py").write_text(RATES)
    (build / "shop").mkdir(parents=True)
    shutil.copy(extension, build / "shop")
    (build / MODULES).write_text(f"shop.calculate shop/calculate{SUFFIX}\n")
    sources = {"shop/calculate.py": CALCULATE, "shop/rates.py": RATES}
    checksums = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in sources.items()}
    (build / SOURCES).write_text("".join(f"{checksum} {path}\n" for path, checksum in checksums.items()))
    return Shop(packages, build)


def test_the_compiled_module_is_used_if_no_source_has_changed(shop: Shop) -> None:
    assert shop.total() == (10_000, f"calculate{SUFFIX}", True)


def test_a_changed_source_takes_effect_at_once(shop: Shop) -> None:
    (shop.packages / "shop/calculate.py").write_text(CALCULATE + "# changed\n")
    assert shop.total() == (20, "calculate.py", False)
    (shop.packages / "shop/calculate.py").write_text(CALCULATE)
    assert shop.total()[2]


def test_a_changed_source_that_a_compiled_module_imports_takes_effect_at_once(shop: Shop) -> None:
    """mypyc writes constants of other modules into the compiled one."""
    (shop.packages / "shop/rates.py").write_text("RATE = 3\n")
    assert shop.total() == (30, "calculate.py", False)
    (shop.packages / "shop/rates.py").unlink()
    (shop.packages / "shop/calculate.py").write_text("def total(net):\n    return net\n")
    assert shop.total() == (10, "calculate.py", False)


def test_a_source_that_changes_while_a_process_runs_does_not_mix_the_two(shop: Shop) -> None:
    """The decision of a process at its first import holds until it ends."""
    change = f"open({str(shop.packages / 'shop/rates.py')!r}, 'w').write('RATE = 4\\n')"
    code_before = f"import_hook.install({str(shop.build)!r}); import_hook.in_use(); {change}"
    assert shop.total(before=code_before)[:2] == (10_000, f"calculate{SUFFIX}")
    assert shop.total() == (40, "calculate.py", False)


def test_a_module_that_was_imported_before_keeps_all_others_interpreted(shop: Shop) -> None:
    with (shop.build / MODULES).open("a") as modules:
        modules.write(f"shop.rates shop/rates{SUFFIX}\n")
    assert shop.total(before="import shop.rates") == (20, "calculate.py", False)


def test_hifi_compiled_0_runs_the_sources(shop: Shop) -> None:
    assert shop.total(HIFI_COMPILED="0") == (20, "calculate.py", False)


def test_a_build_that_was_removed_leaves_the_sources(shop: Shop) -> None:
    shutil.rmtree(shop.build)
    assert shop.total() == (20, "calculate.py", False)
