#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collects the helper's declarations of system calls: comment lines "shim-syscalls: name ...".
# usage: gen_shim_syscalls.sh SOURCE... > HEADER
set -eu
printf '#define SHIM_SYSCALLS(X)'
sed -n 's,^/\* shim-syscalls: \(.*\) \*/$,\1,p' "$@" | tr ' ' '\n' | sort -u |
	sed 's/.*/ X(&)/' | tr -d '\n'
echo
