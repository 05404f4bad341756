# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Host side of the guest tests: TAP, a work folder, a daemon to attach to, counts from /proc.
# A test sources this, writes its body as a function and ends with `tap_main FUNCTION`.
set -uo pipefail

guest_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$guest_dir/../.." && pwd)
daemon=${DAXMAPD:-$top/build/daxmapd}

# --- TAP ----------------------------------------------------------------------------------

# Numbers the "ok - ..." lines of its input, makes diagnostics of the rest, ends with the plan
tap_number() {
	local line n=0 bad=0
	while IFS= read -r line || [[ $line ]]; do
		case $line in
		'ok - '*) echo "ok $((++n)) ${line#ok }" ;;
		'not ok - '*) echo "not ok $((++n)) ${line#not ok }"; bad=1 ;;
		'Bail out!'*) echo "$line" ;;
		'#'*) echo "$line" ;;
		*) echo "# $line" ;;
		esac
	done
	echo "1..$n"
	((!bad && n))
}

tap_main() {
	trap cleanup EXIT
	trap 'exit 143' TERM INT HUP
	mkwork
	"$@" 2>&1 | tap_number
}

ok() { echo "ok - $*"; }
not_ok() { echo "not ok - $*"; }
skip() { echo "ok - $1 # SKIP $2"; }

# check NAME CMD...: CMD succeeds; its output becomes diagnostics if not
check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then
		ok "$name"
	else
		echo "# status $? of: $*"
		# shellcheck disable=SC2001 # a line each
		sed 's/^/# /' <<<"$out"
		not_ok "$name"
		return 1
	fi
}

# same NAME EXPECTED GOT
same() {
	if [[ $2 == "$3" ]]; then
		ok "$1"
	else
		printf '# expected: %s\n# got:      %s\n' "$2" "$3"
		not_ok "$1"
		return 1
	fi
}

skip_all() {
	echo "1..0 # SKIP $*"
	exit 0
}

# need_cache PART...: the cache has these, or the test is skipped (under CI: fails)
need_cache() {
	local why
	why=$("$guest_dir/fetch" "$@" 2>&1) && return
	if [[ ${CI:-} == true ]]; then
		echo "$why" | sed 's/^/# /'
		echo 'Bail out! the guest kit cannot be fetched'
		exit 1
	fi
	skip_all "the guest kit cannot be fetched: ${why##*$'\n'}"
}

# need_daemon: the daemon under test is there, or the test is skipped (under CI: fails)
need_daemon() {
	case $daemon in
	virtiofsd-rust | virtiofsd-c) return ;;
	esac
	[[ -x $daemon ]] && return
	[[ ${CI:-} != true ]] || { echo "Bail out! no daemon at $daemon"; exit 1; }
	skip_all "no daemon at $daemon (set DAXMAPD)"
}

# --- work folder and ends -----------------------------------------------------------------

mkwork() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/daxmapd-test.XXXXXX")
	share=$work/share
	mkdir "$share"
	: >"$work/pids"
}

cleanup() {
	local p
	[[ -n ${work:-} ]] || return 0
	# Process groups of our own; kept in a file, since the body runs in a subshell
	while read -r p; do
		kill -TERM -- "-$p" 2>/dev/null && wait_until 5 gone "$p"
		kill -KILL -- "-$p" 2>/dev/null
	done <"$work/pids"
	rm -rf "$work"
}

# ended PID: a child of ours that is gone or waits to be collected
ended() { gone "$1" || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

gone() { ! kill -0 "$1" 2>/dev/null; }

# wait_until SECONDS CMD...: true as soon as CMD is, false when the time is over
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS <= end)) || return 1
		sleep 0.1
	done
}

# --- guests -------------------------------------------------------------------------------

# guest NAME ARG...: a run of the kit; its script's TAP lines join ours, and so does a result
# for how it ended
guest() {
	local name=$1 rc
	shift
	echo "# $name: run $(tr -s '\n\t' ' ' <<<"$*" | cut -c1-300)"
	TEST_WORK=$work TEST_DAEMON_PID=${daemon_pid:-} TEST_CONTROL=${daemon_control:-} "$guest_dir/run" --add "$guest_dir/guest/steps.sh" "$@" 2>"$work/run.err"
	rc=$?
	if ((rc == 0)); then
		ok "$name: guest, VMM and daemon end well"
	else
		tail -n 60 "$work/run.err" | sed 's/^/# /'
		not_ok "$name: guest, VMM and daemon end well (status $rc)"
	fi
	return $rc
}

# --- the daemon under test ----------------------------------------------------------------

