"""How does a program start that ends when its parent ends, and as whom?

Run as a script in front of another program: `python -I -S leash.py '{"parent": 42, "signal": 15}' program args...`.
It ties itself to its parent (Linux only; elsewhere it just goes on), changes its user if it is told to, and then
becomes the program. It stays outside of every package's imports so that it starts in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


def become(uid: int, gid: int, *, may_enter: bool) -> None:
    """Give root up for another user; with `may_enter` keep one right of it: to pass through closed folders."""
    libc = ctypes.CDLL(None, use_errno=True)
    if may_enter:
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # Reading is enough; a container that lacks that capability may still have the wider one.
    if may_enter and not (_keep(libc, CAP_DAC_READ_SEARCH) or _keep(libc, CAP_DAC_OVERRIDE)):
        sys.exit("leash: root's right to pass through closed folders cannot be kept here")


def _keep(libc: ctypes.CDLL, capability: int) -> bool:
    mask = 1 << capability
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)  # effective, permitted, inheritable; then the high halves
    if libc.capset(header, sets) != 0:
        return False
    return bool(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0)


def tie_to_parent(signal: int) -> None:
    """Get this signal when the parent ends (Linux only; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0)


def main() -> None:
    """Tie, change user, exec."""
    told = json.loads(sys.argv[1])
    program = sys.argv[2:]
    if "uid" in told:
        become(told["uid"], told["gid"], may_enter=told["may_enter"])
    # After the change of user: the kernel forgets the tie when credentials change.
    if sys.platform == "linux" and told["signal"]:
        tie_to_parent(told["signal"])
        if os.getppid() != told["parent"]:
            sys.exit("leash: the parent was gone before the tie was made")
    os.execv(program[0], program)  # noqa: S606 - there is no shell on purpose


if __name__ == "__main__":
    main()
