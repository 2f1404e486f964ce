/*
 * init's replies to system calls that wait for one (notify.h), and the reports of those that were
 * denied. Every handler replies exactly once.
 */
#pragma once

#include <linux/seccomp.h>

struct cg_notify;

/* The call returns @r; negative: it fails with the errno -@r. Not reported. */
void cg_reply_result(const struct cg_notify *n, const struct seccomp_notif *call, int r);
/* The kernel executes the call as if there were no filter. */
void cg_reply_continue(const struct cg_notify *n, const struct seccomp_notif *call);
/* Reports the call as denied, with @path where it was about one, and fails it with @error. */
void cg_reply_deny(struct cg_notify *n, const struct seccomp_notif *call, int error, const char *path);

/* A file or address that a rule denies. */
struct cg_path_denial {
        const char *path;
        int access, rule;    /* enum cg_access, cg_access_rule */
        const char *setting; /* the setting that the rule comes from, or NULL */
};
/* Reports @p as denied without a reply. */
void cg_reply_report(struct cg_notify *n, const struct seccomp_notif *call, const struct cg_path_denial *p);
/* The main process has ended: reports how many denials were left out since the last report. */
void cg_reply_report_lost(struct cg_notify *n);
