#!/bin/sh
# Runs a command with its output on the screen and in a log; the exit status is the command's.
#
#   logged.sh LOG COMMAND [ARGUMENT...]
set -u
log=$1
shift
mkdir -p "$(dirname "$log")"
[ ! -t 1 ] || export FORCE_COLOR=1
{ "$@" 2>&1; echo $? >"$log.status.$$"; } | tee "$log"
status=$(cat "$log.status.$$")
rm -f "$log.status.$$"
exit "$status"
