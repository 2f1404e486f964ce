/*
 * Denials of the sandbox, as JSON objects and as sentences: docs/denials.md has the members. Runs
 * in the supervisor and in the keeper. Paths, hosts and names of processes come from inside.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "sandbox/sandbox.h"

/* Next message of cg_sandbox_child.denials_fd. 0; CG_TIMEOUT: none now; CG_CLOSED: no more. */
int cg_denial_recv(int fd, struct cg_sandbox_denial *ret);

/*
 * A denied system call. @command: in a command's sandbox, for which other settings exist than for a
 * kernel; @by_settings: a settings file is in force. NULL: none, only d->lost.
 */
json_t *cg_denial_of_call(const struct cg_sandbox_denial *d, bool command, bool by_settings);

/*
 * Completes a denial, whatever it is about: "time", and "line" ("deny OPERATION WHAT (WHY)", which
 * ignoreViolations are compared with) where it has none.
 */
void cg_denial_stamp(json_t *o);

/*
 * Appends it as one sentence for people, without line end, what came from inside rendered: what,
 * why, and how to allow it.
 */
void cg_denial_sentence(const json_t *o, struct cg_buf *b);
/*
 * Appends a text from inside, at most 2 KiB. Line ends are escaped as well: it must not begin a
 * line of its own.
 */
void cg_denial_add_text(struct cg_buf *b, const char *text);

/*
 * Appends the other side of a connection: "example.org:443 (https)", "127.0.0.1:80 (http, a
 * loopback address)"; rendered.
 */
void cg_denial_connection(const json_t *o, struct cg_buf *b);
