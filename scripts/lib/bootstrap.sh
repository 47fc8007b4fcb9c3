# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Everything that has to exist before Python code with libraries can run: Debian packages and a
# virtual environment. Sourced by scripts/demo, scripts/test and .ci/run.

KVARN_LIB="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
KVARN_ROOT="$(cd "$KVARN_LIB/../.." && pwd)"
KVARN_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/kvarn"
KVARN_LOGS="$KVARN_CACHE/logs"
KVARN_PYTHON="$KVARN_CACHE/venv/bin/python"
export KVARN_ROOT KVARN_CACHE KVARN_LOGS KVARN_PYTHON

say() { printf '%s\n' "$*"; }

# logged NAME WHAT-TO-DO COMMAND...: runs a command into a log; on failure shows its end and stops.
logged() {
  local log="$KVARN_LOGS/$1.log" advice="$2"
  shift 2
  if ! "$@" >"$log" 2>&1 </dev/null; then
    say "Failed: $*" "Last lines of $log:" >&2
    tail -n 20 "$log" >&2
    say "What to do: $advice" >&2
    exit 1
  fi
}

package_list() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$1"; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need_packages FILE: installs what is missing from the list, or names it when not root.
need_packages() {
  local package missing=()
  if ! command -v dpkg-query >/dev/null; then
    say "Not a Debian system: please provide the equivalents of" "$(package_list "$1" | xargs)"
    return
  fi
  while read -r package; do
    is_installed "$package" || missing+=("$package")
  done < <(package_list "$1")
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    say "Missing Debian packages: ${missing[*]}" >&2
    say "Please run: sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
    exit 1
  fi
  say "Installing Debian packages: ${missing[*]}"
  local advice="check the network and the package sources, then start again"
  export DEBIAN_FRONTEND=noninteractive
  logged apt-update "$advice" apt-get update
  logged apt-install "$advice" apt-get install -y --no-install-recommends "${missing[@]}"
}

# need_venv: a virtual environment with the pinned packages. A stamp written last says that it is
# complete, so one that was interrupted is made again.
need_venv() {
  local stamp="$KVARN_CACHE/venv/complete" wanted
  wanted="$(python3 --version) $(sha256sum <"$KVARN_LIB/requirements.txt")"
  [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
  say "Making the Python environment in $KVARN_CACHE/venv"
  local advice="check the network, then start again"
  logged venv "install the Debian package python3-venv" \
    python3 -m venv --clear "$KVARN_CACHE/venv"
  logged pip "$advice" "$KVARN_PYTHON" -m pip install --no-input -r "$KVARN_LIB/requirements.txt"
  printf '%s' "$wanted" >"$stamp"
}

# bootstrap PACKAGE-LIST...: all of it, one process at a time.
bootstrap() {
  mkdir -p "$KVARN_LOGS"
  exec 9>"$KVARN_CACHE/lock"
  flock -n 9 || { say "Waiting for another kvarn script to finish its set-up"; flock 9; }
  local list
  for list in "$@"; do
    need_packages "$list"
  done
  need_venv
  exec 9>&-
}

# run_python MODULE ARGS...: hands over to a module of scripts/lib/kvarn_dev.
run_python() {
  export PYTHONPATH="$KVARN_LIB" PYTHONDONTWRITEBYTECODE=1
  exec "$KVARN_PYTHON" -m "$@"
}
