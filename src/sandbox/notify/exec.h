/*
 * Programs that the main process and its descendants start, where the plan restricts that
 * (cg_sandbox_set_exec()): the filter hands execve() and execveat() to init.
 */
#ifndef CG_SANDBOX_NOTIFY_EXEC_H
#define CG_SANDBOX_NOTIFY_EXEC_H

struct cg_notify;
struct seccomp_notif;

/* Answers the call: refuses it and reports the program. One that does not exist is not reported. */
void cg_exec_call(struct cg_notify *n, const struct seccomp_notif *call);

#endif
