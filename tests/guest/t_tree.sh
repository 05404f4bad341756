#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A tree of files of all sizes, larger than the window, stays right in a stock guest with DAX:
# by read and through mappings, changed by the guest and by the host.
#   t_tree.sh [OPTION...] [PART...]                   DAXMAPD names the daemon
# Parts:
#   both    dax=always, then dax=inode, one guest (default)
#   always  dax=always, --cache=auto
#   inode   dax=inode, --cache=auto
#   never   dax=always, --cache=never: each file is mapped anew each time
#   noshim  dax=inode with --dax-shim=off; dax=always is refused
#   nobody  the same with a daemon that has no privilege at all
# Options (in brackets: the full size, by hand):
#   --full        all that stands in brackets
#   --files N     files (100) [2000]
#   --max N       MiB of the largest (6) [64]
#   --total N     MiB of all, at most (32) [650]
#   --changes N   changes by each side (50) [400]
#   --window S    (8M) [64M]
#   --seed N      (random)
# The guest is 6.12: Debian's 6.1 waits for itself when a mapped file that has no name is closed
# (docs/vmm-facts.md).
# shellcheck source=tests/guest/lib.sh
. "$(dirname "$0")/lib.sh"

files=100 max=6 total=32 changes=50 window=8M seed=$RANDOM
while (($#)); do
	case $1 in
	--full) files=2000 max=64 total=650 changes=400 window=64M ;;
	--files | --max | --total | --changes | --window | --seed)
		declare "${1#--}=$2"
		shift
		;;
	--*) echo "t_tree.sh: no option '$1'" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done

case $daemon in virtiofsd-*) skip_all "$daemon has no window" ;; esac
need_daemon
need_cache root qemu-11 kernel-6.12

make_tree() {
	rm -rf "$share" "$work/copy" "$work/out"
	mkdir -p "$share/tree" "$work/out"
	chmod 755 "$work" "$share"
	echo "# seed $seed: $("$work/treeio" make "$share/tree" "$files" "$max" "$total" "$seed")"
	cp -r "$share/tree" "$work/copy"
}

# tree CACHE MODES MORE DAEMON-ARG...: in one guest, all steps in each mode, then MORE
tree() {
	local cache=$1 modes=$2 more=$3 name before
	shift 3
	name="tree, $modes, $*"
	make_tree
	[[ -z ${owner:-} ]] || chown -R "$owner" "$share" "$work"
	# shellcheck disable=SC2086 # a list of words
	start_daemon --cache-size "$window" --cache "$cache" --allow-mmap "$@" ${DAXMAPD_ARGS:-} ||
		{ not_ok "$name: the daemon starts"; return; }
	before=$(daemon_state)
	guest "$name" --socket "$daemon_sock" --share "$share" --out "$work/out" --device dax \
		--qemu 11 --kernel 6.12 --mount-opts "${modes##* }" --timeout 900 \
		--hook "$guest_dir/hook" --env TREE_CACHE="$cache" --add "$work/treeio" \
		--add "$guest_dir/guest/tree_steps.sh" -c "
		. /kit/steps.sh
		. /kit/tree_steps.sh
		seed=$seed
		for mode in $modes; do
			step_tree \$mode \$seed $changes
			seed=\$((seed + 10))
		done
		$more
		step_quiet"
	grep -i 'not mapped\|refused\|error' "$daemon_log" | tail -n 5 | sed 's/^/# /'
	no_counters "$name: no mapping, handle or node is left in the daemon's counters"
	same_state "$name: no fd, thread or mapping is left" "$before"
	stop_daemon "$name"
}


# Whether dax=always is accepted here
has_shim() {
	make_tree >/dev/null
	start_daemon --cache-size 2M >/dev/null || return
	maps_every_file
	local rc=$?
	stop_daemon probe >/dev/null
	return $rc
}

always_modes() {
	if has_shim; then
		echo "$1"
	else
		echo "$2"
	fi
}

refused() {
	check "$1: the daemon's log says why" grep -q 'dax=always.*mount refused' "$daemon_log"
}

nobody() {
	local owner=65534:65534
	daemon_prefix=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all
		--bounding-set=-all --no-new-privs)
	tree auto dax=inode step_tree_refused --sandbox none
	refused nobody
	daemon_prefix=()
}

body() {
	local part
	build_guestio && build_guest_program treeio || return
	(($#)) || set -- both
	for part; do
		case $part in
		both) tree auto "$(always_modes 'dax dax=inode' dax=inode)" : ;;
		always) tree auto "$(always_modes dax dax=inode)" : ;;
		never) tree never "$(always_modes dax dax=inode)" : ;;
		inode) tree auto dax=inode : ;;
		noshim) tree auto dax=inode step_tree_refused --dax-shim off && refused noshim ;;
		nobody) nobody ;;
		*) not_ok "no such part: $part" ;;
		esac
	done
}

tap_main body "$@"
