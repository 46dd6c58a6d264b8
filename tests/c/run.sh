#!/bin/sh
# Runs test programs, shows their lines, adds up their last lines; fails if a test fails.
#
#   run.sh [PROGRAM | SETTING@PROGRAM]...
#
# settings   pinned   all threads on one CPU
#            crowd    four times more threads than CPUs
#            signal   strace interrupts futex calls by a signal
#            delay    strace makes futex calls return late
#
# TESTS="pool.barrier ring"  the tests whose suite.name contains one of the words
# STRESS_SECONDS=60          begins again, with other seeds, until the time is up
# SIGNAL_TESTS, DELAY_TESTS  the tests run under strace, unless TESTS says
set -u

SIGNAL_TESTS=${SIGNAL_TESTS:-"wait. pool.no_wake pool.close_ends quiet.all quiet.many pool.barrier_of_three_spawned"}
DELAY_TESTS=${DELAY_TESTS:-$SIGNAL_TESTS}

skip() { # LABEL WHAT
    echo "SKIP $1: $2"
    echo "0 passed, 0 failed, 1 skipped"
}

# Counts what strace marks, after the tests have run; none at all is a failure.
strace_run() { # LABEL PROGRAM INJECT MARK TESTS
    trace=$(mktemp)
    # shellcheck disable=SC2086
    strace -f -qq -e trace=futex -e signal=USR2 -e "inject=futex:$3" -o "$trace" "$2" "$1" $5
    injected=$(grep -c -- "$4" "$trace")
    [ "$3" != "${3#signal}" ] && interrupted=", $(grep -c 'ERESTART\|EINTR' "$trace") waits interrupted" || interrupted=
    echo "$1: strace injected $injected times$interrupted"
    rm -f "$trace"
    [ "$injected" -gt 0 ] || { echo "FAIL $1: nothing was injected"; echo "0 passed, 1 failed"; }
}

run() { # [SETTING@]PROGRAM
    program=${1#*@}
    label=$(basename "$program")
    case $1 in
    pinned@*)
        label=$label-pinned
        command -v taskset >/dev/null || { skip "$label" "no taskset here"; return; }
        cpus=$(taskset -cp $$ | sed 's/.*: //')
        taskset -c "${cpus%%[!0-9]*}" "$program" "$label" ${TESTS-}
        ;;
    crowd@*)
        CHECK_CROWD=4 "$program" "$label-crowd" ${TESTS-}
        ;;
    signal@* | delay@*)
        label=$label-${1%%@*}
        command -v strace >/dev/null || { skip "$label" "no strace here"; return; }
        strace -qq -o /dev/null true 2>/dev/null || { skip "$label" "strace may not trace here"; return; }
        case $1 in
        signal@*) strace_run "$label" "$program" signal=SIGUSR2:when=2+5 "--- SIGUSR2" "${TESTS:-$SIGNAL_TESTS}" ;;
        delay@*) strace_run "$label" "$program" delay_exit=300:when=1+3 "(DELAYED)" "${TESTS:-$DELAY_TESTS}" ;;
        esac
        ;;
    *)
        "$program" "$label" ${TESTS-}
        ;;
    esac
}

end=$(($(date +%s) + ${STRESS_SECONDS:-0}))
{
    while :; do
        for each in "$@"; do
            echo "begin"
            run "$each" 2>&1
        done
        [ "$(date +%s)" -lt "$end" ] || break
    done
} | awk -f "$(dirname "$0")/add_up.awk"
