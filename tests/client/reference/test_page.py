"""docs/sdk-reference.md says what the code says, of every setting and every method."""

import re
from pathlib import Path

import pytest
from fencepost.client.config_names import names_of, settings_from
from fencepost.client.reference import page as reference_page
from fencepost.client.reference import setting_docs
from fencepost.client.settings import ConsumerSettings, ProducerSettings, ShareConsumerSettings, keywords_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sdk-reference.md"


@pytest.mark.slow
def test_the_sdk_reference_is_the_page_generated_from_the_code():
    written = reference_page.page()
    assert PAGE.read_text() == written, "make generated"


def test_the_documented_settings_are_exactly_the_keywords_of_the_client_classes():
    every = setting_docs.CONNECTION.keys()
    assert every | setting_docs.PRODUCER.keys() == keywords_of(ProducerSettings)
    assert every | setting_docs.CONSUMER.keys() == keywords_of(ConsumerSettings)
    assert every | setting_docs.SHARE_CONSUMER.keys() == keywords_of(ShareConsumerSettings)


def test_every_public_method_has_a_docstring():
    assert re.findall(r"^\| `([^`]*)` \|  \|$", PAGE.read_text(), flags=re.MULTILINE) == []


def refusal(cls, name):
    """Return the text of the error for a setting of this name whose value is None; "" if there is no error."""
    try:
        settings_from(cls, {"bootstrap.servers": "h", name: None})
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("cls", [ProducerSettings, ConsumerSettings, ShareConsumerSettings])
def test_from_config_accepts_every_setting_name_in_the_pages_last_column(cls):
    assert "no setting" in refusal(cls, "no.such.thing")
    for keyword in keywords_of(cls):
        for name in names_of(keyword):
            assert "no setting" not in refusal(cls, name)
