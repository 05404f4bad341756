#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A stock guest that maps files through a DAX window on QEMU 11.
#   t_dax.sh [64M | 512M | 1G | budget]...    DAXMAPD names the daemon
# shellcheck source=tests/guest/lib.sh
. "$(dirname "$0")/lib.sh"

case $daemon in virtiofsd-*) skip_all "$daemon has no window" ;; esac
need_daemon
need_cache root qemu-11 kernel-6.1 kernel-6.12

make_share() {
	rm -rf "$share"
	mkdir -p "$share/data" "$share/odd"
	: >"$share/data/empty"
	random_file data/a-2M 2M
	random_file data/b-6M 6M
	random_file data/c-32M 32M
	random_file data/d-64M 64M
	random_file data/e-300M 300M
	random_file odd/one 1
	random_file odd/pages 8192
	random_file odd/5000 5000
	random_file odd/over 2097153
	truncate -s 4M "$share/coherent"
	(cd "$share" && md5sum data/*) >"$work/MD5SUMS"
	(cd "$share" && md5sum odd/*) >"$work/ODDSUMS"
}

# window SIZE KERNEL SCRIPT [DAEMON-ARG...]: a fresh daemon, a guest, and nothing left after it
window() {
	local size=$1 kernel=$2 script=$3 before
	shift 3
	# shellcheck disable=SC2086 # a list of words
	start_daemon --cache-size "$size" "$@" ${DAXMAPD_ARGS:-} ||
		{ not_ok "window $size: the daemon starts"; return; }
	before=$(daemon_state)
	echo "# daemon before: $before"
	guest "window $size $*" --socket "$daemon_sock" --share "$share" --device dax --qemu 11 \
		--kernel "$kernel" --mount-opts dax --timeout 300 --hook "$guest_dir/hook" \
		--add "$work/MD5SUMS" --add "$work/ODDSUMS" --add "$work/guestio" -c ". /kit/steps.sh
		$script"
	same_state "window $size $*: no fd, thread or mapping is left" "$before"
	stop_daemon "window $size $*"
	check "window $size $*: the host's data is as it was" sums_hold "$work/MD5SUMS" "$work/ODDSUMS"
}

small_window() {
	window 64M 6.1 '
		step_reset data/a* data/c* || exit 1
		step_window 64
		timed step_md5 /kit/MD5SUMS
		timed step_readers 4 /kit/MD5SUMS
		timed step_odd /kit/ODDSUMS
		timed step_fio_all 4 2M
		timed step_coherence coherent
		timed step_coherence_dax coherent
		check "files stay mapped over stop and cont" /kit/guestio hold data/c-32M -- \
			sh -c "$host_step" - pause
		timed step_remount /kit/MD5SUMS
		step_quiet'
}

middle_window() {
	window 512M 6.12 '
		step_window 512
		timed step_md5 /kit/MD5SUMS
		timed step_fio randwrite psync 4 4M
		timed step_fio randrw mmap 4 4M
		timed step_coherence coherent
		timed step_coherence_dax coherent
		check "mount with dax=inode" remount_share dax=inode
		timed step_md5 /kit/MD5SUMS dax=inode
		timed step_md5 /kit/ODDSUMS dax=inode
		timed step_basics
		timed step_sqlite
		timed step_fio randwrite psync 4 2M
		check "mount without dax" remount_share ""
		timed step_md5 /kit/ODDSUMS "no dax"
		timed step_fio randwrite mmap 4 2M
		step_quiet'
}

big_window() {
	random_file big 1536M
	truncate -s 1536M "$share/sparse"
	(cd "$share" && md5sum big) >>"$work/MD5SUMS"
	window 1G 6.1 '
		step_reset data/e-* || exit 1
		step_window 1024
		timed step_touch touch sparse 768
		timed step_touch pread sparse 768
		timed step_md5 /kit/MD5SUMS
		timed step_fio randrw libaio 4 4M
		timed step_touch touch sparse 768
		step_quiet'
	sed -i '/ big$/d' "$work/MD5SUMS"
	rm -f "$share/big" "$share/sparse"
}

# A guest may ask for 256 mappings, and does for 128; the daemon grants 64
budget() {
	truncate -s 256M "$share/sparse"
	window 512M 6.12 '
		step_window 512
		timed step_budget sparse 128 64
		timed step_md5 /kit/MD5SUMS "after the budget was used up"
		step_quiet' --max-mappings 64
	rm -f "$share/sparse"
}

body() {
	local what
	build_guestio || return
	make_share
	(($#)) || set -- 64M 512M 1G budget
	for what; do
		case $what in
		64M) small_window ;;
		512M) middle_window ;;
		1G) big_window ;;
		budget) budget ;;
		*) not_ok "no such part: $what" ;;
		esac
	done
}

tap_main body "$@"
