"""How does a program die with the process that wanted it, however that one dies?

Run as `python -I -S guard.py PARENT_PID PROGRAM ARGS...`, as the leader of its own process group; never imported.
Its stdin is a pipe that only the parent holds. Three things can happen:

- the parent dies: the pipe ends, or Linux sends us SIGTERM (a copy of the pipe may have been inherited by others):
  the whole group is killed, children of the program too;
- the guard dies: Linux sends the program SIGKILL, because the guard is its parent;
- the program ends: the guard ends in the same way, with the same exit code or by the same signal.
"""

import ctypes
import os
import resource
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_STARTED = 127


def hear_of_the_end_of(parent: int, number: int) -> None:
    """Ask Linux for this signal when `parent` ends; other systems have only the pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        kill_all()


def kill_all(*_signal: object) -> None:
    """End the group, ourselves included."""
    os.killpg(0, signal.SIGKILL)


def start(argv: list[str]) -> int:
    """The program's pid. It has our stdout and stderr, and nothing to read."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        hear_of_the_end_of(guard, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would hand that on
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is the point
    except OSError as exc:
        os.write(2, f"{argv[0]}: {exc.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def watch(pid: int) -> int:
    """The program's wait status, or the end of everything if the parent is gone first."""
    poller = select.poll()
    poller.register(0, select.POLLIN | select.POLLHUP)
    pause_ms = 50
    if hasattr(os, "pidfd_open"):
        poller.register(os.pidfd_open(pid), select.POLLIN)
        pause_ms = 1000
    while True:
        ready = [fd for fd, _ in poller.poll(pause_ms)]
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if 0 in ready and not os.read(0, 1):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # leave no corpse: in a container nobody else may bury it
            kill_all()


def end_like(status: int) -> None:
    """End as the program ended, so that whoever waits for us sees its end and not ours."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else NOT_STARTED)


def main() -> None:
    """Guard one program from its start to its end."""
    signal.signal(signal.SIGTERM, kill_all)
    hear_of_the_end_of(int(sys.argv[1]), signal.SIGTERM)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pid = start(sys.argv[2:])
    nothing = os.open(os.devnull, os.O_WRONLY)  # its output ends when the program's does
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    end_like(watch(pid))


if __name__ == "__main__":
    main()
