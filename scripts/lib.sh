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
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { warn "$@"; exit 1; }

# logged NAME SECONDS COMMAND...: run COMMAND with its output in .deps/log/NAME.log. Returns its exit status; 124 after SECONDS.
logged() {
        local log=$LOGS/$1.log limit=$2 rc=0
        shift 2
        mkdir -p "$LOGS"
        timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1 </dev/null || rc=$?
        return "$rc"
}

# disk_full: is there no room where something is written? Then logs are empty, too.
disk_full() {
        local dir avail
        for dir in "$REPO" "${TMPDIR:-/tmp}" /var; do
                avail=$(df --output=avail "$dir" 2>/dev/null | tail -n 1)
                [ "${avail:-1024}" -ge 1024 ] || return 0
        done
        return 1
}

# explain LOG: what to do about the causes that lie outside of this work tree; nothing where the log shows none of them.
explain() {
        if disk_full || grep -qE 'No space left on device|ENOSPC|enough free space' "$1"; then
                warn "the disk is full: free some space, then run this again (df -h shows all of them)"
                df -h "$REPO" "${TMPDIR:-/tmp}" /var >&2 || true
        elif grep -qE 'Could not get lock|Unable to acquire the dpkg' "$1"; then
                warn "another program has held apt's lock for 10 minutes: let it end, then run this again"
        elif grep -qE "$NO_NETWORK" "$1"; then
                warn "no network reaches the registry that this needs (Debian's or Ubuntu's packages, PyPI, npm). Check the network and," \
                        "behind a proxy, http_proxy and https_proxy; then run this again"
        elif grep -qE 'Unable to locate package|has no installation candidate' "$1"; then
                warn "this system's package lists do not have all of these: Debian 12 or newer has them in main," \
                        "Ubuntu 24.04 in main and universe (sudo add-apt-repository universe)"
        fi
}
NO_NETWORK='Temporary failure|Could not resolve|Could not connect|Connection (refused|timed out|failed)|Network is unreachable'
NO_NETWORK+='|from versions: none|NewConnectionError|NameResolutionError|ConnectTimeout|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ENETUNREACH'

# failed NAME STATUS SECONDS COMMAND...: report what failed, with the end of its log and what to do where that is known.
failed() {
        local log=$LOGS/$1.log rc=$2 limit=$3
        shift 3
        warn "this failed: $*"
        [ "$rc" -ne 124 ] || warn "it was ended after $limit s"
        warn "the end of $log:"
        tail -n 40 "$log" >&2
        explain "$log"
}

# quietly NAME SECONDS COMMAND...: like logged, and report a failure.
quietly() {
        local rc=0
        logged "$@" || rc=$?
        [ "$rc" -eq 0 ] || failed "$1" "$rc" "${@:2}"
        return "$rc"
}

# One setup at a time in one work tree: two would build the same environments into each other.
lock_setup() {
        mkdir -p "$DEPS"
        exec 9>"$DEPS/.lock"
        flock --wait 1200 9 || die "another setup has been running in this tree for 20 minutes (lock: $DEPS/.lock)"
}

