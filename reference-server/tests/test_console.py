import random
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import attrs
import httpx
import pytest

from ah_server.console import CHARTS, ServerLine, ServerState, chart_of, console_app, draw
from ah_server.hub import LoggedEvent
from ah_server.settings import Secret
from ahcollector.errors import PresenceError
from ahcollector.store import LatestSample, RangeSeries
from ahwire import Event, EventType
from ahwire.hub import EventSeverity

pytestmark = pytest.mark.anyio
NOW = 1_796_000_000.0
HOSTILE = '<script>alert(1)</script>"'


class Clock:
    def time(self):
        return NOW

    def monotonic(self):
        return NOW


class View:
    def __init__(self, *lines, points=()):
        self.lines = lines
        self.points = tuple(points)
        self.asked = []

    async def servers(self, company_id=None):
        return [one for one in self.lines if company_id in (None, one.company_id)]

    async def server(self, company_id, server_id):
        for line in self.lines:
            if (line.company_id, line.server_id) == (company_id, server_id):
                return line
        return None

    async def latest(self, company_id, server_id):
        labels = (("__name__", "ah_x"), ("company_id", "a"), ("server_id", "b"), ("l", HOSTILE))
        return [LatestSample(labels=labels, timestamp_ms=0, value=1234567.0)]

    async def history(self, company_id, server_id, metric, *, start_ms, end_ms, step_ms):
        self.asked.append((company_id, server_id, metric, start_ms, end_ms, step_ms))
        return [RangeSeries(labels=(("__name__", metric),), points=self.points)]

    async def events(self, company_id, limit):
        return ()


def line(server_id="web1", *, state=ServerState.UP, ago=5):
    return ServerLine(
        company_id="acme",
        server_id=server_id,
        state=state,
        last_seen=datetime.fromtimestamp(NOW - ago, UTC) if ago is not None else None,
        interval_seconds=30.0,
    )


def client(view, password=""):
    app = console_app(view=view, clock=Clock(), password=Secret(password), refresh_seconds=10)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://console.test")


async def test_an_empty_fleet_says_what_to_do_next():
    async with client(View()) as http:
        page = await http.get("/")
    assert page.status_code == 200
    assert "ah-server hub license new" in page.text


async def test_the_fleet_shows_state_and_last_sign_of_life():
    view = View(line(), line("web2", state=ServerState.DOWN, ago=7200), line("web3", ago=None))
    async with client(view) as http:
        page = (await http.get("/")).text
    assert "3 servers, 1 down" in page
    for told in ("5 s ago", "2 h ago", "never", "/companies/acme/servers/web2"):
        assert told in page


async def test_what_servers_say_is_escaped_and_no_script_may_run():
    async with client(View(line())) as http:
        page = await http.get("/companies/acme/servers/web1")
    assert page.status_code == 200
    assert "<script" not in page.text
    assert "1\u202f234\u202f567" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "unsafe-inline" not in policy


async def test_events_tell_alerts_apart_and_say_what_hides_one():
    alert = Event(
        event_id="0190b6f2-0000-7000-8000-00000000000e",
        type=EventType.ALERT_REMINDER,
        seq=1,
        occurred_at=datetime.fromtimestamp(NOW, UTC),
        company_id="acme",
        server_id="web1",
        rule_id="disk-full",
        series_key=f"ah_x{{l={HOSTILE}}}",
        severity=EventSeverity.WARNING,
        value=95.5,
        suppressed=True,
        suppress_reason="silence:nightly",
    )
    down = attrs.evolve(
        alert,
        type=EventType.AGENT_DOWN,
        series_key="agent",
        value=None,
        severity=None,
        suppressed=False,
        suppress_reason=None,
    )

    class WithEvents(View):
        async def events(self, company_id, limit):
            return [
                LoggedEvent(position=place, received_ms=0, event=event)
                for place, event in enumerate((alert, down))
            ]

    async with client(WithEvents(line())) as http:
        page = (await http.get("/companies/acme/servers/web1")).text
    assert "<script" not in page
    for told in ("disk-full", "ah_x{l=&lt;script&gt;", "warning", "95.50", "silence:nightly"):
        assert told in page
    assert page.count("silence:nightly") == 1
    assert "None" not in page


