import json, sys
from importlib import import_module
from IPython.display import display
arguments = json.loads(text)
arguments.pop('session_id', None)
try:
    if search:
        from cellgate_kernel.languages import find_tool
        result = find_tool(*names).run({search: arguments['query']})
    else:
        result = import_module('.'.join(['mcptools', *names])).run(arguments)
except Exception as e:  # the agent has no code of its own in it
    e._render_traceback_ = lambda line=f'{type(e).__name__}: {e}': [line]
    raise
result, images = str(result), getattr(result, 'images', ())
sys.stdout.write(result[:50000] if search else result)
for image in images:
    display(image)
