"""The answers of the API and of the console's pages, by subject."""

from dataclasses import dataclass

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