async def test_a_companys_page_lists_its_servers_alone():
    other = attrs.evolve(line("other-web"), company_id="other")
    async with client(View(line(), other)) as http:
        fleet = (await http.get("/")).text
        page = await http.get("/companies/acme")
        nobody = await http.get("/companies/nobody")
    assert 'href="/companies/acme"' in fleet
    assert 'href="/companies/other"' in fleet
    assert page.status_code == 200
    assert "/companies/acme/servers/web1" in page.text
    assert "other" not in page.text
    assert nobody.status_code == 404


async def test_series_are_in_the_order_of_their_numbers():
    class Buckets(View):
        async def latest(self, company_id, server_id):
            place = (("__name__", "ah_w_bucket"), ("company_id", "a"), ("server_id", "b"))
            return [
                LatestSample(labels=(*place, ("le", bound)), timestamp_ms=0, value=1.0)
                for bound in ("+Inf", "0", "10", "100", "2.5", "1e3", "9" * 400, "\u00b2")
            ]

    async with client(Buckets(line())) as http:
        page = (await http.get("/companies/acme/servers/web1")).text
    found = re.findall(r"le=(\S+?)</span>", page)
    assert found[:6] == ["0", "2.5", "10", "100", "1e3", "+Inf"]
    assert len(found) == 8


async def test_while_presence_gives_no_answer_the_page_says_so_and_loads_itself_anew(caplog):
    class Away(View):
        async def servers(self, company_id=None):
            raise PresenceError("Redis at <somewhere> gave no answer")

        async def server(self, company_id, server_id):
            raise PresenceError("Redis at <somewhere> gave no answer")

    async with client(Away()) as http:
        for path in ("/", "/companies/acme/servers/web1", "/companies/a/servers/b/charts/cpu.svg"):
            page = await http.get(path)
            assert page.status_code == 503
            assert "Redis at &lt;somewhere&gt; gave no answer" in page.text
            assert 'http-equiv="refresh"' in page.text
            assert "default-src 'none'" in page.headers["content-security-policy"]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3


async def test_an_unknown_server_or_chart_is_404():
    async with client(View(line())) as http:
        for path in (
            "/companies/acme/servers/none",
            "/companies/other/servers/web1",
            "/companies/acme/servers/web1/charts/none.svg",
            "/companies/acme/servers/web1/charts/cpu.svg?span=year",
            "/nowhere",
        ):
            assert (await http.get(path)).status_code == 404


async def test_a_chart_asks_for_whole_steps_that_end_with_the_one_that_has_begun():
    view = View(line(), points=[(round(NOW * 1000) - 1000, 40.0)])
    async with client(view) as http:
        answer = await http.get("/companies/acme/servers/web1/charts/cpu.svg?span=5m")
    assert answer.headers["content-type"] == "image/svg+xml"
    ((_, _, metric, start_ms, end_ms, step_ms),) = view.asked
    assert metric == "cpu_usage_percent"
    assert end_ms - start_ms == 300_000
    assert end_ms % step_ms == 0
    assert 0 <= end_ms - NOW * 1000 < step_ms


@pytest.mark.parametrize("spec", CHARTS)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("count", [None, 0, 1, 2, 120])
async def test_a_chart_is_a_document_without_scripts_whatever_it_is_given(spec, small, count):
    start, end = 1_796_000_000_000, 1_796_000_300_000
    rng = random.Random(7)
    points = tuple((start + at * 2500, rng.uniform(-5, 150)) for at in range(count or 0))
    series = [
        RangeSeries(labels=(("__name__", "x"), ("mount", f"/{number}{HOSTILE}")), points=points)
        for number in range(0 if count is None else 20)
    ]
    svg = draw(spec, series, start_ms=start, end_ms=end, gap_ms=5000, small=small)
    root = ET.fromstring(svg)
    names = {element.tag.rsplit("}")[-1] for element in root.iter()}
    assert "script" not in names
    # Names of vocabularies are no addresses; nothing is loaded.
    assert not re.findall(rb'(?:href|src)="[a-z]*:?//', svg)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
