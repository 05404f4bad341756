// SPDX-License-Identifier: Apache-2.0
#include "fuse_ops.h"

#include "fuse_internal.h"

#define ARGS(type) .args = sizeof(struct type)
#define ENTRY sizeof(struct fuse_entry_out)
#define ATTR sizeof(struct fuse_attr_out)
#define OPEN sizeof(struct fuse_open_out)

#define INLINE .class = FUSE_RUN_INLINE
#define TRY .class = FUSE_RUN_TRY
#define ADAPT .class = FUSE_RUN_ADAPT
#define POOL .class = FUSE_RUN_POOL
#define VMM .class = FUSE_RUN_VMM
#define ALONE .class = FUSE_RUN_ALONE

/*
 * Argument and reply structures: linux/fuse.h; the sizes of old minors are its FUSE_COMPAT_*.
 * Rows without a handler answer ENOSYS, which the guest remembers.
 *
 * Classes: what the kernel may have to wait for is POOL (fsync and friends always do, so there
 * is nothing to learn); what usually only touches memory is ADAPT.
 */
const struct fuse_op fuse_ops[FUSE_NUM_OPS] = {
	[0] = {"unknown", INLINE},
	[FUSE_LOOKUP] = {"lookup", fuse_op_lookup, .reply = ENTRY, TRY, .flags = FUSE_OP_TRUST},
	[FUSE_FORGET] = {"forget", fuse_op_forget, ARGS(fuse_forget_in), INLINE,
			 .flags = FUSE_OP_NO_REPLY},
	[FUSE_GETATTR] = {"getattr", fuse_op_getattr, ARGS(fuse_getattr_in), .old_minor = 9,
			  .reply = ATTR, TRY},
	[FUSE_SETATTR] = {"setattr", fuse_op_setattr, ARGS(fuse_setattr_in), .reply = ATTR, ADAPT},
	[FUSE_READLINK] = {"readlink", fuse_op_readlink, ADAPT},
	[FUSE_SYMLINK] = {"symlink", fuse_op_symlink, .reply = ENTRY, ADAPT,
			  .flags = FUSE_OP_IN_DIR},
	[FUSE_MKNOD] = {"mknod", fuse_op_mknod, ARGS(fuse_mknod_in),
			.args_old = FUSE_COMPAT_MKNOD_IN_SIZE, .old_minor = 12, .reply = ENTRY,
			ADAPT, .flags = FUSE_OP_IN_DIR},
	[FUSE_MKDIR] = {"mkdir", fuse_op_mkdir, ARGS(fuse_mkdir_in), .reply = ENTRY, ADAPT,
			.flags = FUSE_OP_IN_DIR},
	[FUSE_UNLINK] = {"unlink", fuse_op_unlink, ADAPT, .flags = FUSE_OP_IN_DIR},
	[FUSE_RMDIR] = {"rmdir", fuse_op_rmdir, ADAPT, .flags = FUSE_OP_IN_DIR},
	[FUSE_RENAME] = {"rename", fuse_op_rename, ARGS(fuse_rename_in), ADAPT},
	[FUSE_LINK] = {"link", fuse_op_link, ARGS(fuse_link_in), .reply = ENTRY, ADAPT},
	[FUSE_OPEN] = {"open", fuse_op_open, ARGS(fuse_open_in), .reply = OPEN, ADAPT},
	[FUSE_READ] = {"read", fuse_op_read, ARGS(fuse_read_in), .args_old = 24, .old_minor = 9,
		       TRY},
	[FUSE_WRITE] = {"write", fuse_op_write, ARGS(fuse_write_in),
			.args_old = FUSE_COMPAT_WRITE_IN_SIZE, .old_minor = 9,
			.reply = sizeof(struct fuse_write_out), TRY, .flags = FUSE_OP_TRUST},
	[FUSE_STATFS] = {"statfs", fuse_op_statfs, .reply = sizeof(struct fuse_statfs_out), ADAPT},
	[FUSE_RELEASE] = {"release", fuse_op_release, ARGS(fuse_release_in), ADAPT},
	[FUSE_FSYNC] = {"fsync", fuse_op_fsync, ARGS(fuse_fsync_in), POOL},
	[FUSE_SETXATTR] = {"setxattr", fuse_op_setxattr, ARGS(fuse_setxattr_in), ADAPT},
	[FUSE_GETXATTR] = {"getxattr", fuse_op_getxattr, ARGS(fuse_getxattr_in), ADAPT},
	[FUSE_LISTXATTR] = {"listxattr", fuse_op_listxattr, ARGS(fuse_getxattr_in), ADAPT},
	[FUSE_REMOVEXATTR] = {"removexattr", fuse_op_removexattr, ADAPT},
	[FUSE_FLUSH] = {"flush", fuse_op_flush, ARGS(fuse_flush_in), ADAPT},
	[FUSE_INIT] = {"init", fuse_op_init, ARGS(fuse_init_in), ALONE,
		       .flags = FUSE_OP_ARGS_MAY_END_EARLY},
	[FUSE_OPENDIR] = {"opendir", fuse_op_opendir, ARGS(fuse_open_in), .reply = OPEN, ADAPT},
	[FUSE_READDIR] = {"readdir", fuse_op_readdir, ARGS(fuse_read_in), .args_old = 24,
			  .old_minor = 9, ADAPT},
	[FUSE_RELEASEDIR] = {"releasedir", fuse_op_releasedir, ARGS(fuse_release_in), ADAPT},
	[FUSE_FSYNCDIR] = {"fsyncdir", fuse_op_fsyncdir, ARGS(fuse_fsync_in), POOL},
	[FUSE_GETLK] = {"getlk", fuse_op_getlk, ARGS(fuse_lk_in),
			.reply = sizeof(struct fuse_lk_out), ADAPT},
	[FUSE_SETLK] = {"setlk", fuse_op_setlk, ARGS(fuse_lk_in), ADAPT},
	[FUSE_SETLKW] = {"setlkw", fuse_op_setlkw, ARGS(fuse_lk_in), ADAPT},
	[FUSE_ACCESS] = {"access", fuse_op_access, ARGS(fuse_access_in), ADAPT},
	[FUSE_CREATE] = {"create", fuse_op_create, ARGS(fuse_create_in), .args_old = 8,
			 .old_minor = 12, .reply = ENTRY + OPEN, ADAPT},
	[FUSE_INTERRUPT] = {"interrupt", fuse_op_interrupt, ARGS(fuse_interrupt_in), INLINE,
			    .flags = FUSE_OP_NO_REPLY},
	[FUSE_BMAP] = {"bmap", INLINE},
	[FUSE_DESTROY] = {"destroy", fuse_op_destroy, ALONE},
	[FUSE_IOCTL] = {"ioctl", INLINE},
	[FUSE_POLL] = {"poll", INLINE},
	[FUSE_NOTIFY_REPLY] = {"notify_reply", INLINE},
	[FUSE_BATCH_FORGET] = {"batch_forget", fuse_op_batch_forget, ARGS(fuse_batch_forget_in),
			       INLINE, .flags = FUSE_OP_NO_REPLY},
	[FUSE_FALLOCATE] = {"fallocate", fuse_op_fallocate, ARGS(fuse_fallocate_in), POOL},
	[FUSE_READDIRPLUS] = {"readdirplus", fuse_op_readdirplus, ARGS(fuse_read_in), ADAPT},
	[FUSE_RENAME2] = {"rename2", fuse_op_rename2, ARGS(fuse_rename2_in), ADAPT},
	[FUSE_LSEEK] = {"lseek", fuse_op_lseek, ARGS(fuse_lseek_in),
			.reply = sizeof(struct fuse_lseek_out), ADAPT},
	[FUSE_COPY_FILE_RANGE] = {"copy_file_range", fuse_op_copy_file_range,
				  ARGS(fuse_copy_file_range_in),
				  .reply = sizeof(struct fuse_write_out), POOL},
	[FUSE_SETUPMAPPING] = {"setupmapping", fuse_op_setupmapping, ARGS(fuse_setupmapping_in),
			       VMM},
	[FUSE_REMOVEMAPPING] = {"removemapping", fuse_op_removemapping, ARGS(fuse_removemapping_in),
				INLINE},
	[FUSE_SYNCFS] = {"syncfs", fuse_op_syncfs, ARGS(fuse_syncfs_in), POOL},
	[FUSE_TMPFILE] = {"tmpfile", fuse_op_tmpfile, ARGS(fuse_create_in), .reply = ENTRY + OPEN,
			  ADAPT},
};

_Static_assert(sizeof(struct fuse_setattr_in) <= FUSE_ARGS_MAX, "FUSE_ARGS_MAX");
_Static_assert(FUSE_NUM_OPS == FUSE_POLICY_KINDS, "one policy kind an opcode");
_Static_assert(FUSE_NUM_OPS <= 64, "fuse_policy.c packs the kind into 6 bits");
