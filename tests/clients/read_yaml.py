"""Prints the documents of YAML that stand on standard input as a list in JSON, as PyYAML reads them, which is YAML 1.1."""

import json
import sys

import yaml

json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout, default=repr)
