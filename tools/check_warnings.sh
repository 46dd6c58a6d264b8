#!/bin/sh
# Compiles every C file under csrc with warnings as errors and keeps nothing.
#
#   check_warnings.sh COMPILER INCLUDE-DIRECTORY-OF-PYTHON
set -u
compiler=$1 include=$2 status=0 n=0
for file in $(find csrc -name '*.c' | sort); do
    case $file in csrc/python/*) python="-isystem $include" ;; *) python="" ;; esac
    # shellcheck disable=SC2086
    "$compiler" -std=c11 -O2 -Wall -Wextra -Wshadow -Wconversion -Werror -Icsrc $python -c "$file" -o /dev/null || status=1
    n=$((n + 1))
done
[ $status -ne 0 ] || echo "$compiler: no warnings in $n files"
exit $status
