#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TAP: daxmapctl stats, top, metrics and set on daemons at work, and the metrics socket.

usage: watch.py DAXMAPD DAXMAPCTL LOAD SOURCE_ROOT
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

DAXMAPD, CTL, LOAD, SOURCE = sys.argv[1:5]
SECCOMP = os.environ.get('WATCH_SECCOMP', 'kill')
PATIENCE = 60  # seconds until a wait counts as a failure
points = [0, 0]


def point(good, name, why=''):
    points[0] += 1
    if not good:
        points[1] += 1
        for line in str(why).splitlines():
            print('#', line)
    print('ok' if good else 'not ok', points[0], '-', name, flush=True)


def missing(name, why):
    """What cannot be tested: in CI that is a failure."""
    if os.environ.get('CI'):
        point(False, name, why)
    else:
        points[0] += 1
        print(f'ok {points[0]} - {name} # SKIP {why}', flush=True)


def until(check, name, show=lambda: ''):
    """Waits for check() and makes a point of it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if check():
            point(True, name)
            return True
        time.sleep(0.1)
    point(False, name, show())
    return False


def ctl(*args):
    run = subprocess.run([CTL, *args], capture_output=True, text=True, timeout=120)
    return run.returncode, run.stdout, run.stderr


class Daemon:
    def __init__(self, base, *args):
        os.makedirs(os.path.join(base, 'share'))
        self.base = base
        self.control, self.socket, self.metrics, self.share = (
            os.path.join(base, n) for n in ('control', 'socket', 'metrics', 'share'))
        self.log = open(os.path.join(base, 'log'), 'w+')
        self.process = subprocess.Popen(
            [DAXMAPD, '--socket-path', self.socket, '--control-path', self.control,
             '--metrics-socket', self.metrics, '--shared-dir', self.share, '--persistent',
             '--sandbox', 'none', '--seccomp', SECCOMP, *args], stderr=self.log)
        end = time.monotonic() + PATIENCE
        while ctl('stats', '--control-path', self.control)[0] != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(self.text())
            time.sleep(0.05)

    def text(self):
        with open(self.log.name) as f:
            return f.read()

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def scrape(path, request=b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(PATIENCE)
    s.connect(path)
    s.sendall(request)
    got = b''
    while True:
        more = s.recv(65536)
        if not more:
            break
        got += more
    head, _, body = got.partition(b'\r\n\r\n')
    return head.decode(), body.decode()


def families(text):
    return set(re.findall(r'^# TYPE (\S+) ', text, re.M))


def documented(name):
    with open(os.path.join(SOURCE, 'docs', name)) as f:
        return f.read()


# --- metrics ---

def check_metrics(a, b, work):
    head, body = scrape(a.metrics)
    point(head.startswith('HTTP/1.0 200 ') and f'Content-Length: {len(body.encode())}' in head,
          'the metrics socket answers GET /metrics', head)
    point(oct(os.stat(a.metrics).st_mode & 0o777) == '0o600', 'the metrics socket is its owner\'s')
    code, text, err = ctl('metrics', '--control-path', a.control)
    same = re.compile(r'^daxmapd_(uptime|process|fuse|dax|fs|shim|watch)_.*\n', re.M)
    point(code == 0 and same.sub('', text) == same.sub('', body)
          and re.findall(r'^[#].*', text, re.M) == re.findall(r'^[#].*', body, re.M),
          'daxmapctl metrics prints the same', err)
    names = families(body)
    listed = set(re.findall(r'^\| `(daxmapd_\w+)`', documented('metrics.md'), re.M))
    point(names == listed, 'docs/metrics.md lists every name, and no other',
          f'not listed: {names - listed}; not exported: {listed - names}')
    used = set()
    for expr in re.findall(r'"expr": *"((?:[^"\\]|\\.)*)"', documented('grafana.json')):
        used |= set(re.findall(r'daxmapd_\w+', expr))
    used = {re.sub(r'_(bucket|sum|count)$', '', n) if n not in names else n for n in used}
    json.loads(documented('grafana.json'))
    point(len(used) > 10 and used <= names, 'docs/grafana.json uses names that exist only',
          used - names)
    code, both, err = ctl('metrics', '--control-path', a.control, '--control-path', b.control)
    types = re.findall(r'^# TYPE (\S+)', both, re.M)
    point(code == 0 and len(types) == len(set(types)) and both.count('daxmapd_build_info{') == 2
          and a.socket in both and b.socket in both, 'two daemons share one text', err)
    code, out, err = ctl('metrics', '--control-path', a.control, '--control-path', a.control)
    point(code == 2 and not out and 'given before' in err, 'the same daemon twice is refused', err)
    check_promtool(both, body)
    check_output(a, work)


def check_promtool(*texts):
    run = subprocess.run([os.path.join(SOURCE, 'tests/watch/promtool')], capture_output=True,
                         text=True, timeout=240)
    if run.returncode:
        missing('promtool check metrics', f'promtool cannot be had: {run.stderr[-300:]}')
        return
    for i, text in enumerate(texts):
        check = subprocess.run([run.stdout.strip(), 'check', 'metrics'], input=text, text=True,
                               capture_output=True, timeout=60)
        point(check.returncode == 0 and not check.stderr and not check.stdout,
              f'promtool check metrics has nothing to say ({["two daemons", "one daemon"][i]})',
              check.stdout + check.stderr)


def check_output(a, work):
    out = os.path.join(work, 'textfile')
    os.mkdir(out)
    prom = os.path.join(out, 'daxmapd.prom')
    code, text, err = ctl('metrics', '--control-path', a.control, '--output', prom)
    point(code == 0 and not text and os.listdir(out) == ['daxmapd.prom']
          and oct(os.stat(prom).st_mode & 0o777) == '0o644', '--output writes one file', err)
    with open(prom, 'w') as f:
        f.write('what was there\n')
    code, text, err = ctl('metrics', '--control-path', a.control, '--control-path',
                          os.path.join(work, 'none'), '--output', prom)
    with open(prom) as f:
        point(code == 2 and f.read() == 'what was there\n' and os.listdir(out) == ['daxmapd.prom'],
              'and leaves it alone when a daemon is not there', err)


# --- set ---

def settings(a):
    code, out, _ = ctl('set', '--control-path', a.control, '--list', '--json')
    return {s['name']: s for s in json.loads(out)} if code == 0 else {}


def check_set(a):
    changes = {'dax-min-size': '1M', 'dax-max-share': '300', 'dax-guard': 'off',
               'dax-prefetch': 'on', 'dax-reclaim': 'clock', 'dax-high-water': '90',
               'dax-low-water': '50', 'dax-linger': '250', 'log-level': 'debug'}
    before = settings(a)
    point({n for n, s in before.items() if s['changeable']} == set(changes),
          'set --list names what can change', before)
    point(all(s['changeable'] or s['why'] for s in before.values()), 'and why the rest cannot')
    for name, value in changes.items():
        code, out, err = ctl('set', '--control-path', a.control, name, value)
        if code or out != f'{name}: {value} (was {before[name]["value"]})\n':
            point(False, f'set {name} {value}', out + err)
    after = settings(a)
    point({n: after[n]['value'] for n in changes} == changes, 'all of them change', after)
    log = a.text()
    point(all(f'--{n}: {v}, was {before[n]["value"]}' in log for n, v in changes.items()),
          'and each change is logged', log)
    for name, value in [('dax-min-size', '3Q'), ('dax-guard', 'maybe'), ('dax-linger', '-1'),
                        ('log-level', 'loud'), ('dax-high-water', '200')]:
        start = subprocess.run([DAXMAPD, f'--{name}', value], capture_output=True, text=True)
        code, out, err = ctl('set', '--control-path', a.control, '--', f'--{name}', value)
        said = start.stderr.partition('daxmapd: ')[2].strip()
        point(code == 2 and not out and len(said) > 20 and said in err,
              f'set {name} {value} gets the complaint of the command line', said + '\n' + err)
    code, out, err = ctl('set', '--control-path', a.control, 'cache-size', '1G')
    point(code == 2 and 'guest\'s device' in err, 'what cannot change is refused with the reason', err)
    code, out, err = ctl('set', '--control-path', a.control, 'dax-low-water', '95')
    point(code == 2 and 'must not be above --dax-high-water (90)' in err,
          'what does not fit together is refused', err)
    point(settings(a) == after, 'and nothing has changed by that')
    for name in changes:
        ctl('set', '--control-path', a.control, name, before[name]['value'])
    point(settings(a) == before, 'all of them change back')


# --- errors ---

def check_errors(a, work):
    stale, foreign, plain = (os.path.join(work, n) for n in ('stale', 'foreign', 'plain'))
    s = socket.socket(socket.AF_UNIX)
    s.bind(stale)
    s.listen(1)
    s.close()
    open(plain, 'w').close()
    for path, word in [(os.path.join(work, 'none'), 'No such file'), (plain, 'refused'),
                       (stale, 'a socket without a daemon'), ('', 'not a path')]:
        for args in [('stats',), ('top', '--once'), ('top',), ('metrics',), ('set', '--list')]:
            code, out, err = ctl(*args, '--control-path', path)
            point(code == 2 and not out and word in err and err.count('\n') == 1
                  and (not path or path in err),
                  f'{" ".join(args)} at "{os.path.basename(path)}": exit 2, and why', out + err)
    code, out, err = ctl('stats', '--control-path', a.control, '--control-path', stale)
    point(code == 2 and not out and stale in err, 'one of two is stale: nothing is printed', out)
    code, out, err = ctl('top', '--control-path', a.metrics, '--once')
    point(code == 2 and not out and err, 'the wrong socket of a daemon', out + err)
    code, out, err = ctl('top', '--control-path', a.control)
    point(code == 2 and 'no terminal' in err and '--once' in err, 'top without a terminal', err)
    for args, word in [(('top', '--batch', '0'), '--batch'), (('top', '--sort', 'x'), '--sort'),
                       (('top', '--interval', '0'), '--interval'), (('set', 'a'), 'NAME and VALUE'),
                       (('metrics', 'x'), '"x"')]:
        code, out, err = ctl(*args, '--control-path', a.control)
        point(code == 2 and not out and word in err, f'{" ".join(args)}: exit 2', err)


# --- text ---

def check_text(a, b):
    code, out, err = ctl('stats', '--control-path', a.control)
    numbers = [l for l in out.splitlines() if re.match(r'  \w+ +\d+$', l)]
    point(code == 0 and len(numbers) > 20 and len({len(l) for l in numbers}) == 1,
          'stats: numbers are aligned', out)
    point(re.search(r'  window_size +16777216 B \(16M\)$', out, re.M)
          and re.search(r'  map_ns +\d+ ns \(.+s\)$', out, re.M), 'stats: units', out)
    code, out, err = ctl('stats', '--control-path', a.control, '--control-path', b.control)
    point(out.startswith(f'== {a.control} ==\n') and f'\n== {b.control} ==\n' in out,
          'stats: two daemons', out)
    code, out, err = ctl('stats', '--json', '--control-path', a.control, '--control-path', b.control)
    point([json.loads(l)['control_path'] for l in out.splitlines()] == [a.control, b.control],
          'stats --json: a line each', out)
    code, out, err = ctl('top', '--control-path', a.control, '--control-path', b.control,
                         '--batch', '2')
    point(code == 0 and out.count('MAPPED') == 4 and out.count('rates now') == 2
          and '\033' not in out and 'daxmap-load/' in out, 'top --batch 2: two daemons, plain', out)


# --- a terminal ---

class Terminal:
    """A shell in tmux."""

    def __init__(self, work):
        self.words = ['tmux', '-u', '-f', '/dev/null', '-S', os.path.join(work, 'tmux')]
        self.tmux('new-session', '-d', '-x', '100', '-y', '24', 'bash --norc --noprofile -i')
        self.work = work

    def tmux(self, *args):
        return subprocess.run([*self.words, *args], capture_output=True, text=True, check=True,
                              timeout=60).stdout

    def screen(self):
        return self.tmux('capture-pane', '-p').splitlines()

    def shows(self, *words):
        text = '\n'.join(self.screen())
        return all(w in text for w in words)

    def type(self, *keys):
        self.tmux('send-keys', *keys)

    def flag(self, name):
        return self.tmux('display-message', '-p', '#{' + name + '}').strip()

    def restored(self):
        return (self.flag('alternate_on'), self.flag('cursor_flag'), self.flag('wrap_flag')) == \
            ('0', '1', '1')

    def start(self, *args):
        """Starts a program between two looks at the terminal's settings."""
        for name in ('before', 'after', 'pid'):
            if os.path.exists(os.path.join(self.work, name)):
                os.unlink(os.path.join(self.work, name))
        with open(os.path.join(self.work, 'go'), 'w') as f:
            f.write(f'stty -g >{self.work}/before\n'
                    f'bash -c \'echo $$ >{self.work}/pid; exec "$0" "$@"\' {" ".join(args)}\n'
                    f'echo $? >{self.work}/status; stty -g >{self.work}/after.new\n'
                    f'mv {self.work}/after.new {self.work}/after\n')
        self.type(f'. {self.work}/go', 'Enter')

    def read(self, name):
        try:
            with open(os.path.join(self.work, name)) as f:
                return f.read().strip()
        except FileNotFoundError:
            return ''

    def ended(self, name, status):
        until(lambda: self.read('after') != '', f'{name}: it ends', self.screen)
        point(self.read('after') == self.read('before') and self.restored()
              and self.read('status') == status, f'{name}: the terminal is as it was',
              f'status {self.read("status")}\n' + '\n'.join(self.screen()))


