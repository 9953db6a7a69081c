#!/usr/bin/env python3
"""What only a real GPU can show, in one command: tests, equal bits, and figures. Called by ./test.sh --gpu.

Needs a GPU, LibTorch 2.11 for CUDA 13 (SPILLWAY_LIBTORCH_DIR, or the torch of python3) and no network. Writes one
JSON file with all figures, device and date, and prints a summary. Each part has a share of the time; what does not
come to its end in it says so, and has failed if it is a test. Exit status: 0 all parts gave figures or a reason why
not, 1 something failed, or there is no GPU.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import parts
import places

FORMAT, VERSION = "spillway gpu figures", 1


def options_of(words):
    parser = argparse.ArgumentParser(prog="test.sh --gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--emulated", action="store_true", help="rehearse on the emulated GPU, with tiny sizes: times mean nothing")
    add("--pack", type=pathlib.Path, metavar="FOLDER",
        help="do nothing but put all that such a machine needs into a folder of less than 64 MB")
    add("--build", type=pathlib.Path, default=places.ROOT / "build/release", help="tree to take programs from")
    add("--into", type=pathlib.Path, help="file of figures [gpu.json beside the programs; gpu_emulated.json]")
    add("--work", type=pathlib.Path, default=pathlib.Path(os.environ.get("TMPDIR", "/var/tmp")), metavar="FOLDER",
        help="where runs spill to and leave their reports; no RAM disk [TMPDIR, else /var/tmp]")
    add("--limit", type=int, default=570, metavar="SECONDS", help="for all parts together [570]")
    add("--parts", help="only these, of: " + ",".join(name for name, _, _ in parts.PARTS))
    add("--managed", action="store_true", help="measure managed memory beyond what is free, too, which may hang a GPU")
    options = parser.parse_args(words)
    options.parts = (options.parts or ",".join(name for name, _, _ in parts.PARTS)).split(",")
    if not options.work.is_dir():
        parser.error(f"--work: {options.work} is no folder")
    unknown = set(options.parts) - {name for name, _, _ in parts.PARTS}
    if unknown:
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}")
    return options


def outcome_of(part, context):
    """{"figures": …}, {"skipped": reason} or {"failed": what}, with the seconds that it took."""
    begin = time.monotonic()
    try:
        figures = part(context)
        outcome = {"figures": without_times(figures) if context.place.emulated else figures}
    except parts.Skipped as reason:
        outcome = {"skipped": str(reason)}
    except (parts.Failed, parts.training.Failure) as failure:
        outcome = {"failed": str(failure)}
    outcome["seconds"] = round(time.monotonic() - begin, 1)
    return outcome


def without_times(figures):
    """Of an emulated GPU: its times and rates, which are no whole numbers, could be taken for those of a GPU."""
    if isinstance(figures, dict):
        return {key: without_times(value) for key, value in figures.items()}
    if isinstance(figures, list):
        return [without_times(value) for value in figures]
    return "rehearsed" if isinstance(figures, float) else figures


def measure(options, place, work):
    """The record for the file."""
    sizes = parts.REHEARSED if options.emulated else parts.REAL
    context = parts.Context(place, sizes, work, options)
    end = time.monotonic() + options.limit
    record = {"format": FORMAT, "version": VERSION, "emulated": options.emulated,
              "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "device": "",
              "parts": {}}
    whole = sum(share for _, _, share in parts.PARTS)
    for name, part, share in parts.PARTS:
        if name not in options.parts and name != "device":
            continue
        context.begin(name, min(share * max(1.0, options.limit / whole), end - time.monotonic()))
        record["parts"][name] = outcome_of(part, context)
        print(f"{name}: {line_of(record['parts'][name], options.emulated)}", flush=True)
        if name == "device":
            if "figures" not in record["parts"][name]:
                break
            record["device"] = record["parts"][name]["figures"]["cuda:0"]
    return record


def line_of(outcome, emulated):
    if "figures" not in outcome:
        kind = "skipped" if "skipped" in outcome else "FAILED"
        return f"{kind}: {outcome.get('skipped') or outcome.get('failed')}"
    return f"rehearsed, {outcome['seconds']} s" if emulated else f"done in {outcome['seconds']} s"


def beside_plan(at):
    """Of steps that went by the plan to their end."""
    if not at["planned_step_seconds"] or not at["followed_step_seconds"]:
        return "no step followed a plan"
    step, peak = (100 * (at[f"followed_{what}"] / at[f"planned_{what}"] - 1) for what in ("step_seconds", "peak_bytes"))
    return f"step {step:+.1f} %, peak {peak:+.1f} %"


def rows_of(record):
    """Figures beside their goals, as far as there are some."""
    def figures(name):
        return record["parts"].get(name, {}).get("figures") or {}

    for name, ways in figures("speed").items():
        room = ways["room"]
        yield (f"{name}: interception", f"{100 * (1 / room['of_in_core_speed'] - 1):.1f} % of a step, "
               f"{1e6 * room['lost_seconds_per_operator']:.2f} µs per operator "
               f"({1e6 * room['host_seconds_per_operator']:.2f} µs of the host)", "2 %, 0.5 µs")
        for way, goal in (("50 %", "95 %; text_gpt 90 %"), ("25 %", "85 %")):
            at = ways[way]
            bound = f", bound {at['bound_step_seconds']:.3f} s" if at["bound_step_seconds"] else ""
            yield (f"{name} at {way}", f"{100 * at['of_in_core_speed']:.1f} % of in-core speed "
                   f"({at['step_seconds']:.3f} s, planned {at['planned_step_seconds']:.3f} s{bound})", goal)
            yield f"{name} at {way}: measured against planned", beside_plan(at), "5 %, 1 %"
    told = figures("link")
    if told:
        yield ("copies of pages, of a bare loop",
               f"out {100 * told['of_bare_out']:.1f} %, in {100 * told['of_bare_in']:.1f} % of "
               f"{told['bare']['out'] / 1e9:.1f} and {told['bare']['in'] / 1e9:.1f} GB/s", "95 %")
        yield "matrix products beside copies", f"lose {100 * told['product_loses']:.1f} %", "3 %"
        for time_of in told["spillway"]["mapping"]:
            yield (f"{time_of['chunk_bytes'] >> 20} MiB mapped beside {time_of['beside']}",
                   f"map {1e6 * time_of['map_seconds']:.1f} µs, unmap {1e6 * time_of['unmap_seconds']:.1f} µs",
                   "hidden")
    for share, times in figures("managed").items():
        yield f"managed memory at {share}", f"{times['times_faster']:.1f} times faster", "3 times"
    told = figures("state")
    if told:
        yield ("state of four budgets", f"{told['needed_bytes'] / 2**30:.2f} GiB with "
               f"{told['budget_bytes'] / 2**30:.2f} GiB, {told['step_seconds_median']:.3f} s per step, "
               f"{told['tokens_per_second']:.0f} tokens/s", "trains")


def summary_of(record):
    lines = [f"{record['date']}, {record['device'] or 'no GPU'}"]
    if record["emulated"]:
        fails = any("failed" in outcome for outcome in record["parts"].values())
        lines.append(f"An emulated GPU: {'not every part works' if fails else 'these parts work'}. Its times and rates "
                     "are none of a GPU.")
    else:
        lines += [f"  {what}: {value} (goal {goal})" for what, value, goal in rows_of(record)]
    for name, outcome in record["parts"].items():
        lines.append(f"  {name}: {line_of(outcome, record['emulated'])}")
    return "\n".join(lines)


def main():
    options = options_of(sys.argv[1:])
    try:
        if options.pack:
            places.pack(options.build, options.pack)
            return 0
        place = places.Place(options.build, options.emulated)
        place.require((parts.REHEARSED if options.emulated else parts.REAL).tests)
    except places.Unusable as reason:
        print(f"nothing was measured: {reason}")
        return 1
    file = options.into or place.bin.parent / ("gpu_emulated.json" if options.emulated else "gpu.json")
    work = pathlib.Path(tempfile.mkdtemp(prefix="spillway-gpu-", dir=options.work))
    try:
        record = measure(options, place, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{summary_of(record)}\nall figures: {file}")
    is_whole = "figures" in record["parts"]["device"] and not any("failed" in each for each in record["parts"].values())
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
