# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system of one file, named 'file', whose server takes its time over each read.

Speaks to /dev/fuse itself (linux/fuse.h). Mounting needs CAP_SYS_ADMIN.
"""
import ctypes
import errno
import os
import stat
import struct
import threading
import time

LOOKUP, FORGET, GETATTR, STATFS, OPEN, READ, INIT, OPENDIR, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 17, 14, 15, 26, 27, 36, 42)
QUIET_SUCCESS = {18, 25, 29, 34, 38}  # RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
SIZE = 1 << 20
FILE = 2


def attr(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
    return struct.pack('<6Q10I', node, SIZE if node == FILE else 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


class SlowFs:
    def __init__(self, where, seconds):
        self.where, self.seconds = where, seconds
        self.lock = threading.Lock()
        self.dev = os.open('/dev/fuse', os.O_RDWR | os.O_CLOEXEC)
        os.makedirs(where, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f'fd={self.dev},rootmode=40000,user_id=0,group_id=0,allow_other'
        if libc.mount(b'slow', where.encode(), b'fuse', 6, options.encode()):
            raise OSError(ctypes.get_errno(), f'mount {where}')
        self.umount = lambda: libc.umount2(where.encode(), 2)
        threading.Thread(target=self.serve, daemon=True).start()

    def reply(self, unique, error=0, payload=b''):
        try:
            os.write(self.dev, struct.pack('<IiQ', 16 + len(payload), -error, unique) + payload)
        except OSError:
            pass  # interrupted, or unmounted

    def read_slowly(self, unique, size):
        time.sleep(self.seconds)
        self.reply(unique, 0, bytes(size))

    def one(self, opcode, unique, node, arg):
        if opcode == INIT:
            _, minor = struct.unpack_from('<II', arg)
            self.reply(unique, 0, struct.pack('<4I2H2I2H8I', 7, min(minor, 31), 0, 0, 16, 12, 1 << 17, 1, 0, 0, *[0] * 8))
        elif opcode == LOOKUP:
            if arg.rstrip(b'\0') == b'file':
                self.reply(unique, 0, struct.pack('<4Q2I', FILE, 0, 1000, 1000, 0, 0) + attr(FILE))
            else:
                self.reply(unique, errno.ENOENT)
        elif opcode == GETATTR:
            self.reply(unique, 0, struct.pack('<QII', 1000, 0, 0) + attr(node))
        elif opcode in (OPEN, OPENDIR):
            self.reply(unique, 0, struct.pack('<QII', 0, 1 if opcode == OPEN else 0, 0))  # direct I/O
        elif opcode == READ:
            size, = struct.unpack_from('<16xI', arg)
            threading.Thread(target=self.read_slowly, args=(unique, size), daemon=True).start()
        elif opcode == STATFS:
            self.reply(unique, 0, bytes(80))
        elif opcode in QUIET_SUCCESS:
            self.reply(unique)
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
            self.reply(unique, errno.ENOSYS)

    def serve(self):
        while True:
            try:
                request = os.read(self.dev, 1 << 18)
            except OSError as e:
                if e.errno in (errno.ENOENT, errno.EINTR):
                    continue
                return
            _, opcode, unique, node = struct.unpack_from('<IIQQ', request)
            self.one(opcode, unique, node, request[40:])
