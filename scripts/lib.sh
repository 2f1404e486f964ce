# shellcheck shell=bash
# Shared by the scripts in this folder (sourced, never run): messages, quiet commands with logs, Debian packages,
# virtual environments, npm packages. Every function does only what is missing and says in one line what it does.

umask 022
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
DEPS=$REPO/.deps
LOGS=$DEPS/log
# The kernel is linked with Debian's libpython, so its environment must be made by the same interpreter. Whatever
# `python3` comes first on PATH (pyenv, conda) is another one.
PYTHON=/usr/bin/python3
# Variables that make pip, python or npm install somewhere else than asked.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV NODE_PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# quietly NAME SECONDS COMMAND...: run COMMAND with its output in .deps/log/NAME.log; show the end of it on failure.
quietly() {
        local log=$LOGS/$1.log limit=$2 rc=0
        shift 2
        mkdir -p "$LOGS"
        timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null || rc=$?
        [ "$rc" -eq 0 ] && return 0
        printf '%s: this failed: %s\n' "${0##*/}" "$*" >&2
        [ "$rc" -eq 124 ] && printf '%s: it was ended after %s s\n' "${0##*/}" "$limit" >&2
        printf '%s: the end of %s:\n' "${0##*/}" "$log" >&2
        tail -n 40 "$log" >&2
        return "$rc"
}

# One setup at a time in one work tree: two would build the same environments into each other.
lock_setup() {
        mkdir -p "$DEPS"
        exec 9>"$DEPS/.lock"
        flock --wait 1200 9 || die "another setup has been running in this tree for 20 minutes (lock: $DEPS/.lock)"
}

# as_root SECONDS NAME COMMAND...: with sudo where we are not root. Asks for a password only on a terminal.
as_root() {
        local limit=$1 name=$2
        shift 2
        if [ "$(id -u)" -eq 0 ]; then
                quietly "$name" "$limit" "$@"
                return
        fi
        command -v sudo >/dev/null || die "these need root and there is no sudo; run as root: $*"
        if ! sudo -n true 2>/dev/null; then
                [ -t 0 ] || die "these need root and sudo wants a password; run as root: $*"
                sudo -v || die "these need root; run as root: $*"
        fi
        quietly "$name" "$limit" sudo "$@"
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need_packages PACKAGE...: install the Debian packages among these that are missing.
need_packages() {
        local missing=() p
        command -v dpkg-query >/dev/null || die "this is not a Debian system; install the equivalents of: $*"
        for p in "$@"; do
                installed "$p" || missing+=("$p")
        done
        [ ${#missing[@]} -eq 0 ] && return 0
        say "installing Debian packages: ${missing[*]}"
        as_root 600 apt-update apt-get update || exit 1
        as_root 1800 apt-install env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y --no-install-recommends "${missing[@]}" || exit 1
}

# need_node: node and npm, Debian's only when there are none (other sources have packages that conflict with Debian's).
need_node() {
        local packages=() major
        command -v node >/dev/null || packages+=(nodejs)
        command -v npm >/dev/null || packages+=(npm)
        [ ${#packages[@]} -eq 0 ] || need_packages "${packages[@]}"
        major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
        [ "$major" -ge 18 ] || die "node $(node --version) is too old for the MCP servers: version 18 or newer is needed"
}

# venv_is DIR REQUIREMENTS: does DIR hold exactly the versions that REQUIREMENTS pins, made with our Python?
venv_is() {
        [ -x "$1/bin/python" ] && timeout 60 "$1/bin/python" -I - "$2" "$("$PYTHON" -c 'import sys; print(sys.version)')" <<'PY'
import importlib.metadata, sys
if sys.version != sys.argv[2]:
    sys.exit(1)
for line in open(sys.argv[1], encoding="utf-8"):
    name, _, version = line.split("#")[0].split(";")[0].strip().partition("==")
    try:
        if name and importlib.metadata.version(name) != version.strip():
            sys.exit(1)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(1)
PY
}

# make_venv DIR REQUIREMENTS: a virtual environment with the pinned packages; nothing to do where it is that already.
make_venv() {
        local dir=$1 requirements=$2 name stamp want
        name=$(basename "$dir")
        stamp=$dir/.requirements
        # The path is part of it: a virtual environment that was moved or copied does not work.
        want=$({ echo "$dir"; "$PYTHON" --version; cat "$requirements"; } | sha256sum | cut -d' ' -f1)
        [ -x "$dir/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return 0
        if venv_is "$dir" "$requirements"; then
                # Made by another hand and right: keep it, and remember so where we may.
                { echo "$want" >"$stamp"; } 2>/dev/null || true
                return 0
        fi
        if [ -e "$dir" ] && [ ! -e "$dir/pyvenv.cfg" ] && [ -n "$(ls -A "$dir")" ]; then
                die "$dir is in the way: it is neither empty nor a virtual environment"
        fi
        say "making $dir from $(basename "$requirements")"
        rm -f "$stamp"
        quietly "venv-$name" 300 "$PYTHON" -m venv --clear "$dir" || return 1
        quietly "pip-$name" 1200 "$dir/bin/python" -m pip install --quiet --retries 5 --compile -r "$requirements" ||
                return 1
        venv_is "$dir" "$requirements" || die "$dir does not hold what $requirements asks for"
        echo "$want" >"$stamp"
}

# need_npm DIR PACKAGE_JSON: what this file names, from npm, in DIR; nothing to do where it is that already.
need_npm() {
        local dir=$1 package=$2 want
        want=$({ node --version; cat "$package"; } | sha256sum | cut -d' ' -f1)
        [ "$(cat "$dir/.stamp" 2>/dev/null)" = "$want" ] && return 0
        say "installing npm packages in $dir"
        rm -rf "$dir"
        mkdir -p "$dir"
        cp "$package" "$dir/package.json"
        # --ignore-scripts: none of these packages needs to run anything at its installation.
        quietly "$(basename "$dir")-install" 900 npm install --prefix "$dir" --no-package-lock --ignore-scripts --no-audit --no-fund \
                --no-update-notifier --loglevel=error || return 1
        echo "$want" >"$dir/.stamp"
}

# need_mcp_servers: the MCP servers from npm that the demonstration and the tests use, in .deps/npm.
need_mcp_servers() { need_npm "$DEPS/npm" "$REPO/scripts/npm/package.json"; }

# need_clients: Jupyter's programs, an environment for kernels with what notebooks use, and JupyterLab's client library.
need_clients() {
        local clients=$REPO/tests/clients
        make_venv "$DEPS/clients-env" "$clients/requirements.txt" || return 1
        cat "$REPO/python_stubs/kernel-requirements.txt" "$clients/kernel-requirements.txt" >"$DEPS/clients-kernel-requirements.txt"
        make_venv "$DEPS/clients-kernel-env" "$DEPS/clients-kernel-requirements.txt" || return 1
        need_npm "$DEPS/clients-npm" "$clients/package.json"
}
