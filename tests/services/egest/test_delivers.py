"""An event reaches its destination once, and its outcome is on record before its offset is committed."""

from destination import destination
from egesting import Stream, egesting, outcomes, pipe, until

from hifi import event


async def test_each_event_arrives_once_and_has_its_receipt(stream: Stream) -> None:
    async with destination() as there, egesting(stream, pipe(there.url)):
        ids = await stream.send(200)
        await until(lambda: len(there.ids) >= 200)
        receipts = await stream.receipts(200)
    assert sorted(there.ids) == sorted(ids)
    assert outcomes(receipts) == ["delivered"] * 200
    committed = await stream.committed()
    assert {tp.topic: at.offset for tp, at in committed.items()} == {stream.topics.enriched: 200}
    one = receipts[0]
    assert one[event.DESTINATION] == "d"
    assert one[event.STATUS] == "200"
    assert one[event.ATTEMPT] == "1"
    assert int(one[event.ACCEPTED]) <= int(one[event.IN]) <= int(one[event.SENT]) <= int(one[event.ANSWERED])
