"""Where do finished files go?

`load` gives the targets that the settings name; `deliver` brings one file to one of them, or sees that it is there.
A new kind of target is one module with a class that is a `Target`, and a line in KINDS.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import crashpoints
from pipeline.core.errors import SettingInvalid
from pipeline.crashpoints import At
from pipeline.delivery import file, s3, sftp
from pipeline.delivery.target import (
    HASH_LENGTH,
    Progress,
    Stored,
    Target,
    folder_of,
    published_key,
    published_keys,
    unseen,
)
from pipeline.files import Check, go_on
from pipeline.settings import Settings

__all__ = [
    "HASH_LENGTH",
    "LOCAL",
    "Delivered",
    "Stored",
    "Target",
    "deliver",
    "folder_of",
    "load",
    "published_key",
    "published_keys",
]

LOCAL = "local"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
KINDS: dict[str, Callable[[str, Mapping[str, Any]], Target]] = {
    "file": file.from_options,
    "s3": s3.from_options,
    "sftp": sftp.from_options,
}


@dataclass(frozen=True)
class Delivered:
    """A file that lies at its target, whole. `skipped`: it lay there before."""

    key: str
    url: str
    size: int
    sha256: str
    skipped: bool


def deliver(
    target: Target, path: Path, key: str, sha256: str, *, check: Check = go_on, on_progress: Progress = unseen
) -> Delivered:
    """See that this content lies under the key. If it does so already, `path` is not even opened."""
    looked_at = 0

    def looked(done: int, total: int) -> None:
        nonlocal looked_at
        looked_at = done
        on_progress(done, total)

    def moved(done: int, total: int) -> None:
        # What was read in vain stays in the count, so that progress never runs backwards.
        on_progress(looked_at + done, looked_at + total)

    there = target.head(key, check=check, on_progress=looked)
    skipped = there is not None and there.sha256 == sha256
    if there is None or not skipped:
        crashpoints.reached(At.PUTTING)
        there = target.put(path, key, sha256, check=check, on_progress=moved)
        crashpoints.reached(At.PUT)
    return Delivered(key, target.url(key), there.size, there.sha256, skipped)


def load(settings: Settings) -> dict[str, Target]:
    """The targets by name: `local`, then those of TARGETS_FILE. Touches none of them; a bad one is SettingInvalid."""
    targets: dict[str, Target] = {LOCAL: file.FileTarget(LOCAL, settings.output_dir, create_root=True)}
    for name, options in _tables(settings.targets_file).items():
        if name == LOCAL:
            raise SettingInvalid("The target 'local' is OUTPUT_DIR; give the one in TARGETS_FILE another name.")
        targets[name] = _target(name, options)
    return targets


def _tables(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SettingInvalid(f"TARGETS_FILE {path} cannot be read: {exc.strerror}.") from exc
    except ValueError as exc:  # not TOML (a name given twice, too), or not UTF-8
        raise SettingInvalid(f"TARGETS_FILE {path} is not valid TOML: {str(exc).rstrip('.')}.") from exc
    tables = content.pop("targets", {})
    if content or not isinstance(tables, dict):
        raise SettingInvalid(f"TARGETS_FILE {path} may hold tables [targets.<name>] and nothing else.")
    return tables


def _target(name: str, options: object) -> Target:
    if not NAME.fullmatch(name):
        raise SettingInvalid(f"'{name[:80]}' cannot name a target: use up to 40 of a-z, 0-9, '-' and '_'.")
    if not isinstance(options, dict):
        raise SettingInvalid(f"Target '{name}' must be a table [targets.{name}].")
    kind = options.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SettingInvalid(f"Target '{name}' has the kind {kind!r}; known kinds: {', '.join(KINDS)}.")
    return KINDS[kind](name, {option: value for option, value in options.items() if option != "kind"})
