#!/bin/sh
# Prints the path of a Python that can build and test affinitypool: at least 3.11, able to make
# virtual environments, with its C headers.
#
#   find_python.sh            the first that will do
#   find_python.sh PYTHON     this one, or an explanation of what it lacks
set -u

# Says what the Python given as $1 lacks; nothing, if nothing.
lacks() {
    "$1" - <<'PY' 2>/dev/null || echo "does not run"
import os, sys, sysconfig

if sys.version_info < (3, 11):
    print("is %d.%d, want 3.11 or later" % sys.version_info[:2])
else:
    try:
        import ensurepip, venv
    except ImportError:
        print("cannot make virtual environments (Debian, Ubuntu: apt-get install python3-venv)")
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        print("has no C headers (Debian, Ubuntu: apt-get install python3-dev)")
PY
}

# A shim (pyenv's, say) may come and go with the directory; what it starts does not.
resolve() {
    "$1" -c 'import sys; print(sys.executable)'
}

if [ $# -gt 0 ] && [ -n "$1" ]; then
    why=$(lacks "$1")
    [ -z "$why" ] || { echo "PYTHON=$1 $why" >&2; exit 1; }
    resolve "$1"
    exit
fi

candidates="python3 python3.15 python3.14 python3.13 python3.12 python3.11 python"
if command -v pyenv >/dev/null 2>&1; then
    for version in $(pyenv versions --bare 2>/dev/null | sort -t. -k1,1nr -k2,2nr); do
        candidates="$candidates $(pyenv root)/versions/$version/bin/python"
    done
fi
reasons=""
for candidate in $candidates; do
    path=$(command -v "$candidate" 2>/dev/null) || continue
    why=$(lacks "$path")
    if [ -z "$why" ]; then
        resolve "$path"
        exit
    fi
    reasons="$reasons
  $path $why"
done
echo "no Python for affinitypool here; give one with PYTHON=...${reasons:+ Looked at:$reasons}" >&2
exit 1
