#!/bin/sh
# Fails if a C file includes what its layer must not know: atomics, threads and futexes belong to
# csrc/sync, the interpreter to csrc/python.
set -u
status=0
check() { # WHAT PATTERN ALLOWED
    found=$(grep -rnE --include='*.[ch]' "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($2)[>\"]" csrc |
        grep -v "^csrc/$3/")
    [ -z "$found" ] || { printf '%s outside csrc/%s:\n%s\n' "$1" "$3" "$found" >&2; status=1; }
}
check "atomics, threads or futexes" 'stdatomic\.h|pthread\.h|threads\.h|semaphore\.h|linux/futex\.h|sys/syscall\.h' sync
check "the interpreter" 'Python\.h|.*/Python\.h' python
[ $status -ne 0 ] || echo "layers: csrc/sync alone includes atomics, threads and futexes; csrc/python alone the interpreter"
exit $status
