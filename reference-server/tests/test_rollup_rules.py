"""`ah-server rollup-rules`: what it prints, and that vmalert takes it."""

import time

import anyio
import pytest
import yaml

from ah_server.cli import main
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing._contracts.store import samples


@pytest.fixture
def rules(capsys, monkeypatch):
    """Runs the command; returns its exit code, what it printed and what it complained of."""

    def run(*arguments, url=""):
        monkeypatch.setenv("AHC_TSDB_URL", url)
        try:
            code = main(["rollup-rules", *arguments])
        except SystemExit as ended:  # argparse ends so
            code = ended.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def recorded(text):
    groups = yaml.safe_load(text)["groups"]
    return {rule["record"].partition(":")[0] for group in groups for rule in group["rules"]}


def test_without_options_it_records_what_agents_measure_of_a_host(rules):
    code, text, _ = rules()
    assert code == 0
    assert {"ah_cpu_usage_percent", "ah_disk_used_percent", "ah_uptime_seconds"} <= recorded(text)


def test_named_metrics_are_recorded_and_no_others(rules):
    code, text, _ = rules("--metric", "cpu.percent", "--metric", "ah_x")
    assert (code, recorded(text)) == (0, {"ah_cpu_percent", "ah_x"})


@pytest.mark.parametrize(
    "arguments", [["--metric", ""], ["--metric", "ah_"], ["--metric", "x", "--from-store"]]
)
def test_what_cannot_be_understood_ends_with_2(rules, arguments):
    code, text, why = rules(*arguments)
    assert (code, text) == (2, "")
    assert "rollup-rules: error:" in why


def test_without_a_store_there_is_nobody_to_ask(rules):
    code, text, why = rules("--from-store")
    assert (code, text) == (3, "")
    assert "tsdb.url: it is empty" in why


def test_a_store_that_is_away_is_named_and_ends_with_3(rules):
    code, text, why = rules("--from-store", url="http://127.0.0.1:9")
    assert (code, text) == (3, "")
    assert "tsdb.url: http://127.0.0.1:9 does not tell its metrics" in why
    assert "Traceback" not in why


@pytest.mark.service
def test_those_of_a_store_are_recorded_and_vmalert_takes_the_file(rules, start_service, tmp_path):
    testkit = pytest.importorskip("testkit.victoria_metrics")
    server = start_service(testkit.VictoriaMetricsServer)
    code, _, why = rules("--from-store", url=server.url)
    assert code == 3
    assert "has no samples of agents yet" in why

    async def fill():
        async with VictoriaMetricsStore(url=server.url) as store:
            now = round(time.time() * 1000)
            await store.write([samples([(now, 1.0)], name=f"ah_{name}") for name in "ab"])
            await store.flush()

    anyio.run(fill)
    vmalert = pytest.importorskip("testkit.vmalert").Vmalert()
    path = tmp_path / "rollups.yml"
    for arguments, names in (
        (["--from-store"], {"ah_a", "ah_b"}),
        ([], None),
    ):
        code, text, _ = rules(*arguments, url=server.url)
        assert code == 0
        assert names is None or recorded(text) == names
        path.write_text(text)
        vmalert.check(path)
