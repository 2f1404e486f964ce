# Runs main() of a module. Reports a missing module: only the interpreter knows its search path.
import importlib, sys
folder, module, command = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
if folder:
    sys.path.insert(0, folder)
try:
    importlib.import_module(module).main()
except ModuleNotFoundError as e:
    sys.exit(f'cellgate {command} needs the Python module {e.name}, which {sys.executable} does not have. To install it: pip install "cellgate[surfaces]" in an environment, whose program bin/cellgate then has it; or name an interpreter that has it in CELLGATE_PYTHON')
