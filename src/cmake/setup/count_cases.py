#!/usr/bin/env python3
"""Prints how many test cases each group and each label has, and how they ended.

  count_cases.py <build folder> <JUnit file of the run>

The group is what stands before the first dot of the case's name.
"""
import collections
import json
import subprocess
import sys
import xml.etree.ElementTree

OUTCOMES = {"run": "passed", "fail": "failed"}


def labels_by_case(build):
    listing = json.loads(subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"],
        check=True, stdout=subprocess.PIPE).stdout)
    labels = {}
    for test in listing["tests"]:
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        labels[test["name"]] = properties.get("LABELS", ["no label"])
    return labels


def print_counts(title, counts):
    width = max(map(len, [title, *counts]))
    print(f"{title.ljust(width)}  passed  failed  skipped")
    for name in sorted(counts):
        count = counts[name]
        print(f"{name.ljust(width)}  {count['passed']:6}  {count['failed']:6}  {count['skipped']:7}")


def main(build, junit):
    labels = labels_by_case(build)
    by_group = collections.defaultdict(collections.Counter)
    by_label = collections.defaultdict(collections.Counter)
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        name = case.get("name")
        outcome = OUTCOMES.get(case.get("status"), "skipped")
        by_group[name.partition(".")[0]][outcome] += 1
        for label in labels.get(name, ["no label"]):
            by_label[label][outcome] += 1
    print_counts("group", by_group)
    print()
    print_counts("label", by_label)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2])
