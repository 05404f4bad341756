#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TAP: daxmap-load as a program, against the daemon and, without DAX, against both virtiofsds.

usage: load.py LOAD DAEMON CACHE [OPS]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LOAD, DAEMON, CACHE = sys.argv[1:4]
OPS = sys.argv[4] if len(sys.argv) > 4 else '600'
SECCOMP = os.environ.get('LOAD_SECCOMP', 'kill')
FIELDS = ['iops', 'bytes_per_s', 'lat_us.p50', 'lat_us.p99', 'lat_us.max', 'verify_errors',
          'cpu_us_per_op.daemon', 'cpu_us_per_op.load', 'violations', 'dax.hits', 'dax.maps',
          'dax.removes', 'dax.elided', 'dax.reclaimed', 'dax.by_read']
points = [0, 0]


def point(good, name, why=''):
    points[0] += 1
    if not good:
        points[1] += 1
        for line in str(why).splitlines():
            print('#', line)
    print('ok' if good else 'not ok', points[0], '-', name, flush=True)


def skip(name, why):
    points[0] += 1
    print(f'ok {points[0]} - {name} # SKIP {why}', flush=True)


class Server:
    """A back-end on a share of its own."""

    def __init__(self, argv, base):
        self.base = base
        self.share = os.path.join(base, 'share')
        self.socket = os.path.join(base, 'socket')
        os.makedirs(self.share, exist_ok=True)
        self.log = open(os.path.join(base, 'log'), 'a')
        words = [w.format(share=self.share, socket=self.socket) for w in argv]
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 60
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(self.text())
            time.sleep(0.01)

    def text(self):
        with open(self.log.name) as f:
            return f.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        self.log.close()
        return code


def load(server, *args, json_too=True):
    words = [LOAD, '--timeout', '60', '--socket-path', server.socket, *args]
    run = subprocess.run(words + (['--json'] if json_too else []), capture_output=True, text=True,
                         timeout=300)
    return run.returncode, run.stdout, run.stderr


def daxmapd(base, *args):
    return Server([DAEMON, '--socket-path', '{socket}', '--shared-dir', '{share}', '--persistent',
                   '--sandbox', 'none', '--seccomp', SECCOMP, '--cache-size', '16M',
                   '--dax-guard', 'off', *args], base)  # windows smaller than the load are the point


def check_run(server, name, *args, window=False):
    code, out, err = load(server, '--verify', *args)
    why = f'{args}: exit {code}\n{err}{out}'
    try:
        r = json.loads(out)
        good = (code == 0 and r['ops'] > 0 and r['verify_errors'] == 0 and r['violations'] == 0
                and (not window or r['dax']['hits'] + r['dax']['maps'] > 0))
    except ValueError:
        good = False
    point(good, name, why)
    return out


def of_threads(pid, comm, field):
    """What /proc/PID/task/*/status says in this field of the threads of this name."""
    values = []
    for task in os.listdir(f'/proc/{pid}/task'):
        try:
            with open(f'/proc/{pid}/task/{task}/status') as f:
                status = dict(line.split(':', 1) for line in f)
        except OSError:
            continue
        if status['Name'].strip() == comm:
            values.append(status[field].strip())
    return values


def until(run, what):
    """Asks until it is so, the run has ended, or half a minute is over."""
    end = time.monotonic() + 30
    good = what()
    while not good and run.poll() is None and time.monotonic() < end:
        good = what()
    return good


def threads(server):
    """Seen from outside, while it runs and everything is mapped."""
    allowed = sorted(str(c) for c in os.sched_getaffinity(0))
    words = [LOAD, '--socket-path', server.socket, '--engine', 'auto', '--size', '8M', '--jobs', str(2 * len(allowed)),
             '--bind', '--runtime', '90']

    def spread():
        return sorted(set(of_threads(run.pid, 'load', 'Cpus_allowed_list'))) == allowed

    def asleep():
        before = of_threads(run.pid, 'guest-mapper', 'voluntary_ctxt_switches')
        time.sleep(0.5)
        return before and before == of_threads(run.pid, 'guest-mapper', 'voluntary_ctxt_switches')

    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        point(until(run, spread), '--bind spreads the threads over the CPUs')
        point(until(run, asleep), 'the mapper sleeps when all is mapped, also where there are neighbours by chance')
        run.kill()


