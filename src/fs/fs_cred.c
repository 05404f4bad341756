// SPDX-License-Identifier: Apache-2.0
/*
 * Whose work is it? Credentials, CAP_FSETID, umask and working directory of the calling thread.
 *
 * All four belong to the thread, not to the process: the system calls are made directly, as the
 * C library's setresuid() and friends would change every thread. umask and working directory
 * become the thread's own by unshare(CLONE_FS), once.
 *
 * Creation happens with the requester's effective uid and gid, as those decide who owns the new
 * file and whether a setgid bit may stay; supplementary groups are dropped, or just the one that
 * the guest named. Leaving root for a uid takes the effective capabilities away and coming back
 * restores them (capabilities(7), "Effect of user ID changes"), so what a guest's user makes is
 * checked as that user. A guest that does not name groups has checked the directory itself; what
 * its user may do by a group that we do not know is tried again with CAP_DAC_OVERRIDE.
 *
 * setfsuid() would do for files, but says nothing when it fails; setresuid() does.
 *
 * CAP_FSETID decides whether a write, truncation or chmod clears setuid and setgid bits. A thread
 * keeps the state it had last: writers that all want them cleared pay for one capset() once, not
 * for two a write. No write ever asks for security.capability: the kernel drops it by itself.
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/syscall.h>

#include "fs_int.h"
#include "util_log.h"

enum fsetid { FSETID_UNKNOWN, FSETID_KEPT, FSETID_DROPPED };

/* What is known of this thread; nothing is inherited. */
static __thread struct {
	bool known; /* the fields up to fsetid */
	bool may_switch;
	bool groups_dropped;
	uid_t uid;
	gid_t gid;
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
	enum fsetid fsetid;
	bool own_fs;
	bool in_proc;
} self;

static bool has_cap(uint32_t caps_low, unsigned int cap)
{
	return caps_low & (1u << cap); /* all that are used here are below 32 */
}

/* syscalls: capget capset */
static bool caps_read(void)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &hdr, self.caps) == 0;
}

static bool caps_write_effective(uint32_t low, uint32_t high)
{
	struct __user_cap_header_struct hdr = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {self.caps[0], self.caps[1]};

	data[0].effective = low;
	data[1].effective = high;
	return syscall(SYS_capset, &hdr, data) == 0;
}

/* syscalls: geteuid getegid */
static void self_learn(void)
{
	if (self.known)
		return;
	self.uid = geteuid();
	self.gid = getegid();
	if (!caps_read())
		self.caps[0] = self.caps[1] = (struct __user_cap_data_struct){0};
	self.may_switch = has_cap(self.caps[0].effective, CAP_SETUID) &&
			  has_cap(self.caps[0].effective, CAP_SETGID);
	self.known = true;
}

/* unshare() is in the seccomp filter by hand, as only this argument is allowed. */
/* syscalls: umask */
static int self_own_fs(void)
{
	if (self.own_fs)
		return 0;
	if (unshare(CLONE_FS) < 0)
		return -errno;
	umask(0);
	self.own_fs = true;
	return 0;
}

/* syscalls: fchdir */
int fs_cred_enter_proc(struct fs *fs)
{
	int err;

	if (self.in_proc)
		return 0;
	err = self_own_fs();
	if (err < 0)
		return err;
	if (fchdir(fs->config.proc_self_fd) < 0)
		return -errno;
	self.in_proc = true;
	return 0;
}

void fs_cred_fsetid(bool keep)
{
	enum fsetid want = keep ? FSETID_KEPT : FSETID_DROPPED;
	uint32_t low;

	if (self.fsetid == want)
		return;
	self_learn();
	self.fsetid = want;
	if (!has_cap(self.caps[0].permitted, CAP_FSETID))
		return; /* never had it: bits are always cleared */
	low = self.caps[0].effective & ~(1u << CAP_FSETID);
	if (keep)
		low |= 1u << CAP_FSETID;
	if (!caps_write_effective(low, self.caps[1].effective)) {
		/* Capabilities were taken from us since we looked: look again, try once more. */
		if (caps_read()) {
			low &= self.caps[0].permitted;
			caps_write_effective(low, self.caps[1].effective);
		}
	}
}

