"""The setup scripts do their work on stand-ins for apt, pip, wheels and the programs they start."""
import base64
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

import golden
import probe_project
from clean_environment import clean_environment

SETUP = probe_project.REPOSITORY / "src/cmake/setup"
sys.path.insert(0, str(SETUP))
import budget_text  # noqa: E402
import libtorch  # noqa: E402
import python_torch  # noqa: E402

CPU, CUDA, HEADERS = (libtorch.PARTS[name] for name in ("cpu", "cuda", "headers"))


class ScriptCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, files):
        probe_project.write(self.root, files)

    def check_told(self, *texts):
        """The texts of this case are those of its part of texts/told.txt."""
        golden.check_part(self, *(text.replace(str(self.root), "$HOME") for text in texts))


class Packages(ScriptCase):
    """install_packages.sh with an apt and a dpkg that only write down what they were asked."""

    DPKG = "#!/bin/bash\n[[ \"${@: -1}\" == ninja-build ]] && exit 1\nprintf installed\n"
    LOG = "#!/bin/bash\necho \"$DEBIAN_FRONTEND apt-get $*\" >>\"$APT_LOG\"\n"

    def install(self, apt, dpkg, group="build", **variables):
        self.write({"bin/apt-get": apt, "bin/dpkg-query": dpkg,
                    "bin/sudo": "#!/bin/bash\n[[ $1 == -n ]] && exit 0\nexec \"$@\"\n"})
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                       "APT_LOG": str(self.root / "apt.log"), **variables}
        environment.pop("DEBIAN_FRONTEND", None)
        outcome = probe_project.run([SETUP / "install_packages.sh", group], env=environment)
        log = self.root / "apt.log"
        return (*outcome, log.read_text(encoding="utf-8").splitlines() if log.exists() else [])

    def test_nothing_missing_starts_no_apt(self):
        status, output, log = self.install(self.LOG, "#!/bin/bash\nprintf installed\n")
        self.assertEqual((status, log), (0, []), output)
        self.check_told(output)

    def test_only_missing_packages_are_installed_without_questions(self):
        status, output, log = self.install(self.LOG, self.DPKG)
        self.assertEqual(status, 0, output)
        self.assertEqual(len(log), 1, log)
        self.assertTrue(log[0].startswith("noninteractive apt-get install -y"), log)
        self.assertTrue(log[0].endswith(" ninja-build"), log)

    def test_stale_lists_are_refreshed_once(self):
        apt = self.LOG + "[[ $1 == update ]] && touch \"$APT_LOG.updated\"\n" \
                         "[[ -f \"$APT_LOG.updated\" ]]\n"
        status, output, log = self.install(apt, self.DPKG)
        self.assertEqual(status, 0, output)
        self.assertEqual([line.split()[-1] for line in log], ["ninja-build", "update", "ninja-build"])

    def test_failure_after_the_refresh_names_the_packages(self):
        status, output, log = self.install(self.LOG + "[[ $1 == update ]]\n", self.DPKG)
        self.assertNotEqual(status, 0)
        self.assertEqual(len(log), 3, log)
        self.check_told(output)

    # Open MPI has a higher priority than MPICH, so installing it takes the names of MPICH over.
    ALTERNATIVES = """#!/bin/bash
owner="$(dirname "$APT_LOG")/owner.$2"
case $1 in
  --query) [[ -e $owner ]] && echo "Name: $2" && echo "Value: $(cat "$owner")" ;;
  --set) echo "$3" >"$owner" ;;
esac
"""
    TAKE_OVER = LOG + "[[ $1 == update ]] && exit\nfor name in mpirun mpi mpi-x86_64-linux-gnu; do\n" \
                      "  echo openmpi >\"$(dirname \"$APT_LOG\")/owner.$name\"\ndone\n"

    def owner(self, name):
        return (self.root / f"owner.{name}").read_text(encoding="utf-8").strip()

    def test_the_mpi_that_was_there_keeps_its_names(self):
        self.write({"bin/update-alternatives": self.ALTERNATIVES, "owner.mpirun": "mpich\n",
                    "owner.mpi-x86_64-linux-gnu": "mpich/include\n"})
        status, output, _log = self.install(self.TAKE_OVER, self.DPKG)
        self.assertEqual(status, 0, output)
        self.assertEqual((self.owner("mpirun"), self.owner("mpi")), ("mpich", "openmpi"))
        self.assertEqual(self.owner("mpi-x86_64-linux-gnu"), "mpich/include")
        self.check_told(output)

    def test_the_mpi_that_was_there_keeps_its_names_when_the_installation_fails(self):
        self.write({"bin/update-alternatives": self.ALTERNATIVES, "owner.mpi": "mpich\n"})
        status, output, _log = self.install(self.TAKE_OVER + "false\n", self.DPKG)
        self.assertNotEqual(status, 0, output)
        self.assertEqual(self.owner("mpi"), "mpich")

    def test_names_that_nobody_had_are_left_to_the_packages(self):
        self.write({"bin/update-alternatives": self.ALTERNATIVES})
        status, output, _log = self.install(self.TAKE_OVER, self.DPKG)
        self.assertEqual((status, self.owner("mpirun")), (0, "openmpi"), output)
        self.assertNotIn("as before", output)

    def test_unknown_group_is_refused(self):
        status, output, _log = self.install(self.LOG, self.DPKG, group="everything")
        self.assertNotEqual(status, 0)
        self.check_told(output)

    def test_skipping_is_said(self):
        status, output, log = self.install(self.LOG, self.DPKG, SPILLWAY_SKIP_PACKAGES="1")
        self.assertEqual((status, log), (0, []))
        self.check_told(output)