def io_modes(server):
    for rw in ['read', 'write', 'randread', 'randwrite', 'randrw']:
        check_run(server, f'{rw} by request', '--rw', rw, '--ops', OPS, '--size', '8M', '--jobs', '2',
                  '--iodepth', '8', '--files', '2')
    check_run(server, 'blocks below a page', '--rw', 'randrw', '--bs', '512', '--ops', OPS, '--size', '4M')
    check_run(server, 'blocks of a megabyte', '--rw', 'randrw', '--bs', '1M', '--ops', '50', '--size',
              '32M', '--iodepth', '4')
    check_run(server, 'more in flight than a ring holds', '--rw', 'randread', '--jobs', '8', '--iodepth',
              '256', '--ops', '1024', '--size', '8M')
    for rw, ops in [('lookup', OPS), ('getattr', OPS), ('create', '100'), ('readdir', '5'),
                    ('untar', '100')]:
        check_run(server, rw, '--rw', rw, '--ops', ops, '--jobs', '2', '--iodepth', '4', '--files', '300')


def dax_modes(server):
    for mode in ['strict', 'overlay']:
        for size, window in [('8M', '16M'), ('32M', '8M')]:
            for engine in ['dax', 'auto']:
                for rw in ['randread', 'randrw']:
                    check_run(server, f'{rw}, {engine}, {mode}, {size} through {window}', '--rw', rw,
                              '--engine', engine, '--window-mode', mode, '--window', window, '--size',
                              size, '--ops', OPS, '--jobs', '2', '--iodepth', '4',
                              window=engine == 'dax')
    check_run(server, 'vanilla reclaim', '--engine', 'dax', '--reclaim', 'vanilla', '--window', '8M',
              '--size', '32M', '--ops', '200', '--jobs', '2', window=True)
    check_run(server, "Zipf's law", '--engine', 'auto', '--zipf', '1.1', '--size', '32M', '--window', '8M',
              '--ops', OPS)
    for admission in ['always', 'eager']:
        for rw in ['read', 'randrw']:
            check_run(server, f'{rw}, admission {admission}', '--rw', rw, '--engine', 'dax', '--admission', admission,
                      '--size', '32M', '--window', '8M', '--ops', OPS, '--jobs', '4', window=admission == 'always')
    check_run(server, 'in order, ahead of time', '--rw', 'read', '--engine', 'auto', '--size', '32M', '--window', '16M',
              '--ops', '8192')
    for rw in ['read', 'randread', 'randrw']:
        check_run(server, f'{rw}, a thread for each job that the window serves', '--rw', rw, '--engine', 'auto', '--size',
                  '16M', '--window', '32M', '--ops', '6000', '--jobs', '6', '--queues', '1')
    check_run(server, 'a ramp', '--engine', 'auto', '--size', '16M', '--window', '32M', '--ramp', '0.2', '--runtime',
              '0.1', '--jobs', '2')
    threads(server)
    for slot in ['64K', '1M']:
        check_run(server, f'slots of {slot}', '--rw', 'randrw', '--engine', 'dax', '--admission', 'always', '--slot', slot,
                  '--size', '32M', '--window', '4M', '--ops', OPS, '--jobs', '2', window=True)
    out = check_run(server, 'admission never', '--engine', 'auto', '--admission', 'never', '--size', '8M',
                    '--ops', OPS)
    point(json.loads(out)['dax']['maps'] == 0, 'admission never maps nothing', out)


def fields(server):
    _, out, _ = load(server, '--ops', '50', '--size', '8M')
    r = json.loads(out)
    for path in FIELDS:
        at = r
        for part in path.split('.'):
            at = at.get(part) if isinstance(at, dict) else None
        point(isinstance(at, (int, float)), f'JSON has {path}', out)
    a = json.loads(load(server, '--ops', '50', '--seed', '7', '--size', '8M')[1])
    point(a['ops'] == 50, '--ops runs just so many', a['ops'])


def corruption(server):
    load(server, '--rw', 'read', '--ops', '1', '--size', '8M')
    path = os.path.join(server.share, 'daxmap-load', 'data-4096.0')
    for off, what in [(4096 * 7 + 100, 'a word inside a page'), (4096 * 9 + 8, "a page's place")]:
        with open(path, 'r+b') as f:
            f.seek(off)
            old = f.read(1)
            f.seek(off)
            f.write(bytes([old[0] ^ 1]))
        for engine in ['read', 'dax']:
            code, out, err = load(server, '--rw', 'read', '--engine', engine, '--ops', '2048', '--size',
                                  '8M', '--verify')
            point(code == 1 and json.loads(out)['verify_errors'] == 1 and 'wrong data' in err,
                  f'--engine={engine} sees {what} that is wrong', f'exit {code}\n{err}{out}')
        with open(path, 'r+b') as f:
            f.seek(off)
            f.write(old)


