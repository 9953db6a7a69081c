#!/usr/bin/env python3
"""Prints how many test cases each group has and how they ended, why some were skipped, and of those
that failed what GoogleTest found wrong and the last words.

  count_cases.py [--exceptions-only] <build folder> <JUnit file of the run>

A group is a label; its parts are what stands before the first dot of the cases' names.
"""
import argparse
import ast
import collections
import json
import re
import subprocess
import xml.etree.ElementTree

OUTCOMES = ("passed", "failed", "skipped")
SHOWN_NAMES = 3
SHOWN_LINES = 30
PARAMETER = re.compile(r"/[^/.]+$")
# What GoogleTest, unittest and the scripts say of a case that they skip.
GTEST_REASON = re.compile(r": Skipped\n(.*?)\n?\[  SKIPPED \] ?(\S*)", re.DOTALL)
UNITTEST_REASON = re.compile(r"""\.\.\. skipped (['"].*['"])$""", re.MULTILINE)
GTEST_FAILURE = re.compile(r"^\S+:\d+: Failure\n(?:(?!\[ ).*\n?)*", re.MULTILINE)
SCRIPT_REASON = re.compile(r"^skipped: (.+)$", re.MULTILINE)


def groups_by_case(build):
    listing = json.loads(subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"],
        check=True, stdout=subprocess.PIPE).stdout)
    groups = {}
    for test in listing["tests"]:
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        groups[test["name"]] = " ".join(properties.get("LABELS", ["no label"]))
    return groups


def outcome_of(case):
    if case.get("status") == "run":
        return "passed"
    skipped = case.find("skipped")
    # Other cases that were not run could not be started.
    was_asked_for = skipped is not None and skipped.get("message", "").startswith("SKIP_")
    return "skipped" if was_asked_for or case.get("status") == "disabled" else "failed"


def reason_of(case):
    output = case.findtext("system-out") or ""
    if found := UNITTEST_REASON.search(output):
        return ast.literal_eval(found.group(1))
    for pattern in (GTEST_REASON, SCRIPT_REASON):
        if found := pattern.search(output):
            return " ".join(found.group(1).split()) or "no reason given"
    return "switched off" if case.get("status") == "disabled" else "no reason given"


def skipped_in(case):
    """(name, reason) of each case that was skipped: the case, or some of an executable that is one case for ctest."""
    if outcome_of(case) == "skipped":
        return [(case.get("name"), reason_of(case))]
    executable = case.get("name").removesuffix(".cases")
    return [(f"{executable}.{name}", " ".join(reason.split()) or "no reason given")
            for reason, name in GTEST_REASON.findall(case.findtext("system-out") or "")]


def print_counts(counts):
    """`counts`: by group and part, a Counter of outcomes."""
    rows, total = [], collections.Counter()
    for group in sorted(counts):
        parts = counts[group]
        whole = sum(parts.values(), collections.Counter())
        total += whole
        rows.append((group, whole))
        if len(parts) > 1 or group not in parts:
            rows += [(f"  {part}", parts[part]) for part in sorted(parts)]
    rows.append(("all", total))
    width = max(len(name) for name, _ in rows)
    print("  ".join(["group".ljust(width), *OUTCOMES]))
    for name, count in rows:
        print("  ".join([name.ljust(width), *(f"{count[outcome]:{len(outcome)}}"
                                              for outcome in OUTCOMES)]))


def print_skipped(cases):
    reasons = collections.defaultdict(list)
    for name, reason in (skipped for case in cases for skipped in skipped_in(case)):
        reasons[reason].append(PARAMETER.sub("", name))
    if not reasons:
        print("no case was skipped")
    for reason, names in sorted(reasons.items()):
        # One entry for all parameters of a case.
        shown = [f"{name} ({count})" if count > 1 else name
                 for name, count in collections.Counter(names).items()]
        if len(shown) > SHOWN_NAMES:
            shown[SHOWN_NAMES:] = [f"and {len(shown) - SHOWN_NAMES} more"]
        print(f"skipped: {reason}")
        print("\n".join(f"  {entry}" for entry in shown))


def print_failed(cases):
    for case in cases:
        if outcome_of(case) != "failed":
            continue
        output = case.findtext("system-out") or ""
        failures = "".join(GTEST_FAILURE.findall(output)).splitlines()
        last_words = [line for line in output.strip().splitlines() if not line.startswith("[  SKIPPED ]")]
        print(f"failed: {case.get('name')}")
        shown = last_words[-SHOWN_LINES:]
        for line in [*(line for line in failures[:SHOWN_LINES] if line not in shown), *shown] or ["no output"]:
            print(f"  {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exceptions-only", action="store_true")
    parser.add_argument("build")
    parser.add_argument("junit")
    options = parser.parse_args()
    cases = list(xml.etree.ElementTree.parse(options.junit).getroot().iter("testcase"))
    if not options.exceptions_only:
        groups = groups_by_case(options.build)
        counts = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
        for case in cases:
            group = groups.get(case.get("name"), "no label")
            counts[group][case.get("name").partition(".")[0]][outcome_of(case)] += 1
        print_counts(counts)
        print()
    print_skipped(cases)
    print_failed(cases)


if __name__ == "__main__":
    main()
