/*
 * Doors: ways through a sandbox's border that its settings open.
 *
 *      allowUnixSockets        programs inside connect to unix sockets of the host, those that are
 *                              listed
 *      allowLocalBinding       where they listen, at a TCP port of the sandbox's loopback, the
 *                              host's same port leads
 *      cellgate.ports          single ports, in either direction
 *
 *      init            doors_inside.c: answers connect() and listen() (notify.h); makes sockets of
 *      the network namespace for the other side cellgate-egress --doors, one for each sandbox that
 *      has any: egress/doors.c: knows what is listed, finds the host's sockets, listens on the
 *      host, carries bytes keeper, supervisor: doors.c: starts it, and hears what it says
 *
 * Between init and the other side: datagrams over a SOCK_SEQPACKET pair. Init trusts what comes
 * from outside; the other side takes paths and ports from init as what they are, a sandbox's
 * wishes.
 */
#ifndef CG_SANDBOX_NOTIFY_DOORS_H
#define CG_SANDBOX_NOTIFY_DOORS_H

#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cg_door_type {
        CG_DOOR_WANT_SOCKET = 1, /* to init: @value is a family */
        CG_DOOR_SOCKET,          /* from init: a descriptor, or @value is an errno */
        CG_DOOR_WANT_UNIX,       /* from init: @path, absolute */
        /*
         * to init: the socket's place as a descriptor (O_PATH), or @value: an errno; EPERM: not
         * listed
         */
        CG_DOOR_UNIX_IS,
        CG_DOOR_LISTENS, /* from init: @value is a TCP port */
};

#define CG_DOOR_PATH_MAX 4096

struct cg_door_msg {
        uint32_t type, id;
        int32_t value;
        char path[CG_DOOR_PATH_MAX];
};
/* Without a path it is short, so that many fit into a socket at once. */
#define CG_DOOR_SHORT offsetof(struct cg_door_msg, path)

/* ---- init */

/* Calls that wait: for the other side's word, for a connection, for room in a server's queue. */
#define CG_DOORS_WAITING 64
#define CG_DOORS_FDS     (1 + CG_DOORS_WAITING)

struct cg_notify;

struct cg_door_call {
        enum { CG_CALL_FREE, CG_CALL_ASKED, CG_CALL_CONNECTING, CG_CALL_FULL } state;
        struct seccomp_notif call;
        int sock;      /* the caller's own */
        int target;    /* O_PATH of a unix socket; -1 */
        bool blocking; /* the caller's socket was, and is to be again */
        uint32_t id;
        int missing; /* why nothing is there in the caller's view: an errno, or 0 */
        int64_t deadline_ms;
        char path[256]; /* its beginning, for the record */
};

struct cg_doors {
        struct cg_notify *notify;
        int sock;          /* -1: none */
        unsigned int open; /* CG_DOOR_* of sandbox.h */
        uint32_t next_id;
        struct cg_door_call calls[CG_DOORS_WAITING];
};

/* Borrows all. Puts itself into @notify. */
void cg_doors_init(struct cg_doors *d, struct cg_notify *notify, int sock, unsigned int open);
/* Fills in what to wait for; how many. */
size_t cg_doors_poll(const struct cg_doors *d, struct pollfd fds[CG_DOORS_FDS]);
int cg_doors_timeout(const struct cg_doors *d);
void cg_doors_work(struct cg_doors *d, const struct pollfd fds[CG_DOORS_FDS]);

/* For notify.c's table. */
void cg_doors_connect(struct cg_notify *n, const struct seccomp_notif *call);
void cg_doors_listen(struct cg_notify *n, const struct seccomp_notif *call);

/* unix_diag.c: is the unix socket at @dev, @ino one of this network namespace's that listens? */
bool cg_unix_listens_here(dev_t dev, ino_t ino);

#endif
