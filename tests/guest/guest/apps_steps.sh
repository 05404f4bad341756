# SPDX-License-Identifier: Apache-2.0
#
# What t_apps.sh does in the guest, after guest/lib.sh and guest/steps.sh, in the mounted share.

# --- programs and libraries of the share --------------------------------------------------------

# here PROGRAM ARG...: run it with loader and libraries of the share
here() {
	here_program=$1
	shift
	"$MNT/sys/ld.so" --library-path "$MNT/sys/lib" "$MNT/sys/bin/$here_program" "$@"
}

# What bash does while it runs from the share: its code lies in DAX mappings (VmFlags mm: mixed map,
# which fuse sets for them), and the daemon has as many files mapped
in_bash='
. /kit/lib.sh
code=$(grep -c "r-xp.* $MNT/sys/" /proc/$$/maps)
dax=$(awk -v m=" $MNT/sys/" "/^[0-9a-f]+-/ { mine = / r-xp / && index(\$0, m) }
	/^VmFlags/ && mine && / mm / { n++ } END { print n + 0 }" /proc/$$/smaps)
echo "$code $dax $(host ranges)"'

# step_programs: they are written to the share, mapped by a new mount, and run
step_programs() {
	mkdir -p sys/bin sys/lib
	cp /usr/bin/bash /usr/bin/git /usr/bin/sqlite3 /bin/busybox sys/bin/
	cp -L /usr/lib/x86_64-linux-gnu/*.so* sys/lib/
	cp -L /lib64/ld-linux-x86-64.so.2 sys/ld.so
	check "programs: a new mount" remount_share
	same "a static program of the share" ran "$(sys/bin/busybox echo ran)"
	same "a program, its loader and libraries of the share" "$(git --version)" "$(here git --version)"
	same "libraries of the share" "$(sqlite3 --version)" \
		"$(LD_LIBRARY_PATH=$MNT/sys/lib sqlite3 --version)"
	same "it computes" 5050 "$(here sqlite3 :memory: 'with recursive n(i) as (select 1 union all
		select i+1 from n where i<100) select sum(i) from n')"
	set -- $(here bash -c "$in_bash")
	echo "# code mappings $1, of them DAX $2; the daemon has: files $3 ranges $4"
	check "code of a program and its libraries is mapped" [ "$1" -ge 4 ]
	same "all of it by DAX" "$1" "$2"
	check "the daemon has these files mapped" [ "$3" -ge "$1" ]
	rm -rf sys
}

# --- SQLite -------------------------------------------------------------------------------------

# Transactions without end, each announced once it is committed; from batch $1 on
sqlite_input() {
	echo "pragma journal_mode=$2; pragma synchronous=full; pragma wal_autocheckpoint=100;"
	sqlite_n=$1
	while :; do
		echo "begin immediate; with recursive c(i) as (select 1 union all select i+1 from c where i<20)
			insert into t select NULL, $sqlite_n, hex(randomblob(100 + abs(random() % 400))) from c;
			insert into b select $sqlite_n, sum(length(body)) from t where batch = $sqlite_n;
			update t set body = hex(randomblob(length(body) / 2)) where batch = $sqlite_n - 5;
			commit; select 'done $sqlite_n';"
		sqlite_n=$((sqlite_n + 1))
	done
}

sqlite_fresh() {
	rm -f db db-* "$1"
	sqlite3 db 'create table t(id integer primary key, batch int, body text);
		create index by_batch on t(batch, body); create table b(batch integer primary key, sum int);'
}

# sqlite_acked ACKS: the last transaction that was announced
sqlite_acked() { sed -n 's/^done \([0-9]*\)$/\1/p' "$1" | tail -n 1; }

# sqlite_verdict ACKS: "ok" and nothing else if all that was announced is there, and whole
sqlite_verdict() {
	sqlite_acked=$(sqlite_acked "$1")
	sqlite3 db "pragma integrity_check;
		select 'batch ' || batch || ' is torn' from b where sum is not
			(select sum(length(body)) from t where t.batch = b.batch) or
			20 != (select count(*) from t where t.batch = b.batch);
		select 'rows without a batch: ' || count(*) from t where batch not in (select batch from b)
			having count(*) > 0;
		select 'acknowledged ${sqlite_acked:-0}, there ' || ifnull(max(batch), 0) || ', in all ' || count(*)
			from b having ifnull(max(batch), 0) < ${sqlite_acked:-0} or count(*) != ifnull(max(batch), 0);
		" 2>&1
}

sqlite_next() { sqlite3 db 'select ifnull(max(batch), 0) + 1 from b'; }

# A time between 0.1 and 1.6 s
random_nap() { usleep $((100000 + $(od -An -N2 -tu2 /dev/urandom) * 23)); }

# step_sqlite_kills JOURNAL ROUNDS: the writer is killed at some moment, over and over
step_sqlite_kills() {
	sqlite_fresh /tmp/acks
	: >/tmp/acks
	bad= round=0
	while [ $round -lt "$2" ]; do
		sqlite_input "$(sqlite_next)" "$1" 2>/dev/null | sqlite3 db >>/tmp/acks 2>/tmp/sqlite.err &
		random_nap
		kill -9 $!
		wait $! 2>/dev/null
		verdict=$(sqlite_verdict /tmp/acks)
		[ "$verdict" = ok ] || bad="$bad round $round: $verdict"
		round=$((round + 1))
	done
	same "sqlite, $1: $2 writers killed, all sound and complete" "" "$bad"
	sqlite_acked=$(sqlite_acked /tmp/acks)
	echo "# sqlite, $1: ${sqlite_acked:-0} transactions; the last writer's words: $(tail -n 1 /tmp/sqlite.err)"
	check "sqlite, $1: there were transactions" [ "${sqlite_acked:-0}" -gt 0 ]
	same "sqlite, $1: the host finds the same" "$(md5sum <db | cut -d' ' -f1)" "$(host md5 db)"
	rm -f db db-*
}

# step_sqlite_resets ROUNDS: the machine is reset while the writer writes; WAL and rollback journal
# by turns. False at the boots before the last.
step_sqlite_resets() {
	if [ "$GUEST_BOOT" = 1 ]; then
		sqlite_fresh acks
		: >acks
	else
		verdict=$(sqlite_verdict acks)
		same "sqlite: sound and complete after reset $((GUEST_BOOT - 1)), at transaction $(sqlite_acked acks)" \
			ok "$verdict"
	fi
	[ "$GUEST_BOOT" -le "$1" ] || return 0
	# no journal is deleted, or unmaps would be on their way, which QEMU 11.1 does not survive
	[ $((GUEST_BOOT % 2)) = 0 ] && journal=persist || journal=wal
	sqlite_input "$(sqlite_next)" $journal 2>/dev/null | sqlite3 db >>acks 2>/tmp/sqlite.err &
	usleep 1500000
	random_nap
	host settled || echo "# maps are under way"
	host qmp system_reset
	sleep 100
	not_ok "the reset did not come"
}

# --- git ----------------------------------------------------------------------------------------

# git_worker N COMMITS: commits in a clone, exchanged with the others through the hub
git_worker() {
	cd "w$1" || exit 1
	commit=1
	while [ $commit -le "$2" ]; do
		mkdir -p "dir$1"
		for f in 1 2 3 4 5; do
			head -c $((f * 3000)) /dev/urandom | base64 >>"dir$1/file$f" || exit 1
		done
		echo "$1 $commit" >"dir$1/new$commit"
		git add -A && git commit -qm "worker $1 commit $commit" || exit 1
		tries=0
		until git fetch -q && git merge -q --no-edit origin/main && git push -q origin HEAD:main; do
			tries=$((tries + 1))
			[ $tries -lt 20 ] || exit 1
		done 2>/tmp/git.push.$1
		[ $((commit % 3)) != "$(($1 % 3))" ] || git gc -q || exit 1
		commit=$((commit + 1))
	done
}

# step_git_parallel WORKERS COMMITS
step_git_parallel() {
	mkdir git
	cd git
	(git init -q --bare -b main hub && git clone -q hub first && cd first && git checkout -qb main &&
		echo first >file && git add file && git commit -qm first && git push -q origin main) >/tmp/git.log 2>&1
	worker=1 workers=
	while [ $worker -le "$1" ]; do
		git clone -q hub "w$worker" 2>>/tmp/git.log
		(git_worker $worker "$2") >"/tmp/git.$worker" 2>&1 &
		workers="$workers $!"
		worker=$((worker + 1))
	done
	worker=1
	for pid in $workers; do
		wait "$pid"
		same "git: worker $worker of $1" 0 $? || sed 's/^/# /' /tmp/git.log "/tmp/git.$worker" /tmp/git.push.$worker
		worker=$((worker + 1))
	done
	for repo in hub w*; do
		check "git: fsck of $repo" git -C "$repo" fsck --full --strict
		check "git: the host's fsck of $repo" host gitfsck "git/$repo"
	done
	same "git: commits in the hub" "$(($1 * $2 + 1))" \
		"$(git -C hub rev-list --no-merges --count main)"
	check "git: a clone of the result" git clone -q hub last
	same "git: files of all workers" $(($1 * ($2 + 5) + 1)) "$(find last -name .git -prune -o -type f -print | wc -l)"
	cd ..
	rm -rf git
}
