#!/usr/bin/env bash
# Makes the environment .venv-VERSION, of a Python of the machine or of those that lie beside the
# checkout, if it is not there. Its last line says why it could not.
#
#   environment.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$1
venv=.venv-$version
shared=../shared/pythons
[[ ! -x $venv/bin/python ]] || exit 0
if python=$(sh tools/python_of.sh "$version"); then
    echo "making $venv with $python"
    "$python" -m venv "$venv" || { rm -rf "$venv"; echo "$python makes no virtual environments"; exit 1; }
elif [[ ! -f $shared/venv.sh ]]; then
    echo "no Python $version here: looked for python$version, python3 and those of pyenv"
    exit 1
else
    bash "$shared/venv.sh" "$version" "$venv" || { rm -rf "$venv"; echo "$shared/venv.sh could not make it"; exit 1; }
fi
