#!/usr/bin/env python3
"""Reads objects, and trains on a dataset, from moto's S3, which checks signatures.

usage: moto_test.py FETCH_SHARDS LOCKSTEP

Needs moto[server]; its own process runs on 127.0.0.1. Names, keys and tokens are moto's.
"""

import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import boto3
import requests
from moto.server import ThreadedMotoServer

PROGRAM, LOCKSTEP = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from tiny_run import configuration, numbers, pack  # noqa: E402
BUCKET = "a-bucket.with-dots"
NAMES = ["plain.bin", "deep/er/a b+c&d=e@f:g,h$i'(j)*!;~k-_.%25\u00e4.bin"]
POLICY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


class Moto(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # or it writes a line a request
        os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1000"
        cls.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        cls.server.start()
        host, port = cls.server.get_host_and_port()
        cls.endpoint = f"http://{host}:{port}"
        options = {"endpoint_url": cls.endpoint, "region_name": "us-east-1",
                   "aws_access_key_id": "none", "aws_secret_access_key": "none"}
        iam = boto3.client("iam", **options)
        iam.create_user(UserName="reader")
        iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=POLICY)
        cls.user = iam.create_access_key(UserName="reader")["AccessKey"]
        iam.create_role(RoleName="role", AssumeRolePolicyDocument="{}")
        iam.put_role_policy(RoleName="role", PolicyName="all", PolicyDocument=POLICY)
        cls.role = boto3.client("sts", **options).assume_role(
            RoleArn="arn:aws:iam::123456789012:role/role", RoleSessionName="session")["Credentials"]
        s3 = boto3.client("s3", **options)
        s3.create_bucket(Bucket=BUCKET)
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        pack(LOCKSTEP, folder)
        for path in (folder / "data").rglob("*.*"):
            s3.put_object(Bucket=BUCKET, Key=str(path.relative_to(folder)), Body=path.read_bytes())
        cls.bytes = os.urandom(20 << 20)
        for name in NAMES:
            s3.put_object(Bucket=BUCKET, Key=name, Body=cls.bytes)
        # From here on each request must be signed.
        requests.post(cls.endpoint + "/moto-api/reset-auth", data="0", timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def environment(self, home, key, secret, token=""):
        return {"HOME": str(home), "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token, "AWS_EC2_METADATA_DISABLED": "true"}

    def fetch(self, name, key, secret, token=""):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out"
            environment = self.environment(folder, key, secret, token)
            done = subprocess.run([PROGRAM, folder + "/cache", f"s3://{BUCKET}/{name}", path, str(len(self.bytes))],
                                  env=environment, capture_output=True, text=True, timeout=300)
            return done.stderr if done.returncode else path.read_bytes()

    def test_a_users_keys(self):
        for name in NAMES:
            self.assertEqual(self.fetch(name, self.user["AccessKeyId"], self.user["SecretAccessKey"]), self.bytes)

    def test_a_roles_session_token(self):
        for name in NAMES:
            self.assertEqual(self.fetch(name, self.role["AccessKeyId"], self.role["SecretAccessKey"],
                                        self.role["SessionToken"]), self.bytes)

    def test_wrong_secrets_and_tokens_are_refused(self):
        said = self.fetch(NAMES[0], self.user["AccessKeyId"], "wrong")
        self.assertRegex(said, r"\b403\b.*\bSignatureDoesNotMatch\b")
        said = self.fetch(NAMES[0], self.role["AccessKeyId"], self.role["SecretAccessKey"], "wrong")
        self.assertRegex(said, r"\b4\d\d\b")
        self.assertNotIn(self.role["SecretAccessKey"], said)
        said = self.fetch(NAMES[0], "", "")
        self.assertRegex(said, r"\b403\b")

    def test_a_run_has_the_losses_of_the_local_dataset(self):
        folder = pathlib.Path(self.folder.name)
        config = configuration(folder, "gpt2")
        environment = self.environment(folder, self.user["AccessKeyId"], self.user["SecretAccessKey"])
        for name, data in (("here", folder / "data"), ("there", f"s3://{BUCKET}/data")):
            done = subprocess.run([LOCKSTEP, "train", config, "--run", folder / name, "--set", f"data.train={data}/train",
                                   "--set", f"data.validation={data}/validation"],
                                  env=environment, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn(self.user["SecretAccessKey"], done.stderr)
        self.assertEqual(numbers(folder / "there"), numbers(folder / "here"))

    def test_no_such_object(self):
        said = self.fetch("none.bin", self.user["AccessKeyId"], self.user["SecretAccessKey"])
        self.assertRegex(said, r"\b404\b.*\bNoSuchKey\b")


if __name__ == "__main__":
    unittest.main()
