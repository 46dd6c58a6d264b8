#!/bin/sh
# Shows that the tools find something: each control is a real defect, an edit of one file of the
# core, that a tool has to report.  Fails if a tool is silent, or says something else.
#
#   controls.sh [WORD]...      those whose name contains one of the words; default: all, as many at
#                              a time as there are CPUs
set -u

here=$(cd "$(dirname "$0")" && pwd)

if [ $# -eq 0 ]; then
    names=$(sed -n 's/^control \([^ ]*\) .*/\1/p' "$0")
    {
        echo "$names" | sed 's/.*/begin/'
        echo "$names" | ONE=yes xargs -n 1 -P "$(nproc 2>/dev/null || echo 2)" sh "$0"
    } | awk -f "$here/add_up.awk"
    exit
fi
root=$(cd "$here/../.." && pwd)
out=$root/build/c/controls
words=$*
passed=0 failed=0 skipped=0

# Lines of the table below: NAME FILE EDIT, then `finds` for each run that must report it.
control() { # NAME FILE SED-EDIT
    name=$1 wanted=no
    for word in $words; do case $name in
        "$word") wanted=yes ;;
        *"$word"*) [ "${ONE-}" ] || wanted=yes ;;
    esac; done
    [ $wanted = yes ] || return 0
    rm -rf "$out/$name"
    mkdir -p "$out/$name"
    cp -r "$root/csrc" "$out/$name/csrc"
    sed -i "$3" "$out/$name/csrc/$2"
    if cmp -s "$root/csrc/$2" "$out/$name/csrc/$2"; then
        echo "FAIL $name: the edit of csrc/$2 no longer changes it"
        failed=$((failed + 1)) wanted=no
    fi
}

finds() { # RUN TESTS REPORT: a run as in run.sh, of a program of the Makefile; a pattern of grep -E
    [ $wanted = yes ] || return 0
    program=${1#*@} log=$out/$name/$1.log start=$(date +%s)
    case $program in *-clang) if ! command -v clang >/dev/null && ! command -v clang-14 >/dev/null; then
        echo "SKIP $name, $1: no clang here"
        skipped=$((skipped + 1))
        return 0
    fi ;; esac
    status=0
    ${MAKE:-make} -s -C "$here" OUT="$out/$name" CSRC="$out/$name/csrc" "$out/$name/$program" >"$log" 2>&1 ||
        { echo "FAIL $name, $1: does not build"; tail -n 20 "$log"; failed=$((failed + 1)); return 0; }
    run=$out/$name/$program
    [ "$program" = "$1" ] || run=${1%%@*}@$run
    CHECK_SECONDS=8 STRESS_SECONDS=0 TESTS=$2 sh "$here/run.sh" "$run" >"$log" 2>&1 || status=$?
    seconds=$(($(date +%s) - start))
    if grep -q '^SKIP' "$log"; then
        grep '^SKIP' "$log" | sed "s/^SKIP/SKIP $name,/"
        skipped=$((skipped + 1))
    elif [ $status -ne 0 ] && said=$(grep -m 1 -E -- "$3" "$log"); then
        echo "ok   $name, $1, $seconds s: $(echo "$said" | sed "s,$root/,,g; s/^ *//" | cut -c 1-110)"
        passed=$((passed + 1))
    else
        echo "FAIL $name, $1, $seconds s: not reported; the end of $log:"
        tail -n 15 "$log" | sed 's/^/    | /'
        failed=$((failed + 1))
    fi
}

# The use of a pool is not ordered before its freeing.
control data-race sched/pool.c 's/ap_u64_sub_acq_rel(&pool->refs/ap_u64_sub_relaxed(\&pool->refs/'
finds tsan-gcc pool.close_races 'ThreadSanitizer: data race'
finds tsan-clang pool.close_races 'ThreadSanitizer: data race'

# A worker's ring is too short.
control overflow sched/worker.c 's,ap_ring_size(pool->ring_slots),ap_ring_size(pool->ring_slots / 2),'
finds asan-gcc pool.take_try_empties 'AddressSanitizer: heap-buffer-overflow'
finds asan-clang pool.take_try_empties 'AddressSanitizer: heap-buffer-overflow'

# A block is read after its freeing.
control use-after-free sched/block.c '/ap_block \*next/{h;d}; /ap_memory_free(block);/G'
finds asan-gcc block.recycles 'AddressSanitizer: heap-use-after-free'

# A ring is not aligned as its type says.
control undefined sched/pool.h 's/(void \*)(worker + 1)/(void *)((char *)(worker + 1) + 8)/'
finds asan-gcc pool.take_try_empties 'runtime error: .*misaligned'
finds asan-clang pool.take_try_empties 'runtime error: .*misaligned'

# A pool is freed without its table of workers.
control leak sched/pool.c '/ap_memory_free(pool->workers);/d'
finds asan-gcc pool.outside_work 'LeakSanitizer: detected memory leaks'
finds asan-clang pool.outside_work 'LeakSanitizer: detected memory leaks'

# A worker that found a queue empty clears its mark and does not look again: natively next to never
# seen.
control lost-wake sched/backlog.c '/ap_backlog_unmark(backlog, queue);/{n;d}'
finds stress-gcc "pool.no_wake_is_lost_without pool.no_wake_is_lost_in_a pool.barrier_of_eight" 'out of time'

# A push wakes nobody.
control no-wake sched/idle.h 's/if (AP_UNLIKELY(ap_idle_wants_wake(word)))/if (word == 0)/'
finds pinned@futex-gcc pool.no_wake_is_lost_in_a_large_pool 'out of time'
finds crowd@futex-gcc pool.no_wake_is_lost_in_a_large_pool 'out of time'

# A sleeper does not look at the word under the lock.
control lost-signal sync/wait_condvar.c 's/if (ap_u32_load_relaxed(word) == expected)/if (word != NULL || expected)/'
finds stress-condvar-gcc pool.no_wake_is_lost_in_a 'out of time'

# A return from the futex call is taken for a wake.
control interrupted sched/idle.c 's/while (token == AP_TOKEN_PARKED)/if (token == AP_TOKEN_PARKED)/'
finds faults-gcc pool.no_wake_is_lost_without 'out of time'
finds signal@futex-gcc pool.no_wake_is_lost_without 'out of time'

# A waker reads the word after it has woken.
control late-wake sync/wait_futex.c 's/(void)syscall(SYS_futex, word, FUTEX_WAKE.*/& (void)ap_u32_load_relaxed(word);/'
finds faults-asan-clang wait.waker_does_not 'AddressSanitizer: heap-use-after-free'

# A pool that could not be made, and a push that could not be, leave their memory behind.
control nomem-pool sched/pool.c '/^    if (rc != AP_OK) {/{n;d}'
finds futex-gcc memory.a_pool 'ap_memory_live'
control nomem-push sched/injector.c '/ap__chain_grow(injector, &chain, blocks) != AP_OK/{n;d}'
finds futex-gcc memory.a_push 'test_memory.c:[0-9]*: .*ap_memory_'

printf '%d passed, %d failed' $passed $failed
[ $skipped -eq 0 ] || printf ', %d skipped' $skipped
echo
[ $failed -eq 0 ]