def check_top(a, b, work):
    t = Terminal(work)
    try:
        top_on(t, a, b)
    finally:
        t.tmux('kill-server')


def top_on(t, a, b):
    show = lambda: '\n'.join(t.screen())
    t.start(CTL, 'top', '--control-path', a.control)
    until(lambda: t.shows('window   16M', 'THRASH/s', 'guest runs', 'rates now', 'daxmap-load/data',
                          's sort (mapped)'), 'top: the table of a daemon at work', show)
    point(len(t.screen()) == 24 and t.screen()[23].startswith('q quit'), 'top: fills the screen',
          show())
    for line in t.screen():
        print('#', line)
    for key, word in [('s', 's sort (setups)'), ('s', 's sort (removed)'), ('S', 's sort (setups)'),
                      ('f', 'PAUSED'), ('x', 'PAUSED')]:
        t.type(key)
        until(lambda: t.shows(word), f'top: {key} makes it show "{word}"', show)
    t.type('Space')
    until(lambda: not t.shows('PAUSED'), 'top: space goes on', show)
    for size in [('60', '10'), ('20', '3'), ('140', '40'), ('100', '24')]:
        t.tmux('resize-window', '-x', size[0], '-y', size[1])
        until(lambda: len(t.screen()) == int(size[1]) and t.screen()[-1].startswith('q quit')
              and 'control' in t.screen()[0][:int(size[0])] + 'control' * (size[0] == '20'),
              f'top: fits {size[0]} by {size[1]}', show)
    t.type('q')
    t.ended('top: q', '0')
    t.start(CTL, 'top', '--control-path', a.control)
    until(lambda: t.shows('q quit'), 'top: runs, for ^C', show)
    t.type('C-c')  # after which a shell leaves the file that it reads
    until(t.restored, 'top: ^C ends it', show)
    t.type(f'stty -g >{t.work}/after.new; mv {t.work}/after.new {t.work}/after', 'Enter')
    until(lambda: t.read('after') == t.read('before'), 'top: ^C: the settings are as they were', show)
    for name, number in [('TERM', 15), ('HUP', 1), ('SEGV', 11)]:
        t.start(CTL, 'top', '--control-path', a.control)
        until(lambda: t.shows('q quit'), f'top: runs, for SIG{name}', show)
        os.kill(int(t.read('pid')), number)
        t.ended(f'top: SIG{name}', str(128 + number) if 'ASAN_OPTIONS' not in os.environ
                or name != 'SEGV' else t.read('status'))
    t.start(CTL, 'top', '--control-path', a.control, '--control-path', b.control)
    until(lambda: t.shows(a.control, b.control, 'q quit'), 'top: two daemons', show)
    t.type('C-z')
    until(t.restored, 'top: stopped, the terminal is the shell\'s', show)
    t.type('fg', 'Enter')
    until(lambda: t.flag('alternate_on') == '1' and t.shows('q quit'), 'top: goes on', show)
    b.process.terminate()
    b.process.wait()
    until(lambda: t.shows(a.control, 'cannot reach a daemon'), 'top: one of two ends', show)
    t.type('q')
    until(lambda: t.restored(), 'top: ends after that', show)


