"""`python tests/cpython`: see README.md."""

import sys

from cpython_suite.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
