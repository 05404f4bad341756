#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The host truncates files that a guest has mapped and reads (docs/truncation.md).
#   t_truncate.sh [--rounds N] [CASE...]              DAXMAPD names the daemon; N: 100
# Files have 8 MiB, mapped and touched. Cases:
#   loop     one file, N times: truncated in all ways to lengths of all kinds, and written anew, while
#            the guest reads all of it as fast as it can; 100 times in 2 minutes
# and, to know what kills a VMM where truncations are only noticed (DAXMAPD_ARGS=--dax-hold=off), a file
# a time:
#   before   the guest reads below the new end, as fast as it can, all the time
#   behind   it reads behind the new end, in other ranges, once the daemon has seen to those
#   race     it reads behind the new end, in other ranges, a page every 100 ms, all the time
#   within   it reads behind the new end, in the range of the end, after the truncation
# The VMM must live through all of it; race and within are only counted where nothing is held.
# shellcheck source=tests/guest/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=100
[[ ${1:-} != --rounds ]] || { rounds=$2; shift 2; }
case $daemon in virtiofsd-*) skip_all "$daemon has no window" ;; esac
need_daemon
need_cache root qemu-11 kernel-6.12

# A boot is dear: one guest goes on until its VMM dies; the host's count says where it was.
# shellcheck disable=SC2016 # the guest's
guest_script='
while :; do
	round=$(host cutmake) || break
	/kit/cutread cut/$round $FROM $TO $PACE $AFTER sh -c ". /kit/lib.sh; host $STEP" ||
		echo "# round $round: status $?"
	rm -f cut/*
done'

# truncated CASE MUST FILES FROM TO PACE AFTER STEP...
truncated() {
	local case=$1 must=$2 files=$3 from=$4 to=$5 pace=$6 after=$7 seen deaths=0 rc
	shift 7
	rm -rf "$share"
	mkdir -p "$share/cut"
	start_daemon --cache-size 64M ${DAXMAPD_ARGS:-} || { not_ok "$case: the daemon starts"; return; }
	if ! maps_every_file; then
		skip "$case" "no size shim on this host"
		stop_daemon "$case"
		return
	fi
	if grep -q 'on the host: held until' "$daemon_log"; then must=must; fi
	echo "$files" >"$work/rounds"
	echo 0 >"$work/round"
	: >"$work/saw"
	while seen=$(cat "$work/round") && ((seen < files)); do
		TEST_WORK=$work TEST_CONTROL=$daemon_control "$guest_dir/run" --socket "$daemon_sock" \
			--share "$share" --device dax --qemu 11 --kernel 6.12 --mount-opts dax --timeout 420 \
			--hook "$guest_dir/hook" --add "$work/cutread" --env FROM="$from" --env TO="$to" \
			--env PACE="$pace" --env AFTER="$after" --env STEP="$*" \
			-c "$guest_script" >>"$work/saw" 2>"$work/run.err"
		rc=$?
		((rc != 0)) || continue
		deaths=$((deaths + 1))
		grep -m1 'QEMU' "$work/run.err" | sed 's/^/# /'
		[[ $(cat "$work/round") != "$seen" ]] || { echo "# no progress"; break; }
	done
	awk '/^old/ { o += $2; z += $4; m += $6; x += $8; b += $10 } !/^old/ { print "# " $0 }
		END { print "# reads: old", o + 0, "zeros", z + 0, "mixed", m + 0, "other", x + 0,
			"SIGBUS in the guest", b + 0 }' \
		"$work/saw"
	echo "# $case: $files files, the VMM lived through $((files - deaths))"
	"${daemon%/*}/daxmapctl" stats --json --control-path "$daemon_control" | python3 -c '
import json, sys
print("# the daemon:", json.load(sys.stdin).get("watch", "has no watch"))'
	same "$case: no byte is neither the old one nor zero" "" "$(grep 'other [1-9]' "$work/saw")"
	[[ $must != must ]] || same "$case: deaths of the VMM" 0 "$deaths"
	grep -v 'warning\|info' "$daemon_log" | tail -n 5 | sed 's/^/# /'
	stop_daemon "$case"
}

body() {
	local case m=1048576
	build_guest_program cutread || return
	(($#)) || set -- loop
	for case; do
		case $case in
		loop) truncated loop '' 1 0 $((8 * m)) -1 500 cutloop "$rounds" ;;
		before) truncated before must "$rounds" 0 $((3 * m)) 1 2000 cut $((3 * m)) 0 ;;
		behind) truncated behind must "$rounds" $((4 * m)) $((8 * m)) 0 500 cut $((3 * m)) 2 ;;
		race) truncated race '' "$rounds" $((4 * m)) $((8 * m)) 100000 500 cut $((3 * m)) 2 ;;
		within) truncated within '' "$rounds" $((3 * m)) $((4 * m)) 0 500 cut $((3 * m)) 2 ;;
		*) not_ok "no such case: $case" ;;
		esac
	done
}

tap_main body "$@"
