# Replaces modules by those of a foreign folder that nobody writes to. Packages are folders: a link stays behind, since as
# a scope it would lead the next installation out of the session's folder.
import os, shutil, sys
source, target = sys.argv[1:]
if os.path.islink(source) or not os.path.isdir(source):
    sys.exit('npm has made no modules')
def entries(folder, scope=''):
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name[0] == '.' or os.path.islink(path) or not os.path.isdir(path):
            continue
        if name[0] == '@' and not scope:
            yield from entries(path, name)
        else:
            yield os.path.join(scope, name)
for name in entries(source):
    path = os.path.join(target, name)
    if os.path.lexists(path):
        shutil.rmtree(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.move(os.path.join(source, name), path)
    print('Installed ' + name)