/* syscalls: setgroups */
static int groups_set(struct fs_cred_scope *s, const struct fs_cred *c)
{
	if (c->has_sup_group) {
		if (syscall(SYS_setgroups, (size_t)1, &c->sup_gid) < 0)
			return -errno;
		s->group_added = true;
		self.groups_dropped = true;
		return 0;
	}
	if (self.groups_dropped)
		return 0;
	/* Refused in a user namespace with setgroups denied; there they are not ours to have. */
	if (syscall(SYS_setgroups, (size_t)0, NULL) < 0 && errno != EPERM)
		return -errno;
	self.groups_dropped = true;
	return 0;
}

/* syscalls: setresuid setresgid */
static int ids_set(struct fs_cred_scope *s, const struct fs_cred *c)
{
	if (c->gid != self.gid) {
		if (syscall(SYS_setresgid, (gid_t)-1, c->gid, (gid_t)-1) < 0)
			return -errno;
		s->gid_changed = true;
	}
	if (c->uid != self.uid) {
		if (syscall(SYS_setresuid, (uid_t)-1, c->uid, (uid_t)-1) < 0)
			return -errno;
		s->uid_changed = true;
		s->may_override = !c->has_sup_group && self.uid == 0;
	}
	return 0;
}

int fs_cred_enter(struct fs *fs, const struct fs_cred *c, struct fs_cred_scope *s)
{
	int err;

	*s = (struct fs_cred_scope){.uid = c->uid};
	self_learn();
	err = self_own_fs();
	if (err < 0)
		return err;
	/* (uid_t)-1 means "leave as is" to the kernel: nobody's id. */
	if (c->uid == (uid_t)-1 || c->gid == (gid_t)-1 ||
	    (c->has_sup_group && c->sup_gid == (gid_t)-1))
		return -EINVAL;
	/* Becoming another user takes CAP_FSETID away anyhow. */
	if (c->uid == self.uid || !self.may_switch)
		fs_cred_fsetid(true);
	if (c->uid != self.uid || c->gid != self.gid) {
		if (!self.may_switch) {
			util_log_once("may not act as uid %u, gid %u: new files belong to uid %u, "
				      "gid %u",
				      c->uid, c->gid, self.uid, self.gid);
		} else {
			err = groups_set(s, c);
			if (err == 0)
				err = ids_set(s, c);
			if (err < 0) {
				fs_cred_leave(s);
				return err;
			}
		}
	}
	if (c->umask & 0777) {
		umask(c->umask & 0777);
		s->umask_changed = true;
	}
	return 0;
}

void fs_cred_leave(struct fs_cred_scope *s)
{
	if (s->umask_changed)
		umask(0);
	/* The saved ids are still our own, so this cannot fail; a thread that kept a guest's
	 * credentials must not go on. */
	if (s->uid_changed && syscall(SYS_setresuid, (uid_t)-1, self.uid, (uid_t)-1) < 0)
		g_error("cannot return to uid %u: %s", self.uid, g_strerror(errno));
	if (s->gid_changed && syscall(SYS_setresgid, (gid_t)-1, self.gid, (gid_t)-1) < 0)
		g_error("cannot return to gid %u: %s", self.gid, g_strerror(errno));
	if (s->group_added)
		syscall(SYS_setgroups, (size_t)0, NULL);
	/* Back at root the effective set is the permitted one, whatever it was before. */
	if (s->uid_changed)
		self.fsetid = self.uid == 0 ? FSETID_KEPT : FSETID_UNKNOWN;
}

bool fs_cred_override(struct fs_cred_scope *s)
{
	if (!s->may_override || !has_cap(self.caps[0].permitted, CAP_DAC_OVERRIDE))
		return false;
	s->may_override = false;
	return caps_write_effective(1u << CAP_DAC_OVERRIDE, 0);
}
