# SPDX-License-Identifier: Apache-2.0
#
# What the guest tests do in the guest, one function a behaviour; each prints TAP results.
# Sourced by a script after guest/lib.sh. Works in the current folder, the mounted share.

# step_md5 LIST: every file of the list (md5sum's format) reads back as the host wrote it
step_md5() {
	while read -r sum name; do
		same "md5 of $name ($(stat -c %s "$name") bytes)" "$sum" "$(md5sum <"$name" | cut -d' ' -f1)"
	done <"$1"
}

# step_fio RW ENGINE JOBS SIZE [ARG...]: what fio wrote it reads back, each job in its own file
# under fio/. The files have their full size first, so that under DAX they are mapped, not grown.
step_fio() {
	fio_rw=$1 fio_engine=$2 fio_jobs=$3 fio_size=$4
	shift 4
	mkdir -p fio
	job=0
	while [ $job -lt "$fio_jobs" ]; do
		truncate -s "$fio_size" "fio/v.$job.0"
		job=$((job + 1))
	done
	check "fio verify: $fio_rw, $fio_engine, $fio_jobs jobs of $fio_size $*" fio --name=v \
		--directory=fio --filename_format='v.$jobnum.$filenum' --rw="$fio_rw" \
		--ioengine="$fio_engine" --iodepth=8 --numjobs="$fio_jobs" --size="$fio_size" --bs=4k \
		--fallocate=none --verify=crc32c --verify_fatal=1 --do_verify=1 --thread=0 \
		--group_reporting "$@"
	rm -f fio/v.*
}
