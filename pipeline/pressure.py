"""Is there enough room on this machine to begin something new? If not, why not?"""

from __future__ import annotations

import shutil
from pathlib import Path

from pipeline.settings import Settings

EASE = 1.2  # who has paused goes on only when there is clearly enough again
MEMINFO = Path("/proc/meminfo")


def reason(now: Settings, *, paused: bool = False) -> str | None:
    """Why nothing new should begin here, in words; None if it may. `paused`: it was so the last time."""
    factor = EASE if paused else 1.0
    disk, memory = _disk_free(now.scratch_dir), _memory_free()
    if disk is not None and disk < factor * now.min_free_disk_bytes:
        return f"only {disk >> 20} MiB are free on the scratch disk"
    if memory is not None and memory < factor * now.min_free_memory_bytes:
        return f"only {memory >> 20} MiB of memory are free"
    return None


def _disk_free(folder: Path) -> int | None:
    """Of the nearest folder above that exists: scratch is made by whoever first needs it."""
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), None)
    return None if there is None else shutil.disk_usage(there).free


def _memory_free() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024
