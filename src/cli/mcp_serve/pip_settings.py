# Prints what pip in the sandbox needs of pip's settings, which are in files of the user: variables, the hosts of all
# URLs, and whether one of these has a password. The arguments are requirements.
import ast, json, subprocess, sys
from urllib.parse import urlsplit
names = {'index-url', 'extra-index-url', 'no-index', 'find-links', 'trusted-host', 'cert', 'timeout',
         'default-timeout', 'retries', 'pre', 'prefer-binary', 'only-binary'}
command = [sys.executable, '-I', '-m', 'pip', 'config', 'list']
env = {}
for line in subprocess.run(command, stdout=-1, text=True, check=True).stdout.splitlines():
    key, _, value = line.partition('=')
    section, _, name = key.rpartition('.')
    if section in ('global', 'install', 'wheel', ':env:') and name in names:
        env['PIP_' + name.upper().replace('-', '_')] = ' '.join(ast.literal_eval(value).split())
words = ' '.join([*env.values(), *sys.argv[1:]]).split()
urls = [urlsplit(w[w.rfind('@', 0, w.find('://')) + 1:]) for w in words if '://' in w]
default = ['pypi.org', 'files.pythonhosted.org'] if {'PIP_INDEX_URL', 'PIP_NO_INDEX'}.isdisjoint(env) else []
print(json.dumps({'env': [f'{k}={v}' for k, v in env.items()],
                  'hosts': sorted({u.hostname for u in urls if u.hostname} | set(default)),
                  'password': any(u.username for u in urls)}))
