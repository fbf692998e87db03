"""Where a sink finds its query's checkpoint: the path is that of an option, or derived from Spark's properties."""

import json

import pytest
from fencepost.spark.sink import checkpoint
from fencepost.spark.sink.checkpoint import place_of

DESCRIPTION = "totals\nid = 5f0c\nrunId = 7a1b\nbatch = 3"


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["plain", "a b#c?d", "100%25"])
def test_checkpoint_files_are_read_for_any_folder_name_and_url_form(tmp_path, prefix, name):
    folder = tmp_path / name
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "3").write_text("v1")
    (folder / "metadata").write_text(json.dumps({"id": "5f0c"}))
    assert checkpoint.read(f"{prefix}{folder}", "offsets", "3") == "v1"
    assert checkpoint.query_id(f"{prefix}{folder}") == "5f0c"


@pytest.mark.parametrize("place", [None, "", "s3a://bucket/x", "hdfs://host/x", "file://host/x", "/nowhere", "a\0b"])
def test_reading_a_checkpoint_that_is_missing_or_not_local_returns_none(place):
    assert checkpoint.read(place, "metadata") is None
    assert checkpoint.query_id(place) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "no json"])
def test_the_query_id_of_a_checkpoint_with_invalid_metadata_is_none(tmp_path, text):
    (tmp_path / "metadata").write_text(text)
    assert checkpoint.query_id(str(tmp_path)) is None


def test_a_named_querys_checkpoint_is_in_the_sessions_folder_under_its_name():
    """A query without a name has a new folder at each start, so there is none to return."""
    assert place_of("/folder", DESCRIPTION, "5f0c") == "/folder/totals"
    assert place_of("/folder", "a\nid = x\n" + DESCRIPTION, "5f0c") == "/folder/a\nid = x\ntotals"
    assert place_of("/folder", DESCRIPTION.removeprefix("totals\n"), "5f0c") is None, "a new one at each start"
    assert place_of("/folder", DESCRIPTION, "another") is None
    assert place_of(None, DESCRIPTION, "5f0c") is None
    assert place_of("/folder", None, "5f0c") is None
