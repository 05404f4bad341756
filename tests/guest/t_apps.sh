#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs that care, on DAX in a stock guest: code run from the share, databases whose writer is
# killed, repositories with several writers.
#   t_apps.sh [OPTION...] [PART...]                   DAXMAPD names the daemon
# Parts (all in one guest but for resets; default: programs sqlite):
#   programs   programs, loader and libraries of the share; mapped by DAX, says the daemon
#   sqlite     kill -9 of the writer, rollback journal and WAL
#   git        clones that commit, merge, push and pack at once; by hand: minutes under TCG
#   resets     hard resets of the machine while SQLite writes; by hand
# Options (in brackets: by hand):
#   --full         all that stands in brackets
#   --kills N      writers killed a journal mode (2) [40]
#   --resets N     (4) [8]
#   --workers N    git clones (2) [4]
#   --commits N    of each (3) [6]
#   --mode MODE    mount option: dax or dax=inode (dax)
# The guest is 6.12, as in t_tree.sh.
# shellcheck source=tests/guest/lib.sh
. "$(dirname "$0")/lib.sh"

kills=2 resets=4 workers=2 commits=3 mode=dax
while (($#)); do
	case $1 in
	--full) kills=40 resets=8 workers=4 commits=6 ;;
	--kills | --resets | --workers | --commits | --mode)
		declare "${1#--}=$2"
		shift
		;;
	--*) echo "t_apps.sh: no option '$1'" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done

case $daemon in virtiofsd-*) skip_all "$daemon has no window" ;; esac
need_daemon
need_cache root qemu-11 kernel-6.12

# apps SCRIPT
apps() {
	local before
	rm -rf "$share"
	mkdir -p "$share"
	start_daemon --cache-size 64M ${DAXMAPD_ARGS:-} || { not_ok "the daemon starts"; return; }
	if [[ $mode == dax ]] && ! maps_every_file; then
		echo "# no size shim on this host: dax=inode stands in for dax=always"
		mode=dax=inode
	fi
	before=$(daemon_state)
	guest "apps, $mode" --socket "$daemon_sock" --share "$share" --device dax --qemu 11 --kernel 6.12 \
		--mount-opts "$mode" --timeout 900 --hook "$guest_dir/hook" \
		--add "$guest_dir/guest/apps_steps.sh" -c ". /kit/steps.sh
		. /kit/apps_steps.sh
		$1
		step_quiet"
	no_counters "apps: no mapping, handle or node is left in the daemon's counters"
	same_state "apps: no fd, thread or mapping is left" "$before"
	stop_daemon apps
}

body() {
	local part script=
	(($#)) || set -- programs sqlite
	for part; do
		case $part in
		programs) script+=$'timed step_programs\n' ;;
		sqlite) script+="timed step_sqlite_kills delete $kills"$'\n'"timed step_sqlite_kills wal $kills"$'\n' ;;
		git) script+="timed step_git_parallel $workers $commits"$'\n' ;;
		resets) script+="step_sqlite_resets $resets || exit 1"$'\n' ;;
		*) not_ok "no such part: $part" ;;
		esac
	done
	apps "$script"
}

tap_main body "$@"
