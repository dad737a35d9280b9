#!/bin/sh
# Creates or updates the environment in .venv. make calls it with the interpreters to try as PYTHONS:
#
#   requirements/install.sh         what running needs: torch and requirements/local.lock
#   requirements/install.sh dev     what tests and checks need too: requirements/dev.lock
#
# .venv/.ready-run marks the first part as complete, .venv/.ready both. They contain the folder of the environment. The
# scripts in .venv/bin contain it too, so a moved copy is created again, and so is an environment whose Python no longer
# exists.
#
# .venv/.making exists, and .ready-run does not, while packages are installed. If it exists without a running make (which
# holds the lock), the environment is incomplete and is removed. A step that fails by itself leaves no .making: pip undoes
# an unfinished installation, so the next make continues from there.
set -eu

locked='requirements/torch.txt requirements/local.lock'
python=.venv/bin/python
ready_run=.venv/.ready-run
ready=.venv/.ready
making=.venv/.making
folder=$(pwd -P)
# Python compiles the modules that it imports; pip would compile all of them, which takes longer than to import some.
export PIP_COMPILE=0 PIP_ROOT_USER_ACTION=ignore

# Whether the part of a stamp was installed here.
installed() { [ -x $python ] && [ "$(cat "$1" 2>/dev/null)" = "$folder" ]; }

pip() { $python -m pip --quiet --quiet --disable-pip-version-check --no-input "$@"; }

# Creates .venv, unless its Python is usable, with the first of PYTHONS that is recent enough.
make_venv() {
    if $python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then return; fi
    for found in $PYTHONS ''; do
        if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi
    done
    if [ -z "$found" ]; then
        echo "Redbatch needs Python 3.11 or newer; tried: $PYTHONS." >&2
        echo 'Choose one with: make run PYTHON=/path/to/python3' >&2
        return 1
    fi
    echo "  Python: $found ($("$found" -c 'import platform; print(platform.python_version())'))" &&
        rm -rf .venv && mkdir .venv && : >$making && "$found" -m venv .venv
}

# The packages of torch that local.lock contains too come from there, by hash.
install_run() {
    make_venv &&
        echo '  Packages, as locked in requirements/local.lock' &&
        pip install --no-deps --require-hashes -r requirements/local.lock &&
        echo "  PyTorch: $(cat requirements/torch.txt) (the largest download)" &&
        pip install -r requirements/torch.txt &&
        echo '  Redbatch itself, in place' &&
        pip install --no-deps -e . &&
        [ -z "$interrupted" ]
}

install_dev() {
    pip install --no-deps --require-hashes -r requirements/dev.lock && [ -z "$interrupted" ]
}

# fail COMMAND...: ends this script; COMMAND removes .making, unless the step was interrupted.
fail() {
    if [ -z "$interrupted" ]; then "$@"; echo 'The environment is incomplete: see the error above.' >&2; fi
    exit 1
}

interrupted=
trap 'interrupted=yes' INT TERM HUP
exec 9<Makefile
if command -v flock >/dev/null && ! flock -n 9; then
    echo 'Waiting for another make that creates or updates the environment ...'
    flock 9
fi

stale=$locked
if installed $ready_run; then
    stale=$(find $locked -newer $ready_run)
    [ -z "$stale" ] || echo "Updating the environment in .venv ($(echo $stale) changed) ..."
else
    if [ -e $making ] || [ -e $ready_run ] || { [ -e $ready ] && ! installed $ready; }; then
        echo 'Removing the unusable environment in .venv ...'
        rm -rf .venv
    fi
    echo 'Creating the environment in .venv (first time: a few minutes) ...'
fi
if [ -n "$stale" ]; then
    mkdir -p .venv
    : >$making
    rm -f $ready_run $ready
    install_run || fail rm -f $making
    printf '%s\n' "$folder" >$ready_run
    rm -f $making
fi

if [ "${1:-}" = dev ] && { ! installed $ready || [ -n "$(find requirements/dev.lock -newer $ready)" ]; }; then
    echo 'Installing what tests and checks need, as locked in requirements/dev.lock ...'
    mv $ready_run $making
    rm -f $ready
    install_dev || fail mv $making $ready_run
    printf '%s\n' "$folder" >$ready
    mv $making $ready_run
fi
