#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A stock guest on vhost-user-fs-pci, without a window: QEMU 11 and Debian 12's own 7.2.
#   t_fs.sh [11 | 7.2]...    DAXMAPD names the daemon (or virtiofsd-rust, virtiofsd-c)
# shellcheck source=tests/guest/lib.sh
. "$(dirname "$0")/lib.sh"

need_daemon
need_cache

# The peers have one request queue, and lose names of a listing when they run out of descriptors
case $daemon in virtiofsd-*) queues=1 files=15000 ;; *) queues=2 files=20000 ;; esac

make_share() {
	rm -rf "$share"
	mkdir -p "$share/data" "$share/many" && : >"$share/data/empty"
	random_file data/one 1
	random_file data/page 4096
	random_file data/odd 5000
	random_file data/two-mib 2M
	random_file data/over 2097153
	random_file data/large 150M
	truncate -s 4M "$share/coherent"
	(
		cd "$share/many" || exit
		mkdir $(seq 0 39)
		seq 0 $((files - 1)) | awk '{ print $1 % 40 "/a-name-of-usual-length-" $1 }' | xargs touch
	)
	(cd "$share" && md5sum data/*) >"$work/MD5SUMS"
	listing=$(cd "$share" && find many -type f | LC_ALL=C sort | md5sum | cut -d' ' -f1)
}

# everything QEMU KERNEL QUEUES DAEMON-OPTION...
everything() {
	local qemu=$1 kernel=$2 queues=$3
	shift 3
	guest "QEMU $qemu, kernel $kernel" "$@" --qemu "$qemu" --kernel "$kernel" \
		--queues "$queues" --device fs --share "$share" --timeout 700 \
		--add "$work/MD5SUMS" --add "$work/guestio" --hook "$guest_dir/hook" -c "
		. /kit/steps.sh
		step_reset data/[!e]* || exit 1
		timed step_md5 /kit/MD5SUMS
		timed step_basics
		timed step_fio_all 4 1M
		timed step_coherence coherent
		timed step_git
		timed step_tar
		timed step_storm 4 150
		timed step_make 12 16
		timed step_sqlite
		timed step_find many $files $listing
		check 'stop and cont' host pause
		timed step_remount /kit/MD5SUMS
		step_quiet
	"
	check "QEMU $qemu: the host's data is as it was" sums_hold "$work/MD5SUMS"
	same "QEMU $qemu: nothing is left in the share" "coherent data fio many" \
		"$(find "$share" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs)"
}

# A daemon that the run starts, which leaves with its guest
own_daemon() {
	make_share
	everything "$@" --daemon "$daemon" --daemon-args "${DAXMAPD_ARGS:-}"
}

# A daemon that stays, and keeps nothing of its guest
lasting_daemon() {
	local before
	case $daemon in virtiofsd-*) own_daemon "$@"; return ;; esac
	make_share
	# shellcheck disable=SC2086 # a list of words
	start_daemon --num-request-queues "$queues" ${DAXMAPD_ARGS:-} ||
		{ not_ok "the daemon starts"; return; }
	before=$(daemon_state)
	echo "# daemon before: $before"
	everything "$@" --socket "$daemon_sock"
	no_counters "QEMU $1: no handle or node is left in the daemon's counters"
	same_state "QEMU $1: no fd, thread or mapping is left" "$before"
	stop_daemon "QEMU $1"
}

body() {
	local qemu
	build_guestio || return
	(($#)) || set -- 11 7.2
	for qemu; do
		case $qemu in
		11) lasting_daemon 11 6.12 "$queues" ;;
		7.2) own_daemon 7.2 6.1 1 ;;
		*) not_ok "no such QEMU: $qemu" ;;
		esac
	done
}

tap_main body "$@"
