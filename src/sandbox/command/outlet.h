/*
 * A command's way out: listens at the proxy's ports for it, starts the egress proxy when something
 * first connects, and hands on what that denies. Part of the keeper.
 */
#ifndef CG_SANDBOX_COMMAND_OUTLET_H
#define CG_SANDBOX_COMMAND_OUTLET_H

#include <poll.h>
#include "sandbox/settings/settings.h"
#include "sandbox/command/violations.h"

#define CG_OUTLET_FDS 3

struct cg_ask;
struct cg_egress;

struct cg_outlet {
        int ports[2]; /* ours until the proxy runs; then -1 */
        struct cg_egress *egress;
        json_t *policy;
        /* what the proxy puts back (cg_masks_secrets()); -1: nothing */
        int secrets;
        struct cg_violations *violations; /* what is denied goes here; borrowed */
        struct cg_ask *ask;               /* where a person is asked; NULL: nobody is. Borrowed */
};

/*
 * The proxy's policy by @s (returns), and by the caller's own proxies where the settings name none.
 * CG_E_INVAL, CG_E_UNSUPPORTED.
 */
int cg_outlet_policy(const struct cg_settings *s, char *const *env, json_t **ret, struct cg_err *err);

/* @ports: two listening sockets; @policy; @secrets: takes all. */
void cg_outlet_init(struct cg_outlet *o, const int ports[2], json_t *policy, int secrets,
                    struct cg_violations *violations);
void cg_outlet_fini(struct cg_outlet *o);

/* Descriptors to wait for; -1 where there is none. */
void cg_outlet_poll(const struct cg_outlet *o, struct pollfd fds[CG_OUTLET_FDS]);
/* After poll(2). Trouble is said on standard error: then nothing inside reaches the network. */
void cg_outlet_work(struct cg_outlet *o, const struct pollfd fds[CG_OUTLET_FDS]);
/* The person's answers; @give_up: there will be none, all questions are refused. */
void cg_outlet_answer(struct cg_outlet *o, bool give_up);
/* What the proxy has said so far. */
void cg_outlet_hear(struct cg_outlet *o);
/* Other rules from now on; @policy (takes). */
void cg_outlet_change(struct cg_outlet *o, json_t *policy);

#endif
