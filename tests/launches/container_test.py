#!/usr/bin/python3
"""The MPIJobs have their schema, their commands are in their images, and hadolint finds nothing in the
Dockerfiles. None is built or started: there is no Docker here.

usage: container_test.py HADOLINT   (where a wheel of PyPI put it; "" where it could not be had)

By Debian's own Python, for the packages python3-jsonschema and python3-yaml; exit 77 without.
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import unittest

try:
    import jsonschema
    import yaml
except ImportError as error:
    print(f"SKIPPED: {error} (packages python3-jsonschema, python3-yaml)")
    sys.exit(77)

HERE = pathlib.Path(__file__).parent
CLUSTER = HERE.parents[1] / "launch" / "cluster"
HADOLINT = sys.argv.pop() if len(sys.argv) > 1 else ""


class Agents(unittest.TestCase):
    """Jobs whose pods are agents of a supervised run."""

    def setUp(self):
        job = yaml.safe_load((CLUSTER / "indexed_job.yaml").read_text())["spec"]
        jobset = yaml.safe_load((CLUSTER / "jobset.yaml").read_text())["spec"]["replicatedJobs"][0]
        self.jobs = [(job, job["completions"]), (jobset["template"]["spec"], jobset["replicas"])]

    def test_each_mount_has_its_volume(self):
        for job, _ in self.jobs:
            pod = job["template"]["spec"]
            self.assertEqual({mount["name"] for mount in pod["containers"][0]["volumeMounts"]},
                             {volume["name"] for volume in pod["volumes"]})

    def test_pods_have_time_to_save_and_are_created_again(self):
        for job, _ in self.jobs:
            self.assertGreaterEqual(job["template"]["spec"]["terminationGracePeriodSeconds"], 300)
            self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")
            self.assertGreaterEqual(job["backoffLimit"], 100)

    def test_only_codes_of_which_a_retry_cannot_help_fail_the_job(self):
        script = (CLUSTER / "train.sbatch").read_text()
        codes = re.search(r"^  ([\d |]+)\)\n    tell \"exit code", script, re.MULTILINE)[1]
        for job, _ in self.jobs:
            rule, = job["podFailurePolicy"]["rules"]
            self.assertEqual(rule["action"], "FailJob")
            self.assertEqual(rule["onExitCodes"]["values"], [*(int(code) for code in codes.split(" | ")), 130])  # 130: ctl stop

    def test_there_are_spare_pods(self):
        for job, pods in self.jobs:
            args = job["template"]["spec"]["containers"][0]["args"]
            need = next(int(arg.partition("=")[2]) for arg in args if arg.startswith("--need="))
            self.assertGreater(pods, need)


class Checks:
    """Of a Dockerfile and the job that uses its image."""

    dockerfile = job = ""

    def setUp(self):
        self.schema = json.loads((HERE / "mpijob_schema.json").read_text())
        self.job = yaml.safe_load((CLUSTER / self.job).read_text())
        self.path = CLUSTER / self.dockerfile
        self.dockerfile = self.path.read_text()
        self.replicas = self.job["spec"]["mpiReplicaSpecs"]
        self.pods = {name: replica["template"]["spec"] for name, replica in self.replicas.items()}

    def test_the_job_has_its_schema(self):
        jsonschema.Draft7Validator.check_schema(self.schema)
        jsonschema.validate(self.job, self.schema, jsonschema.Draft7Validator)

    def test_each_mount_has_its_volume(self):
        for pod in self.pods.values():
            self.assertEqual({mount["name"] for mount in pod["containers"][0]["volumeMounts"]},
                             {volume["name"] for volume in pod["volumes"]})

    def test_the_image_has_what_the_job_starts(self):
        launcher, worker = (self.pods[name]["containers"][0]["command"] for name in ("Launcher", "Worker"))
        args = self.pods["Launcher"]["containers"][0]["args"]
        self.assertIn(f"restart.sh /usr/local/bin/{launcher[0]}\n", self.dockerfile)
        self.assertIn(f"mpirun.sh /usr/local/bin/{args[0]}\n", self.dockerfile)
        self.assertIn(f"worker.sh /usr/local/bin/{worker[0]}\n", self.dockerfile)
        self.assertIn(f">{worker[-1]} ", self.dockerfile)
        self.assertIn(f"HostKey {self.job['spec']['sshAuthMountPath']}/id_rsa'", self.dockerfile)
        self.assertIn("openssh-server", self.dockerfile)

    def test_pods_have_time_to_save(self):
        for pod in self.pods.values():
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], 300)

    def test_the_image_copies_files_that_are_there(self):
        for source in re.findall(r"^COPY (launch\S+)", self.dockerfile, re.MULTILINE):
            self.assertTrue((HERE.parents[1] / source).is_file(), source)

    @unittest.skipIf(not HADOLINT, "hadolint cannot be had from PyPI")
    def test_the_dockerfile_has_no_lint(self):
        done = subprocess.run([HADOLINT, "--no-color", self.path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class Cpu(Checks, unittest.TestCase):
    dockerfile, job = "Dockerfile", "mpijob.yaml"

    def test_the_schema_refuses_mistakes(self):
        def worker(job):
            return job["spec"]["mpiReplicaSpecs"]["Worker"]

        for mistake in (
                lambda job: job["spec"].update(slotsPerWorker="8"),
                lambda job: job["spec"].update(slotPerWorker=8),
                lambda job: job["spec"]["runPolicy"].update(cleanPodPolicy="Always"),
                lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=2),
                lambda job: worker(job).update(restartPolicy="Always"),
                lambda job: worker(job)["template"]["spec"].pop("containers"),
                lambda job: worker(job)["template"]["spec"]["containers"][0]["resources"][
                    "limits"].update(memory="128 GB"),
                lambda job: worker(job)["template"]["spec"]["volumes"][0].pop(
                    "persistentVolumeClaim")):
            job = copy.deepcopy(self.job)
            mistake(job)
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.validate(job, self.schema, jsonschema.Draft7Validator)


class Cuda(Checks, unittest.TestCase):
    dockerfile, job = "Dockerfile.cuda", "mpijob.cuda.yaml"

    def test_each_rank_has_a_gpu_and_locks_memory_for_rdma(self):
        worker = self.pods["Worker"]["containers"][0]
        limits = worker["resources"]["limits"]
        self.assertEqual(limits["nvidia.com/gpu"], self.job["spec"]["slotsPerWorker"])
        self.assertTrue([name for name in limits if name.startswith("rdma/")])
        # Kubernetes gives an added capability to root only.
        self.assertEqual(worker["securityContext"], {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}})

    def test_the_disk_of_a_host_is_mounted_where_the_run_looks_for_it(self):
        mounts = {mount["name"]: mount["mountPath"] for mount in self.pods["Worker"]["containers"][0]["volumeMounts"]}
        for key in ("checkpoint.local_directory", "data.cache_directory"):
            value = [word.partition(f"{key}=")[2] for word in self.pods["Launcher"]["containers"][0]["args"]
                     if f"{key}=" in word]
            self.assertEqual([path.startswith(mounts["nvme"] + "/") for path in value], [True])

    def test_both_stages_have_the_same_cuda_and_nccl(self):
        """NCCL of the build: 2.28, as of nvidia/cuda 13.0."""
        stages = re.findall(r"^FROM nvidia/cuda:([0-9.]+)-\w+-(\w+[0-9.]+)", self.dockerfile, re.MULTILINE)
        self.assertEqual(len(stages), 2)
        self.assertEqual(stages[0], stages[1])
        minor = "-".join(stages[0][0].split(".")[:2])
        self.assertIn(f" libcublas-{minor} ", self.dockerfile)
        self.assertIn(f"+cuda{minor.replace('-', '.')}'", self.dockerfile)


if __name__ == "__main__":
    unittest.main()