# Has a pip whose download breaks off in the middle of a file.
PYTHON_WITH_BROKEN_DOWNLOAD = f"""#!/bin/bash
words=" $* "
case $words in
  *" pip --version "*) exit 0 ;;
  *" pip download "*)
    folder=${{words#*--dest }}
    echo half >"${{folder%% *}}/torch.whl"
    echo half >"$TMPDIR/torch.whl"
    echo "the index is gone" >&2
    exit 7 ;;
esac
exec {sys.executable} "$@"
"""


class Wheels(ScriptCase):
    def wheel(self, name, version, files):
        info = f"{name}-{version}.dist-info"
        record = "".join(f"{path},,{len(text)}\n" for path, text in files.items())
        record += f"{info}/RECORD,,\n"
        (self.root / "wheels").mkdir(exist_ok=True)
        with zipfile.ZipFile(self.root / "wheels" / f"{name}-{version}-py3-none-any.whl", "w") as out:
            for path, text in {**files, f"{info}/RECORD": record}.items():
                out.writestr(path, text)

    def wheels(self, **torch_files):
        self.wheel("torch", "2.11.0", {
            "torch/lib/libc10.so": "c10", "torch/lib/libtorch_cpu.so": "cpu",
            "torch/lib/libgomp.so.1": "gomp", **{name: "cuda" for name in CUDA.libraries},
            "torch/include/ATen/ATen.h": "aten", "torch/nn/modules.py": "python",
            "torch/version.py": "2.11.0", **torch_files})
        self.wheel("nvidia_cuda_runtime", "13.0.96", {"nvidia/cu13/lib/libcudart.so.13": "rt",
                                                      "nvidia/cu13/include/cuda.h": "header",
                                                      "nvidia/cu13/include/cuda_runtime_api.h": "header"})
        self.wheel("nvidia_cuda_cupti", "13.0.85", {"nvidia/cu13/lib/libcupti.so.13": "cupti"})
        self.wheel("nvidia_cuda_crt", "13.0.88", {"nvidia/cu13/include/crt/host_defines.h": "crt"})
        self.wheel("nvidia_nvtx", "13.0.85", {"nvidia/cu13/include/nvtx3/nvToolsExtCudaRt.h": "nvtx"})

    def unpacked(self, part=CPU):
        target = self.root / "target"
        libtorch.unpack(part, "2.11.0", self.root / "wheels", target)
        return target

    def names_in(self, folder):
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    def test_only_what_cpp_needs_is_unpacked(self):
        self.wheels()
        target = self.unpacked()
        self.assertIsNone(libtorch.check(CPU, "2.11.0", target))
        names = self.names_in(target)
        self.assertLessEqual({"torch/include/ATen/ATen.h", "nvidia/cu13/lib/libcudart.so.13"}, names)
        self.assertFalse(names & {"torch/lib/libtorch_cuda.so", "torch/nn/modules.py", "nvidia/cu13/include/cuda.h"})

    def test_the_cuda_part_is_the_rest_without_libraries_of_nvidia(self):
        self.wheels()
        target = self.unpacked(CUDA)
        self.assertIsNone(libtorch.check(CUDA, "2.11.0", target))
        names = {name for name in self.names_in(target) if ".dist-info/" not in name}
        of_profilers = {name for name in HEADERS.libraries if "/nvtx3/" in name}
        self.assertEqual(names, CUDA.libraries | HEADERS.libraries - of_profilers)
        (target / "torch/lib/libtorch_cuda.so").unlink()
        self.check_told(libtorch.check(CUDA, "2.11.0", target))

    def test_missing_file_is_named(self):
        self.wheels()
        target = self.unpacked()
        (target / "torch/lib/libc10.so").unlink()
        self.check_told(libtorch.check(CPU, "2.11.0", target))

    def test_truncated_file_is_named(self):
        self.wheels()
        target = self.unpacked()
        (target / "torch/lib/libtorch_cpu.so").write_text("c", encoding="utf-8")
        self.check_told(libtorch.check(CPU, "2.11.0", target))

    def test_empty_folder_is_incomplete(self):
        self.check_told(libtorch.check(CPU, "2.11.0", self.root))

    def fetch(self, cache, *words, **variables):
        return probe_project.run([SETUP / "fetch_libtorch.sh", *words, "2.11"],
                                 env=clean_environment(XDG_CACHE_HOME=str(cache), **variables))

    def fetch_in_vain(self, cache):
        self.write({"bin/python3": PYTHON_WITH_BROKEN_DOWNLOAD})
        return self.fetch(cache, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}")

    def test_fetch_leaves_a_complete_folder_alone(self):
        self.wheels()
        target = self.root / "spillway" / "libtorch-2.11.0"
        libtorch.unpack(CPU, "2.11.0", self.root / "wheels", target)
        libtorch.unpack(HEADERS, "2.11.0", self.root / "wheels", self.root / "spillway/cuda-headers")
        status, output = self.fetch(self.root, PIP_NO_INDEX="1")
        self.assertEqual((status, output.strip()), (0, f"libtorch: 2.11.0 is in {target}"))

    # Has a pip that finds everything in the folder `wheels`.
    PYTHON_WITH_WHEELS = f"""#!/bin/bash
words=" $* "
case $words in
  *" pip --version "*) exit 0 ;;
  *" pip download "*)
    echo "$*" >>"$SERVED/../asked"
    folder=${{words#*--dest }}
    exec cp "$SERVED"/*.whl "${{folder%% *}}" ;;
esac
exec {sys.executable} "$@"
"""

    def fetch_from_wheels(self, *words):
        self.write({"bin/python3": self.PYTHON_WITH_WHEELS})
        status, output = self.fetch(self.root, *words, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}",
                                    SERVED=str(self.root / "wheels"))
        self.assertEqual(status, 0, output)
        return output

    def test_both_parts_come_from_one_download(self):
        self.wheels()
        self.fetch_from_wheels("--cuda")
        self.assertEqual((self.root / "asked").read_text(encoding="utf-8").count("torch==2.11.0"), 1)
        for part, folder in ((CPU, "libtorch-2.11.0"), (CUDA, "libtorch-2.11.0-cuda")):
            self.assertIsNone(libtorch.check(part, "2.11.0", self.root / "spillway" / folder))
        self.assertNotIn("downloading", self.fetch_from_wheels("--cuda"))

    def test_the_headers_of_cuda_come_with_each_libtorch(self):
        self.wheels()
        headers = self.root / "spillway/cuda-headers"
        output = self.fetch_from_wheels()
        self.assertEqual({name for name in self.names_in(headers) if ".dist-info/" not in name}, HEADERS.libraries)
        (headers / "nvidia/cu13/include/cuda.h").unlink()
        self.check_told(output, self.fetch_from_wheels())
        self.assertTrue((headers / "nvidia/cu13/include/cuda.h").exists())
        self.assertNotIn("downloading", self.fetch_from_wheels())

    def test_headers_of_cuda_that_cannot_be_had_keep_nobody_from_libtorch(self):
        self.wheels()
        target = self.root / "spillway/libtorch-2.11.0"
        libtorch.unpack(CPU, "2.11.0", self.root / "wheels", target)
        status, output = self.fetch_in_vain(self.root)
        self.assertEqual(status, 0, output)
        self.check_told(output)

    def test_the_cuda_part_leaves_the_other_one_alone(self):
        self.wheels()
        self.fetch_from_wheels()
        library = self.root / "spillway/libtorch-2.11.0/torch/lib/libc10.so"
        before = library.stat().st_ino
        self.assertFalse((self.root / "spillway/libtorch-2.11.0-cuda").exists())
        self.check_told(self.fetch_from_wheels("--cuda"))
        self.assertEqual(library.stat().st_ino, before)
        self.assertTrue((self.root / "spillway/libtorch-2.11.0-cuda/torch/lib/libtorch_cuda.so").exists())

    def test_a_release_whose_cuda_part_is_not_tested_is_refused(self):
        newest = list(libtorch.served())[-1]
        with self.assertRaisesRegex(SystemExit, f"the CUDA part of LibTorch {newest} .* only that of 2.11.0 is tested"):
            libtorch.wheels_of(CUDA, newest)

    def test_fetch_replaces_a_folder_that_was_damaged(self):
        self.wheels()
        target = self.root / "spillway" / "libtorch-2.11.0"
        libtorch.unpack(CPU, "2.11.0", self.root / "wheels", target)
        (target / "torch/lib/libtorch_cpu.so").write_text("c", encoding="utf-8")
        status, output = self.fetch_in_vain(self.root)
        self.assertEqual(status, 7, output)
        self.check_told(output)

    def test_without_a_version_that_of_the_environment_or_the_newest_is_meant(self):
        self.assertEqual(libtorch.release_of(""), list(libtorch.served())[-1])
        _status, output = probe_project.run(
            [SETUP / "fetch_libtorch.sh"],
            env=clean_environment(XDG_CACHE_HOME=str(self.root), SPILLWAY_LIBTORCH="2.99"))
        self.check_told(output[output.index("LibTorch 2.99"):])  # Headers of CUDA may come before.

    def test_another_version_is_refused_with_the_nearest_that_is_served(self):
        minors = [release.rpartition(".")[0] for release in libtorch.served()]
        for version, nearest in (("2.10", minors[0]), ("2.99.1", minors[-1]), ("3.0", minors[-1])):
            with self.assertRaisesRegex(SystemExit, f"LibTorch {version} .* nearest is {nearest}$"):
                libtorch.release_of(version)
        with self.assertRaisesRegex(SystemExit, "'newest' is no version of LibTorch"):
            libtorch.release_of("newest")

    def test_failed_fetch_leaves_nothing_behind(self):
        cache = self.root / "cache"
        status, output = self.fetch_in_vain(cache)
        self.assertEqual(status, 7, output)
        left = [path.name for path in (cache / "spillway").iterdir()]
        self.assertEqual(left, [".fetch.lock"])


