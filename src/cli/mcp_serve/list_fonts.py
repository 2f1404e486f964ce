# Prints the name of matplotlib's list of fonts, then the list, which the import makes.
import glob, os
import matplotlib.font_manager
for path in glob.glob(os.path.join(matplotlib.get_cachedir(), 'fontlist-*.json'))[:1]:
    print(os.path.basename(path))
    print(open(path).read())
