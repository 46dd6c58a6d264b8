"""Head-to-head measurements of affinitypool against the stdlib's thread pool.

Run `make bench`, or `python -m bench --help` where affinitypool is installed.
`docs/benchmarks.md` says how the numbers are made.
"""
