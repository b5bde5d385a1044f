"""How Sphinx makes the site (`make docs`) and the man pages (`make man`) from this folder."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import commandpages  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

from lab import __version__  # noqa: E402
from lab.atlas import data, site  # noqa: E402

# Written anew before every build, so never stale.
COMMANDS = commandpages.write(HERE / "commands")
EXTRA = HERE.parent / "build" / "docs-extra"
EXTRA.mkdir(parents=True, exist_ok=True)

project = "lab"
author = "the lab's authors"
version = release = __version__
extensions = ["myst_parser", "sphinx_copybutton", "sphinxcontrib.asciinema", "recordtables", "workloadlists"]
exclude_patterns = ["_*"]
# `--base` stays two hyphens.
smartquotes = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# What is typed is copied, and neither the prompt nor the answer.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

html_theme = "furo"
html_title = "lab"
html_copy_source = False
# Summaries would be fetched, which a page that was opened as a file may not do.
html_show_search_summary = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = [str(EXTRA)]
# Shell sessions in examples are not always whole programs.
highlight_language = "text"

man_pages = [(f"commands/{page}", page, about, [author], 1) for page, about in COMMANDS.items()]
man_show_urls = True


def write_atlas(app: Sphinx) -> None:
    """Write the site of the atlases that come with the lab, as `lab atlas site` does: `atlas/` beside the pages."""
    if app.builder.format == "html":
        site.write_files(data.shipped(), EXTRA / "atlas")


def setup(app: Sphinx) -> None:
    """Have Sphinx write the atlas before it writes its own pages."""
    app.connect("builder-inited", write_atlas)
