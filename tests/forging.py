"""Messages forged onto the kernel's own connections: Python that runs in a kernel."""

from wire_table import VERSION

LIBRARY = r'''
import ctypes, errno, os, socket, struct, sys

def attempt(f, *args):
    try:
        return f(*args)
    except OSError as e:
        return errno.errorcode[e.errno]

def connections():
    """The kernel's own connected AF_UNIX sockets (kernel wire, tool wire, function calls), as duplicates."""
    found = []
    for name in os.listdir('/proc/self/fd'):
        try:
            s = socket.socket(fileno=os.dup(int(name)))
            if s.family == socket.AF_UNIX and s.type == socket.SOCK_STREAM and not s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                s.getpeername()
                found.append(s)
            else:
                s.close()
        except OSError:
            pass
    return found

def zmtp(*frames):
    out = b''
    for i, f in enumerate(frames):
        out += bytes([(1 if i + 1 < len(frames) else 0) | 2]) + struct.pack('>Q', len(f)) + f
    return out

def message(wire, type, id=0, body=b'', raw=None, session=0, version=VERSION):
    head = b'CG' + bytes([version, wire]) + struct.pack('<HHQQ', type, 0, session, id)
    return zmtp(head, body, *([raw] if raw is not None else []))

def forge(data, wire=''):
    """Writes it onto the kernel wire ('k'), the tool wire ('t'), that of function calls ('f'), or all; returns the number of connections."""
    conns = [c for c in connections() if os.path.basename(c.getsockname()).startswith(wire)]
    for c in conns:
        c.setblocking(True)
        attempt(c.sendall, data)
    return len(conns)
'''.replace("VERSION", str(VERSION))
