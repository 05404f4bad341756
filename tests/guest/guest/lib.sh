# SPDX-License-Identifier: Apache-2.0
#
# What a guest script can use (busybox sh; sourced for it). Descriptor 3 is the line to the host.
#
#   MNT            where the share is mounted (/mnt)
#   GUEST_BOOT     1 at the first boot, 2 after a reset, ...
#   host STEP ARG...      have the host run a step (run --hook, or a built-in); prints its reply
#   ok/not_ok NAME        a TAP result (the host numbers them)
#   check NAME CMD...     run CMD; a TAP result; its output as diagnostics if it fails
#   skip NAME REASON      a TAP result that says why not
#   put_file FILE         send a file to the host's --out folder
#   mount_share [OPTS], umount_share, remount_share
MNT=/mnt

# request WORD...: one line to the host, one line back: "STATUS TEXT"
request() {
	printf '\001%s\n' "$*" >&3
	read -r request_status request_text <&3
	[ -z "$request_text" ] || echo "$request_text"
	return "$request_status"
}

host() {
	request host "$@"
}

put_file() {
	printf '\001file %s %s\n' "${1##*/}" "$(stat -c %s "$1")" >&3
	cat "$1" >&3
}

ok() {
	echo "ok - $*"
}

not_ok() {
	echo "not ok - $*"
}

skip() {
	echo "ok - $1 # SKIP $2"
}

check() {
	check_name=$1
	shift
	if "$@" >"/tmp/check.$$" 2>&1; then
		ok "$check_name"
	else
		echo "# status $? of: $*"
		tail -n 15 "/tmp/check.$$" | sed 's/^/# /'
		not_ok "$check_name"
		return 1
	fi
}

# same NAME EXPECTED GOT
same() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		echo "# expected: $2"
		echo "# got:      $3"
		not_ok "$1"
		return 1
	fi
}

# md5_tree DIR: name and md5 of every regular file, in a fixed order
md5_tree() {
	(cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r md5sum)
}

mount_share() {
	set -- "${1-$GUEST_MOUNT_OPTS}"
	mkdir -p "$MNT"
	mount -t virtiofs ${1:+-o "$1"} "$GUEST_TAG" "$MNT"
}

umount_share() {
	cd /
	umount "$MNT"
}

remount_share() {
	umount_share && mount_share "$@" && cd "$MNT"
}
