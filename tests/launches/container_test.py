#!/usr/bin/python3
"""The MPIJob has its schema, its commands are in the image, and hadolint finds nothing in the
Dockerfile. Neither is built or started: there is no Docker here.

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


class Container(unittest.TestCase):
    def setUp(self):
        self.schema = json.loads((HERE / "mpijob_schema.json").read_text())
        self.job = yaml.safe_load((CLUSTER / "mpijob.yaml").read_text())
        self.dockerfile = (CLUSTER / "Dockerfile").read_text()
        self.replicas = self.job["spec"]["mpiReplicaSpecs"]

    def test_the_job_has_its_schema(self):
        jsonschema.Draft7Validator.check_schema(self.schema)
        jsonschema.validate(self.job, self.schema, jsonschema.Draft7Validator)

    def test_the_job_on_gpus_has_its_schema(self):
        text, count = re.subn(r"( +)limits: .*\n +# limits: (.*nvidia.*)\n", r"\1limits: \2\n",
                              (CLUSTER / "mpijob.yaml").read_text())
        self.assertEqual(count, 1)
        job = yaml.safe_load(text)
        jsonschema.validate(job, self.schema, jsonschema.Draft7Validator)
        worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        self.assertEqual(worker["resources"]["limits"]["nvidia.com/gpu"],
                         job["spec"]["slotsPerWorker"])

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

    def test_each_mount_has_its_volume(self):
        for replica in self.replicas.values():
            pod = replica["template"]["spec"]
            self.assertEqual({mount["name"] for mount in pod["containers"][0]["volumeMounts"]},
                             {volume["name"] for volume in pod["volumes"]})

    def test_the_image_has_what_the_job_starts(self):
        launcher, worker = (self.replicas[name]["template"]["spec"]["containers"][0]["command"]
                            for name in ("Launcher", "Worker"))
        args = self.replicas["Launcher"]["template"]["spec"]["containers"][0]["args"]
        self.assertIn(f"restart.sh /usr/local/bin/{launcher[0]}\n", self.dockerfile)
        self.assertIn(f"mpirun.sh /usr/local/bin/{args[0]}\n", self.dockerfile)
        self.assertIn(f">{worker[-1]} ", self.dockerfile)
        keys = self.job["spec"]["sshAuthMountPath"]
        self.assertIn(f"HostKey {keys}/id_rsa", self.dockerfile)
        self.assertIn("openssh-server", self.dockerfile)

    def test_the_image_copies_files_that_are_there(self):
        for source in re.findall(r"^COPY (launch\S+)", self.dockerfile, re.MULTILINE):
            self.assertTrue((HERE.parents[1] / source).is_file(), source)

    @unittest.skipIf(not HADOLINT, "hadolint cannot be had from PyPI")
    def test_the_dockerfile_has_no_lint(self):
        done = subprocess.run([HADOLINT, "--no-color", CLUSTER / "Dockerfile"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
