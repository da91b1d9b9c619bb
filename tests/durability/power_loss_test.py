#!/usr/bin/env python3
"""Cuts the power of a file system while checkpoints are saved on it; needs root.

usage: power_loss_test.py SAVER NO_SYNC LOSSES

The test shuts down ext4 on a loop device at once, without a flush of its log. It kills the saving process and
mounts the file system again. Checkpoints whose save() had returned must be complete. Without syncs, which the
preloaded library NO_SYNC disables, such checkpoints must be lost; else this test would prove nothing.

Exit 77 (skipped) without root, loop devices or mkfs.ext4. Mounts and processes are in namespaces that
end with the test, files are in memory, and a loop device ends with its last mount.
"""

import fcntl
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

PLACE = pathlib.Path("/media")  # a mount point that exists
IMAGE, DISK, MEMORY = PLACE / "image", PLACE / "disk", PLACE / "memory"
CHECKPOINTS = DISK / "new/run"
EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
NO_LOG_FLUSH = 2
# Nothing is written in the background during the test. With `writeback`, names and sizes of files reach
# the disk before their bytes.
OPTIONS = [f"loop,commit=600,{mode}" for mode in ("data=ordered", "data=writeback,noauto_da_alloc")]
MOST_LOSSES = 100  # until a loss shows without syncs


class Lost(Exception):
    """A checkpoint whose save had returned is missing, or a checkpoint is damaged."""


def skip(why):
    print(f"SKIPPED: {why}", flush=True)
    sys.exit(77)


def sh(*command):
    subprocess.run([str(word) for word in command], check=True, timeout=60)


def mount():
    sh("mount", "-o", random.choice(OPTIONS), IMAGE, DISK)


def new_disk():
    sh("mkfs.ext4", "-q", "-F", "-b", random.choice([1024, 4096]), IMAGE)
    mount()


def cut_power():
    disk = os.open(DISK, os.O_RDONLY)
    fcntl.ioctl(disk, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(disk)


def save_until_power_is_lost(saver, environment):
    """Cuts the power at a random moment of a save. Returns the newest step whose save had returned."""
    shutil.rmtree(MEMORY, ignore_errors=True)  # memory is lost with the power
    way = random.choice([[], [MEMORY]])  # to the disk, or through the memory of hosts
    process = subprocess.Popen([saver, "save", CHECKPOINTS] + way, env=dict(os.environ, **environment),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(random.randrange(1, 5)):
        announced = int(process.stdout.readline() or -1)
    time.sleep(10 ** random.uniform(-4, -1))
    if process.poll() is not None:
        raise RuntimeError(f"the saver ended by itself: {process.stderr.read()}")
    cut_power()
    process.kill()
    process.wait()
    return int((process.stdout.read().split() or [announced])[-1])


def steps_that_are_there(saver):
    done = subprocess.run([saver, "check", CHECKPOINTS], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Lost(done.stderr.strip())
    return [int(step) for step in done.stdout.split()]


def lose_power(saver, environment):
    """Loses power once. Returns whether a step is found whose save had not returned."""
    announced = save_until_power_is_lost(saver, environment)
    sh("umount", DISK)
    mount()
    steps = steps_that_are_there(saver)
    newest = steps[-1] if steps else 0
    # The newest two stay, and a save that had not returned may be complete.
    if newest not in (announced, announced + 1) or steps[-2:] != [
            step for step in (newest - 1, newest) if step > 0]:
        raise Lost(f"step {announced} was announced, {steps or 'nothing'} found")
    return newest > announced


def lose_power_often(saver, losses):
    found = 0
    new_disk()
    for loss in range(losses):
        if loss % 4 == 3:  # directories are created again
            sh("umount", DISK)
            new_disk()
        found += lose_power(saver, {})
    sh("umount", DISK)
    print(f"lost power {losses} times: what was announced was there each time, and {found} times what "
          "was being saved", flush=True)


def expect_loss(saver, no_sync, of):
    for loss in range(1, MOST_LOSSES + 1):
        new_disk()
        try:
            lose_power(saver, dict(LD_PRELOAD=no_sync, NO_SYNC=of))
        except Lost as lost:
            print(f"without syncs of {of}, at power loss {loss}: {lost}", flush=True)
            return
        finally:
            sh("umount", DISK)
    sys.exit(f"FAILED: without syncs of {of} no announced checkpoint was lost in {MOST_LOSSES} "
             "power losses: this test sees nothing")


def enter_namespaces():
    if os.geteuid() != 0:
        skip("mounting a file system needs root")
    if shutil.which("mkfs.ext4") is None:
        skip("there is no mkfs.ext4")
    inside = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    if subprocess.run(inside + ["true"]).returncode != 0:
        skip("no namespaces can be made here")
    os.execvp("unshare", inside + [sys.executable, "-B", __file__, "inside"] + sys.argv[1:])


def main():
    if sys.argv[1] != "inside":
        enter_namespaces()
    saver, no_sync, losses = sys.argv[2:]
    sh("mount", "-t", "tmpfs", "power_loss", PLACE)
    DISK.mkdir()
    with open(IMAGE, "wb") as image:
        image.truncate(32 << 20)
    try:
        new_disk()
    except subprocess.CalledProcessError as error:
        skip(f"ext4 cannot be mounted on a loop device here: {error}")
    sh("umount", DISK)
    for of in ("everything", "files", "directories"):
        expect_loss(saver, no_sync, of)
    lose_power_often(saver, int(losses))


if __name__ == "__main__":
    main()
