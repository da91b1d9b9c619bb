#!/usr/bin/env python3
"""Pretend hosts reach each other and have nothing else in common with the machine; a test that is
killed leaves nothing behind.

Exit 77 (skipped) without root or namespaces.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import hosts

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def check_hosts():
    machine = pathlib.Path(BOOT_ID).read_text()
    hosts.become_head()
    one, two = hosts.Host(1), hosts.Host(2)
    for host in (one, two):
        assert hosts.sh(*host.on("hostname")) == f"{host.name}\n"
        assert hosts.sh(*host.on("cat", BOOT_ID)) != machine
    assert hosts.sh(*one.on("cat", BOOT_ID)) != hosts.sh(*two.on("cat", BOOT_ID))
    assert hosts.sh(hosts.SHARED / "agent", "n2", "hostname;", "echo", "$((1 + 1))") == "n2\n2\n"
    connect = "exec 3<>/dev/tcp/n1/4242 && cat <&3"
    listen = "import socket; s = socket.create_server(('', 4242)); s.accept()[0].send(b'n1 speaks')"
    server = subprocess.Popen(one.on("python3", "-c", listen))
    hosts.wait_for(lambda: ":4242" in hosts.sh(*one.on("ss", "--listening", "--tcp", "--numeric")),
                   "n1 listens")
    assert hosts.sh(*two.on("bash", "-c", connect)) == "n1 speaks"
    assert server.wait() == 0


def sleepers(seconds):
    found = subprocess.run(["pgrep", "--full", "--exact", f"sleep {seconds}"],
                           stdout=subprocess.PIPE)
    return len(found.stdout.split())


def check_nothing_is_left():
    """Of a test on two hosts that is killed, in the machine's own namespaces."""
    def links():
        return hosts.sh("ip", "-brief", "link").count("\n")

    before = links()
    seconds = str(10**6 + os.getpid())
    test = subprocess.Popen([sys.executable, "-B", __file__, "sleep", seconds])
    hosts.wait_for(lambda: sleepers(seconds) == 2 or test.poll() is not None, "both sleep")
    assert test.poll() is None
    test.send_signal(signal.SIGKILL)
    test.wait()
    hosts.wait_for(lambda: sleepers(seconds) == 0, "the sleepers have ended", seconds=5)
    assert links() == before


def main():
    if sys.argv[1:2] == ["sleep"]:
        hosts.become_head()
        for number in (1, 2):
            subprocess.Popen(hosts.Host(number).on("sleep", sys.argv[2]))
        time.sleep(60)
    else:
        child = os.fork()
        if child == 0:
            check_hosts()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            sys.exit(status)
        check_nothing_is_left()
        print("ok")


if __name__ == "__main__":
    main()