# start_daemon ARG...: a persistent daemon on $share; sets daemon_pid and daemon_sock. The words
# of daemon_prefix, if any, go before its command.
daemon_prefix=()
start_daemon() {
	daemon_sock=$work/daemon.sock
	daemon_log=$work/daemon.log
	daemon_control=$work/control.sock
	rm -f "$daemon_sock" "$daemon_control"
	setsid "${daemon_prefix[@]}" "$daemon" --socket-path "$daemon_sock" --shared-dir "$share" --tag kit --persistent \
		--control-path "$daemon_control" "$@" >>"$daemon_log" 2>&1 &
	daemon_pid=$!
	echo "$daemon_pid" >>"$work/pids"
	wait_until 10 test -S "$daemon_sock" && return
	tail -n 20 "$daemon_log" | sed 's/^/# /'
	return 1
}

# stop_daemon NAME: it lives, takes SIGTERM, and ends with status 0
stop_daemon() {
	local status
	if ! kill -TERM "$daemon_pid" 2>/dev/null; then
		wait "$daemon_pid"
		echo "# the daemon had ended with status $?"
		tail -n 30 "$daemon_log" | sed 's/^/# /'
		not_ok "$1: the daemon lives"
		return
	fi
	wait_until 10 ended "$daemon_pid" || kill -KILL -- "-$daemon_pid"
	wait "$daemon_pid"
	status=$?
	same "$1: the daemon's status after SIGTERM" 0 $status ||
		tail -n 30 "$daemon_log" | sed 's/^/# /'
}

# The daemon and the processes that it has started (sandbox, helpers)
daemon_pids() {
	local todo=("$daemon_pid") p
	while ((${#todo[@]})); do
		p=${todo[0]}
		todo=("${todo[@]:1}")
		[[ -d /proc/$p ]] || continue
		echo "$p"
		# shellcheck disable=SC2207 # words
		todo+=($(cat /proc/"$p"/task/*/children 2>/dev/null))
	done
}

# daemon_state: "fds N threads N mappings N", mappings being those of guest memory and of the share
daemon_state() {
	local p fds=0 threads=0 maps=0
	for p in $(daemon_pids); do
		fds=$((fds + $(find "/proc/$p/fd" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)))
		threads=$((threads + $(find "/proc/$p/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)))
		maps=$((maps + $(grep -c -e '/memfd:' -e " $share/" -e '(deleted)' "/proc/$p/maps" 2>/dev/null)))
	done
	echo "fds $fds threads $threads mappings $maps"
}

# daemon_counters: what the daemon says of itself: "mappings N handles N nodes N"
daemon_counters() {
	"${daemon%/*}/daxmapctl" stats --json --control-path "$daemon_control" | python3 -c '
import json, sys
s = json.load(sys.stdin)
print("mappings", len(s["mappings"]), "handles", s["fs"]["handles"], "nodes", s["fs"]["nodes"])'
}

# no_counters NAME: nothing of a guest is left in them (but the root folder may stay known)
counters_idle() { [[ $(daemon_counters) =~ ^mappings\ 0\ handles\ 0\ nodes\ [01]$ ]]; }

no_counters() {
	if wait_until 10 counters_idle; then
		ok "$1"
	else
		same "$1" "mappings 0 handles 0 nodes 1" "$(daemon_counters 2>&1)"
	fi
}

state_is() { [[ $(daemon_state) == "$1" ]]; }

# back_at STATE: as then, but for the one thread that GLib keeps for starting pool threads
back_at() {
	local now threads
	now=$(daemon_state)
	threads=$(awk '{ print $4 }' <<<"$1")
	[[ $now == "$1" || $now == "${1/threads $threads/threads $((threads + 1))}" ]]
}

# same_state NAME STATE: the daemon comes back to it. GLib's idle pool threads live 15 s.
same_state() {
	if wait_until 25 back_at "$2"; then
		ok "$1"
		return
	fi
	local p
	for p in $(daemon_pids); do
		find "/proc/$p/fd" -type l -printf "# $p fd %f %l\n" 2>/dev/null
		grep -H . "/proc/$p"/task/*/comm | sed 's/^/# /'
	done
	same "$1" "$2" "$(daemon_state)"
}

# Only with the size shim (Linux 6.9 or newer, CAP_SYS_ADMIN) is a guest's dax=always accepted
maps_every_file() {
	"${daemon%/*}/daxmapctl" stats --json --control-path "$daemon_control" | python3 -c '
import json, sys
sys.exit(not json.load(sys.stdin).get("shim", {}).get("active"))'
}

# build_guest_program NAME: of guest/NAME.c, static, in the work folder
build_guest_program() {
	check "$1 builds" cc -std=gnu11 -D_GNU_SOURCE -O2 -static -o "$work/$1" \
		"$guest_dir/guest/$1.c" -lm
}

build_guestio() { build_guest_program guestio; }

# --- test data ----------------------------------------------------------------------------

# random_file NAME SIZE: a file of the share with bytes that repeat nowhere, quickly made
random_file() {
	mkdir -p "$(dirname "$share/$1")"
	head -c "$2" /dev/urandom >"$share/$1"
}

# md5_list DIR: md5 and name of every file there, in a fixed order
md5_list() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r md5sum); }

# sums_hold LIST...: the files of the share still have these md5s
sums_hold() { cat "$@" | (cd "$share" && md5sum --check --quiet -); }
