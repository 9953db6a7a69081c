#!/usr/bin/env bash
# Runs everything that can be tested on this machine: the part without LibTorch under the sanitizers,
# then all cases in the release build. Exit status 0 when all passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if (($# > 0)); then
  cat <<'TEXT'
usage: ./test.sh

Installs what is missing, builds, and runs everything that this machine can test; takes no options.
Single cases: ctest --preset release -R NAME
TEXT
  [[ $1 == -h || $1 == --help ]] && exit 0 || exit 2
fi

setup=src/cmake/setup

"$setup/install_packages.sh" build test
"$setup/fetch_libtorch.sh"
"$setup/fetch_python.sh"
jobs=$("$setup/build_jobs.sh")

# The Python that was just fetched, unless another one is named.
python="${XDG_CACHE_HOME:-$HOME/.cache}/spillway/python-torch-2.11.0/python/bin/python3"
if [[ -z "${SPILLWAY_TEST_PYTHON:-}" && -x "$python" ]]; then
  export SPILLWAY_TEST_PYTHON=$python
fi

headline() { printf '\n== %s\n' "$*"; }

# run_preset <preset>: builds it and runs its cases; leaves ctest's output and status behind.
# Called where `set -e` is off, so it returns at the first failure itself.
run_preset() {
  local preset=$1
  headline "$preset: build"
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log"
    return 1
  }
  grep -E 'LibTorch|WARNING|Warning' "build/$preset.configure.log" || true
  cmake --build --preset "$preset" --parallel "$jobs" || return 1
  headline "$preset: test"
  # More than there are cores: cases wait for children, disks and clocks.
  ctest --preset "$preset" --parallel "$(($(nproc) + 2))" --output-junit "$PWD/build/$preset.junit.xml" \
    2>&1 | tee "build/$preset.ctest.log"
}

summary_of() {
  grep -E '^[0-9]+% tests passed' "build/$1.ctest.log" 2>/dev/null || echo "no case was run in $1"
}

mkdir -p build
rm -f build/*.junit.xml build/*.ctest.log
failed=()
for preset in asan tsan release; do
  run_preset "$preset" || failed+=("$preset")
done

for preset in asan tsan; do
  if [[ -f build/$preset.junit.xml ]]; then
    headline "skipped or failed in $preset"
    python3 "$setup/count_cases.py" --exceptions-only "build/$preset" "build/$preset.junit.xml"
  fi
done
if [[ -f build/release.junit.xml ]]; then
  headline "cases of the release build"
  python3 "$setup/count_cases.py" build/release build/release.junit.xml
fi
headline "summary"
for preset in asan tsan; do
  echo "$preset: $(summary_of "$preset")"
done
if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}"
fi
summary_of release
((${#failed[@]} == 0))
