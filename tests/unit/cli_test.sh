#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# daxmapd and daxmapctl as programs: statuses, messages, sockets, signals, every sandbox.
set -uo pipefail

# LeakSanitizer stops the world with calls that no daemon may make: under --seccomp=kill it would
# spin for ever. Leaks are looked for where the daemon runs without the list (suite raw).
export ASAN_OPTIONS=detect_leaks=0

work=$(mktemp -d)
started=()
cleanup() {
	((${#started[@]})) && kill -9 "${started[@]}" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
chmod 755 "$work"
mkdir "$work/share"
n=0 bad=0

ok() { echo "ok $((++n)) - $1"; }
not_ok() { echo "not ok $((++n)) - $1"; bad=1; sed 's/^/# /' "$work/out" 2>/dev/null; }
skip() { echo "ok $((++n)) - $1 # SKIP $2"; }

# is NAME STATUS WORD CMD...: CMD ends with STATUS and says WORD
is() {
	local name=$1 status=$2 word=$3 got
	shift 3
	timeout 20 "$@" >"$work/out" 2>&1 </dev/null
	got=$?
	if [[ $got == "$status" ]] && grep -qF -- "$word" "$work/out"; then
		ok "$name"
	else
		echo "# status $got, expected $status and \"$word\""
		not_ok "$name"
	fi
}

# wait_for CMD...: until CMD succeeds; the test's own timeout ends it otherwise
wait_for() { until "$@" 2>/dev/null; do sleep 0.05; done; }

serve() {
	"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" --control-path "$work/c" "$@" \
		>"$work/out" 2>&1 </dev/null &
	pid=$!
	started+=("$pid")
}

answers() { "$DAXMAPCTL" stats --json --control-path "$work/c" >"$work/stats" 2>&1; }

up() { wait_for answers_or_dead; kill -0 "$pid" 2>/dev/null; }
answers_or_dead() { answers || ! kill -0 "$pid" 2>/dev/null; }

ends_with() { # NAME STATUS
	wait "$pid"
	local got=$?
	if [[ $got == "$2" ]]; then ok "$1"; else echo "# status $got, expected $2"; not_ok "$1"; fi
}

gone() { # NAME
	if [[ -e $work/s || -e $work/c || -e $work/s.lock || -e $work/c.lock ]]; then not_ok "$1"; else ok "$1"; fi
}

is "--help" 0 "--cache-size=SIZE" "$DAXMAPD" --help
is "--version" 0 "daxmapd 0" "$DAXMAPD" --version
is "--print-capabilities" 0 '"type": "fs"' "$DAXMAPD" --print-capabilities
is "an unknown option" 2 "--nonsense" "$DAXMAPD" --nonsense
is "a bad value" 2 '--cache-size: "3M" is not allowed' "$DAXMAPD" --cache-size 3M
is "no share" 2 "--shared-dir is required" "$DAXMAPD" --socket-path "$work/s"
is "a share that is not there" 2 "--shared-dir" \
	"$DAXMAPD" --shared-dir "$work/none" --socket-path "$work/s"
gone "what was made before the error is removed"
is "a socket where none can be" 1 "cannot make the lock file" \
	"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/none/s"
is "an --fd that is none" 1 "--fd" "$DAXMAPD" --shared-dir "$work/share" --fd 0
is "daxmapctl without a command" 2 "Usage" "$DAXMAPCTL"
is "daxmapctl with a wrong one" 2 "is not a command" "$DAXMAPCTL" nonsense
is "daxmapctl --help" 0 "stats" "$DAXMAPCTL" --help
is "daxmapctl without a path" 2 "--control-path is required" "$DAXMAPCTL" stats
is "daxmapctl with a path that is not there" 2 "$work/none" \
	"$DAXMAPCTL" stats --control-path "$work/none"
is "daxmapctl with a bad interval" 2 "--interval" \
	"$DAXMAPCTL" stats --control-path "$work/c" --interval 0

modes="none"
(($(id -u) == 0)) && modes="namespace chroot none"
for mode in $modes; do
	serve --sandbox "$mode" --seccomp kill --cache-size 64M
	if ! up; then
		if grep -q "was refused\|needs CAP" "$work/out"; then
			skip "--sandbox=$mode" "$(tail -1 "$work/out")"
		else
			not_ok "--sandbox=$mode starts"
		fi
		continue
	fi
	ok "--sandbox=$mode starts, and answers in it"
	if grep -q '"window_size":67108864' "$work/stats"; then ok "$mode: stats"; else not_ok "$mode: stats"; fi
	if [[ $(stat -c %a "$work/s" "$work/c") == $'600\n600' ]]; then
		ok "$mode: sockets are ours alone"
	else
		not_ok "$mode: sockets are ours alone"
	fi
	is "$mode: a second daemon is refused" 1 "another daemon" \
		"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" --sandbox none
	if answers; then ok "$mode: the first one is undisturbed"; else not_ok "$mode: the first one is undisturbed"; fi
	kill -TERM "$pid"
	ends_with "$mode: SIGTERM ends it with status 0" 0
	gone "$mode: the sockets are gone"
	serve --sandbox "$mode"
	up
	kill -HUP "$pid"
	if answers; then ok "$mode: SIGHUP is ignored"; else not_ok "$mode: SIGHUP is ignored"; fi
	kill -INT "$pid"
	ends_with "$mode: SIGINT ends it with status 0" 0
done

serve --sandbox none
up
kill -9 "$pid"
wait "$pid" 2>/dev/null
if [[ -S $work/s ]]; then ok "SIGKILL leaves a stale socket"; else not_ok "SIGKILL leaves a stale socket"; fi
is "daxmapctl at a stale socket" 2 "a socket without a daemon" "$DAXMAPCTL" stats --control-path "$work/c"
serve --sandbox none
if up; then ok "the next daemon replaces it"; else not_ok "the next daemon replaces it"; fi

# A front-end that comes and goes without a word.
python3 - "$work/s" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
PY
ends_with "it ends with status 0 when the VMM leaves" 0
gone "and removes its sockets"

serve --sandbox none --persistent
up
python3 - "$work/s" <<'PY'
import socket, struct, sys
for words in (b"", b"\xff" * 40, struct.pack("<III", 99, 1, 8), struct.pack("<III", 1, 1, 4000000)):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    try:
        s.sendall(words)
        s.shutdown(socket.SHUT_WR)
        s.recv(1)
    except OSError:
        pass
    s.close()
PY
served() { answers && grep -q '"connected":false' "$work/stats" && grep -q '"sessions":4' "$work/stats"; }
wait_for served
ok "--persistent serves on after a VMM that talks nonsense"
kill -TERM "$pid"
ends_with "and ends with status 0 at SIGTERM" 0

serve --sandbox none --cache-size 1G --readonly --log-level info
up
if grep -q "960M of it" "$work/out" && grep -q -- "--readonly: no DAX window" "$work/out"; then
	ok "a window above the budget and a read-only one warn"
else
	not_ok "a window above the budget and a read-only one warn"
fi
kill -TERM "$pid"
wait "$pid"

echo "1..$n"
exit "$bad"
