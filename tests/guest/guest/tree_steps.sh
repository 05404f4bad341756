# SPDX-License-Identifier: Apache-2.0
#
# What t_tree.sh does in the guest, after guest/lib.sh and guest/steps.sh. The share holds tree/;
# the host keeps a copy of it elsewhere, on which it repeats each change (see guest/treeio.c).

# step_tree_sums WORD: every file has the copy's bytes, by read and through a mapping, and so
# has the share on the host
step_tree_sums() {
	check "$1: read and mapping agree" sh -c '/kit/treeio md5 tree >/tmp/sums'
	put_file /tmp/sums
	check "$1: each of $(wc -l </tmp/sums) files has the right md5" host treesums
	echo "# $1: $(/kit/treeio dax tree)"
}

# step_tree_guest WORD SEED COUNT: changes from the guest
step_tree_guest() {
	host treeplan "$2" "$3" guest
	check "$1: changes by the guest" /kit/treeio ops tree plan
	check "$1: the same on the copy" host treeref
	step_tree_sums "$1, changed by the guest"
}

# step_tree_host WORD SEED COUNT: changes from the host, while the guest has files mapped
step_tree_host() {
	host treeplan "$2" "$3" host
	check "$1: changes by the host, while files are mapped" sh -c \
		'/kit/treeio hold tree sh -c ". /kit/lib.sh; host treehost >&2" >/tmp/held'
	check "$1: the same on the copy" host treeref
	if [ -s /tmp/held ]; then
		put_file /tmp/held
		check "$1: $(wc -l </tmp/held) mappings show what the host wrote" host treeheld
	else
		skip "$1: mappings show what the host writes" "no file between 64 KiB and 2 MiB is DAX"
	fi
	# Names and attributes are cached for one second, but for --cache=never
	[ "$TREE_CACHE" = never ] || sleep 1.1
	step_tree_sums "$1, changed by the host"
}

# step_tree MODE SEED COUNT: all of it
step_tree() {
	check "$1: mount" remount_share "$1" || return
	timed step_tree_sums "$1, fresh"
	timed step_tree_guest "$1" "$2" "$3"
	timed step_tree_host "$1" $(($2 + 1)) "$3"
}

# step_tree_refused: a mount that wants every file mapped does not come about
step_tree_refused() {
	cd /
	umount "$MNT"
	if mount_share dax && ls "$MNT" >/dev/null 2>&1; then
		not_ok "a mount with dax=always is refused"
	else
		ok "a mount with dax=always is refused"
	fi
	check "the next mount, with dax=inode, is not" sh -c \
		'. /kit/lib.sh; umount "$MNT" 2>/dev/null; mount_share dax=inode && ls "$MNT/tree" >/dev/null'
	cd "$MNT"
}
