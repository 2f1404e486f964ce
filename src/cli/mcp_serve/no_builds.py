# pip without programs: --only-binary does not hold for URLs, of a call or in a wheel.
import runpy, sys
def hook(event, args):
    if event in ('subprocess.Popen', 'os.exec', 'os.fork', 'os.forkpty', 'os.posix_spawn', 'os.system'):
        raise PermissionError('nothing is built, since the settings of pip have a password')
sys.addaudithook(hook)
runpy.run_module('pip', run_name='__main__', alter_sys=True)
