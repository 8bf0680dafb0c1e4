"""The accepted times of events survive in the metadata of commits. No Kafka."""

from hifi_collect.accepted_times import AcceptedTimes


def test_the_next_reader_gives_events_that_it_reads_again_their_first_times() -> None:
    times = AcceptedTimes()
    times.extend(10, 1_000)
    times.extend(25, 2_000)
    next_times = AcceptedTimes(times.text_from(5))
    assert [next_times.at(position) for position in (5, 9, 10, 24, 25)] == [1_000, 1_000, 2_000, 2_000, None]
    next_times.extend(30, 3_000)
    assert next_times.at(25) == 3_000


def test_times_of_committed_events_are_dropped() -> None:
    times = AcceptedTimes()
    for end in range(1, 1001):
        times.extend(end, end)
        times.forget(end)
    assert times.text_from(1000) == "1;"
    times.extend(1001, 7)
    assert len(times.text_from(1000)) < 20


def test_metadata_that_collect_did_not_write_has_no_times() -> None:
    assert AcceptedTimes("").at(0) is None
    assert AcceptedTimes("3;5:1").at(0) is None
    assert AcceptedTimes("3;a;5:1").topic == ""


def test_a_batch_gets_the_times_of_its_spans_and_what_has_none_the_default() -> None:
    times = AcceptedTimes("1;5:100,8:200")
    positions = [0, 4, 5, 7, 8, 20]
    assert times.of(positions, 900) == [100, 100, 200, 200, 900, 900]
    assert times.of(positions, 900) == [times.at(position) or 900 for position in positions]


def test_the_id_of_the_topic_is_kept_beside_the_times_and_is_unknown_in_what_older_instances_wrote() -> None:
    times = AcceptedTimes("1;5:100")
    assert times.topic == ""
    assert times.text_from(0) == "1;5:100"
    times.topic = topic = "cluster/" + "0f" * 16
    next_times = AcceptedTimes(times.text_from(0))
    assert (next_times.topic, next_times.at(4), next_times.at(5)) == (topic, 100, None)
    assert AcceptedTimes(times.text_from(5)).topic == topic