class PythonTorch(ScriptCase):
    """Stand-ins for the libraries of CUDA that the Python module is linked with."""

    def compile(self, name, text, *options):
        source = self.root / (name + ".cpp")
        source.write_text(text, encoding="utf-8")
        subprocess.run(["c++", source, "-o", self.root / name, *options], check=True)

    def test_stand_ins_have_all_that_is_missing(self):
        shared = ("-shared", "-fPIC")
        for library in ("libc10.so", "libtorch_cpu.so", *python_torch.LIBRARIES[:-1]):
            self.compile(library, "int there() { return 1; }", *shared)
        self.compile("libtorch_python.so",
                     "struct Gpu { virtual ~Gpu(); virtual int count(); };\n"
                     "int there(); int absent(); extern \"C\" int cuFileRead();\n"
                     "int ask(Gpu* gpu) { return gpu == nullptr ? there() : absent() + cuFileRead(); }\n"
                     "Gpu* make() { return new Gpu; }\n", *shared)
        wanted = python_torch.open_symbols(self.root)[python_torch.CUDA]
        self.assertEqual(set(wanted) & {"_Z6absentv", "cuFileRead", "_Z5therev"}, {"_Z6absentv", "cuFileRead"})
        python_torch.make_stand_ins(self.root)
        self.compile("main", "int main() { return 0; }", "-Wl,--no-undefined", "-L", str(self.root),
                     "-Wl,--no-as-needed", "-l:libtorch_python.so", "-l:libtorch_cuda.so",
                     "-l:libc10.so", f"-Wl,-rpath,{self.root}")
        loaded = subprocess.run([self.root / "main"], env={**os.environ, "LD_BIND_NOW": "1"},
                                check=False)
        self.assertEqual(loaded.returncode, 0)

    def test_only_the_part_for_the_cpu_is_unpacked(self):
        for name in ("torch/__init__.py", "torch/lib/libtorch_python.so", "torchgen/api/cpp.py",
                     "torch/bin/torch_shm_manager"):
            self.assertTrue(python_torch.is_needed(name), name)
        for name in ("torch/lib/libtorch_cuda.so", "torch/bin/ptxas", "torch/include/ATen/ATen.h"):
            self.assertFalse(python_torch.is_needed(name), name)

    INFO = "torch-2.11.0.dist-info"
    TORCH = {"torch/__init__.py": b"python", "torch/include/ATen/ATen.h": b"aten" * (1 << 20),
             "torch/lib/libtorch_python.so": b"module" * 1000}

    def torch_wheel(self, **other):
        """A wheel, and the folder of LibTorch with its RECORD."""
        built = self.root / "built"
        digests = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                   for name, data in self.TORCH.items()}
        self.write({f"built/{self.INFO}/RECORD": "".join(
            f"{name},sha256={digest},1\n" for name, digest in digests.items()),
            **{f"built/{name}": "library" for name in libtorch.LIBRARIES}})
        wheel = self.root / "served/torch.whl"
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as out:
            for name, data in {**self.TORCH, **other}.items():
                out.writestr(name, data)
        return wheel, built

    def address_of(self, wheel, handler):
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *asked: handler(*asked, directory=wheel.parent))
        server.sent = 0
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server, f"http://127.0.0.1:{server.server_port}/{wheel.name}"

    def test_of_a_remote_wheel_only_the_needed_parts_are_read(self):
        wheel, built = self.torch_wheel()
        server, address = self.address_of(wheel, ServerOfParts)
        python_torch.unpack_torch(address, built, self.root / "site")
        for name in ("torch/__init__.py", "torch/lib/libtorch_python.so"):
            self.assertEqual((self.root / "site" / name).read_bytes(), self.TORCH[name])
        self.assertFalse((self.root / "site/torch/include").exists())
        self.assertLess(server.sent, wheel.stat().st_size)

    def test_a_server_that_sends_no_parts_is_told(self):
        wheel, built = self.torch_wheel()
        _server, address = self.address_of(wheel, SilentServer)
        with self.assertRaisesRegex(python_torch.NoParts, "only sent as a whole"):
            python_torch.unpack_torch(address, built, self.root / "site")

    def test_another_wheel_than_that_of_libtorch_is_refused(self):
        wheel, built = self.torch_wheel(**{"torch/__init__.py": b"pyth0n"})
        with self.assertRaisesRegex(SystemExit, "torch/__init__.py of .* is not that of"):
            python_torch.unpack_torch(wheel, built, self.root / "site")

    def test_libraries_are_those_of_libtorch_itself(self):
        _wheel, built = self.torch_wheel()
        python_torch.link_libraries(built, self.root / "site")
        for name in libtorch.LIBRARIES:
            self.assertTrue((self.root / "site" / name).samefile(built / name), name)


