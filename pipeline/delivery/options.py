"""How is a `[targets.<name>]` table read? By option and type; a mistake is one sentence, a secret is never in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.core.errors import SettingInvalid, TargetPermissionDenied


@dataclass
class Table:
    """The options of one target. `close` after the last: whatever nobody asked for is a mistake."""

    name: str
    kind: str
    values: Mapping[str, Any]
    _known: set[str] = field(default_factory=set)

    def text(self, option: str, default: str | None = None) -> str:
        """The text of an option; it is needed if there is no default."""
        value = self._value(option, default)
        if not isinstance(value, str) or (default is None and not value) or not value.isprintable():
            raise self.wrong(f"needs '{option}', a text")
        return value

    def path(self, option: str) -> str:
        """The absolute path of an option, or nothing."""
        value = self.text(option, "")
        if value and not Path(value).is_absolute():
            raise self.wrong(f"needs an absolute path as '{option}'")
        return value

    def address(self, option: str) -> str:
        """The http(s) address of an option without its last slash, or nothing."""
        value = self.text(option, "").rstrip("/")
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query):
            raise self.wrong(f"needs an address like https://host:port as '{option}', without a login")
        return value

    def number(self, option: str, default: float, least: float, most: float) -> float:
        value = self._value(option, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(f"needs a number from {least:g} to {most:g} as '{option}'")
        return value

    def flag(self, option: str, default: bool) -> bool:
        value = self._value(option, default)
        if not isinstance(value, bool):
            raise self.wrong(f"needs true or false as '{option}'")
        return value

    def secret(self, what: str) -> Secret | None:
        """Where `<what>_env` or `<what>_file` say that a secret is; None if neither does."""
        env, file = self.text(f"{what}_env", ""), self.path(f"{what}_file")
        if env and file:
            raise self.wrong(f"has both '{what}_env' and '{what}_file'; one is enough")
        return Secret(self.name, env, file) if env or file else None

    def close(self) -> None:
        """SettingInvalid if there is an option that nobody asked for."""
        unknown = sorted(set(self.values) - self._known)
        if unknown:
            raise self.wrong(f"has no option {unknown[0][:40]!r}; it knows {', '.join(sorted(self._known))}")

    def wrong(self, what: str) -> SettingInvalid:
        return SettingInvalid(f"Target '{self.name}' of kind '{self.kind}' {what}.")

    def _value(self, option: str, default: Any) -> Any:
        self._known.add(option)
        return self.values.get(option, default)


@dataclass(frozen=True)
class Secret:
    """Where a secret is found. It is read when it is needed, and shown nowhere."""

    target: str
    env: str
    file: str

    def read(self) -> str:
        """The secret, or TargetPermissionDenied: without it this target takes nothing from us."""
        if self.env:
            value = os.environ.get(self.env, "")
            where = f"the environment variable {self.env}"
        else:
            where = f"the file {Path(self.file).name}"
            try:
                value = Path(self.file).read_text(encoding="utf-8").strip()
            except (OSError, ValueError):
                value = ""
        if not value:
            raise TargetPermissionDenied(f"{self.target}: its secret is not in {where}.")
        return value
