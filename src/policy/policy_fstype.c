// SPDX-License-Identifier: Apache-2.0
/*
 * A list of what is known to be right, not of what is known to be wrong: a network file system
 * that nobody here has heard of would give stale bytes without a word; a local one that is
 * missing merely goes without DAX.
 *
 * Not in it, and why:
 *   9p, FUSE (virtiofs included), NFS, SMB, AFS, Coda, Ceph  another machine or process changes
 *     files without telling this host's page cache. read() revalidates at open; a mapping that
 *     lives for hours does not. And a truncation over there is a SIGBUS in the VMM.
 *   Lustre, GPFS  lock pages over the cluster, but nobody has tried it here.
 *   hugetlbfs     maps in multiples of its own page size only.
 *   proc, sysfs, cgroup, debugfs, ...  sizes that mean nothing, files that cannot be mapped.
 *   ecryptfs      two page caches.
 * ZFS keeps a second copy of what is mapped, and keeps both in step. gfs2 and ocfs2 lock pages
 * over the cluster at the page fault. Read-only file systems are here for VMMs that can
 * write-protect.
 * overlayfs is here although opening a file of a lower layer for writing copies it up: see
 * docs/policy.md.
 */
#include "policy.h"

#include <glib.h>

static const struct {
	uint32_t magic;
	const char *name;
} coherent[] = {
	{0xef53, "ext4"},      {0x58465342, "xfs"},	 {0x9123683e, "btrfs"},
	{0x01021994, "tmpfs"}, {0x858458f6, "ramfs"},	 {0x794c7630, "overlayfs"},
	{0xf2f52010, "f2fs"},  {0xca451a4e, "bcachefs"}, {0x2fc12fc1, "zfs"},
	{0x3153464a, "jfs"},   {0x3434, "nilfs2"},	 {0x52654973, "reiserfs"},
	{0x4d44, "vfat"},      {0x2011bab0, "exfat"},	 {0x7366746e, "ntfs3"},
	{0x01161970, "gfs2"},  {0x7461636f, "ocfs2"},	 {0x73717368, "squashfs"},
	{0xe0f5e1e2, "erofs"}, {0x9660, "iso9660"},	 {0x15013346, "udf"},
};

const char *policy_fstype_name(uint32_t magic)
{
	for (size_t i = 0; i < G_N_ELEMENTS(coherent); i++)
		if (coherent[i].magic == magic)
			return coherent[i].name;
	return NULL;
}
