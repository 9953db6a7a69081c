#!/usr/bin/env bash
# fetch_python.sh VERSION: puts a Python with torch of that version (2.15 or 2.15.0) and numpy, on the CPU, for
# test cases in Python, into ${XDG_CACHE_HOME:-~/.cache}/spillway/python-torch-VERSION (python/bin/python3). Uses
# the libraries of the LibTorch that fetch_libtorch.sh has put beside it, and leaves that folder as it is. Does
# nothing when it is complete, or when SPILLWAY_TEST_PYTHON names another one. Downloads about 50 MB:
# of the torch wheel only what is missing, unless the package index serves no parts of files (then
# 560). Tests alone need it: what goes wrong is told in one line, and the exit status is 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=fetching.sh
source "$here/fetching.sh"

if [[ -n "${SPILLWAY_TEST_PYTHON:-}" ]]; then
  echo "python: using SPILLWAY_TEST_PYTHON=$SPILLWAY_TEST_PYTHON"
  exit 0
fi

version=$(python3 "$here/libtorch.py" version "${1?names no version of torch}")
libtorch="$cache/libtorch-$version"
target="$cache/python-torch-$version"
requirements="$here/python_requirements.txt"
site=python/lib/python3.11/site-packages

# What goes wrong from here on is told by its last line.
errors=$(mktemp)
exec 3>&2 2>"$errors"
end() {
  local status=$?
  clean_up
  if ((status != 0 && status != 130)); then
    echo "python: none with torch, so the cases in Python are skipped:" \
      "$(grep -v '^[[:space:]]*$' "$errors" | tail -n 1)" >&3
    status=0
  fi
  rm -f "$errors"
  exit "$status"
}
trap end EXIT

lock_cache python
# The stamp is what the environment was made of and by.
stamp() { cat "$requirements" "$here/python_torch.py"; }
if stamp | cmp -s - "$target/.complete" && [[ -x "$target/python/bin/python3" &&
  -e "$target/$site/torch/lib/libtorch_cpu.so" ]]; then
  echo "python: with torch $version is in $target"
  exit 0
fi
if [[ ! -e "$libtorch/torch/lib/libtorch_cpu.so" ]]; then
  echo "there is no LibTorch in $libtorch (fetch_libtorch.sh puts it there)" >&2
  exit 1
fi

find_pip
require_free_mb 1000 "a Python with torch"
start_staging

make_with() {
  "$python" "$here/python_torch.py" "$1" "$staging/wheels" "$libtorch" "$staging/unpacked"
}

echo "python: downloading about 50 MB"
start_reporting python 210
download --require-hashes -r "$requirements"
address=$("$python" -m pip index versions torch -vv 2>/dev/null |
  grep -om 1 "https\?://[^ #]*/torch-${version//./\\.}-cp311-cp311-manylinux_2_28_x86_64\.whl" || true)
status=4
[[ -z "$address" ]] || {
  status=0
  make_with "$address" || status=$?
}
if ((status == 4)); then
  echo "python: the package index serves no parts of the torch wheel; downloading all 530 MB of it"
  stop_reporting
  start_reporting python 740
  rm -rf "$staging/unpacked"
  mkdir "$staging/unpacked"
  download "torch==$version"
  make_with "$(echo "$staging"/wheels/torch-*.whl)"
elif ((status != 0)); then
  exit "$status"
fi
stop_reporting

stamp >"$staging/unpacked/.complete"
put_in_place "$target"
echo "python: with torch $version is in $target"
