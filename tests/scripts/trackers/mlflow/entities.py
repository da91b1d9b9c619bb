import collections

Metric = collections.namedtuple("Metric", "key value timestamp step")
Param = collections.namedtuple("Param", "key value")
RunTag = collections.namedtuple("RunTag", "key value")