class SilentServer(http.server.SimpleHTTPRequestHandler):
    """Sends whole files, whatever part is asked for."""

    def log_message(self, *_words):
        pass

    def copyfile(self, source, outputfile):
        with contextlib.suppress(ConnectionError):  # Who wanted a part hangs up.
            super().copyfile(source, outputfile)


class ServerOfParts(SilentServer):
    def do_GET(self):
        data = pathlib.Path(self.translate_path(self.path)).read_bytes()
        begin, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = data[begin:end + 1]
        self.server.sent += len(part)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


class FetchPython(ScriptCase):
    def fetch(self, **variables):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.root), **variables}
        if not variables:
            environment.pop("SPILLWAY_TEST_PYTHON", None)
        done = subprocess.run([SETUP / "fetch_python.sh", "2.11"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=environment)
        return done.returncode, done.stdout

    def left(self):
        return sorted(path.name for path in (self.root / "spillway").iterdir())

    def test_another_python_that_is_named_is_left_to_the_caller(self):
        status, output = self.fetch(SPILLWAY_TEST_PYTHON="/opt/python3")
        self.assertEqual((status, output.strip()),
                         (0, "python: using SPILLWAY_TEST_PYTHON=/opt/python3"))
        self.assertFalse((self.root / "spillway").exists())

    def fetch_beside_one(self, made_by):
        home = "spillway/python-torch-2.11.0/"
        requirements = (SETUP / "python_requirements.txt").read_text("utf-8")
        self.write({home + ".complete": requirements + made_by,
                    home + "python/bin/python3": "#!/bin/sh\n",
                    home + "python/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so": ""})
        return self.fetch()

    def test_a_complete_one_is_left_alone(self):
        status, output = self.fetch_beside_one((SETUP / "python_torch.py").read_text("utf-8"))
        self.assertEqual(status, 0, output)
        self.check_told(output)

    def test_one_that_an_older_script_made_is_made_anew(self):
        output = self.fetch_beside_one("# an older script")[1]
        self.check_told(output)

    def test_without_libtorch_the_skip_is_told(self):
        status, output = self.fetch()
        self.assertEqual(status, 0, output)
        self.check_told(output)

    def test_a_failure_is_one_line_and_leaves_nothing_behind(self):
        self.write({"bin/python3": PYTHON_WITH_BROKEN_DOWNLOAD,
                    "spillway/libtorch-2.11.0/torch/lib/libtorch_cpu.so": ""})
        status, output = self.fetch(PATH=f"{self.root / 'bin'}:{os.environ['PATH']}",
                                    SPILLWAY_TEST_PYTHON="")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.splitlines(), [
            "python: downloading about 50 MB",
            "python: none with torch, so the cases in Python are skipped: the index is gone"])
        self.assertEqual(self.left(), [".fetch.lock", "libtorch-2.11.0"])
        self.assertEqual([path.name for path in (self.root / "spillway/libtorch-2.11.0").iterdir()],
                         ["torch"])


