#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collects a helper process's declarations of system calls: comment lines "NAME-syscalls: call ...".
# usage: gen_helper_syscalls.sh NAME SOURCE... > HEADER
set -eu
name=$1
shift
printf '#define HELPER_SYSCALLS(X)'
sed -n "s,^/\* $name-syscalls: \(.*\) \*/\$,\1,p" "$@" | tr ' ' '\n' | sort -u |
	sed 's/.*/ X(&)/' | tr -d '\n'
echo