async def test_samples_are_seen_however_few_they_are(count):
    start = 1_796_000_000_000
    points = tuple((start + at * 2500, 50.0) for at in range(count))
    series = [RangeSeries(labels=(("__name__", "x"),), points=points)]
    svg = draw(CHARTS[0], series, start_ms=start, end_ms=start + 300_000, gap_ms=5000)
    assert (b'"dot reactive' in svg or b'"line reactive' in svg) == bool(count)


async def test_samples_of_a_slow_agent_are_joined_in_a_short_span():
    at = round(NOW * 1000)
    view = View(line(), points=[(at - ago * 30_000, 50.0) for ago in range(9, -1, -1)])
    async with client(view) as http:
        for path in ("charts/cpu", "metrics/ah_cpu_usage_percent"):
            url = f"/companies/acme/servers/web1/{path}.svg?span=5m"
            svg = (await http.get(url)).text
            assert svg.count('class="line reactive') == 1


async def test_a_lone_sample_between_gaps_is_a_dot():
    start = 1_796_000_000_000
    stamps = [0, 2500, 5000, 100_000, 200_000, 202_500]
    points = tuple((start + at, 50.0) for at in stamps)
    series = [RangeSeries(labels=(("__name__", "x"),), points=points)]
    svg = draw(chart_of("x"), series, start_ms=start, end_ms=start + 300_000, gap_ms=5000)
    assert b'"dot reactive' in svg


async def test_every_metric_has_a_chart_of_its_own_by_its_labels():
    start = 1_796_000_000_000
    series = [
        RangeSeries(
            labels=(("__name__", "x"), ("company_id", "c"), ("server_id", "s"), ("queue", queue)),
            points=((start, 1.0), (start + 2500, 2.0)),
        )
        for queue in ("mail", "print")
    ]
    svg = draw(chart_of("x"), series, start_ms=start, end_ms=start + 300_000, gap_ms=5000)
    assert b"mail" in svg
    assert b"print" in svg
    async with client(View(line())) as http:
        page = await http.get("/companies/acme/servers/web1")
        assert "/companies/acme/servers/web1/metrics/ah_x?span=hour" in page.text
        assert "charts/cpu.svg" not in page.text  # this server never sent it
        one = await http.get("/companies/acme/servers/web1/metrics/ah_x?span=day")
    assert "/metrics/ah_x.svg?span=day" in one.text


async def test_a_server_that_never_reported_is_not_called_up():
    async with client(View(line(state=ServerState.WAITING, ago=None))) as http:
        fleet = (await http.get("/")).text
        page = (await http.get("/companies/acme/servers/web1")).text
    assert 'class="state waiting"' in fleet
    assert "has not reported yet" in page


async def test_silence_is_a_gap_and_not_a_line():
    start, step = 1_796_000_000_000, 2_500
    stamps = [*range(0, 50_000, step), *range(200_000, 250_000, step)]
    points = tuple((start + at, 50.0) for at in stamps)
    series = [RangeSeries(labels=(("__name__", "x"),), points=points)]
    svg = draw(CHARTS[0], series, start_ms=start, end_ms=start + 300_000, gap_ms=2 * step)
    pieces = re.findall(rb'd="M([^"]*)" class="line reactive', svg)
    assert len(pieces) == 2


async def test_the_password_is_asked_for_everywhere_but_at_the_health_check():
    async with client(View(line()), password="pass-canary") as http:
        for path in ("/", "/companies/acme/servers/web1", "/static/console.css"):
            denied = await http.get(path)
            assert denied.status_code == 401
            assert "basic" in denied.headers["www-authenticate"].lower()
            assert (await http.get(path, auth=("any", "wrong"))).status_code == 401
            assert (await http.get(path, auth=("any", "pass-canary"))).status_code == 200
        broken = await http.get("/", headers={"Authorization": "Basic %%%"})
        assert broken.status_code == 401
        assert (await http.get("/healthz")).status_code == 200
