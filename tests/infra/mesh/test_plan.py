"""What an instance is told."""

from pathlib import Path

from hifi_infra.mesh.plan import InstanceSpec, Plan, environment


def test_an_instances_own_variables_are_above_all_others() -> None:
    plan = Plan(
        data=Path("data"),
        env={"HIFI_KAFKA": "everybody:1", "SECRET": "s"},
        own_env={"egest-2": {"HIFI_KAFKA": "own:1"}},
    )
    first, second = (
        environment(plan, InstanceSpec("egest", number, 1), "kafka:1", None) for number in (1, 2)
    )
    assert (first["HIFI_KAFKA"], second["HIFI_KAFKA"]) == ("kafka:1", "own:1")
    assert first["SECRET"] == second["SECRET"] == "s"
