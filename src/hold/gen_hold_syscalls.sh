#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collects the guard's declarations of system calls: comment lines "hold-syscalls: name ...".
# usage: gen_hold_syscalls.sh SOURCE... > HEADER
set -eu
printf '#define HOLD_SYSCALLS(X)'
sed -n 's,^/\* hold-syscalls: \(.*\) \*/$,\1,p' "$@" | tr ' ' '\n' | sort -u |
	sed 's/.*/ X(&)/' | tr -d '\n'
echo
