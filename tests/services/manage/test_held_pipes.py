"""The management API replaces nothing that it cannot read, but deletes it; real service, real Kafka."""

from tests.support.held_pipes import of_later_release, unreadable_record
from tests.support.manage.managed_stream import Managed, body

from hifi.control.declaration import Declaration
from hifi.pipe.model import Pipe
from hifi.runtime.clock import now_us


async def test_what_cannot_be_read_is_not_replaced_and_can_be_deleted(managed: Managed) -> None:
    flights, trains = Pipe.model_validate(body("one")), Pipe.model_validate(body("one", "trains"))
    await managed.write(managed.topics.pipes, unreadable_record(flights))
    later_record = Declaration("trains", trains, "eve", now_us()).record()
    await managed.write(managed.control.declared, of_later_release(later_record))
    for name in ("flights", "trains"):
        response = await managed.until(0, "GET", f"/pipes/{name}", 200)
        assert (response.content["declared"], response.content["in_force"]) == (None, None)
        tag = {"if-match": response.headers["etag"]}
        for method, path, content in (
            ("PUT", f"/pipes/{name}", body("two", name)),
            ("POST", f"/pipes/{name}/pause", None),
        ):
            refusal = await managed.call(0, method, path, content, tag)
            assert refusal.status == 409
            assert f"{name} is held: " in refusal.content["detail"]
            assert "Nothing was changed. A later release may have written it" in refusal.content["detail"]
        deletion = await managed.call(0, "DELETE", f"/pipes/{name}", None, tag)
        assert (deletion.status, deletion.content["declared"]["deleted"]) == (200, True)
    listing = await managed.call(0, "GET", "/pipes")
    assert listing.content["pipes"] == []
    creation = await managed.call(0, "PUT", "/pipes/orders", body("one", "orders"), {"if-none-match": "*"})
    assert creation.status == 201
