"""The answers of the API and of the console's pages, by subject."""

import asyncio
from dataclasses import dataclass

from hifi.runtime.signed_document import SigningKey
from hifi_observe.judge import StreamJudge
from hifi_observe.kafka.key_usage_follower import KeyUsageFollower
from hifi_observe.kafka.record_lookup import LookupSlots
from hifi_observe.observed_colours import ObservedColours
from hifi_observe.settings import ObserveSettings
from hifi_observe.stream import ObservedStream
from hifi_observe.web.alarm_answers import AlarmAnswers
from hifi_observe.web.colour_answers import ColourAnswers
from hifi_observe.web.control_answers import ControlAnswers
from hifi_observe.web.minute_answers import MinuteAnswers
from hifi_observe.web.pipe_answers import PipeAnswers
from hifi_observe.web.record_answers import RecordAnswers
from hifi_observe.web.report_answers import ReportAnswers
from hifi_observe.web.status_answers import StatusAnswers
from hifi_observe.web.usage_answers import UsageAnswers
from hifi_observe.web.watermark_answers import WatermarkAnswers


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one instance."""

    status: StatusAnswers
    pipes: PipeAnswers
    minutes: MinuteAnswers
    colours: ColourAnswers
    records: RecordAnswers
    alarms: AlarmAnswers
    control: ControlAnswers
    usage: UsageAnswers
    reports: ReportAnswers
    watermarks: WatermarkAnswers


def answers_of(
    settings: ObserveSettings,
    stream: ObservedStream,
    judge: StreamJudge,
    colours: ObservedColours,
    *,
    lookups: LookupSlots,
    key_usage: KeyUsageFollower,
    report_key: SigningKey | None,
    stopping: asyncio.Event,
) -> Answers:
    """The answers about a stream.

    Args:
        settings: of the service.
        stream: that is observed.
        judge: of its alarms and verdicts.
        colours: of the stream.
        lookups: of records, which are limited.
        key_usage: of the write keys.
        report_key: signs reports; None: they are not signed.
        stopping: set when event streams must end.
    """
    store, pipes, live, partitions = stream.store, stream.pipes, stream.live, stream.partitions
    status = StatusAnswers(settings, store, live, partitions, stream.follower, colours.view)
    alarms = AlarmAnswers(judge.notifier, stream.publisher)
    return Answers(
        status,
        PipeAnswers(store, pipes, live, judge.skews, alarms, status, settings.observe_target),
        MinuteAnswers(store, pipes, partitions),
        ColourAnswers(colours.view, pipes, colours.history),
        RecordAnswers(settings, pipes, partitions, lookups),
        alarms,
        ControlAnswers(judge.stability, stream.registry),
        UsageAnswers(store, partitions, key_usage, settings.observe_keep_h),
        ReportAnswers(settings, store, pipes, partitions, colours.history, report_key),
        WatermarkAnswers(stream.watermarks, pipes, colours.view, stopping),
    )
