#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests in meson's logs, down to each TAP point.

usage: summary.py --one NAME LOG.json            a line for one suite, and what failed in it
       summary.py --total BROKEN [NAME LOG]...   skips with reasons, failures, the total

A suite without any test counts as one failed test, and so does each of BROKEN builds.
"""
import json
import re
import sys

POINT = re.compile(r"^\s*(not )?ok\b\s*(\d+)?\s*(?:-\s*)?(.*?)\s*(?:#\s*(skip|todo)\b\S*\s*(.*))?$",
                   re.IGNORECASE)
BAD = {"FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS"}


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def read_tap(text, name, tally):
    """Adds each point; returns how many failed."""
    failed = 0
    for line in text.splitlines():
        m = POINT.match(line)
        if not m:
            if line.startswith("1..0"):
                tally.skipped.append((name, line.partition("#")[2].strip() or "no reason given"))
            continue
        what = "%s: %s" % (name, m.group(3) or m.group(2) or "?")
        directive = (m.group(4) or "").lower()
        if directive == "skip":
            tally.skipped.append((what, m.group(5) or "no reason given"))
        elif m.group(1) and directive != "todo":
            tally.failed.append((what, "not ok"))
            failed += 1
        else:
            tally.passed += 1
    return failed


def tail(test):
    lines = (test.get("stdout", "") + "\n" + test.get("stderr", "")).strip().splitlines()
    return "\n".join("      | " + line for line in lines[-25:])


def read_log(suite, path):
    tally = Tally()
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            tests = [json.loads(line) for line in f if line.strip()]
    except (OSError, ValueError) as e:
        tally.failed.append((suite, "no log of its tests: %s" % e))
        return tally
    for t in tests:
        name = "%s: %s" % (suite, t["name"].rpartition(" / ")[2])
        text = t.get("stdout", "")
        is_tap = re.search(r"^\s*(1\.\.\d+|(not )?ok\b)", text, re.MULTILINE)
        failed = read_tap(text, name, tally) if is_tap else 0
        if t["result"] in BAD:
            if not failed:
                tally.failed.append((name, "%s, status %s" % (t["result"], t.get("returncode"))))
            tally.failed[-1] = (tally.failed[-1][0], tally.failed[-1][1] + "\n" + tail(t))
        elif not is_tap:
            if t["result"] == "SKIP":
                tally.skipped.append((name, text.strip().splitlines()[-1] if text.strip()
                                      else "exit status 77"))
            else:
                tally.passed += 1
    if not tests or (tally.passed == 0 and not tally.failed and not tally.skipped):
        tally.failed.append((suite, "the suite has no test"))
    return tally


def show_counts(t):
    return "%d passed, %d failed, %d skipped" % (t.passed, len(t.failed), len(t.skipped))


def main():
    if sys.argv[1] == "--one":
        t = read_log(sys.argv[2], sys.argv[3])
        print("%s: %s" % (sys.argv[2], show_counts(t)))
        for what, why in t.failed:
            print("  FAILED %s: %s" % (what, why))
        return 0
    total = Tally()
    for _ in range(int(sys.argv[2])):
        total.failed.append(("build", "failed"))
    rest = sys.argv[3:]
    for name, log in zip(rest[::2], rest[1::2]):
        total.add(read_log(name, log))
    for what, why in total.skipped:
        print("SKIPPED %s: %s" % (what, why))
    for what, why in total.failed:
        print("FAILED %s: %s" % (what, why.partition("\n")[0]))
    print(show_counts(total))
    return 1 if total.failed else 0


sys.exit(main())
