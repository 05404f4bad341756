#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A stock guest that maps files through a DAX window on QEMU 11.
#   t_dax.sh [64M | 512M | 1G | inode | budget]...    DAXMAPD names the daemon
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
	truncate -s 1536M "$share/sparse"
	(cd "$share" && md5sum data/*) >"$work/MD5SUMS"
	(cd "$share" && md5sum odd/*) >"$work/ODDSUMS"
}

# window SIZE KERNEL MOUNT-OPTS SCRIPT [DAEMON-ARG...]: a fresh daemon, a guest, and nothing left after it
window() {
	local size=$1 kernel=$2 opts=$3 script=$4 before
	shift 4
	# shellcheck disable=SC2086 # a list of words
	start_daemon --cache-size "$size" "$@" ${DAXMAPD_ARGS:-} ||
		{ not_ok "window $size: the daemon starts"; return; }
	if [[ $opts == dax ]] && ! maps_every_file; then
		echo "# no size shim on this host: dax=inode stands in for dax=always"
		opts=dax=inode
	fi
	before=$(daemon_state)
	echo "# daemon before: $before"
	guest "window $size $*" --socket "$daemon_sock" --share "$share" --device dax --qemu 11 \
		--kernel "$kernel" --mount-opts "$opts" --timeout 700 --hook "$guest_dir/hook" \
		--add "$work/MD5SUMS" --add "$work/ODDSUMS" --add "$work/guestio" --add "$work/cutread" -c ". /kit/steps.sh
		$script"
	echo "# daemon after: $(daemon_state)"
	no_counters "window $size $*: no mapping, handle or node is left in the daemon's counters"
	same_state "window $size $*: no fd, thread or mapping is left" "$before"
	! declare -F "${then:-}" >/dev/null || "$then"
	stop_daemon "window $size $*"
	check "window $size $*: the host's data is as it was" sums_hold "$work/MD5SUMS" "$work/ODDSUMS"
}

small_window() {
	window 64M 6.1 dax '
		step_reset data/a* data/c* || exit 1
		step_window 64
		timed step_md5 /kit/MD5SUMS
		timed step_readers 4 /kit/MD5SUMS
		timed step_odd /kit/ODDSUMS
		timed step_fio_all 4 2M
		timed step_coherence coherent
		timed step_coherence_dax coherent
		check "the daemon counts a mapping for each 2 MiB" /kit/guestio hold data/b-6M -- \
			sh -c "$host_step" - mapped 3
		check "files stay mapped over stop and cont" /kit/guestio hold data/c-32M -- \
			sh -c ". /kit/lib.sh; host settled && host pause"
		timed step_remount /kit/MD5SUMS
		step_quiet' --dax always
}

middle_window() {
	window 512M 6.12 dax '
		step_window 512
		timed step_touch touch sparse 768
		timed step_touch pread sparse 768
		timed step_md5 /kit/MD5SUMS
		timed step_fio randwrite psync 4 4M
		timed step_fio randrw mmap 4 4M
		timed step_coherence coherent
		timed step_coherence_dax coherent
		timed step_truncate 10
		check "mount with dax=inode" remount_share dax=inode
		timed step_md5 /kit/MD5SUMS dax=inode
		timed step_md5 /kit/ODDSUMS dax=inode
		timed step_basics
		timed step_sqlite
		timed step_fio randwrite psync 4 2M
		check "mount without dax" remount_share ""
		timed step_md5 /kit/ODDSUMS "no dax"
		timed step_fio randwrite mmap 4 2M
		step_quiet' --dax always
}

# A second guest on the same daemon leaves it as the first did, to the thread
next_guest() {
	local before
	before=$(daemon_state)
	guest "the next guest of a daemon" --socket "$daemon_sock" --share "$share" --device dax \
		--mount-opts dax=inode --timeout 300 --add "$work/MD5SUMS" -c '
		. /kit/steps.sh
		step_md5 /kit/MD5SUMS "next guest"'
	check "it leaves the daemon as its predecessor did" wait_until 25 state_is "$before"
}

# Guest and daemon choose file by file; a guest that wants every file mapped is served right or refused
inode_window() {
	local then=next_guest
	window 64M 6.12 dax=inode '
		step_window 64 dax=inode
		timed step_md5 /kit/MD5SUMS
		timed step_md5 /kit/ODDSUMS
		check "the daemon counts a mapping for each 2 MiB" /kit/guestio hold data/b-6M -- \
			sh -c "$host_step" - mapped 3
		check umount umount_share
		if mount_share dax && ls "$MNT" >/dev/null 2>&1; then
			cd "$MNT"
			timed step_md5 /kit/ODDSUMS "dax=always"
		else
			skip "mount with dax=always" "refused"
		fi
		cd /
		check "mount without an option" sh -c ". /kit/lib.sh; umount_share 2>/dev/null; mount_share \"\""
		cd "$MNT"
		timed step_md5 /kit/ODDSUMS "no option"
		step_quiet' --dax inode
}

big_window() {
	random_file big 1536M
	(cd "$share" && md5sum big) >>"$work/MD5SUMS"
	window 1G 6.1 dax '
		step_reset data/e-* || exit 1
		step_window 1024
		timed step_touch touch sparse 768 480
		timed step_touch pread sparse 768 480
		echo 3 >/proc/sys/vm/drop_caches # or what is left under the budget is too little
		timed step_md5 /kit/MD5SUMS
		timed step_fio randrw libaio 4 4M
		timed step_touch touch sparse 768 480
		step_quiet' --dax always
	sed -i '/ big$/d' "$work/MD5SUMS"
	rm -f "$share/big"
}

# A guest may ask for 256 mappings, and does; the daemon grants 64
budget() {
	window 512M 6.12 dax '
		step_window 512
		timed step_budget sparse 768 64
		grep -v 300M /kit/MD5SUMS >/tmp/fitting
		timed step_md5 /tmp/fitting "after the budget was used up"
		step_quiet' --dax always --max-mappings 64
}

body() {
	local what
	build_guestio || return
	build_guest_program cutread || return
	make_share
	(($#)) || set -- 64M 512M 1G inode budget
	for what; do
		case $what in
		64M) small_window ;;
		512M) middle_window ;;
		1G) big_window ;;
		inode) inode_window ;;
		budget) budget ;;
		*) not_ok "no such part: $what" ;;
		esac
	done
}

tap_main body "$@"
