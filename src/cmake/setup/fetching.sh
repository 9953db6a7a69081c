# Sourced by the scripts that fill a folder of the cache: it is filled beside its final place and
# renamed when it is complete. Expects `set -euo pipefail`.
# shellcheck shell=bash
cache="${XDG_CACHE_HOME:-$HOME/.cache}/spillway"
staging=""
reporter=""  # What is open as long as it shall tell.

# lock_cache <name of the script>: until this process ends.
lock_cache() {
  mkdir -p "$cache"
  exec 9>"$cache/.fetch.lock"
  flock -n 9 || {
    echo "$1: waiting for another download into $cache"
    flock 9
  }
}

# Sets `python` to one with pip: the python3 that comes first may have none, the system's has it
# once installed.
find_pip() {
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      return
    fi
  done
  echo "pip is missing. On Debian: apt-get install python3-pip" >&2
  exit 1
}

# require_free_mb <MB> <for what>
require_free_mb() {
  local free_mb
  free_mb=$(df -Pm "$cache" | awk 'NR == 2 {print $4}')
  if ((free_mb < $1)); then
    echo "Only $free_mb MB free in $cache; fetching $2 needs $1. Free some, or set" \
      "XDG_CACHE_HOME to a folder on a larger disk." >&2
    exit 1
  fi
}

stop_reporting() {
  if [[ -n "$reporter" ]]; then
    exec {reporter}>&-
  fi
  reporter=""
}

clean_up() {
  stop_reporting
  rm -rf "$staging"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Makes the folder `staging`, which is gone when the script ends in whatever way.
start_staging() {
  staging=$(mktemp -d "$cache/.fetch.XXXXXX")
  mkdir "$staging/wheels" "$staging/tmp" "$staging/unpacked"
}

# start_reporting <name of the script> <MB>: tells every 10 s how much there is. It ends when nobody
# writes to it any more, instead of by a signal: a shell that has just been forked may still have the
# traps of its parent.
start_reporting() {
  exec {reporter}> >(
    exec 9>&-
    while true; do
      status=0
      read -r -t 10 || status=$?
      if ((status <= 128)); then
        exit
      fi
      echo "$1: $(du -sm "$staging" 2>/dev/null | cut -f1) of about $2 MB"
    done
  )
}

# download <what pip download is to fetch>: into $staging/wheels. The Python version and the
# platforms are named so that any Python 3 can fetch.
download() {
  TMPDIR="$staging/tmp" "$python" -m pip download --quiet --no-deps --no-cache-dir \
    --dest "$staging/wheels" --only-binary=:all: --implementation cp --python-version 3.11 \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 "$@"
}

# put_in_place <target>: a rename is atomic, so an interrupted script leaves no half-filled folder
# under the final name.
put_in_place() {
  if [[ -e "$1" ]]; then
    mv "$1" "$staging/replaced"
  fi
  mv "$staging/unpacked" "$1"
}
