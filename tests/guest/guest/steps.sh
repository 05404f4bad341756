# SPDX-License-Identifier: Apache-2.0
#
# What the guest tests do in the guest, one function a behaviour; each prints TAP results.
# Sourced by a script after guest/lib.sh. Works in the current folder, the mounted share, and
# leaves nothing there but what the host looks at afterwards. guestio is /kit/guestio.

# The shell prefers busybox's applets; these should be the real ones
tar() { /usr/bin/tar "$@"; }
find() { /usr/bin/find "$@"; }

# timed STEP ARG...: run a step and say how long it took
timed() {
	read -r timed_start timed_rest </proc/uptime
	"$@"
	timed_status=$?
	read -r timed_end timed_rest </proc/uptime
	echo "# $1 took $((${timed_end%.*} - ${timed_start%.*})) s"
	return $timed_status
}

# A host step as a program of its own, for guestio to run
host_step='. /kit/lib.sh; host "$@"'

# step_md5 LIST [WORD]: every file of the list (md5sum's format) reads back as the host wrote it
step_md5() {
	while read -r sum name; do
		same "md5 of $name, $(stat -c %s "$name") bytes${2:+, $2}" "$sum" \
			"$(md5sum <"$name" | cut -d' ' -f1)"
	done <"$1"
}

# step_fio RW ENGINE JOBS SIZE [ARG...]: what fio wrote it reads back, each job in its own file.
# The files have their full size first, so that under DAX they are mapped, not grown; so they
# read as zeros before. The host then finds the same bytes as the guest.
step_fio() {
	fio_rw=$1 fio_engine=$2 fio_jobs=$3 fio_size=$4
	shift 4
	mkdir -p fio
	job=0
	while [ $job -lt "$fio_jobs" ]; do
		truncate -s "$fio_size" "fio/v.$job.0"
		job=$((job + 1))
	done
	check "fio verify: $fio_rw, $fio_engine, $fio_jobs x $fio_size${1:+, $*}" fio --name=v \
		--directory=fio --filename_format='v.$jobnum.$filenum' --rw="$fio_rw" \
		--ioengine="$fio_engine" --iodepth=8 --numjobs="$fio_jobs" --size="$fio_size" --bs=4k \
		--fallocate=none --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 \
		--end_fsync=1 --group_reporting "$@"
	sync
	for job in fio/v.*; do
		sum=$(md5sum <"$job" | cut -d' ' -f1)
		same "host bytes of $job after fio $fio_rw, $fio_engine" "$sum" "$(host md5 "$job")"
	done
	rm -f fio/v.*
}

# step_fio_all JOBS SIZE: all engines; randrw too, mixed blocks
step_fio_all() {
	step_fio randwrite psync "$1" "$2"
	step_fio randrw psync "$1" "$2" --bsrange=1k-16k
	step_fio randwrite libaio "$1" "$2"
	step_fio randrw libaio "$1" "$2"
	step_fio randwrite mmap "$1" "$2"
	step_fio randrw mmap "$1" "$2"
}

# step_coherence FILE: writes through a mapping reach the host at msync, while the file is still
# mapped; host writes are seen in the guest when the file is opened again. FILE has 4 MiB or more.
step_coherence() {
	check "mapped writes are on the host after msync" \
		/kit/guestio write "$1" 1M 3M 0x5a sh -c "$host_step" - pattern "$1" 1M 3M 0x5a
	check "the host's bytes before those are untouched" host pattern "$1" 0 1M 0
	check "a host write" host fill "$1" 8K 64K 0x33
	[ "$GUEST_DEVICE" = dax ] || sleep 1.5 # attributes are cached for a second
	check "host writes are seen through a mapping" /kit/guestio check "$1" 8K 64K 0x33
	same "host writes are seen by read" "$(printf 33%.0s 1 2 3 4 5 6 7 8)" \
		"$(dd if="$1" bs=8 skip=1024 count=1 2>/dev/null | hexdump -ve '1/1 "%02x"')"
	check "plain writes" dd if=/dev/zero of="$1" bs=64k count=16 conv=notrunc,fsync
	check "plain writes are on the host after fsync" host pattern "$1" 0 1M 0
}

