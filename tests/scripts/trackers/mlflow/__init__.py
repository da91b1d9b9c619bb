"""A stand-in of MLflow's client, for track_test.py. It appends each request to the file $TRACKER_LOG.

The process dies after as many batches of metrics as $TRACKER_DIES_AFTER states. A batch fails if the
file $TRACKER_FAILS exists; it is removed then.
"""

import json
import os
import pathlib
import types

from . import entities, exceptions  # noqa: F401

batches = 0


def write(call, **values):
    with open(os.environ["TRACKER_LOG"], "a") as file:
        file.write(json.dumps({"call": call, **values}) + "\n")


def calls():
    path = pathlib.Path(os.environ["TRACKER_LOG"])
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class MlflowClient:
    def get_experiment_by_name(self, name):
        return types.SimpleNamespace(experiment_id="0")

    def create_run(self, experiment_id, start_time, run_name, tags):
        run_id = f"run{sum(call['call'] == 'create' for call in calls())}"
        write("create", run=run_id, name=run_name)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def get_run(self, run_id):
        params = {name: value for call in calls() if call["call"] == "log" and call["run"] == run_id
                  for name, value in call["params"]}
        return types.SimpleNamespace(data=types.SimpleNamespace(params=params))

    def update_run(self, run_id, status):
        write("status", run=run_id, status=status)

    def set_terminated(self, run_id, status, end_time):
        write("status", run=run_id, status=status)

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        global batches
        fails = pathlib.Path(os.environ.get("TRACKER_FAILS", "none"))
        if metrics and fails.exists():
            fails.unlink()
            raise exceptions.MlflowException("no connection")
        assert len(metrics) <= 1000 and len(params) <= 100
        write("log", run=run_id, metrics=[tuple(one) for one in metrics],
              params=[tuple(one) for one in params], tags=[tuple(one) for one in tags])
        batches += bool(metrics)
        if str(batches) == os.environ.get("TRACKER_DIES_AFTER"):
            os._exit(9)
