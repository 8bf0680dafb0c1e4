"""Reports of certificates that another program wrote are refused."""

import orjson
import pytest

from hifi.kafka.certificate_reports import ReportedCertificates


@pytest.mark.parametrize("expires_s", [1e300, -1e300, "inf", "nan", "x", None, []])
def test_a_time_that_no_calendar_has_is_refused(expires_s: object) -> None:
    reported = ReportedCertificates()
    fields = {"where": "a.pem", "warned_s": 0, "expires_s": 1_700_000_000}
    reported.take(b"egest/1", orjson.dumps({"at_us": 10, "certificates": {"server": fields}}), 0)
    body = {"at_us": 10, "certificates": {"server": fields | {"expires_s": expires_s}}}
    with pytest.raises(ValueError, match="not a report of certificates"):
        reported.take(b"egest/2", orjson.dumps(body), 0)
    assert [certificate.text(0) for certificate in reported.expiring(1)]