def bad_options():
    for args, needles in [
            (['--rw', 'upside'], ['--rw', 'upside', 'randread']),
            (['--bs', '3000'], ['--bs', '3000', 'power of two']),
            (['--bs', '4Q'], ['--bs', '4Q', '512..']),
            (['--iodepth', '0'], ['--iodepth', "'0'", '1..1024']),
            (['--engine', 'steam'], ['--engine', 'steam', 'read|dax|auto']),
            (['--window-mode', 'none'], ['--window-mode', 'strict|overlay']),
            (['--size', '1K'], ['--size', '1K', '4096..']),
            (['--zipf', 'x'], ['--zipf', "'x'", '0..10']),
            (['--slot', '3M'], ['--slot', '3145728', 'power of two']),
            (['--slot', '64K', '--bs', '128K'], ['--slot', '65536', '--bs']),
            (['--slot', '2K'], ['--slot', '2K', '4096']),
            (['--ramp', '1', '--ops', '5'], ['--ramp', 'not with --ops']),
            (['--no-such'], ['no-such']),
            (['extra'], ['extra']),
    ]:
        run = subprocess.run([LOAD, '--socket-path', '/nowhere', *args], capture_output=True, text=True,
                             timeout=60)
        point(run.returncode == 2 and all(n in run.stderr for n in needles),
              f'{" ".join(args)} is refused with its reason', f'exit {run.returncode}\n{run.stderr}')
    run = subprocess.run([LOAD], capture_output=True, text=True, timeout=60)
    point(run.returncode == 2 and '--socket-path' in run.stderr, 'a socket is asked for', run.stderr)
    run = subprocess.run([LOAD, '--socket-path', '/nowhere'], capture_output=True, text=True, timeout=60)
    point(run.returncode == 1 and '/nowhere' in run.stderr, 'no back-end: exit 1', run.stderr)


def death(base, engine, *jobs):
    """The back-end is killed midway: an error, and soon."""
    server = daxmapd(os.path.join(base, 'death-' + engine + ''.join(jobs)))
    load(server, '--ops', '1', '--size', '32M')
    run = subprocess.Popen([LOAD, '--socket-path', server.socket, '--engine', engine, '--size', '32M',
                            '--window', '8M', '--runtime', '300', *(jobs or ['--iodepth', '4', '--jobs', '2'])],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_connected(server, 2)
    server.process.send_signal(signal.SIGKILL)
    try:
        _, err = run.communicate(timeout=60)
        point(run.returncode == 1 and err, f'--engine={engine}: the back-end is killed, exit 1', err)
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
        point(False, f'--engine={engine}: the back-end is killed, exit 1', 'it hangs')
    server.stop()


def wait_connected(server, times):
    end = time.monotonic() + 60
    while len(re.findall('VMM has connected', server.text())) < times and time.monotonic() < end:
        time.sleep(0.01)


PEERS = {
    'C virtiofsd': ('qemu-7.2', ['--socket-path={socket}', '-o', 'source={share},sandbox=chroot,xattr']),
    'Rust virtiofsd': ('qemu-11', ['--socket-path', '{socket}', '--shared-dir', '{share}', '--sandbox', 'none',
                                   '--xattr']),
}


def peers(base):
    """What is not in the cache is fetched: packages, once for all tests."""
    fetch = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'guest', 'fetch')
    why = '' if os.geteuid() == 0 else 'they run only as root'
    if not why:
        run = subprocess.run([fetch, *(p for p, _ in PEERS.values())], capture_output=True, text=True,
                             env={**os.environ, 'DAXMAPD_CACHE': CACHE})
        if run.returncode:
            why = 'cannot be fetched: ' + (run.stderr.strip().splitlines() or ['?'])[-1]
    for name, (folder, args) in PEERS.items():
        if why:
            skip(f'{name}, --verify', why)
            continue
        for rw in ['read', 'write', 'randread', 'randwrite', 'randrw', 'lookup', 'getattr', 'create', 'readdir', 'untar']:
            server = Server([os.path.join(CACHE, folder, 'launch', 'virtiofsd'), *args],
                            os.path.join(base, folder))
            check_run(server, f'{name}: {rw}', '--rw', rw, '--ops', '20' if rw == 'readdir' else '300',
                      '--size', '8M', '--iodepth', '8', '--jobs', '2')
            server.stop()


def main():
    base = tempfile.mkdtemp(prefix='daxmap-load-')
    try:
        bad_options()
        run = subprocess.run([LOAD, '--null', '--json', '--ops', '500', '--size', '8M', '--iodepth', '8'],
                             capture_output=True, text=True, timeout=60)
        point(run.returncode == 0 and json.loads(run.stdout)['ops'] == 500, 'null back-end', run.stderr)
        server = daxmapd(os.path.join(base, 'daemon'), '--num-request-queues', '2')
        io_modes(server)
        dax_modes(server)
        fields(server)
        corruption(server)
        code = server.stop()
        point(code == 0 and 'Sanitizer' not in server.text() and 'runtime error' not in server.text(),
              'the daemon ends well', f'exit {code}\n{server.text()}')
        death(base, 'read')
        death(base, 'dax')
        death(base, 'auto')
        death(base, 'auto', '--jobs', '6')
        peers(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f'1..{points[0]}')
    return 1 if points[1] else 0


sys.exit(main())
