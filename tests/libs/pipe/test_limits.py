"""A name that the operator does not allow a pipe is refused at the check, at publication and in the services."""

from pathlib import Path
from typing import Any

import pytest

from hifi.check.pipe_check import check_folder
from hifi.kafka.security.access import CONNECT_STORES, connect_group
from hifi.kafka.topics import Topics
from hifi.pipe.limit_check import refusals, require_allowed, require_granted
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Lookup, Pipe
from hifi.pipe.secret import Secret
from hifi.runtime.errors import Misconfigured
from hifi.spark.lookup_reader import read_rows
from hifi_infra.colours.colour_mesh import control_planes
from hifi_infra.connect.worker_settings import worker_settings

PIPE = """\
pipe: orders
source:
  keys:
    - {{env: {env}}}
normalize:
  mask:
    card: {{hash: {{file: {secret}}}}}
enrich:
  fields: {{id: string}}
  lookups:
    items:
      file: {lookup}
      key: {{id: id}}
      fields: {{name: name}}
destinations:
  - name: shop
    url: http://127.0.0.1:9/
    headers: {{authorization: {{env: {env}}}}}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for folder in ("pipes", "secrets", "lookups", "elsewhere"):
        (tmp_path / folder).mkdir()
    for name in ("secrets/key", "elsewhere/key"):
        (tmp_path / name).write_text("s3cret")
    for name in ("lookups/items.csv", "elsewhere/items.csv"):
        (tmp_path / name).write_text("id,name\n1,one\n")
    return tmp_path


def _write(files: Path, env: str, secret: str, lookup: str) -> Path:
    text = PIPE.format(env=env, secret=files / secret, lookup=files / lookup)
    (files / "pipes/orders.yaml").write_text(text)
    return files / "pipes"


def _limit(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_PREFIXES", "SHOP_:PIPE_")
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(files / "secrets"))
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", f"orders=SHOP_KEY,orders={files / 'secrets/key'}")
    monkeypatch.setenv("HIFI_PIPES_LOOKUP_FOLDERS", f"{files / 'lookups'}:{files / 'more'}")


def test_what_is_allowed_passes(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(monkeypatch, files)
    pipes, problems = check_folder(
        _write(files, "SHOP_KEY", "secrets/key", "lookups/items.csv"), "micro-batch", sql=False
    )
    assert problems == []
    require_allowed(pipes)


def test_what_is_not_allowed_is_reported_with_file_and_line(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _write(files, "HOME", "elsewhere/key", "elsewhere/items.csv")
    assert check_folder(folder, "micro-batch", sql=False)[1] == [], "without limits it passes"
    _limit(monkeypatch, files)
    messages = {
        (problem.line, problem.where): problem.message
        for problem in check_folder(folder, "micro-batch", sql=False)[1]
    }
    assert set(messages) == {
        (4, "source.keys[0]"),
        (7, "normalize.mask.card.hash"),
        (12, "enrich.lookups.items.file"),
        (18, "destinations[0].headers.authorization"),
    }
    assert (
        "HOME is not allowed as a secret: HIFI_PIPES_SECRET_PREFIXES allows SHOP_, PIPE_"
        in messages[4, "source.keys[0]"]
    )
    assert "HIFI_PIPES_LOOKUP_FOLDERS allows files below" in messages[12, "enrich.lookups.items.file"]


def test_what_is_not_allowed_is_not_published(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipes, _ = check_folder(
        _write(files, "HOME", "elsewhere/key", "elsewhere/items.csv"), "micro-batch", sql=False
    )
    _limit(monkeypatch, files)
    with pytest.raises(Misconfigured, match=r"(?s)no pipe was published.*orders: source\.keys\.0: .*HOME"):
        require_allowed(pipes)


def test_a_service_reads_nothing_that_is_not_allowed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe may have been published without the check."""
    _limit(monkeypatch, files)
    monkeypatch.setenv("PASSWORD_OF_ANOTHER", "s3cret")
    for secret in ({"env": "PASSWORD_OF_ANOTHER"}, {"file": files / "elsewhere/key"}):
        with pytest.raises(Misconfigured, match="is not allowed as a secret"):
            Secret.model_validate(secret).read()
    assert Secret.model_validate({"file": files / "secrets/key"}).read() == "s3cret"
    lookup = {"key": {"id": "id"}, "fields": {"name": "name"}, "file": files / "elsewhere/items.csv"}
    with pytest.raises(Misconfigured, match="is not allowed as a lookup"):
        read_rows(Lookup.model_validate(lookup), "p")
    assert len(read_rows(Lookup.model_validate(lookup | {"file": files / "lookups/items.csv"}), "p")) == 1


