"""A real Slurm over pretend hosts: munged and slurmctld on the head, slurmd on each host, with a
configuration, a key, sockets and state of their own in SHARED."""

import os
import shutil
import subprocess

import hosts
import job

FOLDER = hosts.SHARED / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue",
            "sinfo")

# A requeued job waits until the credentials of its first start have expired (cred_expire, 120 s by
# default). SHARED/tmp is another folder on each host: there two daemons do not meet. Version 22.05
# loads a plugin of control groups even where none is used, and finds none in a mount namespace of its
# own unless it is named.
CONFIGURATION = """
ClusterName=lockstep
SlurmctldHost=head({head})
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={tmp}/slurmd.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={tmp}/spool
TmpFS={tmp}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=2
KillWait=60
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout={slurmd_timeout}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def check_installed():
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        hosts.skip(f"Slurm is not installed: no {', '.join(missing)} (packages slurmctld, slurmd, "
                   "slurm-client, munge)")


class Slurm:
    def __init__(self, nodes, slurmd_timeout=300):
        FOLDER.mkdir()
        (FOLDER / "state").mkdir()
        (FOLDER / "slurm.conf").write_text(CONFIGURATION.format(
            folder=FOLDER, tmp=hosts.SHARED / "tmp", head=f"{hosts.NETWORK}.{hosts.HEAD_NUMBER}",
            slurmd_timeout=slurmd_timeout,
            nodes="\n".join(f"NodeName={node.name} CPUs=4 State=UNKNOWN" for node in nodes)))
        (FOLDER / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (FOLDER / "munge.key").write_bytes(os.urandom(1024))
        (FOLDER / "munge.key").chmod(0o600)
        os.environ["SLURM_CONF"] = str(FOLDER / "slurm.conf")
        hosts.sh("munged", "--force", *(f"--{file}-file={FOLDER}/munge.{file}"
                                        for file in ("key", "pid", "log", "seed")),
                 f"--socket={FOLDER}/munge.socket")
        hosts.sh("slurmctld", "-c")
        for node in nodes:
            self.start(node)
        hosts.wait_for(lambda: self.idle() == len(nodes), f"{len(nodes)} nodes are idle")

    @staticmethod
    def start(node):
        hosts.sh(*node.on("slurmd", "-N", node.name))

    @staticmethod
    def idle():
        done = subprocess.run(["sinfo", "--noheader", "--states=idle", "--format=%D"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return int(done.stdout.strip() or 0)

    @staticmethod
    def submit(tiny, run, *settings, launcher=("sbatch", "--nodes=2", "--ntasks-per-node=2"),
               flags=(), options=()):
        """options: of the agents"""
        return hosts.sh(*launcher, "--parsable", f"--output={tiny.folder}/{run}.log",
                        job.EXAMPLES / "train.sbatch", *options, *tiny.train(run, *settings), *flags).strip()

    @staticmethod
    def state(number):
        """PENDING, RUNNING, COMPLETING, COMPLETED, ..."""
        return hosts.sh("squeue", "--noheader", "--states=all", f"--jobs={number}",
                        "--format=%T").strip()

    @staticmethod
    def logs():
        """The ends of what its daemons say."""
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}"
                         for path in sorted(FOLDER.glob("*.log")) if path.name != "munge.log")
