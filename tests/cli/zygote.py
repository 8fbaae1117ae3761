"""Runs commands one after the other, each in a fork of this process, which has loaded them all.

A line of JSON on stdin asks for one: `argv`, `env`, `cwd` and files for its three streams. The answer is an exit code.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from typing import Any

from pipeline.cli import main
from pipeline.cli.app import COMMANDS


def serve() -> None:
    """Answer until nobody asks any more."""
    for module in {module for module, _ in COMMANDS.values()}:
        import_module(f"pipeline.cli.{module}")
    gc.freeze()  # what is loaded stays in the memory that all share
    while asked := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            become(json.loads(asked))
            main()
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(asked: dict[str, Any]) -> None:
    """Be the process that a shell would have started."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(asked[name], os.O_RDONLY if fd == 0 else os.O_WRONLY), fd)
        setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w"))
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = ["ironclip", *asked["argv"]]


if __name__ == "__main__":
    serve()
