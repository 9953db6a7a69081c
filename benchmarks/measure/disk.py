"""What the disk of a benchmark can do, by Spillway's own measurement."""
import json

from measure.training import output_of


def bench_io(options, file):
    """Bytes per second of the disk ("read", "write", "both"); `file` is what `--rates` understands."""
    output_of([options.bin / "spillway", "bench-io", "--blocks", "2MiB", "--depths", "16",
               "--rates", file, options.disk])
    measured = json.loads(file.read_text(encoding="utf-8"))["disks"][0]
    return {key: measured[f"{key}_bytes_per_second"] for key in ("read", "write", "both")}


def told(rates):
    """The same in words, without a full stop."""
    return "The disk by `bench-io`: " + ", ".join(f"{name} {rate / 1e9:.2f} GB/s"
                                                  for name, rate in rates.items())
