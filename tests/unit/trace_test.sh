#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Traces end to end: daxmapd and daxmap-load record, daxmapctl reads and replays.
set -uo pipefail

# See cli_test.sh.
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
not_ok() { echo "not ok $((++n)) - $1"; bad=1; sed 's/^/# /' "$work/out" "$work/err" 2>/dev/null; }

# is NAME STATUS WORD CMD...: CMD ends with STATUS and says WORD; with a status that is not 0 it
# says nothing on standard output
is() {
	local name=$1 status=$2 word=$3 got
	shift 3
	"$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	if [[ $got == "$status" ]] && grep -qF -- "$word" "$work/out" "$work/err" &&
		[[ $got == 0 || ! -s $work/out ]]; then
		ok "$name"
	else
		echo "# status $got, expected $status and \"$word\""
		not_ok "$name"
	fi
}

wait_for() { until "$@" 2>/dev/null; do sleep 0.05; done; }

serve() {
	"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" --control-path "$work/c" \
		--persistent --seccomp kill --cache-size 8M --dax-guard off "$@" >"$work/log" 2>&1 </dev/null &
	pid=$!
	started+=("$pid")
	wait_for answers_or_dead
	if ! kill -0 "$pid" 2>/dev/null; then cat "$work/log" >"$work/out"; return 1; fi
}
answers() { "$DAXMAPCTL" stats --control-path "$work/c" >/dev/null 2>&1; }
answers_or_dead() { answers || ! kill -0 "$pid" 2>/dev/null; }
end() { kill -TERM "$pid"; wait "$pid"; }

load() {
	"$DAXMAP_LOAD" --socket-path "$work/s" --rw randread --engine dax --admission always --size 16M --ops 300 "$@"
}
trace() { "$DAXMAPCTL" trace "$@"; }
control() { local cmd=$1; shift; trace "$cmd" --control-path "$work/c" "$@"; }

# --- recording ---

modes="none"
(($(id -u) == 0)) && modes="none chroot namespace"
for mode in $modes; do
	if ! serve --sandbox "$mode"; then
		if grep -q "was refused\|needs CAP" "$work/log"; then
			echo "ok $((++n)) - --sandbox=$mode # SKIP $(tail -1 "$work/log")"
		else
			not_ok "--sandbox=$mode starts"
		fi
		continue
	fi
	is "$mode: a trace begins" 0 "recording" control start "$work/t.$mode"
	is "$mode: the load runs" 0 "300 operations" load
	is "$mode: status" 0 "recording" control status
	is "$mode: no second one" 2 "a trace is under way" control start "$work/second"
	if [[ -e $work/second ]]; then not_ok "$mode: and nothing is left of it"; else ok "$mode: and nothing is left of it"; fi
	is "$mode: it ends" 0 "stopped" control stop
	is "$mode: only once" 2 "no trace is under way" control stop
	is "$mode: it has maps, setups and the file's name" 0 "daxmap-load/data-4096.0" \
		trace show "$work/t.$mode"
	if grep -q "setup " "$work/out" && grep -q "map " "$work/out"; then ok "$mode: and counts"; else not_ok "$mode: and counts"; fi
	is "$mode: without names" 0 "recording" control start --no-names "$work/nameless"
	is "$mode: another load" 0 "300 operations" load
	control stop >/dev/null
	trace export "$work/nameless" >"$work/out" 2>"$work/err"
	if grep -q ",map," "$work/out" && ! grep -q "daxmap-load" "$work/out"; then ok "$mode: no name is in it"; else not_ok "$mode: no name is in it"; fi
	end
done

echo precious >"$work/precious"
is "--dax-trace takes no foreign file" 2 "left alone" \
	"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" --cache-size 8M --sandbox none \
	--dax-trace "$work/precious"
if [[ $(cat "$work/precious") == precious ]]; then ok "which is as it was"; else not_ok "which is as it was"; fi
is "--dax-trace where nothing can be" 2 "--dax-trace" \
	"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" --cache-size 8M --sandbox none \
	--dax-trace "$work/none/t"

serve --sandbox none --dax-trace "$work/killed"
is "a load under --dax-trace, recorded on both sides" 0 "300 operations" load --dax-trace "$work/guest"
# What is there goes to the file once a second.
wait_for grep -q daxmap-load "$work/killed"
kill -9 "$pid"
wait "$pid" 2>/dev/null
is "a killed daemon's trace is unfinished" 2 "unfinished" trace show "$work/killed"
is "--partial reads it" 0 "setup" trace show --partial "$work/killed"
is "a stale socket" 2 "a socket without a daemon" control status

(ulimit -f 128; exec "$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" \
	--control-path "$work/c" --persistent --sandbox none --cache-size 8M \
	--dax-guard off --dax-trace "$work/full" >"$work/log" 2>&1 </dev/null) &
