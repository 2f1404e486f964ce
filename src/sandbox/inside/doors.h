/*
 * Doors: connections across a sandbox's border that its settings allow.
 *
 *      allowUnixSockets        programs inside connect to the listed unix sockets of the host
 *      allowLocalBinding       TCP ports of the sandbox's loopback that programs inside listen at
 *                              can be reached at the same ports of the host
 *      cellgate.ports          single ports, in either direction
 *
 *      init                    doors_inside.c: replies to connect() and listen() (notify.h), makes
 *                              sockets of the sandbox's network namespace for cellgate-egress
 *      cellgate-egress --doors egress/doors.c, one process for each sandbox with doors: has the
 *                              list, finds the host's sockets, listens on the host, relays bytes
 *      monitor, supervisor     egress/doors_client.c: starts cellgate-egress and reads its messages
 *
 * Init and cellgate-egress exchange datagrams over a SOCK_SEQPACKET pair. Init trusts what it
 * receives; cellgate-egress treats paths and ports from init as untrusted requests.
 */
#pragma once

#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cg_door_type {
        CG_DOOR_WANT_SOCKET = 1, /* to init: @value is a family */
        CG_DOOR_SOCKET,          /* from init: a descriptor, or an errno in @value */
        CG_DOOR_WANT_UNIX,       /* from init: @path, absolute */
        /* to init: the socket's file (O_PATH), or an errno in @value; EPERM: not listed */
        CG_DOOR_UNIX_IS,
        CG_DOOR_LISTENS, /* from init: @value is a TCP port */
};

#define CG_DOOR_PATH_MAX 4096

struct cg_door_msg {
        uint32_t type, id;
        int32_t value;
        char path[CG_DOOR_PATH_MAX];
};
/* Size of a message without a path, so that many fit into a socket's buffer. */
#define CG_DOOR_SHORT offsetof(struct cg_door_msg, path)

/* ---- init */

/* Calls that wait: for cellgate-egress, for a connection, or for room in a server's queue. */
#define CG_DOORS_WAITING 64
#define CG_DOORS_FDS     (1 + CG_DOORS_WAITING)

struct cg_notify;

struct cg_door_call {
        struct cg_notify *notify; /* that received it */
        enum { CG_CALL_FREE, CG_CALL_ASKED, CG_CALL_CONNECTING, CG_CALL_FULL } state;
        struct seccomp_notif call;
        int sock;      /* the caller's own */
        int target;    /* O_PATH of a unix socket; -1 */
        bool blocking; /* the caller's socket was blocking, and is to be again */
        uint32_t id;
        int missing; /* errno of opening the path in the caller's view, or 0 */
        int64_t deadline_ms;
        char path[256]; /* its beginning, for the report */
};

struct cg_doors {
        int sock;          /* -1: none */
        unsigned int open; /* CG_DOOR_* of sandbox.h */
        uint32_t next_id;
        struct cg_door_call calls[CG_DOORS_WAITING];
};

/* Borrows @sock. */
void cg_doors_init(struct cg_doors *d, int sock, unsigned int open);
/* Fills in the entries for poll(2). Return: their number. */
size_t cg_doors_poll(const struct cg_doors *d, struct pollfd fds[CG_DOORS_FDS]);
int cg_doors_timeout(const struct cg_doors *d);
void cg_doors_work(struct cg_doors *d, const struct pollfd fds[CG_DOORS_FDS]);

/* For notify.c's table. */
void cg_doors_connect(struct cg_notify *n, const struct seccomp_notif *call);
void cg_doors_listen(struct cg_notify *n, const struct seccomp_notif *call);

/* unix_diag.c: the unix socket at @dev, @ino belongs to this network namespace and listens. */
bool cg_unix_listens_here(dev_t dev, ino_t ino);
