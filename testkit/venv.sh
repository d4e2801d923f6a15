#!/bin/sh
# Builds the virtual environment $2 with the interpreter $1 and puts uv and nox into it.
# Called by the Makefile; needs nothing but Python 3.11 or newer.
set -eu
python=$1
venv=$2

if ! command -v "$python" >/dev/null 2>&1; then
    echo "setup: no $python found: install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: $("$python" --version) is too old: Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && [ "${AH_APT:-1}" != 0 ]; then
        echo "setup: installing python3-venv with apt"
        { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
            --no-install-recommends python3-venv; } >&2
    else
        echo "setup: $python has no ensurepip: install the package python3-venv (Debian: apt-get install python3-venv)" >&2
        exit 1
    fi
fi
if [ ! -x "$venv/bin/python" ]; then
    echo "setup: making $venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi
echo "setup: installing uv and nox"
"$venv/bin/python" -m pip --quiet --disable-pip-version-check install -c constraints.txt uv nox
