"""`make setup` compiles the listed modules, and every process of its environment uses them."""

import os
import sys
from pathlib import Path

import pytest

from hifi.runtime.compiled import import_hook
from hifi.runtime.errors import Misconfigured
from hifi_infra.compile.__main__ import planned
from hifi_infra.compile.build import GROUP, build_into, copy_part, has_compiler, plan_build, remove_old_builds
from hifi_infra.compile.first_party import source_closure

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "pyproject.toml"


def packages(tmp_path: Path, **sources: str) -> list[Path]:
    """Two folders of packages with modules `shop.<name>`."""
    for name, text in sources.items():
        folder = (
            tmp_path / ("second" if name == "prices" else "first") / ("goods" if name == "prices" else "shop")
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / f"{name}.py").write_text(text)
    return [tmp_path / "first", tmp_path / "second"]


@pytest.mark.skipif(os.environ.get("HIFI_COMPILED") == "0", reason="HIFI_COMPILED=0")
@pytest.mark.skipif(not has_compiler(), reason="no C compiler")
def test_this_environment_uses_what_make_setup_compiled() -> None:
    assert import_hook.in_use(), "a source has changed since: run `make setup`"
    import hifi.record.identity

    assert not hifi.record.identity.__file__.endswith(".py")


def test_a_build_depends_on_all_that_its_modules_import_in_any_way(tmp_path: Path) -> None:
    roots = packages(
        tmp_path,
        total="from shop import rates\nimport json\n",
        rates="def rate():\n    from goods.prices import PRICE\n    return PRICE\n",
        prices="PRICE = 1\n",
        unrelated="",
    )
    sources = source_closure(["shop.total"], roots)
    assert list(sources) == [
        "goods/__init__.py",
        "goods/prices.py",
        "shop/__init__.py",
        "shop/rates.py",
        "shop/total.py",
    ]
    with pytest.raises(Misconfigured, match=r"shop\.nothing"):
        source_closure(["shop.nothing"], roots)


def test_the_key_of_a_build_changes_with_any_of_its_sources(tmp_path: Path) -> None:
    roots = packages(tmp_path, total="from goods.prices import PRICE\n", prices="PRICE = 1\n", unrelated="")
    first_key = plan_build(["shop.total"], roots).key
    (tmp_path / "first/shop/unrelated.py").write_text("# changed")
    assert plan_build(["shop.total"], roots).key == first_key
    (tmp_path / "second/goods/prices.py").write_text("PRICE = 2\n")
    assert plan_build(["shop.total"], roots).key != first_key


@pytest.mark.more
def test_an_image_compiles_only_what_its_service_imports() -> None:
    modules = planned(CONFIG, "hifi_ingest").modules
    assert "hifi.record.cloudevents.decode" in modules
    assert "hifi.pipe.normalize.masking" in modules  # for `source.mask`
    other_modules = ("hifi_egest", "hifi_observe", "hifi.pipe.normalize.program")
    assert not [name for name in modules if name.startswith(other_modules)]
    assert set(modules) < set(planned(CONFIG).modules)


def test_an_image_compiles_what_the_connectors_of_its_service_import() -> None:
    modules = planned(CONFIG, "hifi_collect").modules
    assert "hifi_kafka.source.records" in modules
    assert "hifi_postgres.source.row_events" in modules
    assert "hifi_debezium.source.changes" not in planned(CONFIG, "hifi_egest").modules


@pytest.mark.skipif(not has_compiler(), reason="no C compiler")
def test_code_that_cannot_be_compiled_is_told_and_leaves_no_build(tmp_path: Path) -> None:
    roots = packages(tmp_path, total="def total(net: int) -> str:\n    return net\n")
    config = tmp_path / "pyproject.toml"
    config.write_text('[tool.mypy]\nexplicit_package_bases = true\nmypy_path = ["first"]\n')
    folder = tmp_path / "builds/one"
    with pytest.raises(Misconfigured, match=r"total\.py:2"):
        build_into(folder, plan_build(["shop.total"], roots), config)
    assert list(folder.parent.iterdir()) == []


def test_a_part_of_a_build_has_its_modules_their_library_and_the_checksums_of_their_sources(
    tmp_path: Path,
) -> None:
    roots = packages(tmp_path, total="import shop.rates\n", rates="RATE = 1\n", tax="TAX = 1\n")
    whole_build, target = tmp_path / "whole", tmp_path / "image/compiled"
    names = (f"{GROUP}__mypyc", "shop.total", "shop.tax")
    for name in names:
        (whole_build / name).parent.mkdir(exist_ok=True)
        (whole_build / name).write_text(name)
    (whole_build / import_hook.MODULES).write_text("".join(f"{name} {name}\n" for name in names))
    copy_part(whole_build, target, plan_build(["shop.total"], roots))
    files = {path.name for path in target.iterdir()}
    assert files == {names[0], "shop.total", import_hook.MODULES, import_hook.SOURCES}
    assert (target / import_hook.MODULES).read_text() == "".join(f"{name} {name}\n" for name in names[:2])
    sources = (target / import_hook.SOURCES).read_text().splitlines()
    assert [line.split()[1] for line in sources] == ["shop/__init__.py", "shop/rates.py", "shop/total.py"]


def test_the_builds_used_last_are_kept(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        os.utime(tmp_path / str(number), (number, number))
    remove_old_builds(tmp_path)
    assert sorted(int(build_folder.name) for build_folder in tmp_path.iterdir()) == list(range(8, 20))


def test_the_hook_costs_a_start_next_to_nothing() -> None:
    """It is imported at each start of Python: none of the modules that take long to import may come with it."""
    import subprocess

    code = "import sys; import hifi.runtime.compiled.import_hook; print(*sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typing", "pathlib", "hashlib", "re"} & set(completed.stdout.split())
