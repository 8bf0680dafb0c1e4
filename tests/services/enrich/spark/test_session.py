"""The Spark session of enrich: its master and jars."""

import os
from pathlib import Path

import pytest

from hifi.runtime.errors import Misconfigured
from hifi.spark.spark_session import task_slots
from hifi_enrich.spark.session import choose_trigger, connector_jars, resolve_master


def test_real_time_needs_a_slot_for_each_partition_and_one_more() -> None:
    assert resolve_master("", 4, "real-time") == "local[5]"
    assert resolve_master("local[5]", 4, "real-time") == "local[5]"
    assert resolve_master("spark://h:7077", 4, "real-time") == "spark://h:7077"
    for master in ("local[4]", "local"):
        with pytest.raises(Misconfigured, match=r"local\[5\]"):
            resolve_master(master, 4, "real-time")


def test_micro_batches_run_with_any_number_of_slots() -> None:
    assert resolve_master("", 4, "micro-batch") == "local[5]"
    for master in ("local", "local[1]", "local[4]", "spark://h:7077"):
        assert resolve_master(master, 4, "micro-batch") == master


def test_auto_is_real_time_where_it_is_certain_that_spark_reads_every_partition() -> None:
    assert choose_trigger("auto", resolve_master("", 4, "auto"), 4, has_udf=False) == "real-time"
    assert choose_trigger("auto", "local[5]", 4, has_udf=True) == "micro-batch"
    for master in ("local", "local[4]", "spark://h:7077"):
        assert resolve_master(master, 4, "auto") == master
        assert choose_trigger("auto", master, 4, has_udf=False) == "micro-batch"


def test_a_trigger_that_is_set_is_used() -> None:
    assert choose_trigger("real-time", "spark://h:7077", 4, has_udf=True) == "real-time"
    assert choose_trigger("micro-batch", "local[5]", 4, has_udf=False) == "micro-batch"


def test_slots_of_a_master() -> None:
    assert [task_slots(master) for master in ("local", "local[3]", "local[*]", "spark://h:7077")] == [
        1,
        3,
        os.cpu_count(),
        None,
    ]


def test_missing_jars_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    assert connector_jars(str(tmp_path / "a.jar")) == [tmp_path / "a.jar"]
    with pytest.raises(Misconfigured, match=r"b\.jar"):
        connector_jars(f"{tmp_path / 'a.jar'},{tmp_path / 'b.jar'}")
