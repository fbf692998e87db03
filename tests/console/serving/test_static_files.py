"""The pages' files: how large they are, and what they must not contain."""

import re

from fencepost.console.serving.static_files import FOLDER, read_files

MAX_SCRIPT_BYTES = 100_000
FILES = read_files()
SCRIPTS = {name: each.content.decode() for name, each in FILES.items() if name.endswith(".js")}


def test_the_total_size_of_the_consoles_scripts_is_limited() -> None:
    assert sum(len(text.encode()) for text in SCRIPTS.values()) < MAX_SCRIPT_BYTES


def test_no_script_uses_inner_html_eval_or_other_ways_to_run_text() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|javascript:"
    )
    assert {name: found for name, text in SCRIPTS.items() if (found := re.findall(forbidden, text))} == {}


def test_no_file_names_another_host_and_the_page_has_no_inline_code() -> None:
    for name, each in FILES.items():
        text = each.content.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\(['\"]?(?:https?:)?//|@import", text), name
    page = FILES["index.html"].content.decode()
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", page)


def test_every_script_file_that_another_imports_exists() -> None:
    for name, text in SCRIPTS.items():
        for found in re.findall(r"""(?:from|import\()\s*["'](\./[^"']+|\.\./[^"']+)["']""", text):
            assert (FOLDER / name).parent.joinpath(found).resolve().is_file(), (name, found)
