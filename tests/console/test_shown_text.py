"""What pages show of names and values that clients chose: the scripts themselves, run by the browser tests' Node."""

import inspect
import json
import re
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

from fencepost.console.model import changes
from fencepost.console.serving.static_files import FOLDER
from playwright._impl._driver import compute_driver_executable

NODE = compute_driver_executable()[0]
DOCUMENT = """
globalThis.Node = class { text() { return this.children.map((each) => each.text()).join(""); } };
class Text extends Node { constructor(text) { super(); this.data = text; } text() { return this.data; } }
class Element extends Node {
  attributes = {};
  children = [];
  constructor(name, space) { super(); this.localName = name; this.namespaceURI = space; }
  append(child) { this.children.push(child); }
  setAttribute(name, value) { this.attributes[name] = value; }
}
globalThis.document = { createElement: (name) => new Element(name, "html"), createTextNode: (text) => new Text(text),
  createElementNS: (space, name) => new Element(name, space), hidden: true };
globalThis.setInterval = () => 0;
"""


def run(script: str, given: Any) -> Any:
    """Return what this script returns. `given`, and the modules `visible` and `dom`, are its variables."""
    modules = f"""
{DOCUMENT}
const visible = await import({json.dumps((FOLDER / "visible.js").as_uri())});
const dom = await import({json.dumps((FOLDER / "dom.js").as_uri())});
let all = ""; for await (const some of process.stdin) all += some;
const given = JSON.parse(all);
console.log(JSON.stringify((() => {{ {script} }})()));
"""
    command = [NODE, "--input-type=module", "--eval", modules]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_pages_replace_the_same_characters_as_the_command_line() -> None:
    kinds = {"Cc": True, "Cf": True, "Co": True, "Zl": True, "Zp": True, "Zs": True, "Lu": False, "Nd": False}
    kinds |= {"Ll": False, "Lo": False, "Mn": False, "Po": False, "Sm": False, "So": False}
    characters = [chr(each) for each in range(0x20000) if unicodedata.category(chr(each)) in kinds and each != 0x20]
    replaced = run("return given.map((each) => visible.visible(each) === '\\ufffd');", characters)
    wrong = [
        each for each, was in zip(characters, replaced, strict=True)
        if was != (not each.isprintable()) and each != "\ufffd"  # which is the replacement itself
    ]  # fmt: skip
    assert wrong == []
    assert run("return given.map(visible.visible);", ["a b\n\u202ec"]) == ["a b��c"]
    assert run("return given.map(visible.visibleLines);", ["a b\n\t\u202e\x1bc"]) == ["a b\n\t��c"]


def test_a_right_to_left_name_is_isolated_from_the_text_beside_it() -> None:
    script = """
    const made = dom.h("td", { title: given, href: "#/" + given }, "transaction ", given, ` of ${given.length}`);
    return [made.children.map((each) => each.localName ?? "text"), made.text(), made.attributes];
    """
    kinds, text, attributes = run(script, "שלום\u202e")
    assert kinds == ["text", "bdi", "text"]
    assert (text, attributes["title"]) == ("transaction שלום� of 5", "שלום�")
    assert attributes["href"] == "#/שלום\u202e", "an address is not changed"


def test_svg_text_gets_no_bdi_element_and_pre_keeps_its_line_ends() -> None:
    script = """
    const made = [dom.s("text", null, given), dom.h("pre", null, given)];
    return made.map((each) => [each.children[0].localName ?? "text", each.text()]);
    """
    assert run(script, "א\n\u2067") == [["text", "א��"], ["bdi", "א\n�"]]


MIXED = re.compile(
    r"`[^`]*\$\{[^}]*\b(?:transactional_id|consumer_group_id|client_id|member_id|sink|software|principal|instance_id|id)\}[^`]*`"
)
ADDRESSES = ("inCluster(", "hatch-", "#/")


def test_no_script_inserts_a_name_into_the_text_of_a_sentence() -> None:
    looked_at = list(FOLDER.rglob("*.js"))
    assert len(looked_at) > 15, "the folder still holds the scripts"
    lines = [(path.name, line) for path in looked_at for line in path.read_text().splitlines()]
    found = [(name, line.strip()) for name, line in lines if MIXED.search(line)]
    assert [each for each in found if not any(part in each[1] for part in ADDRESSES)] == []


def test_the_pages_listen_for_every_event_that_the_model_publishes() -> None:
    """Events are defined in changes.py; the pages would ignore an event that they do not list."""
    listened = set(
        re.findall(r'"(\w+)"', Path(FOLDER, "stream.js").read_text().split("const NAMES = ", 1)[1].split(";")[0])
    )
    published = set(re.findall(r'yield "(\w+)"', inspect.getsource(changes)))
    assert len(published) >= 5, "the expression still finds them"
    assert published <= listened
