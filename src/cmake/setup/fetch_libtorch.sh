#!/usr/bin/env bash
# Puts LibTorch 2.11.0 for the CPU into ${XDG_CACHE_HOME:-~/.cache}/spillway/libtorch-2.11.0, where
# the build finds it. Does nothing when it is complete there, or when SPILLWAY_LIBTORCH_DIR names
# another one. The download is about 570 MB, from the package index that pip is configured for. Beside
# it comes python/bin/python3, which imports torch, for tests (python_torch.py).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [[ -n "${SPILLWAY_LIBTORCH_DIR:-}" ]]; then
  echo "libtorch: using SPILLWAY_LIBTORCH_DIR=$SPILLWAY_LIBTORCH_DIR"
  exit 0
fi
if [[ "$(uname -sm)" != "Linux x86_64" ]]; then
  echo "No LibTorch to fetch for $(uname -sm). Set SPILLWAY_LIBTORCH_DIR to a LibTorch 2.11." >&2
  exit 1
fi

cache="${XDG_CACHE_HOME:-$HOME/.cache}/spillway"
target="$cache/libtorch-2.11.0"
mkdir -p "$cache"
exec 9>"$cache/.fetch.lock"
flock 9

stamp="$target/.complete"
if [[ -f "$stamp" ]] || python3 "$here/libtorch.py" check "$target" 2>/dev/null; then
  touch "$stamp"
  echo "libtorch: 2.11.0 is in $target"
  exit 0
fi

# The python3 that comes first may be one without pip; the system's has it once installed.
python=""
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -m pip --version >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [[ -z "$python" ]]; then
  echo "pip is missing. On Debian: apt-get install python3-pip" >&2
  exit 1
fi

free_mb=$(df -Pm "$cache" | awk 'NR == 2 {print $4}')
if ((free_mb < 1500)); then
  echo "Only $free_mb MB free in $cache; fetching LibTorch needs 1500. Free some, or set" >&2
  echo "XDG_CACHE_HOME to a folder on a larger disk." >&2
  exit 1
fi

staging=$(mktemp -d "$cache/.fetch.XXXXXX")
reporter=""
cleanup() {
  [[ -n "$reporter" ]] && kill "$reporter" 2>/dev/null
  rm -rf "$staging"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$staging/wheels" "$staging/tmp" "$staging/unpacked"
echo "libtorch: downloading about 545 MB"
(
  exec 9>&-
  while sleep 10; do
    echo "libtorch: $(du -sm "$staging" | cut -f1) of about 545 MB"
  done
) &
reporter=$!
# The Python version and the platforms are named so that any Python 3 can fetch.
TMPDIR="$staging/tmp" "$python" -m pip download --quiet --no-deps --no-cache-dir \
  --dest "$staging/wheels" --only-binary=:all: --implementation cp --python-version 3.11 \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
  --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
kill "$reporter" 2>/dev/null || true
reporter=""

python3 "$here/libtorch.py" unpack "$staging/wheels" "$staging/unpacked"

# For test cases in Python alone: nothing else needs it, so a failure is told and no more.
echo "libtorch: making a Python with torch, for tests"
mkdir "$staging/python_wheels"
ln "$staging"/wheels/torch-*.whl "$staging/python_wheels/"
if ! { TMPDIR="$staging/tmp" "$python" -m pip download --quiet --no-deps --no-cache-dir \
         --dest "$staging/python_wheels" --require-hashes --only-binary=:all: \
         --implementation cp --python-version 3.11 \
         --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
         --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
         -r "$here/python_requirements.txt" &&
       "$python" "$here/python_torch.py" "$staging/python_wheels" "$staging/unpacked"; }; then
  rm -rf "$staging/unpacked/python"
  echo "libtorch: no Python with torch could be made, so its test cases will be skipped" >&2
fi
touch "$staging/unpacked/.complete"
# A rename is atomic: an interrupted fetch leaves no half-filled folder under the final name.
if [[ -e "$target" ]]; then
  mv "$target" "$staging/replaced"
fi
mv "$staging/unpacked" "$target"
echo "libtorch: 2.11.0 is in $target"