# Stands in for the command line: needs 4 MiB, the largest operator needs 1.5 MiB.
SPILLWAY = """#!/usr/bin/env python3
import json, subprocess, sys
named = sys.argv[sys.argv.index("--budget") + 1]
budget = 64 << 20 if named == "auto" else int(named.removesuffix("KiB")) << 10
if budget < 1536 << 10:
    print("Running on, to find the smallest budget.", file=sys.stderr)
    print("add does not fit. smallest budget: 1.50MiB (needed at once by add)", file=sys.stderr)
    sys.exit(3)
rest = sys.argv[sys.argv.index("--") + 1:]
status = subprocess.run([*rest, str(budget)]).returncode
with open(sys.argv[sys.argv.index("--stats") + 1], "w") as stats:
    json.dump({"peak_bytes": min(budget, 4 << 20), "needed_bytes": 4 << 20, "budget_bytes": budget,
               "spilled_bytes": max(0, (4 << 20) - budget), "peak_rss_bytes": 6 << 20}, stats)
sys.exit(status)
"""
TRAINER = """#!/usr/bin/env python3
import sys
loss = LOSS
with open(sys.argv[sys.argv.index("--losses") + 1], "w") as losses:
    for step in range(int(sys.argv[sys.argv.index("--steps") + 1])):
        losses.write(f"{step + 1} {loss}\\n")
        print(f"step {step + 1}  loss {loss}  0.250 s/step")
"""


