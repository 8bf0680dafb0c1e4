"""The contract of destinations, with objects in a folder and in a bucket."""

from typing import Any

import pytest
from tests.support.connectors.destination_contract import *  # noqa: F403 - its tests
from tests.support.connectors.kind_under_test import KindUnderTest
from tests.support.objects.object_stores import ObjectBucket, ObjectFolder


@pytest.fixture(params=["object_folder", "object_bucket"])
def kind(request: pytest.FixtureRequest) -> ObjectFolder:
    """A folder, then a bucket."""
    store: ObjectFolder = request.getfixturevalue(request.param)
    return store


@pytest.fixture
def without_secret(object_bucket: ObjectBucket) -> tuple[KindUnderTest, dict[str, Any]]:
    """The bucket, and its destination without a secret; a folder needs none."""
    keys = {"access_key": {"env": "TEST_NO_SECRET"}, "secret_key": {"env": "TEST_NO_SECRET"}}
    return object_bucket, object_bucket.declared(settings={"s3": {"bucket": "b", **keys}})
