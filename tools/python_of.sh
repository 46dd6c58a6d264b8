#!/bin/sh
# Prints the path of a Python of the given version, 3.11 or 3.13t say, or fails.
#
#   python_of.sh VERSION
set -u
for candidate in "python$1" python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1"*/bin/python; do
    "$candidate" - "$1" <<'PY' 2>/dev/null && exit
import sys, sysconfig

version = "%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
if version != sys.argv[1]:
    sys.exit(1)
print(sys.executable)
PY
done
exit 1
