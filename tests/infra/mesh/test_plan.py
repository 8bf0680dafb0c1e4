"""Environment variables of an instance."""

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


def test_a_view_costs_nothing_where_none_is_declared_and_each_instance_has_files_of_its_own() -> None:
    assert Plan(data=Path("data")).instances("view") == 0
    plan = Plan(data=Path("data"), view_port=8092, views=Path("pipes"), scale={"view": 2})
    first, second = (environment(plan, InstanceSpec("view", number, 1), "kafka:1", None) for number in (1, 2))
    assert (first["HIFI_VIEW_PORT"], second["HIFI_VIEW_PORT"]) == ("8092", "0")
    assert (first["HIFI_VIEW_DATA"], second["HIFI_VIEW_DATA"]) == ("data/views/view-1", "data/views/view-2")
    assert first["HIFI_VIEW_DECLARATIONS"] == "pipes"
    assert not any(
        name.startswith("HIFI_VIEW") for name in environment(plan, InstanceSpec("egest", 1, 1), "k:1", None)
    )


def test_the_consoles_of_a_mesh_link_to_each_other() -> None:
    plan = Plan(
        data=Path("data"),
        console_port=8090,
        manage_port=8091,
        view_port=8092,
        control=True,
        scale={"observe": 1, "view": 1},
    )
    links = {
        "OBSERVE": "http://127.0.0.1:8090",
        "MANAGE": "http://127.0.0.1:8091",
        "VIEW": "http://127.0.0.1:8092",
    }
    for service in links:
        variables = environment(plan, InstanceSpec(service.lower(), 1, 1), "kafka:1", None)
        for other_service, url in links.items():
            if other_service != service:
                assert variables[f"HIFI_{other_service}_URL"] == url
    plan_without_view = Plan(data=Path("data"), scale={"observe": 1})
    assert (
        environment(plan_without_view, InstanceSpec("observe", 1, 1), "kafka:1", None)["HIFI_VIEW_URL"] == ""
    )
