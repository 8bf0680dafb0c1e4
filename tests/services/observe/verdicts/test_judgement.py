"""Reasons for which the stream, a service or a pipe is unstable."""

from hifi_observe.verdicts.judgement import PipeTraffic, judge

CALM = PipeTraffic(events_per_s=100, dead_last_minute=0)


def reasons_of(conditions=None, traffic=None, *, has_figures=True):
    return judge(conditions or {}, traffic or {"flights": CALM}, has_figures=has_figures)


def test_without_conditions_every_scope_is_stable():
    assert reasons_of().by_scope == {}
    assert reasons_of().unknown == ""


def test_before_the_first_figures_nothing_is_known():
    assert reasons_of(has_figures=False).unknown == "observe has no figures yet"


def test_while_observe_is_behind_nothing_is_known():
    reasons = reasons_of(
        {("observe-behind", "", ""): "its figures are 40 s old", ("lag", "flights", ""): "old"}
    )
    assert reasons.unknown == "observe is behind: its figures are 40 s old"
    assert reasons.by_scope == {}


def test_a_pipe_with_little_traffic_does_not_make_the_stream_unstable():
    conditions = {
        ("destination", "orders", "crm"): "12 outcomes in a row were status-503; 40 deliveries are waiting"
    }
    verdicts = reasons_of(conditions, {"flights": CALM, "orders": PipeTraffic(4, 0)})
    assert list(verdicts.by_scope) == ["pipe/orders"]
    assert verdicts.by_scope["pipe/orders"][0].startswith("destination crm: 12 outcomes")


def test_pipes_with_much_of_the_traffic_do():
    verdicts = reasons_of(
        {("lag", "orders", ""): "p95 is 3.00 s"}, {"flights": CALM, "orders": PipeTraffic(25, 0)}
    )
    assert verdicts.by_scope["stream"] == ("pipes with 20% of the traffic are unstable",)


def test_a_loss_makes_the_stream_unstable_however_small_its_pipe():
    verdicts = reasons_of(
        {("loss", "orders", ""): "1 event at egest"}, {"flights": CALM, "orders": PipeTraffic(0, 0)}
    )
    assert "events were lost" in verdicts.by_scope["stream"]


def test_a_service_that_stands_still_makes_the_stream_unstable():
    verdicts = reasons_of({("no-progress", "", "egest"): "egest committed nothing"})
    assert verdicts.by_scope["service/egest"] == ("no-progress: egest committed nothing",)
    assert verdicts.by_scope["stream"] == ("service/egest is unstable",)


def test_silence_of_ingest_is_about_ingest():
    assert "service/ingest" in reasons_of({("ingest-silent", "", ""): "11 s old"}).by_scope


def test_some_dead_letters_are_normal_and_many_are_not():
    usual_reasons = reasons_of(traffic={"flights": PipeTraffic(100, 60)})
    excess_reasons = reasons_of(traffic={"flights": PipeTraffic(100, 61)})
    assert usual_reasons.by_scope == {}
    assert excess_reasons.by_scope["pipe/flights"] == (
        "dead letters: 61 in the last minute, 1.0% of its events",
    )


def test_dead_letters_of_a_pipe_without_events_are_all_of_it():
    assert PipeTraffic(0, 3).dead_share == 1.0
