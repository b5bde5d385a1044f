"""Directives of what the workloads' own files say: `limits` of exact mode with reasons, and `cases`, each in a line."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from lab.core import paths
from lab.workloads import selection
from lab.workloads.spec import Workload, limits


class LimitList(SphinxDirective):
    """`{limits}`: a list of them, the name first."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """The nodes of the list, made from Markdown."""
        self.env.note_dependency(str(paths.data_folder("workloads") / "unseen.toml"))
        return self.parse_text_to_nodes(limit_list())


class CaseTables(SphinxDirective):
    """`{cases}`: a table for each workload that comes with the lab."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """The nodes of the tables, made from Markdown."""
        workloads = selection.list_workloads()
        for workload in workloads:
            self.env.note_dependency(str(workload.folder / selection.FILE_NAME))
        return self.parse_text_to_nodes("\n\n".join(map(case_table, workloads)))


def limit_list() -> str:
    """The limits of exact mode as Markdown."""
    return "\n".join(
        f"- **{limit.name}**: {limit.brief}. {' '.join(limit.reason.split())}" for limit in limits().values()
    )


def case_table(workload: Workload) -> str:
    """The cases of a workload as Markdown."""
    rows = [(f"`{case.name}`", case.group, case.note) for case in workload.cases]
    if not workload.groups:
        rows = [(name, note) for name, _, note in rows]
    heading = ("case", "group", "meaning") if workload.groups else ("case", "meaning")
    lines = [heading, ["---"] * len(heading), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return f"**`{workload.name}`**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_directive("limits", LimitList)
    app.add_directive("cases", CaseTables)
    return {"parallel_read_safe": True}
