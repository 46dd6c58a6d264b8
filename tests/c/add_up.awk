# Shows what programs say, and adds up their last lines; fails if a test has failed.  A line `begin`
# stands for each program, and what came to no end is a failure.
/^begin$/ { begun++; next }
/^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3; skipped += $5; ended++; next }
{ print; fflush() }
END {
    if (begun > ended) failed += begun - ended
    printf "%d passed, %d failed", passed, failed
    print skipped ? ", " skipped " skipped" : ""
    exit failed > 0
}
