"""What this site adds to mkdocs: pages that are generated, and a replacement for links to files that are not pages."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import pages

DOCS = Path(__file__).resolve().parents[1]
GENERATED = {
    "cli-reference.md": pages.commands_page,
    "decisions.md": pages.decisions_page,
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are generated when the site is built. Called by mkdocs."""
    for name, page in GENERATED.items():
        files.append(File.generated(config, name, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replace each link to a file of the repository that is not a page by the file's path, so that a reader can find
    it in a checkout. Called by mkdocs.
    """
    here = (DOCS / page.file.src_uri).parent

    def replaced(found: re.Match[str]) -> str:
        """Return what replaces one link: itself, or its text with the file's path."""
        text, target = found[1], found[2].split("#")[0]
        if not target or "://" in target:
            return found[0]
        path = (here / target).resolve()
        if path.is_relative_to(DOCS):
            return found[0]
        return f"{text} (`{path.relative_to(DOCS.parent)}`)"

    linked = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", replaced, markdown)
    # GitHub wants a | inside of code escaped in tables; here it would show.
    return re.sub(
        r"^\|.*", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), linked, flags=re.M
    )
