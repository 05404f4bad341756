#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TAP: the borders between the folders hold, and the tree keeps its own rules.

usage: structure.py SOURCE_ROOT BUILD_ROOT
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

# folder -> (a header that it must be able to include, headers that it must not)
BORDERS = {
    'src/util': ('util_fd.h', ['daxmap/table.h', 'vhost.h', 'fs.h']),
    'reclaim': ('util_lock.h', ['daxmap/table.h', 'vhost.h', 'fs.h']),
    'dax': ('daxmap/table.h', ['vhost.h', 'fs.h', 'fuse_session.h']),
    'src/vhost': ('util_gvec.h', ['fs.h', 'fuse_session.h', 'daxmap/table.h']),
    'src/fs': ('util_gvec.h', ['vhost.h', 'fuse_session.h', 'daxmap/table.h']),
    'src/window': ('vhost.h', ['fs.h', 'fuse_session.h']),
    'src/policy': ('util_lock.h', ['fs.h', 'vhost.h', 'fuse_session.h', 'daxmap/table.h']),
    'src/size': ('trace_reader.h', ['fs.h', 'vhost.h', 'fuse_session.h', 'guest.h', 'ctl_common.h']),
    'src/fuse': ('fs.h', ['vhost.h', 'policy.h']),
    'src/guest': ('daxmap/cache.h', ['fs.h', 'fuse_session.h', 'vhost.h']),
    'src/trace': ('daxmap/trace.h', ['dm_core.h', 'fs.h', 'vhost.h', 'fuse_session.h', 'sim.h']),
    'src/sim': ('trace_reader.h', ['dm_core.h', 'fs.h', 'vhost.h', 'fuse_session.h', 'guest.h']),
    'src/load': ('guest.h', ['fs.h', 'fuse_session.h']),
    'src/sandbox': ('util_fd.h', ['fs.h', 'vhost.h', 'daxmap/table.h']),
    'src/ctl': ('util_fd.h', ['fs.h', 'vhost.h', 'fuse_session.h']),
}

SOURCE = re.compile(r'\.(c|h|py|sh)$|meson\.build$')
MAX_LINES = 1000


class Tap:
    def __init__(self):
        self.n = 0
        self.failed = 0

    def point(self, good, name, why=''):
        self.n += 1
        if not good:
            self.failed += 1
            for line in str(why).splitlines():
                print('#', line)
        print('ok' if good else 'not ok', self.n, '-', name)


def compile_flags(build, folder):
    """The preprocessor flags that the folder's own sources are built with."""
    with open(os.path.join(build, 'compile_commands.json')) as f:
        for entry in json.load(f):
            name = os.path.normpath(os.path.join(entry['directory'], entry['file']))
            rel = os.path.relpath(name, source)
            if os.path.dirname(rel) == folder and not rel.endswith('main.c'):
                words = shlex.split(entry['command'])
                if os.path.basename(words[0]) == 'ccache':
                    words.pop(0)
                keep = [w for w in words[1:] if re.match(r'-(I|D|std|isystem|pthread)', w)]
                return words[0], keep, entry['directory']
    return None


def includes(flags, header):
    compiler, args, cwd = flags
    with tempfile.NamedTemporaryFile('w', suffix='.c') as f:
        opener, closer = ('<', '>') if header.startswith('daxmap/') else ('"', '"')
        f.write(f'#include <stdint.h>\n#include {opener}{header}{closer}\n')
        f.flush()
        run = subprocess.run([compiler, *args, '-fsyntax-only', f.name], cwd=cwd,
                             capture_output=True, text=True)
    return run.returncode == 0, run.stderr


def check_borders(tap, build):
    for folder, (allowed, forbidden) in BORDERS.items():
        flags = compile_flags(build, folder)
        if not flags:
            tap.point(False, f'{folder} is built', 'no source of it in compile_commands.json')
            continue
        good, err = includes(flags, allowed)
        tap.point(good, f'{folder} can include {allowed}', err)
        for header in forbidden:
            good, _ = includes(flags, header)
            tap.point(not good, f'{folder} cannot include {header}', 'it compiled')


def tracked(root):
    run = subprocess.run(['git', '-C', root, 'ls-files'], capture_output=True, text=True)
    if run.returncode != 0:
        found = []
        for base, dirs, files in os.walk(root):
            dirs[:] = [d for d in dirs if not d.startswith('.') and not d.startswith('build')]
            found += [os.path.relpath(os.path.join(base, f), root) for f in files]
        return found
    return [f for f in run.stdout.splitlines() if os.path.exists(os.path.join(root, f))]


def check_tree(tap, root):
    bad = {'a path that climbs in an include': [], 'no SPDX line': [], 'too long': [],
           'a registry host or a path of one machine': [], 'a marker of a merge': []}
    host = re.compile(r'(deb|security)\.debian\.' + r'org|registry\.npmjs|/' + r'home/\w')
    for name in tracked(root):
        try:
            with open(os.path.join(root, name), encoding='utf-8') as f:
                text = f.read()
        except (UnicodeDecodeError, IsADirectoryError):
            continue
        lines = text.splitlines()
        if host.search(text):
            bad['a registry host or a path of one machine'].append(name)
        if re.search(r'^(<{7}|>{7}) ', text, re.M):
            bad['a marker of a merge'].append(name)
        if not SOURCE.search(name):
            continue
        if not any('SPDX-License-Identifier: Apache-2.0' in line for line in lines[:4]):
            bad['no SPDX line'].append(name)
        if re.search(r'^#include "\.\.', text, re.M):
            bad['a path that climbs in an include'].append(name)
        if name.endswith(('.c', '.h')) and len(lines) > MAX_LINES:
            bad['too long'].append(f'{name}: {len(lines)} lines')
    for rule, names in bad.items():
        tap.point(not names, f'no file with: {rule}', '\n'.join(names))


source = os.path.abspath(sys.argv[1])
tap = Tap()
check_borders(tap, os.path.abspath(sys.argv[2]))
check_tree(tap, source)
print(f'1..{tap.n}')
sys.exit(1 if tap.failed else 0)