# step_coherence_dax FILE: what only a shared mapping can do
step_coherence_dax() {
	check "a host write appears in a live mapping" \
		/kit/guestio watch "$1" 2M 64K 0x77 sh -c "$host_step" - fill "$1" 2M 64K 0x77
}

# step_truncate TIMES: the host truncates a mapped file, which is read all the time; t_truncate.sh
step_truncate() {
	host cutheld || { skip "the host truncates a mapped file" "truncations are not held here"; return; }
	local n
	n=$(host cutmake) || return
	check "the host truncates a file $1 times that is read through its mapping" \
		/kit/cutread "cut/$n" 0 8388608 -1 500 sh -c ". /kit/lib.sh; host cutloop $1"
	rm -rf cut
}

# step_window MIB [OPTION]: the guest has found a window of this size and mounted with it
step_window() {
	same "the window's size in MiB" "$1" "$(dmesg | sed -n \
		's/.*virtiofs.*Cache len: \(0x[0-9a-f]*\) .*/\1/p' | while read -r n; do echo $((n >> 20)); done)"
	check "mounted with dax" grep -q "virtiofs.*${2:-dax}" /proc/mounts
}

# step_readers N LIST: several processes read all files at once, through one small window
step_readers() {
	reader=0
	while [ $reader -lt "$1" ]; do
		md5sum -c "$2" >"/tmp/reader.$reader" 2>&1 &
		reader=$((reader + 1))
	done
	wait
	same "$1 readers at once" "" "$(grep -v ': OK$' /tmp/reader.*)"
}

# step_odd LIST: files that cannot be mapped whole are read right or refused; never wrong bytes
step_odd() {
	while read -r sum name; do
		if ! cat "$name" >/tmp/odd 2>/tmp/why; then
			ok "$name is refused ($(sed 's/.*: //' /tmp/why))"
		else
			same "md5 of $name" "$sum" "$(md5sum </tmp/odd | cut -d' ' -f1)"
		fi
	done <"$1"
}

# step_touch HOW FILE COUNT [GOOD]: a page of every 2 MiB of a big file, more than the window
# holds; all are read, or, where the budget is smaller than the window, GOOD of them at least
step_touch() {
	touched=$(/kit/guestio "$1" "$2" 2M)
	echo "# $1: $touched"
	touched_how=$1 touched_count=$3 touched_min=${4:-$3}
	# shellcheck disable=SC2046 # two numbers
	set -- $(echo "$touched" | tr -dc '0-9 ')
	same "$touched_how: each of $touched_count ranges is answered" "$touched_count" $(($1 + $2))
	check "$touched_how: $touched_min of them are read" [ "$1" -ge "$touched_min" ]
}

