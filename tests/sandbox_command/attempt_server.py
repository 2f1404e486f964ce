"""Answers on TCP, UDP and, outside of a sandbox, UNIX sockets: attempt_server.py FOLDER. FOLDER/ports has the ports, and
FOLDER/log a line for each client."""

import os
import select
import socket
import sys

HTTP = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nhi\n"

folder = sys.argv[1]
log = open(f"{folder}/log", "a", buffering=1)  # noqa: SIM115
tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
listeners = [tcp]
for address in (f"{folder}/socket", "\0cellgate-attempt"):
    try:
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(address)
    except OSError:
        continue
    unix.listen()
    listeners.append(unix)
    if address[0] != "\0":
        os.chmod(address, 0o777)
with open(f"{folder}/ports.new", "w") as ports:
    print(tcp.getsockname()[1], udp.getsockname()[1], file=ports)
os.rename(f"{folder}/ports.new", f"{folder}/ports")

clients: list[socket.socket] = []
while True:
    for sock in select.select([*listeners, udp, *clients], [], [])[0]:
        if sock in listeners:
            print("connection", file=log)
            clients.append(sock.accept()[0])
        elif sock is udp:
            data, address = udp.recvfrom(4096)
            print("datagram", file=log)
            # A question of DNS: there is no such name.
            udp.sendto(data[:2] + b"\x81\x83" + data[4:] if len(data) > 12 else b"hi\n", address)
        else:
            try:
                if sock.recv(4096):
                    sock.sendall(HTTP)
            except OSError:
                pass
            sock.close()
            clients.remove(sock)