pid=$!
started+=("$pid")
wait_for answers_or_dead
# Of the 128 KiB one block takes half, and the second one does not fit.
limited() {
	load --ops 2000 >/dev/null 2>&1
	control status | grep -q "a write failed"
}
wait_for limited
ok "a full disk stops the trace"
if answers && [[ $(grep -c "the trace stops" "$work/log") == 1 ]]; then
	ok "and not the daemon, which says so once"
else
	not_ok "and not the daemon, which says so once"
fi
is "what was written is a whole trace" 0 "a write failed: File too large" trace show "$work/full"
end

"$DAXMAPD" --shared-dir "$work/share" --socket-path "$work/s" --control-path "$work/c" \
	--sandbox none >"$work/log" 2>&1 </dev/null &
pid=$!
started+=("$pid")
wait_for answers_or_dead
is "without a window there is nothing to trace" 2 "no DAX window" control start "$work/second"
end

# --- reading ---

g=$work/guest
is "the guest's trace has its accesses" 0 "access   300" trace show "$g"
is "every event, and the last line" 0 "end of trace: $(sed -n 's/^events   \([0-9]*\) .*/\1/p' "$work/out") events" \
	trace show --events "$g"
if (($(trace export "$g" | wc -l) == $(wc -l <"$work/out"))); then ok "CSV has as many"; else not_ok "CSV has as many"; fi
for cmd in "trace show" "trace show --events" "trace export" replay; do
	is "$cmd: no file" 2 "No such file" "$DAXMAPCTL" $cmd "$work/none"
	is "$cmd: a foreign file" 2 "not a trace" "$DAXMAPCTL" $cmd "$work/precious"
	head -c 100000 "$g" >"$work/short"
	is "$cmd: a truncated one" 2 "truncated" "$DAXMAPCTL" $cmd "$work/short"
	cp "$g" "$work/newer"
	printf '\002' | dd of="$work/newer" bs=1 seek=8 conv=notrunc status=none
	is "$cmd: a newer one" 2 "version 2" "$DAXMAPCTL" $cmd "$work/newer"
	cp "$g" "$work/damaged"
	printf 'XX' | dd of="$work/damaged" bs=1 seek=4300 conv=notrunc status=none
	is "$cmd: a damaged one" 2 "damaged: block 0" "$DAXMAPCTL" $cmd "$work/damaged"
done
if [[ -c /dev/full ]]; then
	trace export "$g" >/dev/full 2>"$work/err"
	if [[ $? == 2 ]]; then ok "output that is lost is an error"; else not_ok "output that is lost is an error"; fi
fi

# --- replaying ---

is "a replay" 0 "300 accesses, exact" "$DAXMAPCTL" replay "$g" --window 4M,8M,16M
cp "$work/out" "$work/first"
"$DAXMAPCTL" replay "$g" --window 4M,8M,16M >"$work/out"
if cmp -s "$work/out" "$work/first"; then ok "is the same every time"; else not_ok "is the same every time"; fi
"$DAXMAPCTL" replay "$g" --window 16M --json >"$work/out"
if grep -q '"maps":8,"unmaps":0' "$work/out"; then ok "a window as large as the file maps it once"; else not_ok "a window as large as the file maps it once"; fi
is "a daemon's trace through the table" 0 "through the host's table" "$DAXMAPCTL" replay "$work/t.none"
is "and as an estimate" 0 "an estimate" "$DAXMAPCTL" replay "$work/t.none" --window 16M
is "a bad window" 2 "--window" "$DAXMAPCTL" replay "$g" --window 5X
is "a bad policy" 2 "--policy" "$DAXMAPCTL" replay "$g" --policy best
is "a bad cost" 2 "--cost" "$DAXMAPCTL" replay "$g" --cost 1,x
is "a daemon that is not there" 2 "$work/none" "$DAXMAPCTL" replay "$g" --socket-path "$work/none"

serve --sandbox none
is "against a daemon: accesses" 0 "300 accesses replayed" "$DAXMAPCTL" replay "$g" --socket-path "$work/s"
is "against a daemon: setups" 0 "setups replayed" "$DAXMAPCTL" replay "$work/t.none" --socket-path "$work/s"
is "without names" 2 "--make-files" "$DAXMAPCTL" replay "$work/nameless" --socket-path "$work/s"
is "with files made for it" 0 "setups replayed" "$DAXMAPCTL" replay "$work/nameless" \
	--socket-path "$work/s" --make-files made
rm -r "$work/share/daxmap-load"
is "a file that is gone" 2 "No such file" "$DAXMAPCTL" replay "$g" --socket-path "$work/s"
end

echo "1..$n"
exit "$bad"
