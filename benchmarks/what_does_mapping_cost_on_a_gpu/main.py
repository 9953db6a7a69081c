#!/usr/bin/env python3
"""What does mapping cost on a GPU? Verbs of cuMem*, kernels beside them, and copies, on a machine's first GPU."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import report, training  # noqa: E402  pylint: disable=wrong-import-position

PROGRAMS = ("mapping", "copies")


def folders_of_cublas():
    """Where a Python package or a toolkit has put it; the programs open it by its name."""
    found = [path / "nvidia/cu13/lib" for path in map(pathlib.Path, sys.path)]
    return [str(path) for path in found if path.is_dir()] + ["/usr/local/cuda/lib64"]


class Figures:
    """Lines of the programs, by what they tell."""

    def __init__(self, lines):
        self.lines = lines

    def of(self, figure, **wanted):
        return [line for line in self.lines if line["figure"] == figure
                and all(line[key] == value for key, value in wanted.items())]

    def one(self, figure, **wanted):
        return self.of(figure, **wanted)[0]

    def values(self, figure, key, **wanted):
        """All that `key` has, in the order of the programs, each once."""
        return list(dict.fromkeys(line[key] for line in self.of(figure, **wanted)))

    def median(self, figure, key, **wanted):
        return statistics.median(line[key] for line in self.of(figure, **wanted))


def timed(line, name, digits=1):
    return f"{line[name + '_us']:.{digits}f} ({line[name + '_us_p99']:.{digits}f})"


def facts(figures):
    found = figures.one("facts")
    two = figures.one("a chunk at two places")
    return (f"{found['device']}, {found['processors']} multiprocessors, {found['copy_engines']} copy engines, "
            f"granularity {found['granularity_kib'] / 1024:.0f} MiB, also the recommended one; a chunk may be at two "
            f"addresses: {'yes' if two['same_bytes'] else 'no'}; driver:")


def verbs(figures):
    names = ("create", "map", "allow", "unmap", "release")
    return report.table(["µs of a chunk (99 %)", *names],
                        [[f"{line['chunk_mib']} MiB", *(timed(line, name) for name in names)]
                         for line in figures.of("verbs of one chunk")])


def together(figures):
    rows = [[f"{line['chunk_mib']} MiB", line["together"],
             *(f"{line[name + '_us'] / line['together']:.1f}" for name in ("map", "allow", "unmap"))]
            for line in figures.of("verbs of many chunks")]
    text = report.table(["chunks in one call", "chunks", "map, µs of a chunk", "allow", "unmap"], rows) + "\n"
    rows = [[f"{line['chunk_mib']} MiB", line["threads"], f"{line['turns_per_second']:.0f}",
             f"{max(line[name + '_us_max'] for name in ('map', 'allow', 'unmap')) / 1e3:.1f}"]
            for line in figures.of("threads that map")]
    return text + report.table(["threads that map", "threads", "chunks mapped and unmapped per second",
                                "longest call, ms"], rows)


def stalls(figures):
    rows = []
    for reads in figures.values("stalls", "reads"):
        for chunk in figures.values("stalls", "chunk_mib", reads=reads):
            wanted = {"reads": reads, "chunk_mib": chunk, "blocks": figures.one("stalls")["blocks"]}
            alone, beside = (figures.median("stalls", "read_ns", maps=maps, **wanted) for maps in (0, 1))
            lines = figures.of("stalls", maps=1, **wanted)
            # All that the kernel ran longer for its reads while the chunks were mapped, which took 150 ms.
            lost = statistics.median((1 - alone / line["read_ns"]) * 150e3 / line["chunks_mapped"] for line in lines)
            host = figures.one("host beside a kernel", **wanted)
            rows.append([reads, f"{chunk} MiB", f"{alone:.1f}", f"{beside:.1f}", f"{max(lost, 0):.1f}",
                         timed(host, "allow"), timed(host, "unmap")])
    return report.table(["a running kernel reads", "chunks mapped", "ns of a read alone", "beside mapping",
                         "µs lost of a mapped chunk", "host: allow, µs (99 %)", "unmap"], rows)


def rivals(figures):
    works = ("launch of a kernel", "slowest of 1000 launches", "short kernels", "short kernels of a graph",
             "matrix product", "reading 4 GiB")
    rows = []
    for line in figures.of(works[0]):
        wanted = {"maps": line["maps"], "chunk_mib": line["chunk_mib"]}
        of = [figures.one(work, **wanted) for work in works]
        rows.append([f"{line['chunk_mib']} MiB {line['maps']}",
                     *(f"{each['beside_us']:.2f} / {each['alone_us']:.2f}" for each in of)])
    return report.table(["µs beside mapping / alone", *works], rows)


def beside_copies(figures):
    rows = [[line["copies"], f"{line['copied_kib'] // 1024} MiB", f"{line['gb_per_second']:.1f}", line["together"],
             timed(line, "allow", 0), timed(line, "unmap", 0)] for line in figures.of("verbs beside copies")]
    return report.table(["copies beside", "of", "GB/s", "chunks in a call", "allow, µs (99 %)", "unmap"], rows)


def paging(figures):
    rows = []
    for line in figures.of("paging", maps=1, computes=0):
        wanted = {"chunk_mib": line["chunk_mib"], "together": line["together"]}
        of = [figures.one("paging", maps=maps, computes=computes, **wanted) for computes in (0, 1) for maps in (0, 1)]
        rows.append([f"{line['chunk_mib']} MiB", line["together"],
                     *(f"{each['gb_per_second_each_way']:.1f}" for each in of), f"{of[1]['mapping_us']:.0f}",
                     *(f"{each['product_us']:.0f}" for each in of[2:])])
    return report.table(["a pager's chunks", "that move together", "GB/s each way: copies", "and mapping",
                         "beside products: copies", "and mapping", "µs of mapping", "µs of a product beside copies",
                         "and mapping"], rows)


def copies(figures):
    kinds = figures.values("copies", "memory")
    rows = []
    for kib in figures.values("copies", "kib"):
        of = [figures.one("copies", memory=kind, kib=kib) for kind in kinds]
        rows.append([f"{kib} KiB", *(f"{line['in']:.1f}, {line['out']:.1f}"
                                     + (f", {line['in_of_both']:.1f} + {line['out_of_both']:.1f}"
                                        if line["in_of_both"] else "") for line in of)])
    text = report.table(["GB/s in, out, both at once", *(f"host memory {kind}" for kind in kinds)], rows) + "\n"
    rows = [[line["how"], f"{line['copies']} of {line['kib']} KiB", timed(line, "host"),
             f"{line['gb_per_second']:.1f}"] for line in figures.of("many copies")]
    return text + report.table(["many copies in", "copies", "µs of the host (99 %)", "GB/s"], rows)


def pinning(figures):
    rows = [[line["kind"], *(f"{line[key]:.0f}" for key in ("touch_ms_per_gib", "pin_ms_per_gib", "unpin_ms_per_gib"))]
            for line in figures.of("pinning")]
    rows += [[f"{line['pages']} pages, pieces of {line['mib']} MiB", "",
              *(f"{line[key] * 1.024 / line['mib']:.0f}" for key in ("pin_us", "unpin_us"))]
             for line in figures.of("pinning in pieces")]
    return report.table(["ms of a GiB", "first touch", "pin", "unpin"], rows)


def small_calls(figures):
    line, value, events = (figures.one(name) for name in ("small calls", "waits for values", "resolution of events"))
    names = [key[:-3] for key in line if key.endswith("_us")]
    rows = [[name.replace("_", " "), timed(line, name)] for name in names]
    rows += [["wait for a value, enqueue", timed(value, "enqueue")], ["… until it resumes", timed(value, "resumes")]]
    rows += [[f"cudaMalloc, cudaFree of {each['mib']} MiB", timed(each, "cudaMalloc") + ", " + timed(each, "cudaFree")]
             for each in figures.of("plain allocations")]
    rows += [[f"reserve {each['gib']:.0f} GiB of addresses", timed(each, "reserve")]
             for each in figures.of("reserve addresses") if each["gib"] >= 1]
    return (report.table(["call", "µs of the host (99 %)"], rows)
            + f"\nTwo events differ by {events['least_ns'] / 1e3:.2f} µs at least.\n")


def memory(figures):
    rows = []
    for line in figures.of("speed of memory", is_new=1):
        again = figures.one("speed of memory", is_new=0, kind=line["kind"], chunk_mib=line["chunk_mib"])
        rows.append([f"{line['chunk_mib']} MiB" if line["kind"] == "chunks" else line["kind"],
                     *(f"{each['first_read_us'] / 1e3:.2f}" for each in (line, again)),
                     f"{again['gb_per_second']:.0f}", f"{again['scattered_reads_per_ns']:.1f}"])
    text = report.table(["memory in chunks of", "first read of 16 GiB, ms", "a later one", "GB/s",
                         "scattered reads per ns"], rows) + "\n"
    rows = [[f"{line['chunk_mib']} MiB", line["chunks"], f"{line['free_before_mib']:.0f}",
             f"{line['free_when_refused_mib']:.0f}", f"{line['create_seconds']:.2f}", f"{line['release_seconds']:.2f}",
             *("works" if line[key] == 0 else f"error {line[key]}"
               for key in ("small_cudaMalloc", "large_cudaMalloc", "large_after_release"))]
            for line in figures.of("whole card in chunks")]
    libraries = figures.one("memory of libraries")
    return (text + report.table(["the whole card in chunks of", "chunks", "MiB free before", "when refused",
                                 "s to create", "s to release", "then cudaMalloc of 64 KiB", "of 256 MiB",
                                 "after 512 MiB were released"], rows)
            + f"\nThe context takes {libraries['context_mib']:.0f} MiB, cuBLAS with its first product "
              f"{libraries['cublas_mib']:.0f} MiB.\n")


class MappingCost(report.Benchmark):
    """Compiles the two programs beside this file with nvcc, and runs them."""

    rounds = quick_rounds = 1
    steps, quick_steps, skipped = 1, 1, 0

    def __init__(self):
        super().__init__(__file__, __doc__)
        self.parser.add_argument("--nvcc", default="nvcc", help="CUDA's compiler, 13 or later")

    def extent(self, results):
        return "Medians, where nothing else is said; the file of results has p90, p99 and the largest."

    def compile(self, options):
        running = []
        for name in PROGRAMS:
            command = [options.nvcc, "-std=c++20", "-O2", "-arch=native", str(self.folder / f"{name}.cu"),
                       "-o", str(options.work / name), "-ldl"]
            try:
                running.append((command, subprocess.Popen(command)))
            except FileNotFoundError:
                raise training.Failure(f"{options.nvcc} is not there: name CUDA's compiler with --nvcc") from None
        for command, process in running:
            if process.wait() != 0:
                raise training.Failure(" ".join(command))

    def measure(self, options):
        self.compile(options)
        libraries = ":".join([*folders_of_cublas(), os.environ.get("LD_LIBRARY_PATH", "")])
        figures = []
        for name in PROGRAMS:
            print(name, file=sys.stderr)
            command = [str(options.work / name), *(["--tiny"] if options.tiny else [])]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "LD_LIBRARY_PATH": libraries}) as process:
                for line in process.stdout:
                    print(line, end="", file=sys.stderr)
                    figures.append(json.loads(line))
            if process.returncode != 0:
                raise training.Failure(f"{name}: exit status {process.returncode}")
        driver = re.search(r"[0-9]+\.[0-9.]+", report.machine.first_line("/proc/driver/nvidia/version")).group()
        return {"driver": driver, "figures": figures}

    def report(self, results, folder):
        figures = Figures(results["figures"])
        self.plot(figures, folder)
        return "\n".join([f"{facts(figures)} {results['driver']}.\n", verbs(figures), together(figures),
                          stalls(figures), rivals(figures), beside_copies(figures), paging(figures),
                          "![GB/s of a pager](plot.svg)\n", copies(figures), pinning(figures), small_calls(figures),
                          memory(figures)])

    def plot(self, figures, folder):
        figure, axes = report.drawing(9, 3.6)
        axis = axes[0][0]
        for maps, label in ((0, "copies only"), (1, "copies and mapping")):
            for computes, style in ((0, "o-"), (1, "s--")):
                of = figures.of("paging", maps=maps, computes=computes, together=1)
                axis.plot([each["chunk_mib"] for each in of], [each["gb_per_second_each_way"] for each in of], style,
                          label=label + (", beside matrix products" if computes else ""))
        axis.set_xscale("log", base=2)
        axis.set_xlabel("MiB of a chunk")
        axis.set_ylabel("GB/s in, and as much out")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
        report.save(figure, folder / "plot.svg")


if __name__ == "__main__":
    MappingCost().run()
