import sys
from IPython import get_ipython
from cellgate_kernel.changes import Look
found = Look({}).compare(get_ipython().user_ns)
for v in found['made']:
    size = [f'{unit} {v[unit]}' for unit in ('length', 'bytes') if unit in v]
    sys.stdout.write(', '.join([v['name'] + ': ' + v['type'], *size]) + '\n')
if found['left_out']:
    sys.stdout.write(f'and {found["left_out"]} more\n')