def test_a_path_or_link_that_leads_out_of_the_folder_is_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limit(monkeypatch, files)
    (files / "secrets/link").symlink_to(files / "elsewhere/key")
    limits = pipe_limits()
    assert limits.refuse_secret_file(files / "secrets/../elsewhere/key")
    assert limits.refuse_secret_file(files / "secrets/link")


def test_certificates_are_in_the_secret_folders_or_those_of_the_meshs_kafka(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(files / "secrets"))
    monkeypatch.setenv("HIFI_KAFKA_SECURITY_CA_FILE", str(files / "elsewhere/key"))
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", f"orders={files / 'secrets/key'}")
    limits = pipe_limits()
    assert limits.refuse_certificates(files / "elsewhere/key", "a") is None
    assert "SECRET_FOLDERS allows" in str(limits.refuse_certificates(files / "elsewhere/other"))
    assert "is not granted" in str(limits.refuse_certificates(files / "secrets/key", "a"))
    assert limits.refuse_certificates(files / "secrets/key", "orders") is None


@pytest.mark.parametrize(
    "variable",
    [
        "HIFI_KAFKA_SECURITY_PASSWORD_FILE",
        "HIFI_KAFKA_SECURITY_KEY_FILE",
        "HIFI_VAULT_TOKEN_FILE",
        "HIFI_TOKEN_FILE",
        "HIFI_CONNECT_CREDENTIALS_FILE",
        "HIFI_PIPES_CREDENTIAL_FOLDERS",
    ],
)
def test_settings_and_credentials_of_hifi_are_always_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(files / ("secrets" if variable.endswith("FOLDERS") else "secrets/key")))
    limits = pipe_limits()
    assert "settings of hifi" in str(limits.refuse_variable("HIFI_OBSERVE_WEBHOOK_SECRET"))
    assert "credential of hifi" in str(limits.refuse_secret_file(files / "secrets/../secrets/key"))
    assert "credential of hifi" in str(limits.refuse_lookup(files / "secrets/key"))
    assert limits.refuse_variable("SHOP_KEY") is None


