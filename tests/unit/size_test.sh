#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TAP: daxmapctl size as a program.
# usage: size_test.sh DAXMAPCTL SIZE_MAKE_TRACE
set -u
ctl=$1 make=$2
dir=$(mktemp -d)
export TMPDIR=$dir
trap 'rm -rf "$dir"' EXIT
n=0 failed=0

point() { # STATUS NAME [WHY]
	n=$((n + 1))
	if [[ $1 == 0 ]]; then
		echo "ok $n - $2"
	else
		failed=1
		echo "# ${3:-}" | head -20
		echo "not ok $n - $2"
	fi
}

run() { # ARG...: status and what was said
	"$ctl" size "$@" >"$dir/out" 2>"$dir/err"
	status=$?
}

refused() { # NAME PATTERN ARG...: exit 2, nothing on stdout, the reason on stderr
	local name=$1 pattern=$2
	shift 2
	run "$@"
	[[ $status == 2 && ! -s $dir/out ]] && grep -q -- "$pattern" "$dir/err"
	point $? "$name" "status $status: $(cat "$dir/out" "$dir/err")"
}

"$make" --load zipf-1.1 --accesses 20000 --ranges 200 --slots 16 "$dir/guest" >"$dir/made" &&
	"$make" --load zipf-1.1 --accesses 20000 --ranges 200 --slots 16 --live-us 8 --host \
		"$dir/host" >>"$dir/made"
point $? 'traces are made' "$(cat "$dir/made")"

run --read-us 100000 "$dir/guest"
grep -q '^=> *512M' "$dir/out" && grep -q 'every access is known' "$dir/out"
point $? 'a guest'"'"'s trace: exact, and all fits' "$(cat "$dir/out" "$dir/err")"
run "$dir/host"
grep -q '^Recommended: --cache-size=' "$dir/out" && grep -q 'hits are not known' "$dir/out"
point $? 'a daemon'"'"'s trace: bounds' "$(cat "$dir/out" "$dir/err")"
run --read-us 0.01 "$dir/guest"
grep -q 'no DAX' "$dir/out"
point $? 'where requests are cheaper: no DAX' "$(cat "$dir/out" "$dir/err")"
run --json --read-us 100000 --max 64M "$dir/guest"
python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))
assert r["misses_are"] == "exact" and r["recommended"]["window"] == 64 << 20
assert max(w["window"] for w in r["windows"]) == 64 << 20
said = [w for w in r["windows"] if w["recorded"]][0]["miss_ratio"]
real = float(open(sys.argv[2]).readline().split()[-1])
assert abs(said - real) < 0.001, (said, real)
' "$dir/out" "$dir/made" 2>"$dir/err"
point $? 'JSON, with the ratio that was recorded' "$(cat "$dir/out" "$dir/err")"

refused 'a file that is not there' 'No such file' "$dir/none"
refused 'a foreign file' 'not a trace' "$ctl"
head -c 100000 "$dir/guest" >"$dir/short"
refused 'a truncated trace' 'truncated\|damaged' "$dir/short"
cp "$dir/guest" "$dir/newer"
printf '\x02' | dd of="$dir/newer" bs=1 seek=8 conv=notrunc status=none
refused 'a trace of a newer version' 'version' "$dir/newer"
refused 'no daemon behind the socket' 'cannot reach a daemon' --live --control-path "$dir/none"
[[ $(ls "$dir") != *daxmapctl-size* ]]
point $? 'and no file left of it'
refused 'a trace and --live' 'either' --live --control-path x "$dir/guest"
refused 'neither' 'either'
refused 'a bad size' 'option --min: "7Q" is not allowed' --min 7Q "$dir/guest"
refused 'a bad cost' 'option --map-us' --map-us 1,b "$dir/guest"
refused 'a plot of no known kind' 'option --plot' --plot "$dir/a.gif" "$dir/guest"
mkdir "$dir/empty"
full=$(readlink -f "$ctl")
PATH=$dir/empty "$full" size --plot "$dir/a.svg" "$dir/guest" >"$dir/out" 2>"$dir/err"
[[ $? == 2 && ! -s $dir/out ]] && grep -q 'needs gnuplot' "$dir/err"
point $? 'a plot without gnuplot: says so' "$(cat "$dir/err")"
if command -v gnuplot >/dev/null; then
	run --plot "$dir/a.svg" "$dir/host"
	[[ $status == 0 ]] && grep -q '</svg>' "$dir/a.svg"
	point $? 'a plot' "$(cat "$dir/err")"
else
	n=$((n + 1))
	echo "ok $n - a plot # SKIP no gnuplot"
fi
echo "1..$n"
exit $failed