def main():
    work = tempfile.mkdtemp(prefix='watch')
    load, daemons = None, []
    try:
        daemons.append(Daemon(os.path.join(work, 'a'), '--cache-size', '16M', '--tag', 'a "quoted"'))
        daemons.append(Daemon(os.path.join(work, 'b'), '--cache-size', '64M'))
        a, b = daemons
        load = subprocess.Popen([LOAD, '--socket-path', a.socket, '--rw', 'randread', '--engine',
                                 'dax', '--window', '16M', '--size', '24M', '--files', '3',
                                 '--poll-us', '0', '--runtime', '600'],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run([LOAD, '--socket-path', b.socket, '--rw', 'randread', '--ops', '2000',
                        '--size', '4M'], stdout=subprocess.DEVNULL, timeout=PATIENCE)
        out = ctl('top', '--once', '--control-path', b.control)[1]
        point(re.search(r'reads [1-9][\d.k]*/s', out), 'requests show as such', out)
        until(lambda: 'daxmap-load/' in ctl('top', '--once', '--control-path', a.control)[1],
              'the load maps files')
        check_text(a, b)
        check_metrics(a, b, work)
        check_set(a)
        check_errors(a, work)
        if shutil.which('tmux'):
            check_top(a, b, work)
        else:
            missing('top in a terminal', 'tmux is not installed')
        load.kill()
        point(a.stop() == 0 and not os.path.exists(a.metrics), 'the daemon ends, its sockets go',
              a.text())
    finally:
        for p in [load, *[d.process for d in daemons]]:
            if p and p.poll() is None:
                p.kill()
                p.wait()
        shutil.rmtree(work)
    print(f'1..{points[0]}')
    sys.exit(1 if points[1] else 0)


main()