def test_certificates_of_authorities_are_no_credentials(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_KAFKA_SECURITY_CA_FILE", str(files / "secrets/key"))
    assert pipe_limits().refuse_secret_file(files / "secrets/key") is None


def test_no_pipe_reads_or_writes_topics_of_hifi(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of `principals` would be an administrator; a reader of `raw` would see data that is masked later."""
    monkeypatch.setenv("HIFI_STREAM", "shop")
    kafka = {"kind": "kafka", "bootstrap": "10.0.0.1:9092"}
    changes = {
        "kind": "debezium", "connect": "http://connect:8083", "bootstrap": "10.0.0.1:9092", "tables": ["public.a"],
        "database": {"host": "10.0.0.2", "name": "a", "user": "a", "password_file": "/run/a"},
    }  # fmt: skip
    sources = [kafka | {"topic": "shop.raw"}, changes | {"topic": "shop-control.principals"}]
    topic_settings = [
        {"topic": "shop-control.principals"},
        {"topic": "a", "positions_topic": "shop.positions"},
    ]
    for source in sources:
        destinations = [{"name": "a", "url": "https://shop.example"}]
        pipe = Pipe.model_validate({"pipe": "a", "source": source, "destinations": destinations})
        [(path, reason)] = [
            (path, reason) for path, reason in refusals(pipe, pipe_limits()) if "topic" in path
        ]
        assert (path, "is hifi's own" in reason) == (("source", "topic"), True)
    for settings in topic_settings:
        destination = {"name": "a", "kind": "kafka", "settings": {"bootstrap": "10.0.0.1:9092"} | settings}
        pipe = Pipe.model_validate(
            {"pipe": "a", "source": kafka | {"topic": "b"}, "destinations": [destination]}
        )
        [reason] = [reason for path, reason in refusals(pipe, pipe_limits()) if path[-1] in settings]
        assert "is hifi's own" in reason
    assert pipe_limits().refuse_topic("shopping.orders") is None


@pytest.mark.parametrize("variables", [{}, {"HIFI_CONTROL": "shop-blue", "HIFI_COLOURS": "plane"}])
def test_topics_of_every_control_plane_and_colour_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """egest and collect of a colour know the one colour only, and of a stream without colours none."""
    for name in ("HIFI_CONTROL", "HIFI_COLOURS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HIFI_STREAM": "shop"} | variables).items():
        monkeypatch.setenv(name, value)
    for topic in (
        *(control.principals for control in control_planes("shop")),
        *("shop-control.principals", "shop-green.declared", "shop.raw"),
        *(f"{name}.schemas" for name in variables.values()),
    ):
        assert "is hifi's own" in str(pipe_limits().refuse_topic(topic)), topic
    assert pipe_limits().refuse_topic("shop-red.orders") is None


def test_topics_of_kafka_connect_are_for_the_pipe_with_their_connector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer of `configs` declares connectors with any password; a reader of changes sees other pipes' rows."""
    monkeypatch.setenv("HIFI_STREAM", "shop")
    limits = pipe_limits()
    group = connect_group(Topics("shop"))
    settings = worker_settings(
        {"bootstrap.servers": "kafka:9092"}, group=group, listener="", plugins="", copies=1, secrets=[]
    )
    own_topics = {value for name, value in settings.items() if name.endswith(".storage.topic")}
    assert len(own_topics) == len(CONNECT_STORES)
    for topic in own_topics:
        assert "Kafka Connect itself" in str(limits.refuse_topic(topic))
        assert "Kafka Connect itself" in str(limits.refuse_topic(topic, has_connector=True))
    kafka = {"kind": "kafka", "bootstrap": "10.0.0.1:9092", "topic": "shop-connect.customers"}
    changes = kafka | {
        "kind": "debezium", "connect": "http://connect:8083", "tables": ["public.a"],
        "database": {"host": "10.0.0.2", "name": "a", "user": "a", "password_file": "/run/a"},
    }  # fmt: skip
    cluster = {"bootstrap": "10.0.0.1:9092"}
    for source, topics, paths in [
        (changes, {"topic": "a", "positions_topic": "b"}, set()),
        (
            kafka,
            {"topic": "shop-connect.a", "positions_topic": "shop-connect.b.keys"},
            {"source", "destinations"},
        ),
    ]:
        pipe = Pipe.model_validate(
            {
                "pipe": "a",
                "source": source,
                "destinations": [{"name": "a", "kind": "kafka", "settings": cluster | topics}],
            }
        )
        reasons = [(path, reason) for path, reason in refusals(pipe, limits) if "topic" in str(path[-1])]
        assert {path[0] for path, _ in reasons} == paths
        assert len(reasons) == (3 if paths else 0)
        assert all("is for what Kafka Connect writes" in reason for _, reason in reasons)


def test_every_kind_of_secret_of_a_pipe_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks the model: a new field with a secret is found without a change to the walk."""
    secret = {"env": "HIFI_X"}
    pipe = Pipe.model_validate(
        {
            "pipe": "p",
            "source": {"keys": [secret]},
            "normalize": {"mask": {"a": {"hash": secret}}},
            "enrich": {
                "fields": {"id": "string"},
                "lookups": {
                    "l": {
                        "sql": {"url": secret, "query": "select 1"},
                        "key": {"id": "id"},
                        "fields": {"n": "n"},
                    }
                },
            },
            "destinations": [
                {
                    "name": "d",
                    "url": "http://127.0.0.1:9/",
                    "headers": {"a": secret},
                    "signing": secret,
                    "signing_also": [secret],
                }
            ],
        }
    )
    assert {path for path, _ in refusals(pipe, pipe_limits())} == {
        ("source", "keys", 0),
        ("normalize", "mask", "a", "hash"),
        ("enrich", "lookups", "l", "sql", "url"),
        ("destinations", 0, "headers", "a"),
        ("destinations", 0, "signing"),
        ("destinations", 0, "signing_also", 0),
    }


def _with_key(pipe: str, key: dict[str, Any]) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": pipe,
            "source": {"keys": [key]},
            "destinations": [{"name": "d", "url": "https://shop.example/"}],
        }
    )


LIMITS = {"PREFIXES": "PIPE_:PIPE_X_", "FOLDERS": "{}/secrets:{}/secrets/database"}


@pytest.mark.parametrize(
    ("pipe", "secret", "its_own"),
    [
        ("orders", {"env": "PIPE_ORDERS_KEY"}, True),
        ("orders", {"env": "PIPE_ORDERS_"}, False),
        ("orders", {"env": "PIPE_ORDERS"}, False),
        ("orders", {"env": "PIPE_ORDERSKEY"}, False),
        ("orders", {"env": "PIPE_CRM_KEY"}, False),
        ("orders-eu", {"env": "PIPE_ORDERS__EU_KEY"}, True),
        ("orders", {"env": "PIPE_ORDERS__EU_KEY"}, False),
        ("orders-eu", {"env": "PIPE_ORDERS_EU_KEY"}, False),
        ("orders-", {"env": "PIPE_ORDERS__EU_KEY"}, False),
        ("x", {"env": "PIPE_X_ORDERS_KEY"}, False),
        ("orders", {"env": "PIPE_X_ORDERS_KEY"}, True),
        ("orders", {"file": "orders/key"}, True),
        ("orders", {"file": "orders/deeper/key"}, True),
        ("orders", {"file": "orders/missing"}, True),
        ("orders", {"file": "orders"}, False),
        ("orders", {"file": "key"}, False),
        ("orders", {"file": "crm/key"}, False),
        ("orders", {"file": "crm/orders/key"}, False),
        ("orders", {"file": "orders/../crm/key"}, False),
        ("orders", {"file": "orders/link"}, False),
        ("orders", {"file": "database/orders/key"}, True),
        ("database", {"file": "database/shop"}, False),
        ("database", {"file": "database/orders/key"}, False),
        ("order", {"file": "orders/key"}, False),
        ("crm", {"sha256": "0" * 64}, True),
    ],
)
def test_where_secrets_are_limited_a_pipe_names_its_own(
    files: Path, monkeypatch: pytest.MonkeyPatch, pipe: str, secret: dict[str, str], its_own: bool
) -> None:
    for folder in ("orders/deeper", "crm/orders", "database/orders"):
        (files / "secrets" / folder).mkdir(parents=True)
    (files / "secrets/orders/link").symlink_to(files / "secrets/key")
    for name, value in LIMITS.items():
        monkeypatch.setenv(f"HIFI_PIPES_SECRET_{name}", value.format(files, files))
    secret = {
        name: str(files / "secrets" / text) if name == "file" else text for name, text in secret.items()
    }
    found_refusals = list(refusals(_with_key(pipe, secret), pipe_limits()))
    assert [path for path, _ in found_refusals] == ([] if its_own else [("source", "keys", 0)])
    for _, reason in found_refusals:
        ((_, secret_name),) = secret.items()
        assert f"add {pipe}={secret_name} to HIFI_PIPES_SECRET_GRANTS" in reason


@pytest.mark.parametrize("limit", ["PREFIXES", "FOLDERS", "GRANTS"])
def test_each_limit_on_secrets_alone_makes_grants_needed(
    files: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    secrets = [{"env": "PIPE_KEY"}, {"file": str(files / "secrets/key")}]
    assert not [refusal for key in secrets for refusal in refusals(_with_key("a", key), pipe_limits())]
    value = {"PREFIXES": "PIPE_", "FOLDERS": str(files / "secrets"), "GRANTS": "b=*"}[limit]
    monkeypatch.setenv(f"HIFI_PIPES_SECRET_{limit}", value)
    for key in secrets:
        [(_, reason)] = refusals(_with_key("a", key), pipe_limits())
        assert "is not granted to the pipe a" in reason
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "*=*")
    assert not [refusal for key in secrets for refusal in refusals(_with_key("a", key), pipe_limits())]


def test_a_file_of_the_own_folder_by_a_link_of_the_operator(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes mounts Secrets: each name is a link into a folder that is replaced as a whole."""
    (files / "secrets/..data/orders").mkdir(parents=True)
    (files / "secrets/orders").symlink_to("..data/orders")
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(files / "secrets"))
    key = {"file": str(files / "secrets/orders/key")}
    assert not list(refusals(_with_key("orders", key), pipe_limits()))
    assert list(refusals(_with_key("data", key), pipe_limits()))


GRANTS = "orders=ORDERS_*,crm-*=/run/secrets/crm,crm-*=CRM_KEY,shared=/run/secrets/one,all=*"


@pytest.mark.parametrize(
    ("pipe", "secret", "is_granted"),
    [
        ("orders", {"env": "ORDERS_KEY"}, True),
        ("orders", {"env": "CRM_KEY"}, False),
        ("orders", {"env": "XORDERS_KEY"}, False),
        ("orders", {"file": "/run/secrets/crm/key"}, False),
        ("crm-eu", {"env": "CRM_KEY"}, True),
        ("crm-eu", {"file": "/run/secrets/crm/key"}, True),
        ("crm-eu", {"file": "/run/secrets/crm/../orders"}, False),
        ("crm-eu", {"file": "/run/secrets/crmx"}, False),
        ("crm", {"env": "CRM_KEY"}, False),
        ("shared", {"file": "/run/secrets/one"}, True),
        ("shared", {"file": "/run/secrets/two"}, False),
        ("other", {"env": "ANY"}, False),
        ("all", {"env": "ANY"}, True),
        ("all", {"file": "/run/secrets/two"}, True),
        ("other", {"sha256": "0" * 64}, True),
    ],
)
def test_a_pipe_names_only_the_secrets_that_are_granted_to_it(
    monkeypatch: pytest.MonkeyPatch, pipe: str, secret: dict[str, str], is_granted: bool
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", GRANTS)
    declared = _with_key(pipe, secret)
    found_refusals = list(refusals(declared, pipe_limits()))
    assert [path for path, _ in found_refusals] == ([] if is_granted else [("source", "keys", 0)])
    if is_granted:
        require_granted(pipe, declared.source)
    else:
        with pytest.raises(Misconfigured, match="is not granted to the pipe"):
            require_granted(pipe, declared.source)


@pytest.mark.parametrize(
    ("section", "path"),
    [
        (
            {"normalize": {"mask": {"a": {"hash": {"env": "CRM_KEY"}}}}},
            ("normalize", "mask", "a", "hash"),
        ),
        (
            {
                "enrich": {
                    "fields": {"a": "string"},
                    "lookups": {
                        "l": {
                            "sql": {"url": {"env": "CRM_KEY"}, "query": "select 1"},
                            "key": {"a": "a"},
                            "fields": {"b": "b"},
                        }
                    },
                }
            },
            ("enrich", "lookups", "l", "sql", "url"),
        ),
        (
            {"destinations": [{"name": "d", "url": "https://shop.example/", "signing": {"env": "CRM_KEY"}}]},
            ("destinations", 0, "signing"),
        ),
        (
            {
                "destinations": [
                    {
                        "name": "d",
                        "kind": "kafka",
                        "settings": {
                            "bootstrap": "a:9092",
                            "topic": "t",
                            "security": {
                                "protocol": "SASL_SSL",
                                "user": "u",
                                "password_file": "/run/secrets/crm/password",
                            },
                        },
                    }
                ]
            },
            ("destinations", 0, "settings", "security", "password_file"),
        ),
        (
            {
                "source": {
                    "kind": "sql",
                    "database": {
                        "host": "db",
                        "name": "n",
                        "user": "u",
                        "password_file": "/run/secrets/crm/p",
                    },
                    "table": "t",
                    "column": "id",
                }
            },
            ("source", "database", "password_file"),
        ),
    ],
)
def test_grants_hold_in_each_part_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", GRANTS)
    declared_pipe = Pipe.model_validate(
        {
            "pipe": "orders",
            "source": {"keys": [{"env": "ORDERS_KEY"}]},
            "destinations": [{"name": "d", "url": "https://shop.example/"}],
            **section,
        }
    )
    assert [key_path for key_path, _ in refusals(declared_pipe, pipe_limits())] == [path]


def test_a_wrong_grant_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "orders")
    with pytest.raises(Misconfigured, match="HIFI_PIPES_SECRET_GRANTS"):
        pipe_limits()


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("certificates/ca.pem", "its path is relative; begin it with `/`"),
        ("/dev/zero", "it is a folder or a device; name a PEM file"),
        ("/dev", "it is a folder or a device; name a PEM file"),
        ("/etc/shop/ca.pem", ""),
    ],
)
@pytest.mark.parametrize("name", ["ca_file", "certificate_file"])
def test_certificates_are_a_file_with_an_absolute_path(name: str, file: str, reason: str) -> None:
    security = {
        "protocol": "SSL",
        "ca_file": "/ca.pem",
        "certificate_file": "/c.pem",
        "key_file": "/k.pem",
        name: file,
    }
    source = {"kind": "kafka", "bootstrap": "a.example:9092", "topic": "t", "security": security}
    settings = {"bootstrap": "a.example:9092", "topic": "t", "security": security}
    destinations = [{"name": "d", "kind": "kafka", "settings": settings}]
    pipe = Pipe.model_validate({"pipe": "orders", "source": source, "destinations": destinations})
    expected = f"the file {file} is not allowed as certificates: {reason}"
    found_refusals = [(".".join(map(str, path)), message) for path, message in refusals(pipe, pipe_limits())]
    assert found_refusals == [
        (f"{section}.{name}", expected)
        for section in ("source.security", "destinations.0.settings.security")
        if reason
    ]
