# Removes the files that packages have recorded. Their lists are foreign: only what is below the folder is removed, where
# no cell can change anything meanwhile. pip --target has put what is recorded above it (../../bin/x) into it.
import os, re, shutil, sys
from importlib.metadata import distributions
folder, names = os.path.realpath(sys.argv[1]), sys.argv[2].split()
def plain(name):
    return re.sub('[-_.]+', '-', str(name)).lower()
found = {plain(d.metadata['Name']): d for d in distributions(path=[folder])}
missing = [n for n in names if plain(n) not in found]
if missing or not names:
    sys.exit('not installed in this session: ' + ' '.join(missing))
def inside(path):
    parent = os.path.realpath(os.path.dirname(path))
    return parent == folder or parent.startswith(folder + '/')
for d in [found[plain(n)] for n in names]:
    for file in d.files or []:
        path = os.path.normpath(os.path.join(folder, re.sub('^([.][.]/)+', '', str(file))))
        if inside(path) and (os.path.isfile(path) or os.path.islink(path)):
            os.unlink(path)
    if inside(str(d._path)):
        shutil.rmtree(d._path, ignore_errors=True)
for parent, _, _ in os.walk(folder, topdown=False):
    if parent != folder and not os.listdir(parent):
        os.rmdir(parent)
print('Removed ' + ' '.join(names))