class Demo(ScriptCase):
    def run_demo(self, loss="0.5", spillway=SPILLWAY, steps=2):
        self.write({"bin/spillway": spillway, "bin/brain_unet": TRAINER.replace("LOSS", loss)})
        done = subprocess.run(
            [sys.executable, "-B", SETUP / "demo.py", "--bin", self.root / "bin",
             "--out", self.root / "out", "--steps", str(steps)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def rows(self, output):
        table = output[output.index("run  "):].splitlines()
        return [" ".join(line.split()) for line in table[2:] if line.strip()][:-2]

    def test_table_has_a_row_per_budget(self):
        status, output = self.run_demo()
        self.assertEqual(status, 0, output)
        rows = self.rows(output)
        self.assertEqual(re.sub(r"[\d.]+ MiB", "SIZE", rows[0]), "plain LibTorch - - SIZE 0.25 s - 0.5 reference")
        self.assertEqual(rows[1], "Spillway 64.00 MiB 4.00 MiB 6.00 MiB 0.25 s 0 B 0.5 yes")
        self.assertEqual(rows[2], "Spillway, 50 % 2.00 MiB 2.00 MiB 6.00 MiB 0.25 s 2.00 MiB 0.5 yes")

    def test_too_small_a_budget_is_replaced_by_the_smallest(self):
        _status, output = self.run_demo()
        rows = self.rows(output)
        self.assertTrue(rows[3].startswith("Spillway, 25 % 1.00 MiB - - - - - too small for one"), rows)
        self.assertTrue(rows[4].startswith("Spillway, 38 % 1.51 MiB"), rows)
        self.assertTrue(rows[4].endswith("yes"), rows)

    def test_other_losses_are_a_failure(self):
        status, output = self.run_demo(loss="sys.argv[-1]")
        self.assertNotEqual(status, 0)
        self.assertTrue(self.rows(output)[1].endswith("NO"), output)
        self.check_told(output[output.index("\n", output.rindex(" NO")):])

    def test_failed_run_is_a_failure(self):
        status, output = self.run_demo(spillway="#!/bin/sh\necho no luck\nexit 7\n")
        self.assertNotEqual(status, 0)
        self.check_told(output[output.index("The run"):])

    def test_times_of_later_steps_are_named_so(self):
        told = []
        for steps in (2, 3):
            output = self.run_demo(steps=steps)[1]
            heading, *_, legend = output[output.index("run  "):].split("\n\n")[0].splitlines()
            told += [" ".join(heading.split()), legend]
        self.check_told(*told)

    def test_no_steps_are_refused(self):
        status, output = self.run_demo(steps=0)
        self.assertEqual(status, 2)
        self.assertEqual(output.splitlines()[-1], "demo.py: error: argument --steps: must be 1 or more, not 0")


class QuickStart(ScriptCase):
    """quickstart.sh with stand-ins for everything that it starts."""

    STEP = "#!/bin/bash\necho \"$(basename \"$0\") $*\" >>\"$LOG\"\n"

    PYTHON = STEP.replace("\n", f"\n[[ $1 == *libtorch.py ]] && exec {sys.executable} -B "
                          f"{SETUP}/libtorch.py \"${{@:2}}\"\n", 1)

    def start(self, *flags, fetch=STEP, cmake=STEP, **variables):
        script = (probe_project.REPOSITORY / "quickstart.sh").read_text(encoding="utf-8")
        setup = "src/cmake/setup/"
        self.write({"quickstart.sh": script, "bin/cmake": cmake, "bin/python3": self.PYTHON,
                    setup + "install_packages.sh": self.STEP, setup + "fetch_libtorch.sh": fetch,
                    setup + "build_jobs.sh": "#!/bin/sh\necho 1\n"})
        environment = clean_environment(LOG=str(self.root / "log"), HOME=str(self.root),
                                        PATH=f"{self.root / 'bin'}:{os.environ['PATH']}", **variables)
        status, output = probe_project.run([self.root / "quickstart.sh", *flags], env=environment)
        log = self.root / "log"
        return status, output, log.read_text(encoding="utf-8") if log.exists() else ""

    def test_wrong_flags_are_refused_before_anything_is_done(self):
        for flags, reason in ((["--stepz", "3"], "unknown option '--stepz'"),
                              (["--steps", "0"], "--steps must be 1 or more, not '0'"),
                              (["--steps=many"], "--steps must be 1 or more, not 'many'"),
                              (["--steps"], "--steps needs a number"),
                              (["--seed", "-1"], "--seed must be 0 or more, not '-1'"),
                              (["3"], "unexpected argument '3'")):
            status, output, log = self.start(*flags)
            self.assertEqual((status, log), (2, ""), output)
            self.assertTrue(output.startswith(f"./quickstart.sh: {reason} "), output)

    def test_help_says_what_it_takes(self):
        status, output, log = self.start("--help")
        self.assertEqual((status, log), (0, ""), output)
        self.check_told(output)

    def test_flags_reach_the_training(self):
        status, output, log = self.start("--steps=3", "--seed", "2", "--", "--width", "8")
        self.assertEqual(status, 0, output)
        self.assertTrue(log.rstrip().endswith("--steps 3 --seed 2 -- --width 8"), log)
        self.check_told(output)  # What it takes is told first.

    # "meet NAME OTHER" says that NAME has begun, and waits until OTHER has.
    MEET = STEP + """meet() {
  touch "$LOG.$1"
  for _ in {1..600}; do [[ -e $LOG.$2 ]] && return; sleep 0.1; done
  echo "$1 was alone"
  exit 9
}
"""
    BUILD_MEETS = MEET + '[[ $1 != --build || $* == *brain_unet* ]] || meet build fetch\n'
    FETCH_MEETS = MEET + "meet fetch build\n"
    # Writes down that it was told to end, whenever that is.
    TELLS = "trap 'echo \"$0 was ended\" >>\"$LOG\"; exit 1' TERM\n"
    LASTS = "sleep 600 & wait\n"

    def tells(self, script):
        return script.replace("\n", "\n" + self.TELLS, 1)

    def ended(self, log):
        """What has written down that it was told to end."""
        told = [line.removesuffix(" was ended") for line in log.splitlines() if line.endswith(" was ended")]
        return [pathlib.Path(program).name for program in told]

    def lines(self, log, *beginnings):
        return [line for line in log.splitlines() if line.startswith(beginnings)]

    def steps(self, log):
        return self.lines(log, "cmake ", "python3 ")

    def test_fetches_and_compiles_side_by_side(self):
        status, output, log = self.start(fetch=self.FETCH_MEETS, cmake=self.BUILD_MEETS)
        self.assertEqual(status, 0, output)
        newest = list(libtorch.served())[-1].rpartition(".")[0]
        self.check_told(*(step.replace(f"={newest}", "=NEWEST") for step in self.steps(log)))

    def test_a_failed_fetch_ends_the_build(self):
        status, output, log = self.start(fetch=self.FETCH_MEETS + "echo no index >&2\nexit 3\n",
                                         cmake=self.tells(self.BUILD_MEETS) +
                                         "[[ $1 != --build ]] && exit\n" + self.LASTS)
        self.assertEqual(status, 3, output)
        self.assertTrue(output.endswith(
            " no index ./quickstart.sh: LibTorch could not be fetched, for the reason above"), output)
        self.assertEqual(self.ended(log), ["cmake"])
        self.assertNotIn("demo.py", log)

    def test_a_failed_build_ends_the_fetch(self):
        status, output, log = self.start(fetch=self.tells(self.FETCH_MEETS) + self.LASTS,
                                         cmake=self.BUILD_MEETS +
                                         "[[ $1 != --build ]] || { echo no compiler; exit 4; }\n")
        self.assertEqual(status, 4, output)
        # The shell may say, too, that it has ended the other one.
        self.assertTrue(output.replace(" Terminated", "").endswith(
            " no compiler ./quickstart.sh: the build has failed, for the reason above"), output)
        self.assertEqual(self.ended(log), ["fetch_libtorch.sh"])
        self.assertNotIn("demo.py", log)

    def test_what_was_built_is_not_configured_again(self):
        for with_torch, minor, count in (("ON", "2.13", 0), ("ON", "2.11", 1), ("OFF", "", 2)):
            with self.subTest(with_torch + minor):
                (self.root / "log").unlink(missing_ok=True)
                self.write({"build/release/build.ninja": "", "build/release/CMakeCache.txt":
                            f"SPILLWAY_WITH_TORCH:BOOL={with_torch}\n"
                            f"SPILLWAY_LIBTORCH:STRING={minor}\n"})
                status, output, log = self.start(SPILLWAY_LIBTORCH="2.13")
                self.assertEqual(self.lines(log, "fetch_libtorch.sh"), ["fetch_libtorch.sh 2.13"])
                self.assertEqual((status, log.count("cmake --preset")), (0, count), output)

    def test_a_libtorch_that_is_not_served_is_refused_before_anything_is_built(self):
        status, output, log = self.start(SPILLWAY_LIBTORCH="2.99")
        self.assertEqual(status, 1, output)
        self.check_told(output)
        self.assertNotIn("cmake", log)

    def test_a_libtorch_that_is_there_is_taken_whatever_its_version(self):
        self.write({"build/release/build.ninja": "", "build/release/CMakeCache.txt":
                    "SPILLWAY_WITH_TORCH:BOOL=OFF\n"})
        log = self.start(SPILLWAY_LIBTORCH_DIR="/opt/torch")[2]
        self.assertEqual([line.split()[-2:] for line in self.lines(log, "cmake --preset")][-1],
                         ["-DSPILLWAY_WITH_TORCH=ON", "-DSPILLWAY_LIBTORCH="])

    def test_a_planning_program_that_is_there_is_kept_up_to_date(self):
        self.assertNotIn("spillway-planning", self.start()[2])
        self.write({"build/release/bin/spillway-planning": ""})
        self.assertEqual(self.start()[2].split().count("bin/spillway-planning"), 1)


class BudgetText(unittest.TestCase):
    def test_smallest_budget_is_never_rounded_down(self):
        for text, exact in (("smallest budget 812.5 MiB", 812.5 * 2**20),
                            ("smallest budget that would work: 1.2GiB", 1.2 * 2**30),
                            ("smallest budget: 84MiB (needed at once", 84 << 20),
                            ("the smallest budget is 1024KiB", 1 << 20)):
            self.assertGreaterEqual(budget_text.smallest_budget_in(text), exact)
        self.assertIsNone(budget_text.smallest_budget_in("out of memory"))

    def test_the_last_of_several_refusals_counts(self):
        text = "smallest budget: 1 PiB\nsmallest budget: 84 MiB\nsmallest budget: 90 MiB\n"
        self.assertEqual(budget_text.smallest_budget_in(text), (90 << 20) + 1024)

    def test_an_option_is_read_back_as_what_it_was_made_of(self):
        smallest = budget_text.smallest_budget_in("smallest budget: 1.5 MiB")
        self.assertEqual(int(budget_text.as_option(smallest).removesuffix("KiB")) << 10, smallest)


class Counts(ScriptCase):
    RUN = """<testsuite>
<testcase name='swap.A.x' status='run'/>
<testcase name='swap.A.y' status='fail'><failure message=''/>
<system-out>a_test.cpp:7: Failure
</system-out></testcase>
<testcase name='ram.B.z/1' status='notrun'><skipped message='SKIP_REGULAR_EXPRESSION_MATCHED'/>
<system-out>[ RUN      ] B.z/1
b_test.cpp:12: Skipped
no disk
[  SKIPPED ] B.z/1 (0 ms)
</system-out></testcase>
<testcase name='ram.B.z/2' status='notrun'><skipped message='SKIP_REGULAR_EXPRESSION_MATCHED'/>
<system-out>b_test.cpp:12: Skipped
no disk
[  SKIPPED ] B.z/2 (0 ms)
</system-out></testcase>
<testcase name='command.C.u' status='notrun'><skipped message='SKIP_REGULAR_EXPRESSION_MATCHED'/>
<system-out>test_u (command_test.C.test_u) ... skipped "it's not installed"

OK (skipped=1)
</system-out></testcase>
<testcase name='examples.v' status='notrun'><skipped message='SKIP_RETURN_CODE=77'/>
<system-out>skipped: /data is not on this machine
</system-out></testcase>
<testcase name='store.cases' status='run'>
<system-out>[ RUN      ] E.a
[       OK ] E.a (1 ms)
[ RUN      ] Kinds/E.b/posix
e_test.cpp:12: Skipped
no disk
[  SKIPPED ] Kinds/E.b/posix (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Kinds/E.b/posix
</system-out></testcase>
<testcase name='examples.w' status='notrun'><skipped message='Unable to find executable'/></testcase>
</testsuite>"""
    LABELS = {"swap.A.x": "stress", "ram.B.z/1": "unit", "ram.B.z/2": "unit"}

    def rows(self, *options):
        listing = {"tests": [{"name": name, "properties": [{"name": "LABELS", "value": [label]}]}
                             for name, label in self.LABELS.items()]}
        self.write({"junit.xml": self.RUN, "listing.json": json.dumps(listing),
                    "bin/ctest": f"#!/bin/sh\ncat {self.root / 'listing.json'}\n"})
        done = subprocess.run(
            [sys.executable, "-B", SETUP / "count_cases.py", *options, self.root,
             self.root / "junit.xml"], check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"})
        return [" ".join(line.split()) for line in done.stdout.splitlines()]

    def test_cases_are_counted_by_label_part_and_outcome(self):
        rows = self.rows()  # A case that could not be started has failed.
        self.check_told(*rows)

    def test_cases_are_listed_by_the_reason_why_they_were_skipped_or_with_what_they_said(self):
        self.assertEqual(self.rows("--exceptions-only"), [
            "skipped: /data is not on this machine", "examples.v",
            "skipped: it's not installed", "command.C.u",
            "skipped: no disk", "ram.B.z (2)", "store.Kinds/E.b",
            "failed: swap.A.y", "a_test.cpp:7: Failure",
            "failed: examples.w", "no output"])


if __name__ == "__main__":
    unittest.main()
