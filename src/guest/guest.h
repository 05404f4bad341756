/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user-space guest: files of a vhost-user-fs back-end without a kernel and without a VMM.
 *
 *   guest_frontend   the VMM's seat: negotiates, owns memory, rings and life cycle
 *     guest_chan     messages with descriptors on a socket
 *     guest_mem      guest memory and its addresses
 *     guest_ring     one virtqueue, driver's side
 *     guest_window   the DAX window, and the strictness of the VMM that is played
 *   guest_fuse       the guest kernel's seat: FUSE requests, synchronous or many in flight
 *   guest_file       files, by DAX window or request
 *     guest_dax      the window as a driver for libdaxmap's table
 *     guest_admit    what is worth mapping
 *
 *	struct guest_config c = {.socket_path = path};
 *	struct guest_frontend *fe = guest_frontend_new(&c, &error);
 *	struct guest_fuse *fuse = guest_fuse_new(fe, NULL);
 *	guest_frontend_connect(fe, &error) || guest_frontend_start(fe, &error) ||
 *		guest_fuse_init(fuse, 0, NULL);
 *	guest_fuse_path(fuse, "dir/file", &entry);
 */
#ifndef DAXMAP_GUEST_H
#define DAXMAP_GUEST_H

#include "guest_backend.h"
#include "guest_chan.h"
#include "guest_file.h"
#include "guest_frontend.h"
#include "guest_fuse.h"
#include "guest_mem.h"
#include "guest_proto.h"
#include "guest_ring.h"

#endif
