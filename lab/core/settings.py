"""The user's own settings: `lab.toml` in the folder for configuration, a file that need not exist."""

from __future__ import annotations

from pathlib import Path

import msgspec
import platformdirs

from lab.core import toml
from lab.core.records import Record


class Settings(Record, frozen=True, kw_only=True):
    """The file's values. mails: a mailbox, or a folder of mailboxes, in which `+lore:` looks.

    kernels: addresses of packages with `{version}` in them, by the word before the colon of their specs.
    """

    database: str | None = None
    mails: str | None = None
    kernels: dict[str, str] = msgspec.field(default_factory=dict)


def file() -> Path:
    return platformdirs.user_config_path("kernel-ab-lab") / "lab.toml"


def load() -> Settings:
    """The settings; none if there is no file."""
    return toml.load(file(), Settings) if file().is_file() else Settings()