# step_budget FILE COUNT BUDGET: beyond the budget there are errors, and the machine goes on
step_budget() {
	touched=$(/kit/guestio touch "$1" 2M)
	echo "# $touched"
	set -- "$@" $(echo "$touched" | tr -dc '0-9 ')
	check "ranges within the budget of $3 are read" [ "$4" -ge $(($3 / 2)) ]
	check "ranges beyond it get an error" [ "$5" -gt 0 ]
	same "every range is answered" "$2" $(($4 + $5))
	check "read gets an error, no hang" sh -c "/kit/guestio pread $1 2M | grep -q 'errors [1-9]'"
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# step_remount LIST: after umount and mount all is there
step_remount() {
	check "umount and mount" remount_share
	step_md5 "$1" "after a new mount"
}

# step_basics: small files and their attributes, as the host sees them
step_basics() {
	mkdir -p basics
	echo one >basics/a
	check "append" sh -c 'echo two >>basics/a'
	same "the host reads an appended file" "$(md5sum <basics/a | cut -d' ' -f1)" "$(host md5 basics/a)"
	check "symlink" ln -s a basics/l
	same "readlink" a "$(readlink basics/l)"
	check "hard link" ln basics/a basics/h
	same "two links" 2 "$(stat -c %h basics/a)"
	check "chmod" chmod 640 basics/a
	check "chown" chown 65534:100 basics/a
	check "utimes" touch -d '2001-02-03 04:05:06' basics/a
	same "attributes" "640 65534 100 $(date -d '2001-02-03 04:05:06' +%s)" \
		"$(stat -c '%a %u %g %Y' basics/a)"
	same "attributes on the host" "640 65534 100 $(stat -c %Y basics/a)" "$(host attr basics/a)"
	check "fifo" mkfifo basics/p
	check "truncate" truncate -s 3 basics/a
	same "a truncated file" one "$(cat basics/a)"
	exec 5<>basics/a
	rm -f basics/a basics/h
	check "an unlinked open file is written" sh -c 'printf 1234567 >&5'
	same "an unlinked open file is read" 7 "$(stat -L -c %s /proc/self/fd/5)"
	exec 5>&-
	check "the name is gone on the host" host gone basics/a
	not_there=$(cat basics/nothing 2>&1)
	same "no such file" "cat: can't open 'basics/nothing': No such file or directory" "$not_there"
	check "rename over" sh -c 'echo x >basics/x; echo y >basics/y; mv basics/x basics/y; grep -q x basics/y'
	check "df" df basics
	cp /bin/busybox basics/busybox
	same "a program of the share runs" ran "$(basics/busybox echo ran)"
	long=$(printf 'n%.0s' $(seq 255))
	check "a name of 255 bytes" sh -c "echo >basics/$long && test -e basics/$long"
	check "remove the tree" rm -r basics
	check "the tree is gone on the host" host gone basics
}

# step_find DIR COUNT LISTING: names of a big tree, twice; LISTING is the md5 of the sorted names
step_find() {
	for pass in first second; do
		find "$1" -type f >/tmp/names
		same "find, $pass: number of files" "$2" "$(wc -l </tmp/names)"
		same "find, $pass: names" "$3" "$(LC_ALL=C sort /tmp/names | md5sum | cut -d' ' -f1)"
	done
}

# step_git: a repository made on the share, cloned on the share
step_git() {
	mkdir git
	(
		cd git && git init -q origin && cd origin &&
			for d in 0 1 2 3 4 5 6 7; do
				mkdir "dir$d"
				for f in 0 1 2 3 4 5 6 7 8 9; do echo "$d $f" >"dir$d/file$f"; done
			done &&
			git add . && git commit -qm one && echo more >>dir3/file3 && rm dir4/file4 &&
			git commit -qam two
	) >/tmp/git.log 2>&1
	check "git commit" grep -q two git/origin/.git/COMMIT_EDITMSG || sed 's/^/# /' /tmp/git.log
	check "git clone, linked" git clone -q git/origin git/local
	check "git clone, packed" git clone -q "file://$PWD/git/origin" git/packed
	for clone in local packed; do
		check "git fsck of $clone" git -C "git/$clone" fsck --full --strict
		same "git status of $clone" "" "$(git -C "git/$clone" status --porcelain)"
		same "git head of $clone" "$(git -C git/origin rev-parse HEAD)" \
			"$(git -C "git/$clone" rev-parse HEAD)"
	done
	check "git gc" git -C git/packed gc -q
	check "git status after gc" git -C git/packed fsck --full
	rm -rf git
}

# step_tar: a tree of all kinds goes through tar on the share and back
step_tar() {
	mkdir -p tar/in/sub
	cp /usr/bin/git tar/in/big
	cp /kit/*.sh tar/in/sub/
	ln -s ../big tar/in/sub/link
	ln tar/in/sub/lib.sh tar/in/hard
	mkfifo tar/in/fifo
	truncate -s 4M tar/in/sparse
	printf end >>tar/in/sparse
	chmod 4711 tar/in/sub/steps.sh
	chown 65534:100 tar/in/sub/lib.sh
	touch -d '2010-01-02 03:04:05' tar/in/big
	check "tar creates" tar -H posix -C tar/in -cSf tar/a.tar .
	mkdir tar/out
	check "tar extracts" tar -C tar/out -xpf tar/a.tar
	check "tar compares" tar -C tar/out -df tar/a.tar
	same "contents after tar" "$(md5_tree tar/in)" "$(md5_tree tar/out)"
	same "attributes after tar" "$(tree_attrs tar/in)" "$(tree_attrs tar/out)"
	same "the host sees the same tree" "$(md5_tree tar/out | md5sum | cut -d' ' -f1)" \
		"$(host md5tree tar/out)"
	rm -rf tar
}

tree_attrs() { (cd "$1" && find . ! -type d -printf '%p %M %U %G %n %s %T@ %l\n' | sort); }

# step_storm WORKERS ROUNDS: names are made, renamed, linked and removed by several processes
step_storm() {
	mkdir storm
	check "storm of renames and unlinks from $1 processes" /kit/guestio storm storm "$1" "$2"
	same "the host lists the same names" \
		"$(find storm | LC_ALL=C sort | md5sum | cut -d' ' -f1)" "$(host names storm)"
	rm -rf storm
}

# step_make DIRS FILES: a tree of small files, a makefile a folder, an object a source
step_make() {
	mkdir -p make/include
	echo 'shared header' >make/include/all.h
	printf 'dirs := $(wildcard d*)\nall: $(dirs)\n$(dirs):\n\t@$(MAKE) -s -C $@\n.PHONY: all $(dirs)\n' \
		>make/Makefile
	d=0
	while [ $d -lt "$1" ]; do
		mkdir "make/d$d"
		printf 'objs := $(patsubst %%.c,%%.o,$(wildcard *.c))\nbuilt-in.a: $(objs)\n\t@/bin/busybox cat $^ >$@.tmp && /bin/busybox mv $@.tmp $@\n%%.o: %%.c ../include/all.h\n\t@/bin/busybox md5sum <$< >$@\n' >"make/d$d/Makefile"
		f=0
		while [ $f -lt "$2" ]; do
			echo "int f${d}_$f;" >"make/d$d/f$f.c"
			f=$((f + 1))
		done
		d=$((d + 1))
	done
	check "make -j2" make -s -j2 -C make
	same "every object is there" $(($1 * $2)) "$(find make -name '*.o' -size +0 | wc -l)"
	same "every folder is linked" "$1" "$(find make -name built-in.a -size +0 | wc -l)"
	for f in make/d*/f*.c; do md5sum <"$f"; done >/tmp/want
	for f in make/d*/f*.o; do cat "$f"; done >/tmp/got
	check "every object is right" cmp /tmp/want /tmp/got
	check "nothing is left to make" make -s -q -C make/d0
	sleep 1
	echo 'int changed;' >make/d0/f0.c
	check "a change is seen" sh -c '! make -s -q -C make/d0'
	check "make again" make -s -C make
	same "the change is built" "$(md5sum <make/d0/f0.c)" "$(cat make/d0/f0.o)"
	check "rm -r of the tree" rm -r make
}

# step_sqlite: rollback journal, then WAL (which maps a shared file)
step_sqlite() {
	for mode in delete wal; do
		same "sqlite, journal $mode" "500 124750 ok" "$(sqlite3 "db.$mode" "
			pragma journal_mode=$mode; create table t(a integer primary key, b text);
			begin; with recursive n(i) as (select 0 union all select i+1 from n where i<499)
			insert into t select i, hex(randomblob(50)) from n; commit;
			delete from t where a % 2; insert or ignore into t select a+1, b from t;
			select count(*) || ' ' || sum(a) from t; pragma integrity_check;" 2>&1 |
			tail -n 2 | tr '\n' ' ' | sed 's/ $//')"
		rm -f "db.$mode"*
	done
}

# step_quiet: the kernel has nothing to complain about
step_quiet() {
	dmesg | grep -E 'BUG:|WARNING:|blocked for more|(virtiofs|fuse).*([Ee]rror|[Ff]ail)' >/tmp/complaints
	same "the guest's kernel has no complaint" "" "$(cat /tmp/complaints)"
}

# step_reset FILE...: at the first boot, map the files and have the host reset the machine; with
# DAX not while a map is under way (hook, settled). True at the second.
step_reset() {
	local first='true'
	[ "$GUEST_BOOT" = 1 ] || { ok "the machine boots again after a hard reset"; return 0; }
	! grep -q ' virtiofs .*dax' /proc/mounts || first='host settled'
	/kit/guestio hold "$@" -- sh -c ". /kit/lib.sh; $first && host qmp system_reset"
	sleep 100
	not_ok "the reset did not come"
	return 1
}
