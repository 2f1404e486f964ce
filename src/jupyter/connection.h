/*
 * The connection file: addresses of the sockets, and the signing key. Written by the program that
 * starts the kernel, or by us where it is missing; ports of 0 are filled in. Runs in `cellgate
 * jupyter`.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum cg_jchannel { CG_JSHELL, CG_JIOPUB, CG_JSTDIN, CG_JCONTROL, CG_JHB, CG_JCHANNELS };

struct cg_jconn {
        char *path;
        /* all members, unknown ones included */
        json_t *file;
        const char *ip, *key;                    /* in it */
        const char *curve_public, *curve_secret; /* NULL: no encryption */
        bool ipc;
        bool exposed; /* other users can read or change the file, and so sign messages */
        bool made;    /* the file is ours: removed at the end */
        bool changed; /* ports were filled in */
        int ports[CG_JCHANNELS];
        bool bound[CG_JCHANNELS];
};

/*
 * Reads @path, or prepares a new file there: tcp, this machine only, free ports, a random key.
 * CG_E_PARSE for what is no connection file, and for one without a "key"; CG_E_INVAL for an empty
 * key where others than this machine's users can connect; CG_E_UNSUPPORTED for a transport or
 * signature scheme that is not ours. Free with cg_jconn_fini() in any case.
 */
int cg_jconn_load(struct cg_jconn *c, const char *path, struct cg_err *err);
/*
 * Removes the paths of ipc sockets, which libzmq leaves behind. Call while the sockets are open:
 * once they are closed, a restarted kernel may have created its own there.
 */
void cg_jconn_release(struct cg_jconn *c);
/* Removes the file when it is ours. */
void cg_jconn_fini(struct cg_jconn *c);

/*
 * Sets up encryption and binds. While the address is in use, by a kernel that is just ending, it is
 * tried again until @end_ms. With ipc no other thread may start a process meanwhile, since the
 * umask is changed for a moment.
 */
int cg_jconn_bind(struct cg_jconn *c, enum cg_jchannel channel, void *sock, int64_t end_ms,
                  struct cg_err *err);

/* Writes the file with mode 0600 if something changed; readers see the old or the new one. */
int cg_jconn_save(struct cg_jconn *c, struct cg_err *err);

/* "shell_port", ... Static. */
const char *cg_jchannel_key(enum cg_jchannel channel);
