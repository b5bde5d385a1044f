"""Puts the man pages that `make man` has made into the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface[Any]):
    """Making them needs the lab and all it imports, which a build on its own does not have: so they are optional."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what is there; hatchling calls this."""
        pages = sorted(Path(self.root, "build", "man").glob("*.1"))
        if not pages and version == "standard":
            self.app.display_warning("no man pages in this wheel: run `make man` first")
        build_data["shared_data"].update({str(page): f"share/man/man1/{page.name}" for page in pages})
