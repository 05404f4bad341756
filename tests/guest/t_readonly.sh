#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Root of a guest tries to change what must not change: calls, mappings, ptrace, and stores to every
# page of the DAX window behind the kernel's back (guest/breakin.c). The host's bytes decide.
#   t_readonly.sh [PART...]                           DAXMAPD names the daemon
# Parts:
#   files   dax=always; immutable files, and files on a read-only mount (default)
#   share   --readonly
#   nobody  a daemon without privilege, files of another user
# shellcheck source=tests/guest/lib.sh
. "$(dirname "$0")/lib.sh"

# What is mounted here goes with us
if [[ ${T_READONLY_NS:-} != 1 ]] && (($(id -u) == 0)) && unshare -m true 2>/dev/null; then
	T_READONLY_NS=1 exec unshare -m --propagation private "$0" "$@"
fi

case $daemon in virtiofsd-*) skip_all "$daemon has no window" ;; esac
need_daemon
need_cache root qemu-11 kernel-6.1 kernel-6.12

guest_steps='
# window_resource: the file by which the window, as the kernel found it, can be mapped
window_resource() {
	at=$(dmesg | sed -n "s/.*virtiofs.*Cache len: .* @ 0x\([0-9a-f]*\).*/\1/p" | tail -n 1)
	[ -n "$at" ] || return
	for dev in /sys/bus/pci/devices/*; do
		n=$(grep -n "^0x0*$at " "$dev/resource" | cut -d: -f1)
		[ -z "$n" ] || echo "$dev/resource$((n - 1))"
	done
}

# step_breakin MODE LIST: every file of the list (md5sum format)
step_breakin() {
	check "$1: mount" remount_share "$1" || return
	mount -o remount,rw "$MNT" 2>&1 | sed "s/^/# remount,rw: /"
	while read -r sum name; do
		echo "# $1, $name: $(/kit/treeio dax "${name%/*}")"
		/kit/breakin "$name" $(window_resource)
		same "$1: the host has its bytes of $name" "$sum" "$(host md5 "$name")"
	done <"$2"
}
'

# breakin NAME KERNEL MODES DAEMON-ARG...: into all files of $work/SUMS, in each mode
breakin() {
	local name=$1 kernel=$2 modes=$3
	shift 3
	chmod 755 "$work"
	start_daemon --cache-size 64M "$@" ${DAXMAPD_ARGS:-} || { not_ok "$name: the daemon starts"; return; }
	if [[ $modes == *'dax '* || $modes == dax ]] && ! maps_every_file; then
		echo "# no size shim on this host: dax=inode only"
		modes=dax=inode
	fi
	guest "$name" --socket "$daemon_sock" --share "$share" --device dax --qemu 11 --kernel "$kernel" \
		--mount-opts "${modes##* }" --timeout 300 --append iomem=relaxed --hook "$guest_dir/hook" --add "$work/SUMS" \
		--add "$work/breakin" --add "$work/treeio" -c ". /kit/steps.sh
		$guest_steps
		for mode in $modes; do
			step_breakin \$mode /kit/SUMS
		done"
	stop_daemon "$name"
	check "$name: no byte of the host has changed" sums_hold "$work/SUMS"
}

fresh_files() {
	chattr -i "$share"/*/* 2>/dev/null
	rm -rf "$share"
	mkdir -p "$share"
	local f
	for f; do
		random_file "$f" 4M
		random_file "${f}-odd" 300001
		chmod 444 "$share/$f"*
	done
}

sums_of() { (cd "$share" && md5sum "$@") >"$work/SUMS"; }

files() {
	fresh_files immutable/a mount/b
	if ! chattr +i "$share"/immutable/* 2>/dev/null; then
		skip "files: immutable" "no such attribute here"
		rm -rf "$share/immutable"
	fi
	if ! { mount --bind "$share/mount" "$share/mount" &&
		mount -o remount,bind,ro "$share/mount"; } 2>/dev/null; then
		skip "files: on a read-only mount" "cannot mount here"
		rm -rf "$share/mount"
	fi
	# shellcheck disable=SC2046 # names
	sums_of $(cd "$share" && ls -d */*)
	breakin files 6.1 'dax dax=inode'
	umount "$share/mount" 2>/dev/null
	chattr -i "$share"/*/* 2>/dev/null
}

share() {
	fresh_files data/a
	chmod 666 "$share"/data/*
	sums_of data/a data/a-odd
	breakin share 6.12 dax=inode --readonly
}

nobody() {
	fresh_files theirs/a
	mkdir "$share/ours"
	random_file ours/b 4M
	chown -R 65534:65534 "$work"
	chown -R 0:0 "$share/theirs"
	sums_of theirs/a theirs/a-odd
	daemon_prefix=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all
		--bounding-set=-all --no-new-privs)
	breakin nobody 6.12 dax=inode --sandbox none
	daemon_prefix=()
}

body() {
	local part
	build_guest_program breakin && build_guest_program treeio || return
	(($#)) || set -- files
	for part; do
		case $part in
		files | share | nobody) "$part" ;;
		*) not_ok "no such part: $part" ;;
		esac
	done
}

tap_main body "$@"
