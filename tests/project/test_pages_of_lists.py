"""The files of rules and silences that pages show are taken by the development hub as shown."""

import json
import re
from pathlib import Path

import anyio
import pytest

from ah_server.hub import AlertingLists, open_database
from ah_server.hub.alerting_lists import RefusedListError

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def shown(page):
    text = (HOW_TO / page).read_text(encoding="utf-8")
    (found,) = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return json.loads(found), text


def put(tmp_path, name, document):
    async def main():
        database = await open_database(tmp_path / "hub.sqlite")
        try:
            return await AlertingLists(database=database).put(name, document)
        finally:
            await database.aclose()

    return anyio.run(main)


@pytest.mark.parametrize(
    ("page", "name"), [("write-threshold-rules.md", "rules"), ("silence-alerts.md", "silences")]
)
def test_the_file_of_a_page_can_be_imported(page, name, tmp_path):
    document, _ = shown(page)
    assert put(tmp_path, name, document) == len(document[name]) > 0


def test_a_misspelt_end_is_refused_in_the_words_of_the_page(tmp_path):
    document, text = shown("silence-alerts.md")
    (silence,) = document["silences"]
    silence["end_at"] = silence.pop("ends_at")
    with pytest.raises(RefusedListError) as caught:
        put(tmp_path, "silences", document)
    (fault,) = caught.value.faults
    assert f"ah-server: {fault}\n" in text
