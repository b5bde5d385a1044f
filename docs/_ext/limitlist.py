"""The directive `limits`: what exact mode cannot see, with the reasons, from `workloads/unseen.toml`."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from lab.core import paths
from lab.workloads.file import limits


class LimitList(SphinxDirective):
    """`{limits}`: a list of them, the name first."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """The nodes of the list, made from Markdown."""
        self.env.note_dependency(str(paths.room("workloads") / "unseen.toml"))
        return self.parse_text_to_nodes(markdown())


def markdown() -> str:
    """The list as Markdown."""
    return "\n".join(
        f"- **{limit.name}**: {limit.brief}. {' '.join(limit.reason.split())}" for limit in limits().values()
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_directive("limits", LimitList)
    return {"parallel_read_safe": True}
