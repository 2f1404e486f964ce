/*
 * The egress proxy, for programs that make sandboxes: a plan with ports (cg_sandbox_add_port()),
 * whose listening sockets cg_sandbox_spawn() returns; then cg_egress_start(), cg_egress_open() with
 * them, and events from cg_egress_next().
 *
 * Only what runs inside can connect to such a port, so no token is needed; each takes HTTP, CONNECT
 * and SOCKS 5. The process may be started at the first connection, which waits in the listener's
 * queue. Messages: docs/egress.md.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

struct cg_egress;
struct cg_settings;

/*
 * The policy of the proxy by @settings (returns). @env: the environment with the proxies of the
 * caller, which are used where the settings name none. CG_E_INVAL, CG_E_UNSUPPORTED.
 */
int cg_egress_policy(const struct cg_settings *settings, char *const *env, json_t **ret, struct cg_err *err);

/*
 * A fake is the value that replaces a secret inside; all begin with CG_EGRESS_FAKE. Secrets are
 * handed over in a memfd, one after the other: this head, the fake, the real value. Only the
 * injector of the proxy reads it, and it reads no other file.
 */
#define CG_EGRESS_FAKE          "fake_value_"
#define CG_EGRESS_SECRET_MAX    8192u /* a fake; a request's head has room for one */
#define CG_EGRESS_SECRETS_MAX   1024
#define CG_EGRESS_SECRETS_BYTES (1u << 20)

struct cg_egress_secret {
        uint32_t cred;               /* the place of its credential in the policy's "inject" */
        uint32_t fake_len, real_len; /* the real value is never the longer one */
};

/*
 * Starts @program (cellgate-egress). It ends with this object, and with this process. Its log goes
 * to this one's descriptor 2.
 */
int cg_egress_start(const char *program, struct cg_egress **ret, struct cg_err *err);
/* Ends it and waits for its end. */
struct cg_egress *cg_egress_free(struct cg_egress *e);

/*
 * Opens sandbox @id (not used before) with its listeners, which stay the caller's: close them, so
 * that a dead proxy is a closed port. @policy (borrows): see cg_policy_new().
 * @secrets (the caller's still): see above; -1: none. An "opened" or "error" event follows.
 */
int cg_egress_open(struct cg_egress *e, int64_t id, json_t *policy, int secrets, const int *listeners,
                   size_t n, struct cg_err *err);
/* Another policy from the next request on; answers given so far are forgotten. */
int cg_egress_change(struct cg_egress *e, int64_t id, json_t *policy, struct cg_err *err);
/* Ends the sandbox's connections. */
int cg_egress_close(struct cg_egress *e, int64_t id, struct cg_err *err);

enum cg_egress_answer { CG_EGRESS_ONCE, CG_EGRESS_SESSION, CG_EGRESS_NO, CG_EGRESS_NEVER };
/* "once", "session", "no" or "never"; anything else is no. */
enum cg_egress_answer cg_egress_answer_of(const char *decision);
/*
 * Answers an "egress_request" event. @reason (may be NULL) is reported to the program inside. An
 * answer that is too late is no error.
 */
int cg_egress_answer(struct cg_egress *e, int64_t request, enum cg_egress_answer answer, const char *reason,
                     struct cg_err *err);

/* The proxy's process, a child of this one. */
pid_t cg_egress_pid(const struct cg_egress *e);
/* Readable when there may be events. */
int cg_egress_fd(const struct cg_egress *e);
/*
 * The next event (returns). CG_TIMEOUT: none now; CG_CLOSED: the proxy has ended, nothing inside
 * reaches the network any more.
 */
int cg_egress_next(struct cg_egress *e, json_t **ret, struct cg_err *err);