# Systems that are too old are refused before anything is installed on them.
check_system() {
        local glibc name
        command -v dpkg-query >/dev/null || die "this is not a Debian system: install the equivalents of: $*"
        glibc=$(dpkg-query -W -f '${Version}' libc6 2>/dev/null || true)
        if [ -n "$glibc" ] && dpkg --compare-versions "$glibc" lt 2.36; then
                name=$(. /etc/os-release && echo "${PRETTY_NAME:-this system}")
                die "$name is too old: it has glibc ${glibc%%-*}, and cellgate needs 2.36, Python 3.11, meson 1.0 and node 18" \
                        "(Ubuntu 22.04 has 2.35, 3.10, 0.61 and 12). Use Debian 12 or newer or Ubuntu 24.04, or a container of one of them."
        fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# without_root REASON PACKAGE...: the line that root has to run, and the end of this script.
without_root() {
        local reason=$1
        shift
        warn "Debian packages are missing, and installing them needs root ($reason)."
        warn "Have root run this line, which installs all of them, then run this again:"
        printf '\napt-get update && apt-get install -y --no-install-recommends %s\n\n' "$*" >&2
        exit 1
}

# become_root PACKAGE...: set SUDO to the words before a command that needs root. Asks for a password only at a terminal.
become_root() {
        SUDO=()
        [ "$(id -u)" -ne 0 ] || return 0
        command -v sudo >/dev/null || without_root "there is no sudo" "$@"
        SUDO=(sudo)
        sudo -n true 2>/dev/null && return 0
        [ -t 0 ] || without_root "sudo wants a password, and there is no terminal" "$@"
        say "sudo is needed to install Debian packages: $*"
        sudo -v || without_root "sudo refused" "$@"
}

# apt NAME SECONDS ARGUMENT...: apt-get as root. Waits up to 10 minutes while another program has one of apt's locks.
apt() {
        local name=$1 limit=$2 rc waited=0
        shift 2
        while :; do
                rc=0
                logged "$name" "$limit" "${SUDO[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 "$@" || rc=$?
                [ "$rc" -ne 0 ] || return 0
                # apt-get itself waits for dpkg's locks, but not for the one of the package lists.
                grep -q 'Could not get lock' "$LOGS/$name.log" && [ "$waited" -lt 600 ] || break
                [ "$waited" -gt 0 ] || say "waiting for another program that holds apt's lock: $(grep -m1 -o 'held by process.*' "$LOGS/$name.log")"
                sleep "$APT_RETRY_SECONDS"
                waited=$((waited + APT_RETRY_SECONDS))
        done
        failed "$name" "$rc" "$limit" apt-get "$@"
        return "$rc"
}
APT_RETRY_SECONDS=${APT_RETRY_SECONDS:-5}

# need_packages PACKAGE...: install the Debian packages among these that are missing, all at once.
need_packages() {
        local missing=() p
        check_system "$@"
        for p in "$@"; do
                installed "$p" || missing+=("$p")
        done
        [ ${#missing[@]} -eq 0 ] && return 0
        become_root "${missing[@]}"
        say "installing Debian packages: ${missing[*]}"
        apt apt-update 600 update || exit 1
        apt apt-install 1800 install -y --no-install-recommends "${missing[@]}" || exit 1
}

# node_packages: Debian's node and npm, where there are none (other sources have packages that conflict with Debian's).
node_packages() {
        command -v node >/dev/null || echo nodejs
        command -v npm >/dev/null || echo npm
}

# curl_package: libcurl's headers, which several packages have that conflict with each other; either will do.
curl_package() {
        if installed libcurl4-openssl-dev; then echo libcurl4-openssl-dev; else echo libcurl4-gnutls-dev; fi
}

# browser_packages: Debian's browser; Ubuntu has none outside of snaps.
browser_packages() {
        ! (. /etc/os-release && [ "$ID" = debian ]) || echo chromium
}

# check_node: fail if node is too old for the MCP servers.
check_node() {
        local major
        major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
        [ "$major" -ge 18 ] || die "$(command -v node) is $(node --version), and the MCP servers need version 18 or newer: install one, or" \
                "remove it so that Debian's is installed"
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

# made_with DIR: is DIR a virtual environment of our Python, made at this very path?
made_with() {
        local ask='import sys; print(sys.version, sys.base_prefix)'
        [ -x "$1/bin/python" ] && [ "$("$1/bin/python" -I -c "$ask")" = "$("$PYTHON" -I -c "$ask")" ] &&
                [ "$("$1/bin/python" -I -c 'import sys; print(sys.prefix)')" = "$1" ]
}

# make_venv DIR REQUIREMENTS: a virtual environment with the pinned packages; nothing to do where it is that already.
# Packages that were added to it stay there as long as the Python does.
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
        # The stamp of other requirements: it was complete once, and is not one whose making was interrupted.
        if [ -s "$stamp" ] && made_with "$dir"; then
                say "updating $dir to $(basename "$requirements")"
        else
                say "making $dir from $(basename "$requirements")"
                [ ! -e "$dir/pyvenv.cfg" ] || say "it was made with another Python: packages that were added to it have to be installed again"
                quietly "venv-$name" 300 "$PYTHON" -m venv --clear "$dir" || return 1
        fi
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

# need_packages_env: a second environment for kernels, with packages that notebooks use (matplotlib, ipywidgets, debugpy...).
need_packages_env() {
        local requirements=$DEPS/packages-env-requirements.txt
        cat "$REPO/python_stubs/kernel-requirements.txt" "$REPO/tests/packages-env-requirements.txt" >"$requirements"
        make_venv "$DEPS/packages-env" "$requirements"
}

# need_jupyter_kernels: kernels that sessions run as languages.
need_jupyter_kernels() {
        make_venv "$DEPS/jupyter-kernels" "$REPO/tests/jupyter-kernels-requirements.txt" || return 1
        [ -e "$DEPS/jupyter-kernels/share/jupyter/kernels/bash" ] ||
                "$DEPS/jupyter-kernels/bin/python" -m bash_kernel.install --prefix "$DEPS/jupyter-kernels" >/dev/null
}

# need_test_servers: MCP servers from PyPI that tests call, in two environments, because not all of them work with the
# package mcp of version 2.
need_test_servers() {
        local servers=$REPO/tests/real_servers
        make_venv "$DEPS/servers-env" "$servers/requirements.txt" || return 1
        make_venv "$DEPS/servers-sdk1-env" "$servers/requirements-sdk1.txt"
}

# need_cluster: Slurm and an SSH server for tests/cluster, unpacked and not installed, since their daemons would start.
# Only root's tests use them.
need_cluster() {
        local to=$DEPS/cluster work=$DEPS/cluster.new package
        [ "$(id -u)" = 0 ] && [ ! -e "$to" ] || return 0
        say "unpacking Slurm and OpenSSH in $to"
        rm -rf "$work"
        mkdir -p "$work/debs/partial" "$work/root"
        apt-cache show slurmd >/dev/null 2>&1 || apt apt-update 600 update || return 1
        apt apt-cluster 600 install -y --download-only --no-install-recommends -o "Dir::Cache::archives=$work/debs" \
                slurmctld slurmd slurm-client munge openssh-client openssh-server || return 1
        for package in "$work"/debs/*.deb; do
                dpkg -x "$package" "$work/root"
        done
        # A folder in the place of the link /lib would hide all of it.
        if [ -d "$work/root/lib" ]; then
                cp -a "$work/root/lib" "$work/root/usr/" && rm -r "$work/root/lib"
        fi
        mv "$work/root" "$to"
        rm -r "$work"
}

# need_frameworks: agent frameworks, and an environment for kernels with what notebooks use.
need_frameworks() {
        make_venv "$DEPS/integrations-env" "$REPO/tests/integrations/requirements.txt" || return 1
        need_packages_env
}

# need_clients: Jupyter's programs, JupyterLab's client library, MCP's Inspector, and what need_frameworks makes.
need_clients() {
        local clients=$REPO/tests/clients
        make_venv "$DEPS/clients-env" "$clients/requirements.txt" || return 1
        need_frameworks || return 1
        need_npm "$DEPS/clients-npm" "$clients/package.json"
}
