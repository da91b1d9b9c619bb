"""Pretend hosts of this machine, for tests of real launches; needs root and iproute2.

A host is a set of namespaces (network, host name, processes, mounts, shared memory): it has a name,
an address, a boot id, SHARED/tmp and /dev/shm of its own. The test itself becomes the host "head",
which n1, n2, ... are cabled to. They share all other files; SHARED is memory that ends with the test.

Nothing is left behind, however the test ends: all processes descend from the head's first one, the
test, and the kernel kills them with it; networks and mounts go with the last process in them.
"""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

SHARED = pathlib.Path("/media")  # a mount point that exists, outside any build tree
NETWORK = "10.77.0"
HEAD_NUMBER = 254
PATIENCE = 120  # seconds, for what takes one where nothing else runs: ranks wait by spinning

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1

AGENT = f"""#!/bin/sh
# What mpirun calls in place of ssh, and which hands on as few variables: AGENT HOST COMMAND...
host=$1
shift
env -i HOME="$HOME" PATH="$PATH" TMPDIR="$TMPDIR" \\
  nsenter --target "$(cat {SHARED}/hosts/"$host")" --mount --uts --ipc --net --pid -- sh -c "$*"
code=$?
[ -e {SHARED}/hosts/"$host" ] || exec cat {SHARED}/silence  # ssh gets no message that a host died
exit $code
"""


def skip(why):
    """Says why nothing was tested, and exits with what CTest counts as skipped."""
    print(f"SKIPPED: {why}", flush=True)
    sys.exit(77)


def sh(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, LC_ALL="C"))  # else bash warns of a locale that is not there
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}")
    return done.stdout


def become_head():
    """Goes on as the first process of the host "head"; skips where that is not possible."""
    if os.geteuid() != 0:
        skip("pretend hosts need root")
    if LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET) != 0:
        skip(f"no namespaces can be made here: {os.strerror(ctypes.get_errno())}")
    child = os.fork()
    if child != 0:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xff)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    sh("mount", "--make-rprivate", "/")
    sh("mount", "-t", "proc", "proc", "/proc")
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "shared", SHARED)
    sh("hostname", "head")
    try:
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "eth0", "type", "bridge")
    except (RuntimeError, FileNotFoundError) as error:
        skip(f"no network between pretend hosts: {error}")
    sh("ip", "address", "add", f"{NETWORK}.{HEAD_NUMBER}/24", "dev", "eth0")
    sh("ip", "link", "set", "eth0", "up")
    names = [f"{NETWORK}.{number} n{number}" for number in range(1, HEAD_NUMBER)]
    (SHARED / "etc_hosts").write_text("\n".join(
        ["127.0.0.1 localhost", f"{NETWORK}.{HEAD_NUMBER} head"] + names) + "\n")
    sh("mount", "--bind", SHARED / "etc_hosts", "/etc/hosts")
    (SHARED / "hosts").mkdir()
    os.mkfifo(SHARED / "silence")
    (SHARED / "agent").write_text(AGENT)
    (SHARED / "agent").chmod(0o755)
    os.environ["TMPDIR"] = str(SHARED / "tmp")
    (SHARED / "tmp").mkdir(mode=0o1777)


class Host:
    """n1, n2, ...; on(...) is a command there, `ssh` without the waiting. Another of the same number
    is the same host, killed and booted again: it has its files."""

    SETUP = """
        hostname "$1" && mount -t tmpfs shm /dev/shm && mkdir -p "$2/tmp" &&
        mount --bind "$2/boot_id" /proc/sys/kernel/random/boot_id && mount --bind "$2/tmp" "$3" &&
        ip link set lo up && touch "$2/up" && exec bash -c "sleep infinity & wait"
    """

    def __init__(self, number):
        self.name = f"n{number}"
        folder = SHARED / self.name
        folder.mkdir(exist_ok=True)
        (folder / "up").unlink(missing_ok=True)
        (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        self.first = first = subprocess.Popen(
            ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", "-c", self.SETUP, "sh", self.name, folder, SHARED / "tmp"],
            stdin=subprocess.DEVNULL)
        wait_for(lambda: (folder / "up").exists() or first.poll() is not None, f"{self.name} boots")
        children = pathlib.Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        self.pid = children[0]  # its process 1, as the head sees it
        (SHARED / "hosts" / self.name).write_text(self.pid)
        sh("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns",
           self.pid)
        sh("ip", "link", "set", self.name, "master", "eth0", "up")
        sh(*self.on("ip", "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0"))
        sh(*self.on("ip", "link", "set", "eth0", "up"))

    def kill(self):
        """As a power failure does: no connection is closed, no process ends in order."""
        (SHARED / "hosts" / self.name).unlink()
        sh("ip", "link", "delete", self.name)
        self.first.kill()  # --kill-child
        self.first.wait()
        os.waitpid(int(self.pid), 0)  # the head inherited it; it ends after all others

    def on(self, *command):
        return ["nsenter", "--target", self.pid, "--mount", "--uts", "--ipc", "--net", "--pid",
                f"--wdns={os.getcwd()}", "--", *map(str, command)]


def passes(condition, seconds):
    """Whether it becomes true within that number of seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_for(condition, what, seconds=PATIENCE):
    if not passes(condition, seconds):
        raise RuntimeError(f"not within {seconds} s: {what}")
